"""The reference and its error bound: a correct result is within the bound, and each kind of wrong result is outside."""

import dataclasses
import math

import pytest
import torch

import torch_addmm_tc as tc
from torch_addmm_tc.testing import cases
from torch_addmm_tc.testing.cases import (
    BROADCASTS,
    Case,
    asked_configs,
    case_grid,
    checked_kernels,
    runnable_configs,
    sample,
    self_shape,
)
from torch_addmm_tc.testing.inputs import BATCHES, integers
from torch_addmm_tc.testing.reference import reference


def correct_result(case):
    c, a, b = case.inputs("cpu")
    fp32 = case.beta * c.float() + case.alpha * (a.float() @ b.float())
    return (c, a, b), fp32.to(case.out_dtype or case.dtype)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16, torch.float32), ids=str)
@pytest.mark.parametrize("out_dtype", (None, torch.float32), ids=str)
def test_correct_result_is_within_the_bound(dtype, out_dtype):
    case = Case(40, 50, 60, dtype, out_dtype=out_dtype)
    args, result = correct_result(case)
    error = reference(*args, **case.scalars, out_dtype=out_dtype).error(result)
    assert 0 < error <= 1


MUTANTS = {
    "dropped K tail": lambda c, a, b: 0.5 * c.float() + 0.5 * (a[:, :-1].float() @ b[:-1].float()),
    "ignored beta": lambda c, a, b: c.float() + 0.5 * (a.float() @ b.float()),
    "ignored alpha": lambda c, a, b: 0.5 * c.float() + a.float() @ b.float(),
    "ignored C": lambda c, a, b: 0.5 * (a.float() @ b.float()),
    "C broadcast along the wrong axis": lambda c, a, b: 0.5 * c[:, :1].float() + 0.5 * (a.float() @ b.float()),
    "C transposed": lambda c, a, b: 0.5 * c.float().t() + 0.5 * (a.float() @ b.float()),
    "fp16 accumulation": lambda c, a, b: 0.5 * c.float() + 0.5 * (a[:, :32] @ b[:32] + a[:, 32:] @ b[32:]).float(),
    "one element wrong": lambda c, a, b: (0.5 * c.float() + 0.5 * (a.float() @ b.float())).index_put_(
        (torch.tensor(5), torch.tensor(6)), torch.tensor(0.01), accumulate=True
    ),
    "one element unwritten": lambda c, a, b: (0.5 * c.float() + 0.5 * (a.float() @ b.float())).index_put_(
        (torch.tensor(5), torch.tensor(6)), torch.tensor(math.nan)
    ),
    "rows swapped": lambda c, a, b: (0.5 * c.float() + 0.5 * (a.float() @ b.float())).flip(0),
    "zeros": lambda c, a, b: torch.zeros(c.shape),
    "wrong shape": lambda c, a, b: (0.5 * c.float() + 0.5 * (a.float() @ b.float()))[:-1],
}


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_wrong_result_is_outside_the_bound(mutant):
    case = Case(64, 64, 64, out_dtype=torch.float32)
    args, result = correct_result(case)
    expected = reference(*args, **case.scalars, out_dtype=torch.float32)
    assert expected.error(result) <= 1
    assert not expected.error(mutant(*args)) <= 1


def test_tf32_and_double_rounding_are_outside_the_bound():
    case = Case(64, 64, 64, torch.float32)
    (c, a, b), result = correct_result(case)
    expected = reference(c, a, b, **case.scalars)
    tf32 = lambda x: (x.view(torch.int32) & ~0x1FFF).view(torch.float32)  # noqa: E731
    assert expected.error(result) <= 1
    assert expected.error(0.5 * c + 0.5 * (tf32(a) @ tf32(b))) > 1
    rounded = lambda x: tf32((x.view(torch.int32) + 0x1000).view(torch.float32))  # noqa: E731
    assert reference(c, a, b, **case.scalars, tf32=True).error(0.5 * c + 0.5 * (rounded(a) @ rounded(b))) <= 1
    fp16_case = Case(64, 64, 64)
    (c, a, b), _ = correct_result(fp16_case)
    rounded_twice = (0.5 * c.float() + (0.5 * (a.float() @ b.float())).half().float()).half()
    assert reference(c, a, b, **fp16_case.scalars).error(rounded_twice) > 1


