"""torch.vmap over the ops: one call for a batch of products, whatever arguments have a batch.

torch.library.register_vmap takes no op whose `out` is a keyword, so that torch.vmap refuses those.
"""

import torch

from torch_addmm_tc.registration.fake import checked_call
from torch_addmm_tc.registration.table import OPS, Call


def _item(x, dim, i):
    """Item i of a batch; an empty batch has items without values."""
    return x.select(dim, i) if x.shape[dim] else x.new_empty(x.movedim(dim, 0).shape[1:])


def _vmap(op):
    of_batch = op if op.rank == 3 else next((x for x in OPS if x.name == op.of_batch), None)

    def rule(info, in_dims, *args, **kwargs):
        size, call = info.batch_size, op.bind(args, kwargs)
        values, dims = call.values, dict(zip(op.arguments, in_dims))
        batched = {name: x for name in op.tensors if (x := values[name]) is not None and dims.get(name) is not None}

        def item(i):
            return {name: _item(x, dims[name], i) for name, x in batched.items()}

        shape = (size, *checked_call(Call(op, {**values, **item(0)})))
        if size == 0:
            return call.operands[0].new_empty(shape, dtype=call.result_dtype), 0
        if of_batch is None:
            return torch.stack([call.run(item(i)) for i in range(size)]), 0

        def with_batch(name):
            """The argument with the batch first, then the dimensions of an item, of which it may lack some that are 1."""
            x = values[name]
            x = x.movedim(dims[name], 0) if name in batched else x.expand(size, *x.shape)
            return x.reshape(size, *(1,) * (op.rank + 1 - x.dim()), *x.shape[1:])

        tensors = {of_batch.addend: None} | dict(
            zip(of_batch.operands, (with_batch(name).flatten(0, -3) for name in op.operands))
        )
        if values[op.addend] is not None:
            addend = with_batch(op.addend)
            tensors[of_batch.addend] = addend if op.rank == 2 else addend.expand(shape).flatten(0, -3)
        given = {name: value for name, value in values.items() if name not in op.tensors}
        return of_batch.overload(*(tensors[name] for name in of_batch.positional), **given).reshape(shape), 0

    return rule


def register(op):
    torch.library.register_vmap(op.qualified_name, _vmap(op))


for _op in OPS:
    if _op.out is None:
        register(_op)
