"""Unmodified eager models: inside `with torch_addmm_tc.enabled():` products of matrices run on this package's ops.

torch finds kernels by dispatch keys, and a thread may add a key to those of its tensors. enabled() adds the key
TESTING_ONLY_GenericMode, which torch itself uses in tests only. The key has kernels for products here, and lets all others
fall through, at no cost that could be measured. Where the key does not work, a TorchDispatchMode is the fallback. A mode runs
Python for every operator (GPT-2's eager forward on an H200: 25.8 ms with a mode, 11.6 ms with swap_linears).

Kernels at CUDA's own key would be simpler, but all threads read torch's table of kernels, and read it without a lock.
"""

import threading
import warnings
from collections import Counter
from contextlib import contextmanager

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torch_addmm_tc import _C
from torch_addmm_tc.integrations import routing
from torch_addmm_tc.integrations.heads import fold, folds
from torch_addmm_tc.ops import ADDMM, BADDBMM, addmm, baddbmm, bmm, mm
from torch_addmm_tc.ops import batch_invariant as batch_invariant_block
from torch_addmm_tc.registration.fake import check

SIXTEEN_BIT = frozenset((torch.float16, torch.bfloat16))  # the op takes these types on every device

# Why a product is left although routing.py allows it.
LEFT = "its gradient is asked for, a transform of torch.func runs, or its addend or its scalars are not the op's"

KEY_NAME = "TESTING_ONLY_GenericMode"

_unsafe_view = torch.ops.aten._unsafe_view.default  # autograd does not take its result for a view, as it does not take torch's


class _ThisThread(threading.local):
    """The blocks that this thread is in: their device types, counted, because blocks may end in any order; and their guard."""

    def __init__(self):
        self.device_types, self.guard = Counter(), None


_this_thread = _ThisThread()


def _takes(kind, recordable, mat1, mat2, self=None, rank=2) -> bool:
    """Whether the op computes a product inside the block.

    Args:
        kind: the operands' device type, or None where it is not known.
        recordable: whether autograd may see the call.
        mat1, mat2, self: the call's tensors; self is None for aten::mm and aten::bmm.
        rank: the operands' dimensions: 2, or 3 for batches.
    """
    return (
        kind in _this_thread.device_types
        and type(mat1) in routing.PLAIN
        and type(mat2) in routing.PLAIN
        and not torch.is_autocast_enabled(kind)  # autocast casts first, and calls again
        and not (recordable and routing.is_differentiated(mat1, mat2, self))
        and (
            # True for most calls, in half the time that unsupported_reason takes.
            (mat1.dtype in SIXTEEN_BIT and mat2.dtype == mat1.dtype and mat1.ndim == mat2.ndim == rank)
            or routing.unsupported_reason(mat1, mat2, rank=rank, batch_invariant=_C.in_batch_invariant_block()) is None
        )
    )


def _takes_addend(self, mat1, scalars) -> bool:
    plain = type(self) in routing.PLAIN and self.dtype == mat1.dtype
    return plain and not (scalars and any(isinstance(x, complex) for x in scalars.values()))


@torch.compiler.assume_constant_result  # torch.compile traces no state of a thread
def covers(kind) -> bool:
    """Whether this thread is in an enabled() block for a device type."""
    return kind in _this_thread.device_types


def _leave(mat1, mat2, reason=None):
    """Leave a product to torch.

    Raises:
        RuntimeError: in a batch_invariant() block, with the reason. Not under autocast, which casts the tensors and calls
            again, nor for tensors that stand for others, as DTensors do, whose own products arrive here again. DTensors may
            not divide K over processes.
    """
    if not _C.in_batch_invariant_block() or (kind := mat2.device.type) not in _this_thread.device_types:
        return
    for x, own in ((mat1, 0), (mat2, 1)):
        if routing.is_dtensor_type(type(x)):
            check(all(place.is_replicate() or place.is_shard(own) for place in x.placements), "batch_invariant_parts_of_k")
    if any(type(x).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__ for x in (mat1, mat2)):
        return
    if not torch.is_autocast_enabled(kind):
        reason = reason or routing.unsupported_reason(mat1, mat2, rank=mat2.dim(), batch_invariant=True)
        routing.refuse_in_batch_invariant_block(reason or LEFT)


# ---- by operator ----
# Each function gets the device type (None where it is not known), whether autograd may see the call, and the call's arguments.
# It returns the op's result, or None where the call stays with torch.


