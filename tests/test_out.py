"""The argument out: its strides, resizing and aliasing."""

import math
import warnings

import pytest
import torch

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import reference

# torch tells its words to extensions since 2.13.
TELLS = torch.__version__ >= torch.torch_version.TorchVersion("2.13")
TORCH_SAYS = {"inference tensor": "Inplace update to inference tensor outside InferenceMode" if TELLS else "transpose_ failed"}
SHARED = "some elements of the input tensor and the written-to tensor refer to a single memory location"


@pytest.mark.parametrize("layout", ("row", "col", "row_pitched", "row_odd", "col_odd", "misaligned", "strided"))
@pytest.mark.parametrize("out_dtype", (torch.float16, torch.float32), ids=str)
def test_out_may_have_any_strides(device, layout, out_dtype):
    args = Case(33, 47, 65).inputs(device)
    out = matrix(layout, 33, 47, out_dtype, device).fill_(math.nan)
    strides = out.stride()
    assert tc.addmm(*args, out=out) is out
    assert out.stride() == strides
    assert reference(*args, out_dtype=out_dtype).error(out) <= 1


def test_out_of_wrong_shape_is_resized_with_torchs_warning(device):
    args = Case(3, 5, 4).inputs(device)
    for shape in ((5, 3), (7,), (1, 1)):
        out = torch.empty(shape, dtype=torch.float16, device=device)
        with pytest.warns(UserWarning, match="An output with one or more elements was resized"):
            tc.addmm(*args, out=out)
        assert out.shape == (3, 5) and reference(*args).error(out) <= 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        out = torch.empty(0, dtype=torch.float16, device=device)
        tc.addmm(*args, out=out)
    assert reference(*args).error(out) <= 1


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
def test_out_may_be_self(device, dtype):
    c, a, b = Case(33, 47, 65, dtype).inputs(device)
    expected = reference(c, a, b, beta=0.5)
    tc.addmm(c, a, b, beta=0.5, out=c)
    assert expected.error(c) <= 1


def test_out_that_shares_memory_with_an_operand_raises(device):
    x = torch.randn(8, 8, device=device).half()
    y = torch.randn(8, 8, device=device).half()
    before = x.clone()
    for call in (
        lambda: tc.addmm(y, x, y, out=x),
        lambda: tc.addmm(y, y, x, out=x),
        lambda: tc.addmm(y, y, x.t(), out=x),
    ):
        with pytest.raises(RuntimeError, match=SHARED):
            call()
    assert torch.equal(x, before)


@pytest.mark.parametrize("position, name", [(0, "self"), (1, "mat1"), (2, "mat2")])
def test_resizing_an_out_that_shares_an_inputs_storage_raises(device, position, name):
    """torch.addmm resizes such an out, which is correct only where out then overlaps no input. The op changes nothing."""
    for start, length in ((0, 0), (0, 16), (64, 8)):
        args = [torch.randn(8, 8, device=device).half() for _ in range(3)]
        buffer = torch.randn(72, device=device).half()
        args[position] = buffer[:64].view(8, 8)
        out, before = buffer[start : start + length], buffer.clone()
        with pytest.raises(RuntimeError, match=rf"shares its storage with {name}, so it cannot be resized to \[8, 8\]"):
            torch.ops.tc.addmm_out(*args, out=out)
        assert out.shape == (length,) and torch.equal(buffer, before)


def test_out_that_overlaps_part_of_self_raises(device):
    buffer = torch.randn(72, device=device).half()
    a, b = torch.randn(8, 8, device=device).half(), torch.randn(8, 8, device=device).half()
    out, shifted = buffer[:64].view(8, 8), buffer[8:].view(8, 8)
    before = buffer.clone()
    for c in (shifted, out.t(), out[0], out[:, :1], out[0, 0]):
        with pytest.raises(RuntimeError, match=SHARED):
            tc.addmm(c, a, b, out=out)
    assert torch.equal(buffer, before)
    tc.addmm(shifted, a, b, beta=0, out=out)  # beta is 0, so the op does not read self
    assert reference(shifted, a, b, beta=0).error(out) <= 1


def test_out_with_overlapping_elements_raises(device):
    args = Case(8, 8, 8).inputs(device)
    for out in (torch.zeros(1, 8).half().expand(8, 8), torch.zeros(15).half().as_strided((8, 8), (1, 1))):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor refers to a single memory"):
            tc.addmm(*args, out=out.to(device) if device == "cpu" else out.to(device).as_strided(out.shape, out.stride()))


def test_disjoint_columns_of_one_buffer_do_not_overlap(device):
    """A fused projection keeps its inputs and its output in columns of one buffer."""
    buffer = torch.randn(16, 48, device=device).half()
    a, out, c = buffer[:, :16], buffer[:, 16:32], buffer[:, 32:]
    b = torch.randn(16, 16, device=device).half()
    expected = reference(c.clone(), a.clone(), b)
    tc.addmm(c, a, b, out=out)
    assert expected.error(out) <= 1


def test_out_of_wrong_dtype_raises(device):
    args = Case(3, 5, 4).inputs(device)
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype Half or Float, but got Double instead"):
        tc.addmm(*args, out=torch.empty(3, 5, dtype=torch.float64, device=device))
    with pytest.raises(RuntimeError, match="Expected out tensor to have dtype torch.float32"):
        tc.addmm(*args, out_dtype=torch.float32, out=torch.empty(3, 5, dtype=torch.float16, device=device))


@pytest.mark.parametrize("op", ("addmm", "baddbmm"))
def test_autograd_finds_that_out_was_overwritten(device, op):
    """A tensor that autograd saved may be `out`. Its gradients would be wrong, so that backward() raises torch's error."""
    shape = (4, 4) if op == "addmm" else (2, 4, 4)
    x, out, a = torch.randn(shape, device=device), torch.ones(shape, device=device), torch.randn(shape, device=device)
    y = (x.requires_grad_() * out).sum()
    with torch.no_grad():
        getattr(tc, op)(a, a, a, out=out)
    assert out._version == 1
    with pytest.raises(RuntimeError, match="has been modified by an inplace operation"):
        y.backward()


def test_an_inference_tensor_is_no_out_outside_inference_mode(device):
    a = torch.randn(4, 4, device=device)
    with torch.inference_mode():
        out = torch.zeros(4, 4, device=device)
        tc.addmm(None, a, a, out=out)
    before = out.clone()
    with pytest.raises(RuntimeError, match=TORCH_SAYS["inference tensor"]):
        tc.addmm(a, a, a, out=out)
    assert torch.equal(out, before)
