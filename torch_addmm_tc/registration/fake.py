"""Shapes, strides, dtypes and errors of the ops without data: for torch.compile, torch.export and meta tensors.

The conditions repeat those of csrc/op/checks.cpp, because shapes may be symbolic here. The texts are the compiled ones.
"""

import sys

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.registration.table import OPS

SUPPORTED = (torch.float16, torch.bfloat16, torch.float32)
PRECISIONS = ("ieee", "tf32")
MESSAGES = _C.messages
SCALAR_TYPES = {  # as the compiled checks, and torch's own, call dtypes
    torch.float16: "Half", torch.bfloat16: "BFloat16", torch.float32: "Float", torch.float64: "Double",
    torch.int8: "Char", torch.uint8: "Byte", torch.int16: "Short", torch.int32: "Int", torch.int64: "Long",
    torch.bool: "Bool", torch.complex32: "ComplexHalf", torch.complex64: "ComplexFloat", torch.complex128: "ComplexDouble",
}  # fmt: skip


def _text(value) -> str:
    if isinstance(value, torch.dtype):
        return SCALAR_TYPES.get(value, str(value).removeprefix("torch."))
    return str(list(value)) if isinstance(value, (tuple, torch.Size)) else str(value)


def check(condition, message: str, *values):
    """Raise the op's error of a name in csrc/op/messages.h, unless the condition holds."""
    torch._check(condition, lambda: MESSAGES[message].format(*map(_text, values)))


def check_names(call):
    """Raise the op's error about an activation or a precision that does not exist."""
    activation, precision = call.role("activation"), call.role("precision")
    check(activation in (None, *_C.activations), "activation_unknown", ", ".join(_C.activations), activation)
    check(precision in (None, *PRECISIONS), "precision_unknown", precision)


def _check_options(call):
    check_names(call)
    a, invariant = call.operands[0], call.role("batch_invariant") or _C.in_batch_invariant_block()
    check(not invariant or a is None or a.device.type != "cpu", "batch_invariant_on_cpu")


def checked_shape(call) -> tuple:
    """The shape of a call's result.

    Raises:
        RuntimeError: the op's error about tensors that are missing, shapes and dtypes.
    """
    (name_a, name_b), (a, b), rank, addend = call.op.operands, call.operands, call.op.rank, call.role("addend")
    for name, x in ((name_a, a), (name_b, b)):
        check(x is not None, "not_a_tensor", name)
    for name, x in ((call.op.addend, addend), (name_a, a), (name_b, b)):
        check(x is None or x.layout == torch.strided, "not_strided", name, x.layout if x is not None else None, name)
    for name, x in ((name_a, a), (name_b, b)):
        check(x.dim() == rank, "not_a_matrix" if rank == 2 else "not_a_batch", name, x.dim())
    (*batch, m, k), (*_, inner, n) = a.shape, b.shape
    for size, other in zip(batch, b.shape):
        check(size == other, "batch_sizes_differ", size, k, other, inner)
        check(k == inner, "batch_sizes_differ", size, k, other, inner)
    check(k == inner, "inner_sizes_differ", m, k, inner, n)
    out_dtype = call.result_dtype
    check(
        addend is None or addend.dtype == b.dtype or (out_dtype != a.dtype and addend.dtype == out_dtype),
        "self_dtype_differs",
        name_b,
        None if addend is None else addend.dtype,
        b.dtype,
    )
    check(a.dtype == b.dtype, "mat_dtypes_differ", name_a, name_b, a.dtype, b.dtype)
    check(a.dtype in SUPPORTED, "dtype_unsupported", name_a, a.dtype)
    check(out_dtype in (a.dtype, torch.float32), "out_dtype_unsupported", out_dtype, a.dtype)
    shape = (*batch, m, n)
    if addend is not None:
        addend.expand(shape)  # raises aten's own message when it cannot
    return shape


def _inductor_is_lowering() -> bool:
    """Whether Inductor lowers a graph. Its fake parameters require grad, whoever will call the code that it makes."""
    virtualized = sys.modules.get("torch._inductor.virtualized")
    try:
        return virtualized is not None and not isinstance(virtualized.V.graph, virtualized.NullHandler)
    except RuntimeError:  # "poisoned": Inductor has another process lower the graph
        return True


def _check_devices_and_gradients(call):
    device = call.operands[0].device
    tensors = {name: call.values[name] for name in call.op.tensors if call.values[name] is not None}
    for name, x in tensors.items():
        check(x.device == device, "devices_differ", name, x.device, device)
    if torch.is_grad_enabled() and not _inductor_is_lowering():
        for name, x in tensors.items():
            check(not x.requires_grad, "forward_only", name, name)


def checked_call(call) -> tuple:
    """The shape of the result of a call without `out`.

    Raises:
        RuntimeError: whatever error the call itself would raise.
    """
    _check_options(call)
    shape = checked_shape(call)
    _check_devices_and_gradients(call)
    return shape


def _fake(op):
    def functional(*args, **kwargs):
        call = op.bind(args, kwargs)
        shape = checked_call(call)
        return call.operands[0].new_empty(shape, dtype=call.result_dtype)

    def writes_out(*args, **kwargs):
        call = op.bind(args, kwargs)
        a, out = call.operands[0], call.role("out")
        _check_options(call)
        for name, x in zip(op.operands, call.operands):
            check(x is not None, "not_a_tensor", name)
        check(out.dtype in (a.dtype, torch.float32), "out_dtype_differs", f"{_text(a.dtype)} or Float", out.dtype)
        shape = checked_shape(call)
        _check_devices_and_gradients(call)
        check(out.device == a.device, "out_device_differs", out.device, a.device)
        check(tuple(out.shape) == shape, "out_shape_when_traced", shape, out.shape)

    return writes_out if op.out else functional


def register(op):
    torch.library.register_fake(op.qualified_name, _fake(op))


for _op in OPS:
    register(_op)
