"""The public function, with torch.addmm's signature. Importing this module loads _C, which registers torch.ops.tc.*."""

import warnings

import torch

from torch_addmm_tc import _C

kernels = _C.kernels

TC = torch.ops.tc
ADDMM, MM = TC.addmm.default, TC.mm.default  # looked up once
ONE = 1  # the scalars' default, told by identity: complex numbers, tensors and symbols may equal it


@torch.compiler.assume_constant_result  # torch.compile guards on the setting itself and recompiles when it changes
def tf32_allowed() -> bool:
    """Whether the user lets fp32 products on CUDA use TF32 (torch.backends.cuda.matmul or set_float32_matmul_precision)."""
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


def addmm(input, mat1, mat2, *, beta=ONE, alpha=ONE, activation=None, out_dtype=None, out=None):
    """activation(beta * input + alpha * (mat1 @ mat2)), computed in fp32 and rounded once.

    Args:
        input: broadcasts to (M, N); dtype of the operands, or of the result. Not read when beta is 0.
        mat1: (M, K), float16, bfloat16 or float32, any strides.
        mat2: (K, N), mat1's dtype and device, any strides.
        beta, alpha: finite or not; they act in fp32.
        activation: "relu", "gelu", "gelu_tanh" (torch's approximate="tanh"), "silu" or None.
        out_dtype: the result's dtype, mat1's by default; torch.float32 keeps what the fp32 accumulator holds.
        out: written in place, any strides, and its dtype is the result's. It may be `input` itself, and may share no
            memory with mat1 or mat2. Resized if its shape differs; then it may share no storage with any argument.

    Returns:
        A row-major (M, N) tensor, or `out`.

    Raises:
        RuntimeError: in torch.addmm's words for shapes, dtypes and devices that do not match; also for unsupported
            dtypes and activations, and, the op being forward-only, for an argument that requires grad while grad mode is on.
    """
    tf32 = mat1.dtype == torch.float32 and tf32_allowed()
    if out is not None:
        if out_dtype not in (None, out.dtype):
            raise RuntimeError(f"Expected out tensor to have dtype {out_dtype}, but got {out.dtype} instead")
        shape, elements = out.shape, out.numel()
        scalars = {"beta": beta, "alpha": alpha, "allow_tf32": tf32}
        if activation is None:
            TC.addmm_out(input, mat1, mat2, **scalars, out=out)
        else:
            TC.addmm_by_kernel_out(input, mat1, mat2, **scalars, activation=activation, kernel="", out=out)
        if elements > 0 and out.shape != shape:
            warnings.warn(
                f"An output with one or more elements was resized since it had shape {list(shape)}, which does not "
                f"match the required output shape {list(out.shape)}.",
                stacklevel=2,
            )
        return out
    if activation is not None:
        scalars = {"activation": activation, "beta": beta, "alpha": alpha, "allow_tf32": tf32}
        if out_dtype is None:
            return TC.addmm_activation.default(input, mat1, mat2, **scalars)
        return TC.addmm_activation.dtype(input, mat1, mat2, out_dtype, **scalars)
    if out_dtype is None:
        if beta is ONE and alpha is ONE and not tf32:  # the keywords cost the host a microsecond
            return ADDMM(input, mat1, mat2)
        return ADDMM(input, mat1, mat2, beta=beta, alpha=alpha, allow_tf32=tf32)
    return TC.addmm.dtype(input, mat1, mat2, out_dtype, beta=beta, alpha=alpha, allow_tf32=tf32)


def mm(mat1, mat2, *, activation=None, out_dtype=None):
    """activation(mat1 @ mat2): addmm without an input to add. Shapes, dtypes, result and errors are addmm's."""
    tf32 = mat1.dtype == torch.float32 and tf32_allowed()
    if activation is not None:
        if out_dtype is None:
            return TC.mm_activation.default(mat1, mat2, activation=activation, allow_tf32=tf32)
        return TC.mm_activation.dtype(mat1, mat2, out_dtype, activation=activation, allow_tf32=tf32)
    if out_dtype is None:
        return MM(mat1, mat2, allow_tf32=True) if tf32 else MM(mat1, mat2)
    return TC.mm.dtype(mat1, mat2, out_dtype, allow_tf32=tf32)