def _addmm(kind, recordable, self, mat1, mat2, **scalars):  # those of beta and alpha that are not 1
    if _takes_addend(self, mat1, scalars) and _takes(kind, recordable, mat1, mat2, self):
        product = ADDMM if mat1.dtype in SIXTEEN_BIT else addmm  # addmm asks for torch's TF32 setting
        return product(self, mat1, mat2, **scalars)
    return _leave(mat1, mat2)


def _mm(kind, recordable, mat1, mat2):
    if _takes(kind, recordable, mat1, mat2):
        return ADDMM(None, mat1, mat2) if mat1.dtype in SIXTEEN_BIT else mm(mat1, mat2)
    return _leave(mat1, mat2)


def _baddbmm(kind, recordable, self, batch1, batch2, **scalars):
    if _takes_addend(self, batch1, scalars) and _takes(kind, recordable, batch1, batch2, self, rank=3):
        product = BADDBMM if batch1.dtype in SIXTEEN_BIT else baddbmm
        return product(self, batch1, batch2, **scalars)
    return _leave(batch1, batch2)


def _products(batch1, batch2):
    return (
        BADDBMM(None, batch1, batch2) if batch1.dtype in SIXTEEN_BIT else bmm(batch1, batch2)
    )  # bmm asks for torch's TF32 setting


def _bmm(kind, recordable, batch1, batch2):
    if _takes(kind, recordable, batch1, batch2, rank=3):
        if batch2.stride(0) == 0 and batch2.shape[0] > 0 and batch1.shape[::2] == batch2.shape[:2]:
            # A layer whose input torch cannot view as a matrix: one product of all rows, which are copied if need be.
            product = _mm(kind, recordable, batch1.flatten(0, 1), batch2[0])
            return _unsafe_view(product, [*batch1.shape[:2], batch2.shape[2]])
        return _products(batch1, batch2)
    return _leave(batch1, batch2)


def _matmul(kind, recordable, x, y):
    """Take products of heads, whose operands torch.matmul would copy. It computes all others by the operators above."""
    if kind is None or x.ndim < 4 or y.ndim != x.ndim:
        return None
    of_x, of_y = x.shape, y.shape
    if of_x[:-2] != of_y[:-2] or of_x[-1] != of_y[-2] or not _takes(kind, recordable, x, y, rank=x.ndim):
        return None
    if folds(x) and folds(y):
        return None
    return _unsafe_view(_products(fold(x), fold(y)), [*of_x[:-1], of_y[-1]])


def _leave_always(name):
    def leave(kind, recordable, *args, **kwargs):
        _leave(*[x for x in args if isinstance(x, torch.Tensor)][-2:], reason=f"aten::{name} stays with torch")

    return leave


# Products that the op could compute, in forms that layers do not use.
LEFT_ALWAYS = (
    "mm.out", "mm.dtype", "mm.dtype_out", "addmm.out", "addmm_", "addmm.dtype", "addmm.dtype_out", "_addmm_activation",
    "_addmm_activation.out", "mv", "mv.out", "addmv", "addmv_", "addmv.out", "bmm.out", "bmm.dtype", "bmm.dtype_out",
    "baddbmm.out", "baddbmm_", "baddbmm.dtype", "baddbmm.dtype_out",
)  # fmt: skip


def _overload(name):
    """Return an operator of torch.ops.aten, or None where this torch does not have it."""
    packet, _, overload = name.partition(".")
    return getattr(getattr(torch.ops.aten, packet, None), overload or "default", None)


OPERATORS = {"addmm": _addmm, "mm": _mm, "baddbmm": _baddbmm, "bmm": _bmm, "matmul": _matmul}
OPERATORS |= {name: _leave_always(name) for name in LEFT_ALWAYS if _overload(name)}


# ---- by dispatch key ----


def _keys_of_plain_tensors(key) -> dict:
    """Return {a call's keys, as a number: (its tensors' device type, whether autograd's key is among them)}.

    The calls are those on strided tensors of one device type, under no transform of torch.func, under modes (TorchDispatchMode)
    or none.
    """
    kinds, keys = torch._C.DispatchKey, torch._C.DispatchKeySet
    result = {}
    for device_type, backend, autograd in (("cuda", kinds.CUDA, kinds.AutogradCUDA), ("cpu", kinds.CPU, kinds.AutogradCPU)):
        plain = keys(key) | keys(backend)
        for call in (plain, plain | keys(kinds.Python) | keys(kinds.PythonTLSSnapshot)):
            result[call.raw_repr()] = device_type, False
            result[(call | keys(autograd)).raw_repr()] = device_type, True
    return result


class _Reached:
    """Stands for this thread's device types during the probe: notes which were asked about, and contains none."""

    def __init__(self):
        self.kinds = []

    def __contains__(self, kind):
        self.kinds.append(kind)
        return False


