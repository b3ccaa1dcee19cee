"""torch.utils.flop_counter.FlopCounterMode counts the ops as torch's own products: 2 M N K per matrix, whatever is added.

The counter sees one process: that process's part of a sharded torch_addmm_tc.Linear, but the whole of a sharded nn.Linear.
"""

import math

from torch.utils.flop_counter import register_flop_formula

from torch_addmm_tc.registration.table import OPS


def _formula(op):
    def flops(*shapes, out_shape=None, **kwargs) -> int:
        a, b = (op.bind(shapes, kwargs).values[name] for name in op.operands)
        return 2 * math.prod(a) * b[-1]

    return flops


def register(op):
    register_flop_formula([op.packet])(_formula(op))


for _op in OPS:
    register(_op)
