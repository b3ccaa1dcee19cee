"""Unmodified eager models: inside `with torch_addmm_tc.enabled():` aten::addmm and aten::mm are this package's ops."""

import threading
import warnings
from contextlib import contextmanager

import torch

from torch_addmm_tc import routing
from torch_addmm_tc.ops import addmm, mm

_lock = threading.Lock()
_here = threading.local()  # .depth: how many blocks this thread is inside of
_inside = {}  # per dispatch key: how many blocks there are, of all threads, and the library that holds the kernels


def _library(key):
    """Kernels for aten::addmm and aten::mm in front of torch's own, which see what is not for them. They run below autograd."""
    theirs = {name: torch.library.get_kernel(f"aten::{name}", key) for name in ("addmm", "mm")}

    def active(mat1, mat2):
        return getattr(_here, "depth", 0) and routing.refusal(mat1, mat2) is None

    def our_addmm(keys, self, mat1, mat2, *, beta=1, alpha=1):
        if active(mat1, mat2) and self.dtype == mat1.dtype and not any(isinstance(x, complex) for x in (beta, alpha)):
            return addmm(self, mat1, mat2, beta=beta, alpha=alpha)
        return theirs["addmm"].call_boxed(keys, self, mat1, mat2, beta=beta, alpha=alpha)

    def our_mm(keys, self, mat2):
        return mm(self, mat2) if active(self, mat2) else theirs["mm"].call_boxed(keys, self, mat2)

    library = torch.library.Library("aten", "IMPL")
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="(?s).*Overriding a previously registered kernel")  # that is the point
        library.impl("addmm", our_addmm, key, with_keyset=True, allow_override=True)
        library.impl("mm", our_mm, key, with_keyset=True, allow_override=True)
    return library


@contextmanager
def enabled(device_type="cuda"):
    """Routes this thread's aten::addmm and aten::mm on `device_type` ("cuda" or "cpu"), and with them nn.Linear and products
    of matrices, to this package, and what it does not support (routing.py) to torch.

    Gradients are torch's: the kernels lie below autograd. Blocks may be nested and entered by several threads; threads
    outside of them are served as ever. After the last block torch is as it was.
    """
    key = device_type.upper()
    with _lock:
        count, library = _inside.get(key, (0, None))
        _inside[key] = count + 1, library or _library(key)
    _here.depth = getattr(_here, "depth", 0) + 1
    try:
        yield
    finally:
        _here.depth -= 1
        with _lock:
            count, library = _inside.pop(key)
            if count > 1:
                _inside[key] = count - 1, library
            else:
                library._destroy()
