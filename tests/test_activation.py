"""The `activation` argument of the ops and of the public functions."""

import math

import pytest
import torch
from torch.library import opcheck

import torch_addmm_tc as tc
from torch_addmm_tc import _C
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.testing.reference import ACTIVATIONS, reference

ADDMM = torch.ops.tc.addmm.default
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def test_activation_names():
    assert _C.activations == ["none", *ACTIVATIONS]


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations_are_as_accurate_as_torch(device, name):
    """mat2 is zero, so the activation's argument is the addend. The result is fp32, so no rounding to 16 bits adds an error."""
    x = torch.linspace(-20, 20, 100_001, device=device)[:, None]
    exact = ACTIVATIONS[name](x.double())
    error = (tc.addmm(x, x, torch.zeros(1, 1, device=device), activation=name) - exact).abs().max()
    assert error <= max(1.2 * (ACTIVATIONS[name](x) - exact).abs().max(), 6e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_activations_of_special_values(device, name, dtype):
    """Check infinities, NaN, zeros, and arguments whose squares overflow fp16.

    The test sets the expected values of infinities itself, because torch's gelu of inf is NaN on some CPUs.
    """
    x = torch.tensor([math.inf, -math.inf, math.nan, 0.0, 6e4, -6e4, 1e-7, -1e-7], device=device).to(dtype)[:, None]
    result = tc.addmm(x, x, x.new_zeros(1, 1), alpha=0, activation=name)
    expected = ACTIVATIONS[name](x)
    expected[0], expected[1] = math.inf, 0 if name == "relu" else math.nan
    assert torch.allclose(result, expected, equal_nan=True, atol=1e-7)


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("out_dtype", (None, torch.float32), ids=str)
@pytest.mark.parametrize("m,n,k", ((137, 265, 331), (64, 128, 64), (5, 0, 3), (5, 3, 0)))
def test_ops_and_functions_apply_the_activation(device, name, dtype, out_dtype, m, n, k):
    c, a, b = Case(m, n, k, dtype, broadcast="(N)").inputs(device)
    options = {"activation": name, "out_dtype": out_dtype}
    scalars = {"beta": 0.5, "alpha": 0.2}
    expected = reference(c, a, b, **scalars, **options)
    result = tc.addmm(c, a, b, **scalars, **options)
    assert expected.error(result) <= 1
    out = torch.full((m, n), math.nan, dtype=out_dtype or dtype, device=device)
    assert tc.addmm(c, a, b, **scalars, activation=name, out=out) is out and torch.equal(out, result)
    product = tc.mm(a, b, **options)
    assert reference(torch.zeros_like(c), a, b, **options).error(product) <= 1


def test_activation_none_equals_the_default(device):
    args = Case(33, 65, 17).inputs(device)
    assert torch.equal(ADDMM(*args, activation="none", alpha=2), tc.addmm(*args, alpha=2))
    assert torch.equal(tc.mm(*args[1:], activation="none"), tc.mm(*args[1:]))


def test_activation_works_with_compile_vmap_and_autocast(device):
    c, a, b = Case(6, 10, 8, broadcast="(N)").inputs(device)
    opcheck(ADDMM, (c, a, b), {"out_dtype": torch.float32, "activation": "gelu"})
    opcheck(ADDMM, (None, a, b), {"activation": "relu"})
    expected = tc.addmm(c, a, b, activation="silu")
    compiled = torch.compile(lambda *args: tc.addmm(*args, activation="silu"), fullgraph=True)
    assert torch.allclose(compiled(c, a, b), expected)
    each = torch.vmap(lambda a: tc.addmm(c, a, b, activation="silu"))(torch.stack([a, a]))
    assert torch.allclose(each[1], expected)
    assert torch.allclose(torch.vmap(lambda a: tc.mm(a, b, activation="relu"))(a[None])[0], tc.mm(a, b, activation="relu"))
    with torch.autocast(device, dtype=torch.bfloat16):
        assert tc.addmm(c.float(), a.float(), b.float(), activation="relu").dtype == torch.bfloat16
        assert tc.addmm(c.float(), a.float(), b.float(), activation="relu", out_dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("where", ("eager", "meta"))
def test_unknown_activation_raises(device, where):
    args = [x.to("meta" if where == "meta" else device) for x in Case(6, 10, 8).inputs(device)]
    out = torch.full((6, 10), 7.0, dtype=torch.float16, device=args[0].device)
    for call in (
        lambda: tc.addmm(*args, activation="elu"),
        lambda: tc.mm(*args[1:], activation="elu"),
        lambda: tc.addmm(*args, activation="elu", out=out),
    ):
        with pytest.raises(RuntimeError, match="activation must be one of none, relu, gelu, gelu_tanh, silu, but got 'elu'"):
            call()
    assert where == "meta" or (out == 7).all()


def test_activation_is_forward_only(device):
    c, a, b = Case(6, 10, 8).inputs(device)
    with pytest.raises(RuntimeError, match="forward-only, but self requires grad"):
        tc.addmm(c.requires_grad_(), a, b, activation="relu")
