"""Layers of eager models on this package's ops: Linear, and swap_linears for the layers that a model already has."""

import functools
import sys

import torch
from torch import nn
from torch.utils._python_dispatch import is_traceable_wrapper_subclass

from torch_addmm_tc import routing
from torch_addmm_tc.ops import addmm, mm


def _needs_grad(*tensors) -> bool:
    return torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in tensors)


def _is_foreign(x) -> bool:
    """Whether x is a tensor subclass with an arithmetic of its own, quantized say. DTensor's are this package's to teach."""
    if type(x) in (torch.Tensor, nn.Parameter) or not is_traceable_wrapper_subclass(x):
        return False
    tensor = sys.modules.get("torch.distributed.tensor")
    if not tensor or not isinstance(x, tensor.DTensor):
        return True
    from torch_addmm_tc import sharding  # noqa: F401  (it registers the rules)

    return False


def _product(x, weight, bias):
    """x (.., K) @ weight (K, N) + bias (N), or None where it is torch's to compute: for a gradient, or as routing.py says."""
    if _is_foreign(x) or _is_foreign(weight):
        return None
    if torch.is_autocast_enabled(x.device.type):  # torch casts the arguments, and keeps the casts of weights
        return None
    rows = x.flatten(0, -2) if x.dim() > 2 else x
    if _needs_grad(x, weight, bias) or routing.refusal(rows, weight) or (bias is not None and bias.dtype != x.dtype):
        return None
    result = mm(rows, weight) if bias is None else addmm(bias, rows, weight)
    return result.unflatten(0, x.shape[:-1]) if x.dim() > 2 else result


class Linear(nn.Linear):
    """nn.Linear, state_dict and all, whose product is torch.ops.tc.addmm. Where a gradient is asked for, under autocast and
    for inputs that the op does not take, it is nn.Linear itself."""

    def forward(self, input):
        result = _product(input, self.weight.t(), self.bias)
        return super().forward(input) if result is None else result


class _Conv1D:
    """What Hugging Face's Conv1D (its weight is (K, N)) becomes, whichever class of that name it was."""

    def forward(self, x):
        result = _product(x, self.weight, self.bias)
        return super().forward(x) if result is None else result


@functools.cache
def _swapped(kind):
    """The class that a layer of class `kind` becomes, or None."""
    if kind is nn.Linear:
        return Linear
    if kind.__name__ == "Conv1D" and kind.__module__ == "transformers.pytorch_utils":
        return type("Conv1D", (_Conv1D, kind), {"__module__": __name__})
    return None


def swap_linears(model: nn.Module, filter=None) -> nn.Module:
    """Turns a model's linear layers into this package's, in place: parameters, hooks and names stay as they are.

    Args:
        model: any module; every nn.Linear in it (not its subclasses, which do more) and every Conv1D of transformers.
        filter: filter(name, module) -> bool, which of them; all by default.

    Returns:
        The model.
    """
    for name, module in model.named_modules():
        kind = _swapped(type(module))
        if kind and (filter is None or filter(name, module)):
            module.__class__ = kind
    return model
