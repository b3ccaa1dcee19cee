"""Which of torch's products this package's op takes over. Compiled graphs, layers and enabled() all ask here."""

import functools
import sys

import torch
from torch import nn
from torch.autograd import forward_ad

from torch_addmm_tc import _C
from torch_addmm_tc.ops import tf32_allowed
from torch_addmm_tc.registration.fake import SUPPORTED

PLAIN = frozenset((torch.Tensor, nn.Parameter))


def device_kind(x) -> str | None:
    """Return "cuda" or "cpu", or None for other devices. device.type takes the host four times as long as is_cuda."""
    return "cuda" if x.is_cuda else "cpu" if x.device.type == "cpu" else None


def unsupported_reason(mat1, mat2, *, rank=2, batch_invariant=False) -> str | None:
    """Return why the product of two tensors (real, fake or meta) stays with torch, or None where torch.ops.tc takes it.

    Args:
        mat1, mat2: the operands.
        rank: the dimensions that they should have: 2, or 3 for batches.
        batch_invariant: whether the product must be batch-invariant, which torch's is not however fast it may be.
    """
    if mat1.is_nested or mat2.is_nested or mat1.layout != torch.strided or mat2.layout != torch.strided:
        return "its operands are not strided"
    if mat1.dim() != rank or mat2.dim() != rank:
        return f"its operands have {mat1.dim()} and {mat2.dim()} dimensions"
    if mat1.dtype != mat2.dtype:
        return f"its operands have dtypes {mat1.dtype} and {mat2.dtype}"
    if mat1.dtype not in SUPPORTED:
        return f"its dtype is {mat1.dtype}"
    if mat1.device != mat2.device or device_kind(mat1) is None:
        return f"its operands are on {mat1.device} and {mat2.device}"
    slow = mat1.is_cuda and mat1.dtype == torch.float32 and not tf32_allowed() and not emulates_float32(mat1.device.index)
    if slow and not batch_invariant:
        return "torch multiplies float32 without TF32 faster on this GPU"
    return None


@functools.cache
def emulates_float32(index: int | None) -> bool:
    """Whether tensor cores of the CUDA device multiply float32 with its own accuracy (wgmma_bf16x6, sm_90)."""
    return torch.cuda.is_available() and torch.cuda.get_device_capability(index) == (9, 0)


@torch.compiler.assume_constant_result  # torch.compile calls it once, while it traces
def in_batch_invariant_block() -> bool:
    """Whether this thread is in a block of torch_addmm_tc.batch_invariant()."""
    return _C.in_batch_invariant_block()


def refuse_in_batch_invariant_block(reason: str):
    """Raise in a block of torch_addmm_tc.batch_invariant(): torch is about to compute a product there.

    Raises:
        RuntimeError: with the reason why the product is not the op's.
    """
    if in_batch_invariant_block():
        raise RuntimeError(
            f"torch_addmm_tc: batch-invariant results are promised for this package's op alone, but torch would compute this "
            f"product, because {reason}. Change that, or leave the batch_invariant() block."
        )


def is_differentiated(*tensors) -> bool:
    """Whether autograd records calls with these tensors, or a transform of torch.func, which needs torch's ops, is running."""
    if torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors):
        return True
    return _is_transformed()


@torch.compiler.assume_constant_result  # sees the transform: torch.compile enters one while it traces
def _is_transformed() -> bool:
    return forward_ad._current_level >= 0 or torch._C._functorch.maybe_current_level() is not None


def is_dtensor_type(kind) -> bool:
    tensor = sys.modules.get("torch.distributed.tensor")
    return tensor is not None and issubclass(kind, tensor.DTensor)


def is_foreign_type(kind) -> bool:
    """Whether a class computes products in its own way, as that of quantized tensors does, or is no class of tensors.

    torch's own tracing tensors are not foreign.
    """
    if kind in PLAIN:
        return False
    function = getattr(kind, "__torch_function__", None)
    return function is not torch._C._disabled_torch_function_impl or hasattr(kind, "__tensor_flatten__")
