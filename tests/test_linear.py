"""Linear and swap_linears. Results and state equal those of torch's layers, and supported calls run on the op."""

import copy
import pickle
import sys
from types import SimpleNamespace

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad

import torch_addmm_tc as tc
from torch_addmm_tc.integrations import linear
from torch_addmm_tc.integrations.routing import emulates_float32

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.fixture
def calls(monkeypatch):
    """Record the names of this package's functions in the order in which layers call them."""
    names = []
    for name in ("addmm", "mm"):
        function = getattr(linear, name)

        def spy(*args, name=name, function=function, **kwargs):
            names.append(name)
            return function(*args, **kwargs)

        monkeypatch.setattr(linear, name, spy)
    return names


def close(result, expected):
    return result.shape == expected.shape and torch.allclose(result, expected, rtol=0.02, atol=0.02)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("bias", (True, False))
@pytest.mark.parametrize("shape", ((5, 17), (2, 3, 17), (0, 17), (2, 0, 3, 17), (1, 17)))
def test_linear_matches_nn_linear(device, calls, dtype, bias, shape):
    theirs = nn.Linear(17, 9, bias=bias, device=device, dtype=dtype)
    ours = tc.Linear(17, 9, bias=bias, device=device, dtype=dtype)
    assert isinstance(ours, nn.Linear)
    ours.load_state_dict(theirs.state_dict())
    x = torch.randn(shape, device=device).to(dtype)
    with torch.inference_mode():
        assert close(ours(x), theirs(x))
        assert close(ours(x.mT.contiguous().mT), theirs(x))
    stays_with_torch = device == "cuda" and dtype == torch.float32 and not emulates_float32(None)  # torch's TF32 setting is off
    assert calls == ([] if stays_with_torch else ["addmm" if bias else "mm"] * 2)


def test_vectors_gradients_autocast_and_float64_stay_with_torch(device, calls):
    layer, x = tc.Linear(17, 9, device=device), torch.randn(5, 17, device=device)
    assert layer(x).requires_grad
    layer(x).sum().backward()
    assert layer.weight.grad is not None
    with torch.no_grad():
        assert layer(x[0]).shape == (9,)
        with torch.autocast(device, dtype=torch.bfloat16):
            assert layer(x).dtype == torch.bfloat16
        assert layer.double()(x.double()).dtype == torch.float64
    assert calls == []


def test_transforms_and_tangents_stay_with_torch(device, calls):
    theirs = nn.Linear(17, 9, device=device).requires_grad_(False)
    ours = tc.swap_linears(copy.deepcopy(theirs))
    x, v = torch.randn(2, 5, 17, device=device)
    for transform in (
        lambda layer: torch.func.jvp(layer, (x,), (v,))[1],
        lambda layer: torch.func.jacfwd(lambda y: layer(y).pow(2))(x[0]),
        lambda layer: torch.func.grad(lambda y: torch.vmap(layer)(y).pow(2).sum())(x),
    ):
        assert torch.allclose(transform(ours), transform(theirs), atol=1e-5)
    with forward_ad.dual_level():
        assert forward_ad.unpack_dual(ours(forward_ad.make_dual(x, v))).tangent is not None
    y = x.clone().requires_grad_()
    torch.vmap(ours)(y).sum().backward()
    assert y.grad is not None and calls == []


class Quantized(torch.Tensor):
    """A tensor class that computes functional.linear itself and implements nothing else."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        assert func is nn.functional.linear
        return "its own"


@pytest.mark.parametrize("transform", (torch.func.jvp, torch.func.grad, torch.func.jacrev, torch.func.jacfwd))
def test_compiled_transforms_match_torch(device, transform):
    layer = tc.Linear(8, 6, device=device).requires_grad_(False)
    plain = nn.Linear(8, 6, device=device).requires_grad_(False)
    plain.load_state_dict(layer.state_dict())
    x = torch.randn(3, 8, device=device)

    def derivative(model):
        if transform is torch.func.jvp:
            return lambda x: transform(model, (x,), (x,))[1]
        return transform((lambda x: model(x).sum()) if transform is torch.func.grad else model)

    torch._dynamo.reset()
    result = torch.compile(lambda x: derivative(layer)(x), backend="aot_eager")(x)
    assert torch.allclose(result, derivative(plain)(x), atol=1e-3)


def test_nested_meta_and_subclass_tensors_stay_with_torch(calls):
    from torch.testing._internal.two_tensor import TwoTensor

    layer, x = tc.Linear(17, 9).requires_grad_(False), torch.randn(5, 17)
    nested = torch.nested.nested_tensor([x[:2], x])
    assert torch.allclose(layer(nested)[1], layer(x), atol=1e-5)
    assert layer.to("meta")(x.to("meta")).shape == (5, 9)
    calls.clear()
    weight = torch.randn(9, 17)
    del layer.weight
    layer.weight = TwoTensor(weight, weight)
    layer.bias = None
    assert isinstance(layer(x), TwoTensor)
    layer.weight = weight.as_subclass(Quantized)
    assert layer(x) == "its own" and calls == []


class Conv1D(nn.Module):
    """A layer like transformers' Conv1D: y = x @ weight + bias with a (K, N) weight."""

    def __init__(self, n, k):
        super().__init__()
        self.nf = n
        self.weight, self.bias = nn.Parameter(torch.randn(k, n)), nn.Parameter(torch.randn(n))

    def forward(self, x):
        return torch.addmm(self.bias, x.view(-1, x.size(-1)), self.weight).view(*x.shape[:-1], self.nf)


