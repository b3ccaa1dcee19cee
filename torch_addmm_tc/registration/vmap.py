"""torch.vmap over the op: one product where only mat1 and self have a batch, which then folds into M, else one per item."""

import torch

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)


def _vmap(op):
    def rule(info, in_dims, self, mat1, mat2, *args, **kwargs):
        batch, dims = info.batch_size, in_dims[:3]
        # The batch first; None where there is none.
        batched = [None if dim is None else x.movedim(dim, 0) for x, dim in zip((self, mat1, mat2), dims)]

        def product(of_batch):
            items = [x if b is None else of_batch(b) for x, b in zip((self, mat1, mat2), batched)]
            return op(*items, *args, **kwargs)

        if batch == 0:
            item = product(lambda b: b.new_zeros(b.shape[1:]))  # for its shape and its errors
            return item.new_empty((0, *item.shape)), 0
        ranks = [x.dim() - (dim is not None) for x, dim in zip((self, mat1, mat2), dims)]
        if batched[1] is None or batched[2] is not None or ranks[0] > 2 or ranks[1:] != [2, 2]:
            return torch.stack([product(lambda b, i=i: b[i]) for i in range(batch)]), 0
        (_, m, k), n = batched[1].shape, mat2.shape[1]
        if batched[0] is not None or (self.dim() == 2 and self.shape[0] != 1):
            c = self if batched[0] is None else batched[0].reshape(batch, *(1,) * (2 - ranks[0]), *batched[0].shape[1:])
            self = c.expand(batch, m, n).reshape(batch * m, n)
        return op(self, batched[1].reshape(batch * m, k), mat2, *args, **kwargs).reshape(batch, m, n), 0

    return rule


def _vmap_mm(op):
    addmm = _vmap(lambda self, mat1, mat2, *args, **kwargs: op(mat1, mat2, *args, **kwargs))

    def rule(info, in_dims, mat1, mat2, *args, **kwargs):
        return addmm(info, (None, *in_dims), mat1.new_empty(()), mat1, mat2, *args, **kwargs)

    return rule


torch.library.register_vmap("tc::mm", _vmap_mm(torch.ops.tc.mm.default))
torch.library.register_vmap("tc::mm.dtype", _vmap_mm(torch.ops.tc.mm.dtype))
torch.library.register_vmap("tc::addmm", _vmap(torch.ops.tc.addmm.default))
torch.library.register_vmap("tc::addmm.dtype", _vmap(torch.ops.tc.addmm.dtype))
torch.library.register_vmap("tc::mm_activation", _vmap_mm(torch.ops.tc.mm_activation.default))
torch.library.register_vmap("tc::mm_activation.dtype", _vmap_mm(torch.ops.tc.mm_activation.dtype))
torch.library.register_vmap("tc::addmm_activation", _vmap(torch.ops.tc.addmm_activation.default))
torch.library.register_vmap("tc::addmm_activation.dtype", _vmap(torch.ops.tc.addmm_activation.dtype))
