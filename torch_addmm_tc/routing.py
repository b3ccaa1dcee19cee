"""Which of torch's products this package's ops take over: the one rule for compiled graphs, layers and enabled()."""

import torch

from torch_addmm_tc.fake import SUPPORTED
from torch_addmm_tc.ops import tf32_allowed


def refusal(mat1, mat2) -> str | None:
    """Why the product of two tensors (real, fake or meta) stays with torch, or None where torch.ops.tc takes it."""
    if mat1.dim() != 2 or mat2.dim() != 2:
        return f"its operands have {mat1.dim()} and {mat2.dim()} dimensions"
    if mat1.dtype != mat2.dtype:
        return f"its operands have dtypes {mat1.dtype} and {mat2.dtype}"
    if mat1.dtype not in SUPPORTED:
        return f"its dtype is {mat1.dtype}"
    if mat1.layout != torch.strided or mat2.layout != torch.strided:
        return f"its operands have layouts {mat1.layout} and {mat2.layout}"
    if mat1.device != mat2.device or mat1.device.type not in ("cpu", "cuda"):
        return f"its operands are on {mat1.device} and {mat2.device}"
    if mat1.is_cuda and mat1.dtype == torch.float32 and not tf32_allowed():
        return "torch multiplies float32 without TF32 faster"
    return None