def test_integers_reveal_a_partial_sum_in_fp16():
    (c, a, b), expected = integers(40, 50, 3000, "cpu")
    slices = [x.float() @ y.float() for x, y in zip(a.chunk(4, 1), b.chunk(4, 0))]
    assert torch.equal(sum(slices, c.float()), expected)
    assert not torch.equal(sum((partial.half().float() for partial in slices), c.float()), expected)


def test_wrong_nan_or_infinity_has_an_infinite_error():
    case = Case(8, 8, 8, torch.float32)
    (c, a, b), _ = correct_result(case)
    a[0, 0] = math.nan
    expected = reference(c, a, b)
    good = torch.addmm(c, a, b)
    assert expected.error(good) <= 1
    bad = good.clone()
    bad[0] = 0
    assert expected.error(bad) == math.inf
    bad = good.clone()
    bad[1, 1] = math.inf
    assert expected.error(bad) == math.inf


def test_sample_has_every_value_and_depends_on_its_seed():
    grid = case_grid()
    chosen = sample(grid, 1)
    assert len(chosen) < len(grid) / 5 and set(chosen) < set(grid)
    assert chosen == sample(grid, 1) and set(chosen) != set(sample(grid, 2))
    for field in dataclasses.fields(grid[0]):
        values = [{str(getattr(case, field.name)) for case in cases} for cases in (chosen, grid)]
        assert values[0] == values[1], field.name


def test_case_grid_covers_broadcasts_and_special_scalars():
    grid = case_grid()
    assert len(grid) == len(set(map(str, grid))) == len(set(grid))
    assert {c.broadcast for c in grid if c.batch is None} == set(BROADCASTS)
    assert {kind for c in grid for kind in c.batches} == set(BATCHES) and {c.batch for c in grid} >= {None, 0, 1, 3, 300}
    assert any(c.k == 0 for c in grid) and any(c.beta == 0 for c in grid) and any(math.isnan(c.alpha) for c in grid)
    assert self_shape("(M,1)", 3, 5) == (3, 1) and self_shape("()", 3, 5) == () and self_shape("(N)", 3, 5) == (5,)


def test_every_configuration_that_the_gpu_and_the_build_allow_is_runnable():
    """The GPU tests and bench.sanitize take their configurations from there. Without a GPU they are those for an H200."""
    of_gpu_and_build = {
        "the GPU is too old for it",
        "the GPU no longer has its instructions",
        "this build has no machine code for it",
        "its tiles do not fit the GPU's shared memory",
    }
    reasons = {}
    for dtype in (torch.float16, torch.float32):
        x = torch.empty(64, 64, dtype=dtype, device="meta")
        for candidate in tc.plan(None, x, x).candidates:
            reasons.setdefault(f"{candidate.kernel}/{candidate.index}", set()).add(candidate.reason)
    assert len(reasons) == sum(len(kernel["configs"]) for kernel in tc.kernels())
    runnable = {"/".join(name.split("/")[:2]) for names in runnable_configs().values() for name in names}
    for name in reasons.keys() - runnable:
        assert reasons[name] & of_gpu_and_build, f"{name} is left out, though {reasons[name]}"


def test_a_configuration_that_the_gpu_does_not_run_cannot_be_asked_for(monkeypatch):
    monkeypatch.setattr(cases, "runnable_configs", lambda: {"simt": ["simt/0"]})
    assert checked_kernels(["simt", "simt/0"]) == ["simt", "simt/0"]
    with pytest.raises(ValueError, match="this GPU runs no such configuration"):
        checked_kernels(["simt/1"])


def test_a_kernel_or_a_configuration_may_be_asked_for(monkeypatch):
    names = ["simt/1", "simt/10", "simt/1/2x1"]
    monkeypatch.setattr(cases, "runnable_configs", lambda: {"simt": names})
    assert asked_configs("simt", []) == asked_configs("simt", ["simt"]) == names
    assert asked_configs("simt", ["wmma_naive", "simt/1"]) == ["simt/1", "simt/1/2x1"]
    assert asked_configs("simt", ["wmma_naive"]) == []


@pytest.mark.parametrize("asked", ("sim", "simt/", "simt/-1", "simt/99", "wgmma_multicast/0/1x1"))
def test_a_kernel_that_does_not_exist_cannot_be_asked_for(asked):
    assert checked_kernels(["simt", "simt/0"]) == ["simt", "simt/0"]
    with pytest.raises(ValueError, match="there is no such kernel|has the configurations"):
        checked_kernels(["simt", asked])
