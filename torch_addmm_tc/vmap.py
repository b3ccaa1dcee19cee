"""torch.vmap over the op: one product where the batch folds into M or N, one per item otherwise."""

import torch

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)


def _vmap(op):
    def rule(info, in_dims, self, mat1, mat2, *args, **kwargs):
        self_dim, mat1_dim, mat2_dim = in_dims[:3]
        batch = info.batch_size
        if self_dim is not None:
            self = self.movedim(self_dim, 0)
            self = self.reshape(batch, *(1,) * (3 - self.dim()), *self.shape[1:])  # (B, 1 or M, 1 or N)
        if mat1_dim is not None and mat2_dim is None:
            mat1 = mat1.movedim(mat1_dim, 0)  # (B, M, K): the batch folds into M
            m, n = mat1.shape[1], mat2.shape[1]
            if self_dim is not None or (self.dim() == 2 and self.shape[0] != 1):
                self = self.expand(batch, m, n).reshape(batch * m, n)
            return op(self, mat1.reshape(batch * m, -1), mat2, *args, **kwargs).reshape(batch, m, n), 0

        def item(x, dim, i):
            return x if dim is None else x.select(dim, i)

        results = [
            op(self if self_dim is None else self[i], item(mat1, mat1_dim, i), item(mat2, mat2_dim, i), *args, **kwargs)
            for i in range(batch)
        ]
        return torch.stack(results), 0

    return rule


torch.library.register_vmap("tc::addmm", _vmap(torch.ops.tc.addmm.default))
torch.library.register_vmap("tc::addmm.dtype", _vmap(torch.ops.tc.addmm.dtype))