Conv1D.__module__ = "transformers.pytorch_utils"


def model(device):
    layers = nn.Sequential(nn.Linear(17, 9), nn.ReLU(), Conv1D(6, 9), nn.Sequential(nn.Linear(6, 5, bias=False)))
    return layers.to(device, torch.bfloat16).requires_grad_(False)


def test_swap_linears_keeps_results_parameters_and_hooks(device, calls):
    theirs, x = model(device), torch.randn(2, 3, 17, device=device).bfloat16()
    seen = []
    theirs[0].register_forward_hook(lambda *_: seen.append("hook"))
    ours = copy.deepcopy(theirs)
    weights = [id(p) for p in ours.parameters()]
    assert tc.swap_linears(ours) is ours and tc.swap_linears(ours) is ours  # a second swap changes nothing
    assert [id(p) for p in ours.parameters()] == weights and ours.state_dict().keys() == theirs.state_dict().keys()
    assert isinstance(ours[0], tc.Linear) and isinstance(ours[2], Conv1D) and isinstance(ours[3][0], tc.Linear)
    assert close(ours(x), theirs(x)) and calls == ["addmm", "addmm", "mm"] and seen == ["hook"] * 2
    copy.deepcopy(ours)(x)
    assert len(calls) == 6


def test_swapped_layers_can_be_pickled(device, calls, monkeypatch):
    monkeypatch.setitem(sys.modules, "transformers", SimpleNamespace())
    monkeypatch.setitem(sys.modules, Conv1D.__module__, SimpleNamespace(Conv1D=Conv1D))
    ours, x = tc.swap_linears(model(device)), torch.randn(3, 17, device=device).bfloat16()
    again = pickle.loads(pickle.dumps(ours))
    assert torch.equal(again(x), ours(x)) and len(calls) == 6 and type(again[2]) is type(ours[2])


def test_swap_linears_takes_a_filter_and_leaves_subclasses():
    class Special(nn.Linear):
        """A subclass, which may compute something else."""

    layers = nn.Sequential(nn.Linear(4, 4), Special(4, 4), nn.Linear(4, 4))
    tc.swap_linears(layers, filter_fn=lambda module, fqn: isinstance(module, nn.Linear) and fqn != "0")
    assert [type(layer) for layer in layers] == [nn.Linear, Special, tc.Linear]


def test_exported_layers_call_the_op_and_compiled_layers_match(device):
    layers, x = tc.swap_linears(model(device)), torch.randn(6, 17, device=device).bfloat16()
    program = torch.export.export(layers, (x,))
    targets = [node.target for node in program.graph.nodes]
    assert targets.count(torch.ops.tc.addmm.default) == 3 and torch.ops.aten.addmm.default not in targets
    torch._dynamo.reset()
    assert close(torch.compile(layers, fullgraph=True)(x), layers(x))


def test_non_tensor_inputs_and_other_biases_stay_with_torch(device, calls):
    layer, x = tc.Linear(8, 6, device=device).requires_grad_(False), torch.randn(2, 3, 8, device=device)
    with pytest.raises(TypeError):
        layer([1.0] * 8)
    plain = nn.Linear(8, 6, device=device).requires_grad_(False)
    plain.load_state_dict(layer.state_dict())
    for shape in ((3, 6), (2, 3, 6)):
        layer.bias = plain.bias = nn.Parameter(torch.randn(shape, device=device), requires_grad=False)
        assert torch.equal(layer(x), plain(x))
    del layer.bias
    layer.bias = torch.randn(6).as_subclass(Quantized)
    assert layer(x) == "its own" and calls == []
