"""torch.vmap over the ops: one product where only A and the addend have a batch, which then folds into M, else one per item.

torch.library.register_vmap takes no op whose `out` is a keyword, so that torch.vmap refuses those.
"""

import torch

from torch_addmm_tc.registration.table import OPS


def _rank(x, dim) -> int:
    """Dimensions of one item."""
    return 0 if x is None else x.dim() - (dim is not None)


def _vmap(op):
    name_a, name_b = op.operands

    def rule(info, in_dims, *args, **kwargs):
        size, call = info.batch_size, op.bind(args, kwargs)
        values = call.values
        dims = dict(zip(op.arguments, in_dims))
        # The tensors that have a batch, with the batch first.
        batched = {name: values[name].movedim(dim, 0) for name in op.tensors if (dim := dims.get(name)) is not None}

        if size == 0:
            item = call.run({name: x.new_zeros(x.shape[1:]) for name, x in batched.items()})  # for its shape and its errors
            return item.new_empty((0, *item.shape)), 0
        a, b, addend = batched.get(name_a), values[name_b], values.get(op.addend)
        ranks = [_rank(values.get(name), dims.get(name)) for name in (*op.operands, op.addend)]
        if op.rank != 2 or a is None or name_b in batched or ranks[:2] != [2, 2] or ranks[2] > 2:
            items = [call.run({name: x[i] for name, x in batched.items()}) for i in range(size)]
            return torch.stack(items), 0
        (_, m, k), n = a.shape, b.shape[1]
        replaced = {name_a: a.reshape(size * m, k)}
        if op.addend in batched or (addend is not None and addend.dim() == 2 and addend.shape[0] != 1):
            if op.addend in batched:
                addend = batched[op.addend]
                addend = addend.reshape(size, *(1,) * (2 - ranks[2]), *addend.shape[1:])
            replaced[op.addend] = addend.expand(size, m, n).reshape(size * m, n)
        return call.run(replaced).reshape(size, m, n), 0

    return rule


def register(op):
    torch.library.register_vmap(op.qualified_name, _vmap(op))


for _op in OPS:
    if _op.out is None:
        register(_op)
