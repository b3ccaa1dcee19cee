"""Shapes, strides, dtypes and errors of the op without data: for torch.compile, torch.export and meta tensors."""

import sys

import torch

from torch_addmm_tc import _C

SUPPORTED = (torch.float16, torch.bfloat16, torch.float32)
ACTIVATIONS = _C.activations


def checked_shape(self, mat1, mat2, out_dtype):
    """(M, N), or the op's error about shapes and dtypes. self: None for the plain product."""
    for name, x in (("mat1", mat1), ("mat2", mat2)):
        torch._check(x.dim() == 2, lambda: f"{name} must be a matrix, got {x.dim()}-D tensor")
    torch._check(
        mat1.shape[1] == mat2.shape[0],
        lambda: (
            f"mat1 and mat2 shapes cannot be multiplied ({mat1.shape[0]}x{mat1.shape[1]} and {mat2.shape[0]}x{mat2.shape[1]})"
        ),
    )
    torch._check(
        self is None or self.dtype == mat2.dtype or (out_dtype != mat1.dtype and self.dtype == out_dtype),
        lambda: f"self and mat2 must have the same dtype, but got {self.dtype} and {mat2.dtype}",
    )
    torch._check(
        mat1.dtype == mat2.dtype,
        lambda: f"mat1 and mat2 must have the same dtype, but got {mat1.dtype} and {mat2.dtype}",
    )
    torch._check(
        mat1.dtype in SUPPORTED,
        lambda: f"tc::addmm supports float16, bfloat16 and float32 tensors, but mat1 has dtype {mat1.dtype}",
    )
    torch._check(
        out_dtype in (mat1.dtype, torch.float32),
        lambda: (
            f"out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, but got {out_dtype} for "
            f"{mat1.dtype} inputs"
        ),
    )
    shape = (mat1.shape[0], mat2.shape[1])
    if self is not None:
        self.expand(shape)  # raises aten's own message when it cannot
    return shape


def _inductor_is_lowering() -> bool:
    """Its fake parameters say that they require grad, whoever will call the code that it makes."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    try:
        return virtualized is not None and not isinstance(virtualized.V.graph, virtualized.NullHandler)
    except RuntimeError:  # "poisoned": Inductor has another process lower it
        return True


def _check_arguments(self, mat1, mat2, out_dtype):
    shape = checked_shape(self, mat1, mat2, out_dtype)
    arguments = {"self": self, "mat1": mat1, "mat2": mat2}
    if self is None:
        del arguments["self"]
    for name, x in arguments.items():
        torch._check(
            x.device == mat1.device,
            lambda: (
                f"Expected all tensors to be on the same device, but got {name} is on {x.device}, different from "
                f"other tensors on {mat1.device}"
            ),
        )
    if _inductor_is_lowering():
        return shape
    for name, x in arguments.items():
        torch._check(
            not (torch.is_grad_enabled() and x.requires_grad),
            lambda: (
                f"tc::addmm is forward-only, but {name} requires grad and grad mode is on, so its gradient would be "
                f"lost. Call it under torch.no_grad() or torch.inference_mode(), or pass {name}.detach(); to train, use "
                "torch.addmm."
            ),
        )
    return shape


@torch.library.register_fake("tc::addmm")
def _addmm(self, mat1, mat2, *, beta=1, alpha=1, allow_tf32=False):
    return mat1.new_empty(_check_arguments(self, mat1, mat2, mat1.dtype))


@torch.library.register_fake("tc::addmm.dtype")
def _addmm_dtype(self, mat1, mat2, out_dtype, *, beta=1, alpha=1, allow_tf32=False):
    return mat1.new_empty(_check_arguments(self, mat1, mat2, out_dtype), dtype=out_dtype)


@torch.library.register_fake("tc::mm")
def _mm(mat1, mat2, *, allow_tf32=False):
    return mat1.new_empty(_check_arguments(None, mat1, mat2, mat1.dtype))


@torch.library.register_fake("tc::mm.dtype")
def _mm_dtype(mat1, mat2, out_dtype, *, allow_tf32=False):
    return mat1.new_empty(_check_arguments(None, mat1, mat2, out_dtype), dtype=out_dtype)


def _check_activation(name):
    torch._check(name in ACTIVATIONS, lambda: f"tc::addmm: there is no activation '{name}'; there are {', '.join(ACTIVATIONS)}")


@torch.library.register_fake("tc::addmm_activation")
def _addmm_activation(self, mat1, mat2, *, activation, beta=1, alpha=1, allow_tf32=False):
    return _addmm_activation_dtype(self, mat1, mat2, mat1.dtype, activation=activation)


@torch.library.register_fake("tc::addmm_activation.dtype")
def _addmm_activation_dtype(self, mat1, mat2, out_dtype, *, activation, beta=1, alpha=1, allow_tf32=False):
    _check_activation(activation)
    return mat1.new_empty(_check_arguments(self, mat1, mat2, out_dtype), dtype=out_dtype)


@torch.library.register_fake("tc::mm_activation")
def _mm_activation(mat1, mat2, *, activation, allow_tf32=False):
    return _addmm_activation_dtype(None, mat1, mat2, mat1.dtype, activation=activation)


@torch.library.register_fake("tc::mm_activation.dtype")
def _mm_activation_dtype(mat1, mat2, out_dtype, *, activation, allow_tf32=False):
    return _addmm_activation_dtype(None, mat1, mat2, out_dtype, activation=activation)


def _addmm_out(self, mat1, mat2, *, beta=1, alpha=1, allow_tf32=False, activation="none", kernel="", out):
    _check_activation(activation)
    torch._check(
        out.dtype in (mat1.dtype, torch.float32),
        lambda: f"Expected out tensor to have dtype {mat1.dtype} or {torch.float32}, but got {out.dtype} instead",
    )
    shape = _check_arguments(self, mat1, mat2, out.dtype)
    torch._check(
        tuple(out.shape) == shape,
        lambda: f"tc::addmm_out: a traced graph cannot resize out, so it needs shape {shape}, but got {tuple(out.shape)}",
    )


torch.library.register_fake("tc::addmm_out", _addmm_out)
torch.library.register_fake("tc::addmm_by_kernel_out", _addmm_out)
