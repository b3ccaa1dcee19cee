"""The public functions, over torch.ops.tc. Importing this module loads _C, which defines the ops."""

import warnings
from contextlib import contextmanager

import torch

from torch_addmm_tc import _C

kernels = _C.kernels

ADDMM, ADDMM_OUT = torch.ops.tc.addmm.default, torch.ops.tc.addmm_out.default  # looked up once
BADDBMM, BADDBMM_OUT = torch.ops.tc.baddbmm.default, torch.ops.tc.baddbmm_out.default
ONE = 1  # the default of beta and alpha. Compared by identity: complex numbers, tensors and symbols may equal it.


@torch.compiler.assume_constant_result  # torch.compile guards on the setting itself and recompiles when it changes
def tf32_allowed() -> bool:
    """Whether the user lets float32 products on CUDA use TF32.

    The setting is torch's: torch.backends.cuda.matmul.fp32_precision or torch.set_float32_matmul_precision.
    """
    return torch.backends.cuda.matmul.fp32_precision == "tf32"


@contextmanager
def batch_invariant():
    """Make this thread's calls of the op batch-invariant: a row's bits do not depend on the other rows of its batch.

    docs/semantics.md states the promise. The block reaches every call of torch.ops.tc, whoever makes it: functions, layers,
    enabled() and compiled graphs. Blocks nest. Inside one, a product that a layer or enabled() would leave to torch is an
    error, because torch promises nothing for it.
    """
    _C.enter_batch_invariant_block()
    try:
        yield
    finally:
        _C.exit_batch_invariant_block()


def _given(beta, alpha, activation, tf32, batch_invariant, out_dtype=None) -> dict:
    """Return the keywords of a call that are not the op's defaults. Each keyword costs the host time."""
    keywords = {}
    if beta is not ONE:
        keywords["beta"] = beta
    if alpha is not ONE:
        keywords["alpha"] = alpha
    if activation is not None:
        keywords["activation"] = activation
    if out_dtype is not None:
        keywords["out_dtype"] = out_dtype
    if tf32:
        keywords["precision"] = "tf32"
    if batch_invariant:
        keywords["batch_invariant"] = True
    return keywords


def addmm(input, mat1, mat2, *, beta=ONE, alpha=ONE, activation=None, out_dtype=None, out=None, batch_invariant=False):
    """Compute activation(beta * input + alpha * (mat1 @ mat2)) in float32, rounded once.

    float32 operands on CUDA are rounded to TF32 where torch's own setting allows it.

    Args:
        input: a tensor that broadcasts to (M, N), in the operands' dtype or the result's. It is not read when beta is 0.
            None leaves it out.
        mat1: (M, K), float16, bfloat16 or float32, any strides.
        mat2: (K, N), in mat1's dtype and on its device, any strides.
        beta: a number, finite or not. It acts in float32.
        alpha: a number, finite or not. It acts in float32.
        activation: "relu", "gelu", "gelu_tanh" (torch's approximate="tanh"), "silu" or None.
        out_dtype: the result's dtype: mat1's, which is the default, or torch.float32, which keeps the accumulator's bits.
        out: a tensor to write to, with any strides. Its dtype is the result's. It may be `input` itself, and may share no
            memory with mat1 or mat2. It is resized if its shape differs; it may then share no storage with an argument.
        batch_invariant: whether the bits of a row of the result must not depend on the other rows. False leaves this to the
            block that the thread is in (batch_invariant()).

    Returns:
        A row-major (M, N) tensor, or `out`.

    Raises:
        RuntimeError: in torch.addmm's words, if shapes, dtypes or devices do not match. Also if a dtype or an activation is
            not supported, if an argument requires grad while grad mode is on, because the op is forward-only, or if
            batch-invariant results are asked for on the CPU.
    """
    tf32 = mat1 is not None and mat1.dtype is torch.float32 and tf32_allowed()  # None is the op's to refuse
    if out is not None:
        given = _given(beta, alpha, activation, tf32, batch_invariant)
        return _write(ADDMM_OUT, (input, mat1, mat2), given, out_dtype, out)
    if activation is None and out_dtype is None and beta is ONE and alpha is ONE and not tf32:
        return ADDMM(input, mat1, mat2, batch_invariant=True) if batch_invariant else ADDMM(input, mat1, mat2)
    return ADDMM(input, mat1, mat2, **_given(beta, alpha, activation, tf32, batch_invariant, out_dtype))


def _write(op, tensors, given, out_dtype, out):
    """Call an op that writes `out`, and warn as torch does where it resizes it."""
    if out_dtype not in (None, out.dtype):
        raise RuntimeError(_C.messages["out_dtype_differs"].format(out_dtype, out.dtype))
    shape, elements = out.shape, out.numel()
    op(*tensors, **given, out=out)
    if elements > 0 and out.shape != shape:
        warnings.warn(
            f"An output with one or more elements was resized since it had shape {list(shape)}, which does not "
            f"match the required output shape {list(out.shape)}.",
            stacklevel=3,
        )
    return out


