"""The op matches the float64 reference on every dtype, layout, broadcast and scalar, on the CPU and on CUDA."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import BROADCASTS, Case
from torch_addmm_tc.testing.inputs import LAYOUTS, integers, matrix
from torch_addmm_tc.testing.reference import SMALLEST_SUBNORMAL, reference

DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def assert_matches_reference(case, device):
    args = case.inputs(device)
    result = tc.addmm(*args, **case.scalars, out_dtype=case.out_dtype)
    expected = reference(*args, **case.scalars, out_dtype=case.out_dtype)
    assert expected.error(result) <= 1
    assert result.stride() == (max(case.n, 1), 1)
    return result


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broadcast", BROADCASTS)
@pytest.mark.parametrize("out_dtype", (None, torch.float32), ids=str)
def test_self_broadcasts(device, dtype, broadcast, out_dtype):
    assert_matches_reference(Case(33, 47, 65, dtype, out_dtype=out_dtype, broadcast=broadcast), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_fp32_self_with_fp32_result(device, dtype):
    assert_matches_reference(Case(33, 47, 65, dtype, self_dtype=torch.float32, out_dtype=torch.float32), device)


@pytest.mark.parametrize("a", LAYOUTS)
@pytest.mark.parametrize("b", LAYOUTS)
def test_operand_layouts(device, a, b):
    assert_matches_reference(Case(40, 72, 56, a=a, b=b), device)
    assert_matches_reference(Case(41, 73, 57, torch.bfloat16, a=a, b=b, c="strided"), device)


@pytest.mark.parametrize("m, n, k", [(33, 47, 65), (1, 1, 5000), (140, 264, 3000)])
def test_sums_of_integers_are_exact(device, m, n, k):
    args, expected = integers(m, n, k, device)
    assert torch.equal(tc.addmm(*args, out_dtype=torch.float32), expected)


@pytest.mark.parametrize("m, n, k", [(0, 5, 4), (3, 0, 4), (0, 0, 4), (0, 0, 0), (3, 5, 0)])
@pytest.mark.parametrize("beta", (0, 2.0))
def test_empty_sizes(device, m, n, k, beta):
    assert_matches_reference(Case(m, n, k, beta=beta, broadcast="(N)"), device)


def test_k_zero_ignores_alpha(device):
    assert_matches_reference(Case(3, 5, 0, alpha=math.nan), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_beta_zero_never_reads_self(device, dtype):
    _, a, b = Case(33, 47, 65, dtype).inputs(device)
    for shape in ((47,), (33, 47), ()):
        poison = torch.full(shape, math.nan, dtype=dtype, device=device)
        assert reference(poison, a, b, beta=0).error(tc.addmm(poison, a, b, beta=0)) <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(
    "beta, alpha",
    [(math.nan, 1), (1, math.nan), (math.inf, 1), (1, -math.inf), (0, math.inf), (3, -2), (1e-39, 1e-39), (1e38, 1e-38)],
)
def test_beta_and_alpha_may_be_any_float(device, dtype, beta, alpha):
    assert_matches_reference(Case(33, 47, 65, dtype, beta=beta, alpha=alpha), device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_alpha_zero_does_not_read_the_operands(device, dtype):
    """BLAS has this rule. torch.addmm follows it for fp32 with a full C; other paths of torch differ from each other."""
    c, a, b = Case(33, 47, 65, dtype).inputs(device)
    a.fill_(math.nan)
    assert torch.equal(tc.addmm(c, a, b, alpha=0, beta=2), 2 * c)
    if dtype == torch.float32:
        assert torch.equal(torch.addmm(c, a, b, alpha=0, beta=2), 2 * c)


def test_nan_and_infinity_propagate_like_torch(device):
    c, a, b = Case(33, 47, 65, torch.float32).inputs(device)
    a[1, 2], b[3, 4], c[5, 6] = math.nan, math.inf, -math.inf
    ours, theirs = tc.addmm(c, a, b), torch.addmm(c, a, b)
    assert torch.equal(ours.isnan(), theirs.isnan()) and torch.equal(ours.isinf(), theirs.isinf())


def test_overflow_becomes_infinity_and_subnormals_survive(device):
    a = torch.full((8, 8), 200.0, dtype=torch.float16, device=device)
    assert tc.addmm(a, a, a).isinf().all()
    tiny = torch.full((8, 8), SMALLEST_SUBNORMAL[torch.float16], dtype=torch.float16, device=device)
    eye = torch.eye(8, dtype=torch.float16, device=device)
    assert torch.equal(tc.addmm(tiny, tiny, eye, beta=0), tiny)


def test_integer_scalars_are_accepted(device):
    args = Case(4, 5, 6).inputs(device)
    assert torch.equal(tc.addmm(*args, beta=2, alpha=3), tc.addmm(*args, beta=2.0, alpha=3.0))


def test_self_is_not_modified_and_results_repeat_bitwise(device):
    case = Case(257, 129, 513)
    args = case.inputs(device)
    before = [x.clone() for x in args]
    results = [tc.addmm(*args, beta=0.3, alpha=0.7) for _ in range(5)]
    assert all(torch.equal(r, results[0]) for r in results)
    assert all(torch.equal(x, y) for x, y in zip(args, before))


@settings(max_examples=60, deadline=None)
@given(
    m=st.integers(0, 70), n=st.integers(0, 70), k=st.integers(0, 70),
    dtype=st.sampled_from(DTYPES), wide=st.booleans(),
    a=st.sampled_from(LAYOUTS), b=st.sampled_from(LAYOUTS), c=st.sampled_from(LAYOUTS),
    broadcast=st.sampled_from(BROADCASTS),
    beta=st.sampled_from((0.0, 1.0, 0.5, -3.25)), alpha=st.sampled_from((0.0, 1.0, 0.5, -3.25)),
)  # fmt: skip
def test_random_calls_match_the_reference(m, n, k, dtype, wide, a, b, c, broadcast, beta, alpha):
    case = Case(m, n, k, dtype, None, torch.float32 if wide else None, a, b, c, broadcast, beta, alpha)
    assert_matches_reference(case, "cpu")
    if torch.cuda.is_available() and tc._C.with_cuda:
        assert_matches_reference(case, "cuda")


def test_transposed_linear_weight_is_not_repacked():
    weight = torch.randn(48, 64).half()
    plan = tc.plan(torch.zeros(48).half(), torch.randn(32, 64).half(), weight.t())
    assert plan.kernel != "simt" and not plan.candidates[0].repack_b


@pytest.mark.gpu
def test_operands_may_extend_beyond_2_to_the_31_elements(much_gpu_memory):
    storage = torch.randn(2**31 + 2**12, device="cuda", dtype=torch.float16)
    a = storage.as_strided((129, 64), (2**24, 1))  # its last row starts at element 2^31
    b = matrix("row", 64, 40, torch.float16, "cuda")
    c = torch.zeros(40, dtype=torch.float16, device="cuda")
    assert reference(c, a, b).error(tc.addmm(c, a, b)) <= 1
    assert reference(c, a[:, ::2], b[::2]).error(tc.addmm(c, a[:, ::2], b[::2])) <= 1
