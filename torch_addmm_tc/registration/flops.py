"""torch.utils.flop_counter.FlopCounterMode counts the ops as torch's own products: 2 M N K, whatever is added. Of a Linear that
is sharded by rows or columns it sees this process's part, where it sees the whole of an nn.Linear."""

import torch
from torch.utils.flop_counter import register_flop_formula

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)

TC = torch.ops.tc


@register_flop_formula([TC.addmm, TC.addmm_activation, TC.addmm_out, TC.addmm_by_kernel_out])
def _addmm(self_shape, mat1_shape, mat2_shape, *args, out_shape=None, **kwargs) -> int:
    return 2 * mat1_shape[0] * mat1_shape[1] * mat2_shape[1]


@register_flop_formula([TC.mm, TC.mm_activation])
def _mm(mat1_shape, mat2_shape, *args, out_shape=None, **kwargs) -> int:
    return _addmm(None, mat1_shape, mat2_shape)