def mm(mat1, mat2, *, activation=None, out_dtype=None, batch_invariant=False):
    """Compute activation(mat1 @ mat2) in float32, rounded once.

    Args:
        mat1: (M, K), float16, bfloat16 or float32, any strides.
        mat2: (K, N), in mat1's dtype and on its device, any strides.
        activation: "relu", "gelu", "gelu_tanh" (torch's approximate="tanh"), "silu" or None.
        out_dtype: the result's dtype: mat1's, which is the default, or torch.float32.
        batch_invariant: as in addmm.

    Returns:
        A row-major (M, N) tensor.

    Raises:
        RuntimeError: as addmm does.
    """
    tf32 = mat1 is not None and mat1.dtype is torch.float32 and tf32_allowed()  # None is the op's to refuse
    if activation is None and out_dtype is None and not tf32:
        return ADDMM(None, mat1, mat2, batch_invariant=True) if batch_invariant else ADDMM(None, mat1, mat2)
    return ADDMM(None, mat1, mat2, **_given(ONE, ONE, activation, tf32, batch_invariant, out_dtype))


def baddbmm(input, batch1, batch2, *, beta=ONE, alpha=ONE, activation=None, out_dtype=None, out=None, batch_invariant=False):
    """Compute activation(beta * input + alpha * (batch1 @ batch2)) for each pair of a batch, in float32, rounded once.

    One launch multiplies up to 65535 pairs. Pairs that share a matrix, as an expanded tensor does, read it from one place.

    Args:
        input: a tensor that broadcasts to (B, M, N), in the operands' dtype or the result's. It is not read when beta is 0.
            None leaves it out.
        batch1: (B, M, K), float16, bfloat16 or float32, any strides.
        batch2: (B, K, N), in batch1's dtype and on its device, any strides.
        beta, alpha, activation, out_dtype, batch_invariant: as in addmm.
        out: as in addmm. Its matrices may lie anywhere that strides allow, as long as the strides nest: each steps past all
            that the smaller ones reach.

    Returns:
        A contiguous (B, M, N) tensor, or `out`.

    Raises:
        RuntimeError: in torch.baddbmm's words, if shapes do not match. Otherwise as addmm does.
    """
    tf32 = batch1 is not None and batch1.dtype is torch.float32 and tf32_allowed()  # None is the op's to refuse
    if out is not None:
        given = _given(beta, alpha, activation, tf32, batch_invariant)
        return _write(BADDBMM_OUT, (input, batch1, batch2), given, out_dtype, out)
    return BADDBMM(input, batch1, batch2, **_given(beta, alpha, activation, tf32, batch_invariant, out_dtype))


def bmm(batch1, batch2, *, activation=None, out_dtype=None, batch_invariant=False):
    """Compute activation(batch1 @ batch2) for each pair of a batch, in float32, rounded once.

    Args:
        batch1: (B, M, K), float16, bfloat16 or float32, any strides.
        batch2: (B, K, N), in batch1's dtype and on its device, any strides.
        activation, out_dtype, batch_invariant: as in addmm.

    Returns:
        A contiguous (B, M, N) tensor.

    Raises:
        RuntimeError: as baddbmm does.
    """
    return baddbmm(None, batch1, batch2, activation=activation, out_dtype=out_dtype, batch_invariant=batch_invariant)


def linear(input, weight, bias=None, *, activation=None, out_dtype=None, batch_invariant=False):
    """Compute activation(input @ weight.T + bias), as torch.nn.functional.linear does without the activation.

    Args:
        input: (..., K), float16, bfloat16 or float32. It is copied if its leading dimensions are not one in memory.
        weight: (N, K), in input's dtype and on its device, any strides.
        bias: a tensor that broadcasts to (N,), in input's dtype or the result's; or None.
        activation: "relu", "gelu", "gelu_tanh" (torch's approximate="tanh"), "silu" or None.
        out_dtype: the result's dtype: input's, which is the default, or torch.float32.
        batch_invariant: as in addmm.

    Returns:
        A contiguous (..., N) tensor.

    Raises:
        RuntimeError: as addmm does, which sees input as mat1 and weight.T as mat2.
    """
    dims = input.dim()
    rows = input if dims == 2 else input.flatten(0, -2) if dims > 2 else input.unsqueeze(0)
    options = {"activation": activation, "out_dtype": out_dtype, "batch_invariant": batch_invariant}
    result = addmm(bias, rows, weight.t(), **options)
    return result if dims == 2 else result.view(*input.shape[:-1], weight.shape[0])
