"""torch_addmm_tc.mm, and the op tc::addmm with self=None: products without an addend."""

import math

import pytest
import torch
from torch.library import opcheck

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.testing.reference import reference

ADDMM = torch.ops.tc.addmm.default


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("out_dtype", (None, torch.float32), ids=str)
@pytest.mark.parametrize("a,b", (("row", "col"), ("col", "row"), ("row_odd", "strided")))
@pytest.mark.parametrize("m,n,k", ((137, 265, 331), (1, 64, 4096), (264, 136, 416), (5, 0, 3), (5, 3, 0)))
def test_mm_matches_the_reference_and_addmm_with_beta_zero(device, dtype, out_dtype, a, b, m, n, k):
    _, mat1, mat2 = Case(m, n, k, dtype, a=a, b=b).inputs(device)
    result = tc.mm(mat1, mat2, out_dtype=out_dtype)
    assert result.shape == (m, n) and result.is_contiguous() and result.dtype == (out_dtype or dtype)
    zero = torch.zeros((), dtype=dtype, device=device)
    assert reference(zero, mat1, mat2, out_dtype=out_dtype).error(result) <= 1
    assert torch.equal(result, tc.addmm(zero, mat1, mat2, beta=0, out_dtype=out_dtype))


def test_opcheck(device):
    _, a, b = Case(6, 10, 8, b="col").inputs(device)
    opcheck(ADDMM, (None, a, b))
    opcheck(ADDMM, (None, a, b), {"out_dtype": torch.float32})


def test_beta_is_ignored_without_self(device):
    _, a, b = Case(6, 10, 8).inputs(device)
    assert torch.equal(ADDMM(None, a, b, beta=math.nan), ADDMM(None, a, b))
    out = torch.full((6, 10), math.nan, dtype=a.dtype, device=device)
    torch.ops.tc.addmm_out(None, a, b, beta=math.nan, out=out)
    assert torch.equal(out, ADDMM(None, a, b))


def test_vmap_and_autocast(device):
    a, b = torch.randn(3, 6, 8, device=device), torch.randn(8, 10, device=device)
    assert torch.allclose(torch.vmap(tc.mm, (0, None))(a, b), a @ b, atol=1e-4)
    assert torch.allclose(torch.vmap(tc.mm, (None, 0))(b.t(), a.mT), (a @ b).mT, atol=1e-4)
    result = torch.vmap(lambda a, b: tc.mm(a, b, out_dtype=torch.float32), (0, None))(a, b)
    assert torch.allclose(result, a @ b, atol=1e-4)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert tc.mm(a[0], b).dtype == torch.bfloat16 and tc.mm(a[0], b, out_dtype=torch.float32).dtype == torch.float32


@pytest.mark.parametrize("where", ("eager", "meta"))
def test_mm_raises_addmms_errors(device, where):
    a, b = torch.randn(6, 8, device=device).half(), torch.randn(8, 10, device=device).half()
    if where == "meta":
        a, b = a.to("meta"), b.to("meta")
    for args, message in (
        ((a, b[1:]), "mat1 and mat2 shapes cannot be multiplied"),
        ((a[0], b), "mat1 must be a matrix, got 1-D tensor"),
        ((a, b.float()), "mat1 and mat2 must have the same dtype"),
        ((a.double(), b.double()), "supports float16, bfloat16 and float32"),
        ((a.clone().requires_grad_(), b), "forward-only, but mat1 requires grad"),
    ):
        with pytest.raises(RuntimeError, match=message):
            tc.mm(*args)
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        tc.mm(a, b, out_dtype=torch.bfloat16)
