"""DTensor: how the ops' arguments may be sharded over GPUs, so that tensor-parallel models run on them.

Importing this module registers the rules with torch.distributed.tensor; Linear does so when it first meets a DTensor.
"""

import torch
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard
from torch.distributed.tensor.experimental import register_sharding

TC = torch.ops.tc


def linear(x, weight, bias, product):
    """A layer as ColwiseParallel and RowwiseParallel lay it out, each process on its own part of it: one wrapped result where
    DTensor would wrap that of every view and product.

    Args:
        x: (.., K) and weight: (N, K), bias: (N) or None, DTensors.
        product: product(x, weight.t(), bias) of plain tensors, or None where the op does not take them.

    Returns:
        A DTensor, (.., N), or None for other layouts and where product says so.
    """
    mesh = weight.device_mesh
    others = (x,) if bias is None else (x, bias)
    if mesh.ndim != 1 or not all(isinstance(t, DTensor) and t.device_mesh == mesh for t in others):
        return None
    place = mesh.get_coordinate()  # None in a process that the mesh leaves out
    # Wrong sizes are DTensor's to refuse, in every process: of the local ones only some may be wrong.
    if not place or x.shape[-1] != weight.shape[1] or (bias is not None and bias.shape != weight.shape[:1]):
        return None
    (of_x,), (of_weight,), last = x.placements, weight.placements, x.dim() - 1
    of_bias = of_weight if bias is None else bias.placements[0]
    if of_x.is_replicate() and of_weight.is_shard(0) and of_bias.is_shard(0):
        of_result = Shard(last)
    elif of_x.is_shard(last) and of_weight.is_shard(1) and (bias is None or of_bias.is_replicate()):
        of_result = Partial()
        bias = bias if place[0] == 0 else None  # added once
    else:
        return None
    local = product(x.to_local(), weight.to_local().t(), None if bias is None else bias.to_local())
    if local is None:
        return None
    shape = torch.Size((*x.shape[:-1], weight.shape[0]))
    stride = torch.empty(shape, device="meta").stride()
    return DTensor.from_local(local, mesh, (of_result,), run_check=False, shape=shape, stride=stride)


def _of_product(self):
    """Acceptable (placement of the result, those of self, mat1 and mat2), for one dimension of a device mesh.

    self: has a shape and broadcasts to the result, (M, N); None for the plain product.
    """

    def addend(dim):  # where the result is sharded along `dim`
        if self is None:
            return None
        own = dim - 2 + len(self.shape)  # its dimension that lies along the result's
        return Shard(own) if own >= 0 and self.shape[own] > 1 else Replicate()

    whole, part = (None, None) if self is None else (Replicate(), Partial())
    return [
        (Replicate(), whole, Replicate(), Replicate()),
        (Shard(0), addend(0), Shard(0), Replicate()),  # rows
        (Shard(1), addend(1), Replicate(), Shard(1)),  # columns
        (Partial(), part, Shard(1), Shard(0)),  # parts of K
        (Partial(), part, Partial(), Replicate()),
        (Partial(), part, Replicate(), Partial()),
    ]


def _of_activation(self):
    """Without partial results: the activation of a sum is not the sum of its parts' activations."""
    return [placements for placements in _of_product(self) if not placements[0].is_partial()]


@register_sharding(TC.addmm_activation.default)
def _addmm_activation(self, mat1, mat2, *, activation, beta=1, alpha=1, allow_tf32=False):
    return [([d], [c, a, b]) for d, c, a, b in _of_activation(self)]


@register_sharding(TC.addmm_activation.dtype)
def _addmm_activation_dtype(self, mat1, mat2, out_dtype, *, activation, beta=1, alpha=1, allow_tf32=False):
    return [([d], [c, a, b, None]) for d, c, a, b in _of_activation(self)]


@register_sharding(TC.mm_activation.default)
def _mm_activation(mat1, mat2, *, activation, allow_tf32=False):
    return [([d], [a, b]) for d, _, a, b in _of_activation(None)]


@register_sharding(TC.mm_activation.dtype)
def _mm_activation_dtype(mat1, mat2, out_dtype, *, activation, allow_tf32=False):
    return [([d], [a, b, None]) for d, _, a, b in _of_activation(None)]


@register_sharding(TC.addmm.default)
def _addmm(self, mat1, mat2, *, beta=1, alpha=1, allow_tf32=False):
    return [([d], [c, a, b]) for d, c, a, b in _of_product(self)]


@register_sharding(TC.addmm.dtype)
def _addmm_dtype(self, mat1, mat2, out_dtype, *, beta=1, alpha=1, allow_tf32=False):
    return [([d], [c, a, b, None]) for d, c, a, b in _of_product(self)]


@register_sharding(TC.mm.default)
def _mm(mat1, mat2, *, allow_tf32=False):
    return [([d], [a, b]) for d, _, a, b in _of_product(None)]


@register_sharding(TC.mm.dtype)
def _mm_dtype(mat1, mat2, out_dtype, *, allow_tf32=False):
    return [([d], [a, b, None]) for d, _, a, b in _of_product(None)]
