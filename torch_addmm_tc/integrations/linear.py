"""Layers of eager models on this package's ops: Linear, and swap_linears for the layers that a model already has."""

import functools

import torch
from torch import nn

from torch_addmm_tc.integrations import enabled, routing
from torch_addmm_tc.ops import addmm, mm


def _sharding():
    from torch_addmm_tc.registration import sharding  # registers the ops' rules for DTensors: not before the first one comes

    return sharding


def _takes(x, weight, bias) -> bool:
    """Whether the op may compute a layer; _product then asks for the product itself."""
    if not (type(x) in routing.PLAIN and type(weight) in routing.PLAIN and (bias is None or type(bias) in routing.PLAIN)):
        kinds = {type(t) for t in (x, weight, bias) if t is not None}
        if any(routing.is_dtensor_type(kind) for kind in kinds):
            _sharding()
        elif any(routing.is_foreign_type(kind) for kind in kinds):
            return False
    kind = routing.device_kind(x)
    if x.is_nested or x.ndim < 2 or kind is None:
        return False
    if torch.is_autocast_enabled(kind):  # torch casts the arguments, and keeps the casts of weights
        return False
    return not routing.is_differentiated(x, weight, bias) and (bias is None or (bias.ndim == 1 and bias.dtype == x.dtype))


def _product(x, weight, bias):
    """Compute x (..., K) @ weight (K, N) + bias (N), or return None where routing.py leaves the product to torch."""
    rows = x if x.ndim == 2 else x.flatten(0, -2)
    invariant = routing.in_batch_invariant_block()
    if routing.unsupported_reason(rows, weight, batch_invariant=invariant):
        return None
    given = {} if type(weight) in routing.PLAIN else {"batch_invariant": invariant}  # DTensor's rules see no block
    result = mm(rows, weight, **given) if bias is None else addmm(bias, rows, weight, **given)
    return result if x.ndim == 2 else result.view(*x.shape[:-1], weight.shape[1])


def _leave(x):
    """Leave a layer to torch: in a batch_invariant() block only where enabled() takes its product."""
    if not routing.in_batch_invariant_block() or not isinstance(x, torch.Tensor):
        return
    if (kind := routing.device_kind(x)) and not enabled.covers(kind):
        routing.refuse_in_batch_invariant_block(
            "its gradient is asked for, autocast or a transform of torch.func runs, or the op does not take its tensors"
        )


class Linear(nn.Linear):
    """An nn.Linear whose product is torch.ops.tc.addmm. Parameters and state_dict are nn.Linear's.

    The forward is nn.Linear's own where a gradient is asked for, under autocast and torch.func's transforms, and for inputs
    that the op does not take.
    """

    def forward(self, input):
        weight, bias = self.weight, self.bias
        result = None
        if _takes(input, weight, bias):
            if type(weight) not in routing.PLAIN and routing.is_dtensor_type(type(weight)):
                result = _sharding().linear(input, weight, bias, _product)
            if result is None:
                result = _product(input, weight.t(), bias)
        if result is None:
            _leave(input)
            result = super().forward(input)
        return result


class _Conv1D:
    """The forward of a turned Conv1D of transformers, whose weight is (K, N). The layer's class is a subclass of both."""

    def forward(self, x):
        weight, bias = self.weight, self.bias
        result = _product(x, weight, bias) if _takes(x, weight, bias) else None
        if result is None:
            _leave(x)
            result = super().forward(x)
        return result

    def __reduce_ex__(self, protocol):  # pickle finds classes by name, and this class is made at run time
        _, _, *state = super().__reduce_ex__(protocol)
        return _new_conv1d, (type(self).__bases__[1],), *state


def _new_conv1d(kind):
    return (swapped := _swapped(kind)).__new__(swapped)


@functools.cache
def _swapped(kind):
    """Return the class that a layer of class `kind` becomes, or None."""
    if kind is nn.Linear:
        return Linear
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return type("Conv1D", (_Conv1D, kind), {"__module__": __name__})
    return None


def swap_linears(model: nn.Module, filter_fn=None) -> nn.Module:
    """Turn a model's linear layers into this package's, in place. Parameters, hooks and names stay as they are.

    Args:
        model: any module. Its nn.Linear layers are turned, and the Conv1D layers of transformers. Subclasses of either are
            left, because they may do more.
        filter_fn: filter_fn(module, fqn) -> bool tells which of these layers to turn; fqn is the module's name in the model
            ("encoder.0.up"). None turns all.

    Returns:
        The model.
    """
    for fqn, module in model.named_modules():
        kind = _swapped(type(module))
        if kind and (filter_fn is None or filter_fn(module, fqn)):
            module.__class__ = kind
    return model
