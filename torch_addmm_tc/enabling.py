"""Unmodified eager models: inside `with torch_addmm_tc.enabled():` aten::addmm and aten::mm are this package's ops."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_addmm_tc import routing
from torch_addmm_tc.ops import addmm, mm

ATEN = torch.ops.aten


def _is_complex(*scalars) -> bool:
    return any(isinstance(x, complex) for x in scalars)


class _Routes(TorchDispatchMode):
    """A mode rather than kernels in torch's table: torch reads that table without a lock, in every thread."""

    def __init__(self, device_type):
        super().__init__()
        self.device_type = device_type

    def takes(self, mat1, mat2) -> bool:
        return mat1.device.type == self.device_type and routing.refusal(mat1, mat2) is None

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if not any(routing.is_foreign_type(kind) for kind in types):
            if func is ATEN.addmm.default and self.takes(*args[1:3]):
                if args[0].dtype == args[1].dtype and not _is_complex(*kwargs.values()):
                    return addmm(*args, **kwargs)
            elif func is ATEN.mm.default and self.takes(*args):
                return mm(*args)
        return func(*args, **kwargs)


def enabled(device_type="cuda"):
    """A context in which this thread's aten::addmm and aten::mm on `device_type` ("cuda" or "cpu"), and with them nn.Linear and
    products of matrices, are this package's ops, and what those do not support (routing.py) is torch's.

    It lies below autograd and autocast, so gradients are torch's. Every op in the block passes through Python, a few
    microseconds of host time each: where those count, as in decoding token by token, swap_linears costs less.
    """
    return _Routes(torch.device(device_type).type)
