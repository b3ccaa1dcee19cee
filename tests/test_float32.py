"""The kernels for float32 without TF32: as accurate as torch's SGEMM, and right on every value."""

import math
from dataclasses import replace

import pytest
import torch
from conftest import NO_GPU, chosen_configs

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case, adapted, multiplies
from torch_addmm_tc.testing.reference import reference

if NO_GPU:
    pytest.skip(f"every test needs {NO_GPU}", allow_module_level=True)

pytestmark = pytest.mark.gpu

ANY = Case(1, 1, 1, torch.float32)
CONFIGS = [
    name
    for kernel in tc.kernels()
    if {"float32", "bf16x6"} & set(kernel["maths"])
    for name in chosen_configs(kernel["name"])
    if multiplies(kernel, name, ANY)
]
# RMS error over torch's, otherwise 1.5. These add the products of 256 k in sequence, and then such sums.
MOST_OVER_TORCH = {"simt": 2, "simt_kstage": 2, "simt_short": 2}


def run(kernel, a, b):
    case = Case(a.shape[0], b.shape[1], a.shape[1], torch.float32, beta=0, alpha=1)
    out = torch.full((case.m, case.n), math.nan, device="cuda")
    return case.run(kernel, (torch.zeros((), device="cuda"), a, b), out)


def taken(kernel, k):
    """Return k, or the longest K that a configuration takes."""
    return adapted(replace(ANY, k=k), kernel).k


def product(a, b):
    return reference(torch.zeros((), device="cuda"), a, b, beta=0)


def spread(shape, octaves):
    return torch.randn(shape, device="cuda") * torch.exp2(torch.randint(-octaves, octaves + 1, shape, device="cuda").float())


def graded(shape):
    return torch.randn(shape, device="cuda") * torch.exp2(-40 * torch.arange(shape[1], device="cuda") / shape[1])


def cancelling(m, n, k):
    """Return operands whose products cancel but for 2e-7 of them."""
    x, y = torch.randn(m, -(-k // 2), device="cuda"), torch.randn(-(-k // 2), n, device="cuda")
    return torch.cat([x, x * (1 + 2e-7)], 1)[:, :k], torch.cat([y, -y])[:k]


DATA = {
    "normal": lambda m, n, k: (torch.randn(m, k, device="cuda"), torch.randn(k, n, device="cuda")),
    "one-signed": lambda m, n, k: (torch.rand(m, k, device="cuda"), torch.rand(k, n, device="cuda")),
    "spread by 2^12": lambda m, n, k: (spread((m, k), 12), spread((k, n), 12)),
    "spread by 2^60": lambda m, n, k: (spread((m, k), 60), spread((k, n), 60)),
    "graded": lambda m, n, k: (graded((m, k)), graded((n, k)).flip(1).t()),
    "cancelling": cancelling,
}


@pytest.mark.parametrize("data", DATA)
@pytest.mark.parametrize("k", (1, 2, 17, 64, 1000, 4096, 100_000))
@pytest.mark.parametrize("kernel", CONFIGS)
def test_error_is_that_of_sgemm(kernel, data, k):
    """The RMS error relative to |A||B| is at most MOST_OVER_TORCH times torch.mm's, and every element is within its bound."""
    torch.manual_seed(k)
    k = taken(kernel, k)
    a, b = DATA[data](200, 264, k)
    expected, magnitude = a.double() @ b.double(), a.double().abs() @ b.double().abs()
    ours, theirs = run(kernel, a, b), torch.mm(a, b)
    ours_rms, theirs_rms = (((x.double() - expected) / magnitude).square().mean().sqrt().item() for x in (ours, theirs))
    assert product(a, b).error(ours) <= 1
    assert ours_rms <= MOST_OVER_TORCH.get(kernel.split("/")[0], 1.5) * theirs_rms


FINITE = (3.4e38, torch.finfo(torch.float32).max, -3.39e38)  # the last two round to infinity in bf16
TINY = (2.0**-110, 2.0**-111, 2.0**-126, 1e-40, 2.0**-149)


@pytest.mark.parametrize("value", (math.inf, -math.inf, math.nan, *FINITE), ids=str)
@pytest.mark.parametrize("m, n, k", ((200, 264, 100), (3, 70, 1000), (65, 129, 64)))
@pytest.mark.parametrize("kernel", CONFIGS)
def test_special_values_at_any_place(kernel, m, n, k, value):
    """One value of A or of B is special. Infinities, NaNs and finite results are those of torch.mm."""
    generator = torch.Generator().manual_seed(m + k)
    k = taken(kernel, k)
    for second in (False, True):
        a, b = torch.randn(m, k, device="cuda") * 0.01, torch.randn(k, n, device="cuda") * 0.01
        x = b if second else a
        row, col = (int(torch.randint(size, (), generator=generator)) for size in x.shape)
        x[row, col] = value
        ours, theirs = run(kernel, a, b), torch.mm(a, b)
        assert torch.equal(ours.isnan(), theirs.isnan())
        assert torch.equal(ours.isinf(), theirs.isinf()) and torch.equal(ours[ours.isinf()], theirs[theirs.isinf()])
        assert product(a, b).error(ours) <= 1


@pytest.mark.parametrize("value", TINY, ids=str)
@pytest.mark.parametrize("kernel", CONFIGS)
def test_tiny_values_keep_their_bits(kernel, value):
    """bf16 cannot hold the third parts of a row of A, and the other operand brings its products back into range."""
    k = taken(kernel, 200)
    a, b = torch.randn(130, k, device="cuda"), torch.randn(k, 141, device="cuda") * 2.0**100
    a[7] *= value
    a[71, k * 3 // 4] = value
    assert product(a, b).error(run(kernel, a, b)) <= 1
    assert product(b.t().contiguous(), a.t()).error(run(kernel, b.t().contiguous(), a.t())) <= 1


@pytest.mark.parametrize("value", (2.0**-134, 2.0**-140, 2.0**-149), ids=str)
@pytest.mark.parametrize("kernel", CONFIGS)
def test_operands_whose_first_parts_are_all_zero(kernel, value):
    """Elements of up to 2^-134 are 0 in bf16: alone in an operand, and beside others."""
    k = taken(kernel, 200)
    for rows in (slice(None), slice(0, 64), slice(7, 8)):
        a, b = torch.ones(130, k, device="cuda"), torch.full((k, 141), 2.0**120, device="cuda")
        a[rows] = value
        assert product(a, b).error(run(kernel, a, b)) <= 1
        assert product(b.t().contiguous(), a.t()).error(run(kernel, b.t().contiguous(), a.t())) <= 1


def test_replays_of_a_graph_see_values_that_come_and_go():
    a, b = torch.randn(300, 520, device="cuda"), torch.randn(520, 264, device="cuda")
    c, graph = torch.randn(264, device="cuda"), torch.cuda.CUDAGraph()
    tc.addmm(c, a, b)
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        out = tc.addmm(c, a, b)
    graph.replay()
    plain = out.clone()
    for value in (math.nan, math.inf, 3.4e38, 1e-41):
        for x in (a, b):
            before = x[17, 19].clone()
            x[17, 19] = value
            out.fill_(math.nan)
            graph.replay()
            assert torch.equal(out.isfinite(), torch.addmm(c, a, b).isfinite())
            assert torch.equal(out, tc.addmm(c, a, b)) or not out.isfinite().all()
            assert reference(c, a, b).error(out) <= 1
            x[17, 19] = before
            out.fill_(math.nan)
            graph.replay()
            assert torch.equal(out, plain)
