"""Unmodified eager models: inside `with torch_addmm_tc.enabled():` aten::addmm and aten::mm are this package's ops."""

import threading
from collections import Counter
from contextlib import contextmanager

import torch

from torch_addmm_tc.integrations import routing
from torch_addmm_tc.ops import ADDMM, addmm, mm

ATEN = torch.ops.aten

# torch looks its kernels up by dispatch keys, and a thread may add one to those of its tensors. This one torch itself uses in
# tests only; here it has kernels for two operators and lets all others fall through, at no cost that could be measured. (A
# TorchDispatchMode runs Python for every operator: GPT-2's eager forward took 25.8 ms on an H200, 11.6 with swap_linears. What
# comes and goes in torch's table under CUDA is seen by all threads, which read it without a lock.)
NAME = "TESTING_ONLY_GenericMode"
KEY = torch._C._dispatch_key_parse(NAME)
KEYS_BELOW = torch._C._dispatch_keyset_full_after(KEY)


def _keys_of_plain_tensors() -> dict:
    """{keys of a call, as a number: (its tensors' device type, whether autograd's key is among them)}, of calls on strided
    tensors of one device type, under no transform of torch.func, under modes (TorchDispatchMode) or none."""
    kinds, keys = torch._C.DispatchKey, torch._C.DispatchKeySet
    result = {}
    for device_type, backend, autograd in (("cuda", kinds.CUDA, kinds.AutogradCUDA), ("cpu", kinds.CPU, kinds.AutogradCPU)):
        plain = keys(KEY) | keys(backend)
        for call in (plain, plain | keys(kinds.Python) | keys(kinds.PythonTLSSnapshot)):
            result[call.raw_repr()] = device_type, False
            result[(call | keys(autograd)).raw_repr()] = device_type, True
    return result


HALVES = frozenset((torch.float16, torch.bfloat16))  # the op takes them on every device
PLAIN_KEYS = _keys_of_plain_tensors()


class _Here(threading.local):
    """What this thread is in, counted, because blocks need not end in the reverse of the order in which they began."""

    def __init__(self):
        self.device_types, self.guard = Counter(), None


_here = _Here()


def _takes(keys, mat1, mat2, self=None) -> bool:
    kind, recordable = PLAIN_KEYS.get(keys.raw_repr(), (None, True))
    return (
        kind in _here.device_types
        and type(mat1) in routing.PLAIN
        and type(mat2) in routing.PLAIN
        and not torch.is_autocast_enabled(kind)  # its casts come first, and then this again
        and not (recordable and routing.is_differentiated(mat1, mat2, self))
        and (
            (mat1.dtype in HALVES and mat2.dtype == mat1.dtype and mat1.ndim == mat2.ndim == 2)  # most calls, and half as long
            or routing.unsupported_reason(mat1, mat2) is None
        )
    )


def _addmm(keys, self, mat1, mat2, **scalars):  # those that are not 1
    dtype = self.dtype
    if (
        type(self) in routing.PLAIN
        and dtype == mat1.dtype
        and not (scalars and any(isinstance(x, complex) for x in scalars.values()))
        and _takes(keys, mat1, mat2, self)
    ):
        product = ADDMM if dtype in HALVES else addmm  # addmm asks for torch's TF32 setting
        return product(self, mat1, mat2, **scalars)
    return ATEN.addmm.default.redispatch(keys & KEYS_BELOW, self, mat1, mat2, **scalars)


def _mm(keys, mat1, mat2):
    if _takes(keys, mat1, mat2):
        return ADDMM(None, mat1, mat2) if mat1.dtype in HALVES else mm(mat1, mat2)
    return ATEN.mm.default.redispatch(keys & KEYS_BELOW, mat1, mat2)


_fallback, _kernels = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
_fallback.fallback(torch.library.fallthrough_kernel, NAME)
_kernels.impl("addmm", _addmm, NAME, with_keyset=True)
_kernels.impl("mm", _mm, NAME, with_keyset=True)


@contextmanager
def enabled(device_type="cuda"):
    """A context in which this thread's aten::addmm and aten::mm on `device_type` ("cuda" or "cpu"), and with them nn.Linear and
    products of matrices, are this package's ops. What those do not support (routing.py) is torch's, and so are products whose
    gradients are asked for; what their backward multiplies in this thread is not. torch.compile compiles for the inside and the
    outside of a block apart, and alike: for it there is compile_options().
    """
    kind, here = torch.device(device_type).type, _here
    if not here.device_types:
        here.guard = torch._C._IncludeDispatchKeyGuard(KEY)
        here.guard.__enter__()
    here.device_types[kind] += 1
    try:
        yield
    finally:
        here.device_types -= Counter([kind])  # drops what falls to 0
        if not here.device_types:
            here.guard.__exit__(None, None, None)
