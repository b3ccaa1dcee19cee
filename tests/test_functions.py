"""torch_addmm_tc.linear, and torch_addmm_tc.addmm without an input."""

import pytest
import torch
from torch.nn import functional

import torch_addmm_tc as tc
from torch_addmm_tc.testing.reference import ACTIVATIONS

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("shape", ((17,), (5, 17), (2, 3, 17), (2, 0, 17), (1, 2, 3, 17)))
@pytest.mark.parametrize("bias", (True, False))
def test_linear_matches_functional_linear(device, dtype, shape, bias):
    x, weight = torch.randn(shape, device=device).to(dtype), torch.randn(9, 17, device=device).to(dtype)
    bias = torch.randn(9, device=device).to(dtype) if bias else None
    result, expected = tc.linear(x, weight, bias), functional.linear(x, weight, bias)
    assert result.shape == expected.shape and result.dtype == dtype and result.is_contiguous()
    assert torch.allclose(result, expected, rtol=0.02, atol=0.02)


def test_linear_takes_transposed_and_empty_inputs(device):
    x, weight = torch.randn(3, 2, 17, device=device), torch.randn(9, 17, device=device)
    assert torch.allclose(tc.linear(x.transpose(0, 1), weight), functional.linear(x.transpose(0, 1), weight), atol=1e-4)
    assert torch.equal(tc.linear(x[..., :0], weight[:, :0]), torch.zeros(3, 2, 9, device=device))


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_linear_takes_an_activation_and_an_out_dtype(device, name):
    x, weight, bias = (torch.randn(s, device=device).half() for s in ((2, 3, 17), (9, 17), (9,)))
    result = tc.linear(x, weight, bias, activation=name, out_dtype=torch.float32)
    expected = ACTIVATIONS[name](functional.linear(x.double(), weight.double(), bias.double()))
    assert result.dtype == torch.float32 and torch.allclose(result.double(), expected, atol=1e-4)


def test_linear_raises_addmms_errors(device):
    x, weight = torch.randn(2, 3, 17, device=device), torch.randn(9, 16, device=device)
    with pytest.raises(RuntimeError, match=r"mat1 and mat2 shapes cannot be multiplied \(6x17 and 16x9\)"):
        tc.linear(x, weight)


def test_linear_compiles(device):
    x, weight, bias = (torch.randn(s, device=device).bfloat16() for s in ((2, 3, 17), (9, 17), (9,)))
    compiled = torch.compile(lambda *args: tc.linear(*args, activation="gelu"), fullgraph=True, dynamic=True)
    assert torch.equal(compiled(x, weight, bias), tc.linear(x, weight, bias, activation="gelu"))


def test_addmm_without_an_input_equals_mm(device):
    a, b = torch.randn(5, 17, device=device), torch.randn(17, 9, device=device)
    assert torch.equal(tc.addmm(None, a, b, beta=3), tc.mm(a, b))