class KeyKernels:
    """Kernels for OPERATORS at a dispatch key.

    Raises:
        RuntimeError: where this torch does not know the key, or does not treat it as the kernels need.
    """

    def __init__(self, name):
        self.key = torch._C._dispatch_key_parse(name)
        self.plain = plain = _keys_of_plain_tensors(self.key)
        below, not_plain = torch._C._dispatch_keyset_full_after(self.key), (None, True)

        def kernel_of(overload, function):
            def kernel(keys, *args, **kwargs):
                result = function(*plain.get(keys.raw_repr(), not_plain), *args, **kwargs)
                return overload.redispatch(keys & below, *args, **kwargs) if result is None else result

            return kernel

        self.fallback, self.kernels = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
        self.fallback.fallback(torch.library.fallthrough_kernel, name)
        for operator, function in OPERATORS.items():
            self.kernels.impl(operator, kernel_of(_overload(operator), function), name, with_keyset=True)
        if not self.work():
            raise RuntimeError(f"torch {torch.__version__} does not call kernels at {name} as needed")

    def guard(self):
        return torch._C._IncludeDispatchKeyGuard(self.key)

    def work(self) -> bool:
        """Whether a product reaches a kernel while the key is included, goes on to torch's own, and reaches none afterwards."""
        x, outside = torch.full((1, 1), 3.0, device="cpu"), _this_thread.device_types
        _this_thread.device_types = reached = _Reached()
        try:
            with torch.no_grad(), self.guard():
                products = [torch.mm(x, x), torch.addmm(x, x, x)]
            inside, reached.kinds = reached.kinds, []
            torch.mm(x, x)
        finally:
            _this_thread.device_types = outside
        return inside == ["cpu", "cpu"] and not reached.kinds and [y.item() for y in products] == [9, 12]


def key_kernels() -> KeyKernels | None:
    """Return the kernels at the key, or None where this torch has no such key or treats it in another way."""
    try:
        return KeyKernels(KEY_NAME)
    except Exception:  # whatever a future torch raises for a key that it does not know
        return None


# ---- by mode ----


def _kind(*tensors) -> str | None:
    """Return the device type of the last one if all are strided, or None."""
    strided = all(not x.is_nested and x.layout == torch.strided for x in tensors)
    return routing.device_kind(tensors[-1]) if strided else None


class Mode(TorchDispatchMode):
    """The fallback. It runs Python for every operator."""

    functions = {_overload(operator): function for operator, function in OPERATORS.items()}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function := self.functions.get(func):
            result = function(_kind(*(x for x in args if isinstance(x, torch.Tensor))), True, *args, **kwargs)
            if result is not None:
                return result
        with self:  # without autograd a composite operator, as aten::linear is, arrives here whole
            result = func.decompose(*args, **kwargs)
        return func(*args, **kwargs) if result is NotImplemented else result


_key_kernels = key_kernels()
_warned = False


def _new_guard():
    global _warned
    if _key_kernels is not None:
        return _key_kernels.guard()
    if not _warned:
        _warned = True
        warnings.warn(
            f"torch_addmm_tc.enabled(): torch {torch.__version__} does not support the dispatch key {KEY_NAME} as needed. A "
            "TorchDispatchMode takes its place: results are the same, but each operator takes the host longer. "
            "swap_linears(model) costs nothing of the kind.",
            stacklevel=4,
        )
    return Mode()


@contextmanager
def enabled(device_type="cuda", *, batch_invariant=False):
    """Run this thread's products on this package's ops: aten::addmm, mm, baddbmm and bmm, and with them nn.Linear and matmul.

    Left to torch are products that the op does not support (routing.py) and products whose gradients are asked for. What a
    backward in this thread multiplies is not left. torch.compile compiles for the inside and the outside of a block apart, and
    alike: for compiled models there is compile_options().

    Args:
        device_type: "cuda" or "cpu"; products on other devices are left to torch. Blocks of both may nest.
        batch_invariant: whether the block is one of torch_addmm_tc.batch_invariant(), too. A product that would be left to
            torch is then an error.
    """
    if batch_invariant:
        with batch_invariant_block(), enabled(device_type):
            yield
        return
    kind, here = torch.device(device_type).type, _this_thread
    if not here.device_types:
        here.guard = _new_guard()
        here.guard.__enter__()
    here.device_types[kind] += 1
    try:
        yield
    finally:
        here.device_types -= Counter([kind])  # drops what falls to 0
        if not here.device_types:
            here.guard.__exit__(None, None, None)
