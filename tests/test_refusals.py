"""Why kernels cannot run a problem, and that they run the rest. No test needs a GPU."""

import pytest
import torch
from planned import TURING, plan

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case, adapted, kernel_grid, multiplies, refusal
from torch_addmm_tc.tools.planning import H200, Plan, problem_key

HALVES = {kernel["name"] for kernel in tc.kernels() if "float16" in kernel["maths"]}  # kernels that multiply fp16


NO_FP32_D, NO_SUMS = "it writes no fp32 D of 16-bit operands", "TMA does not reach C or D, and it leaves no sums in workspace"


def without_fp32_d():
    """The names of TMA kernels' configurations that have no fp32 D of 16-bit operands."""
    configs = [(f"{kernel['name']}/{i}", config) for kernel in tc.kernels() for i, config in enumerate(kernel["configs"])]
    return [name for name, config in configs if not config["fp32_d"] and not name.startswith("mma_direct/")]


@pytest.mark.parametrize(
    "case, reason",
    [
        (Case(131, 144, 151), None),
        (Case(136, 264, 72, torch.bfloat16, broadcast="(N)"), None),
        (Case(136, 264, 72, c="row_pitched"), None),
        (Case(40, 72, 24, batch=3, broadcast="(B,M,N)"), None),
        (Case(136, 264, 72, out_dtype=torch.float32), NO_FP32_D),
        (Case(136, 264, 72, self_dtype=torch.float32, out_dtype=torch.float32, broadcast="(N)"), NO_FP32_D),
        (Case(136, 141, 72, broadcast="(N)"), NO_SUMS),  # a row of D is no multiple of 16 bytes
        (Case(136, 264, 72, c="col"), NO_SUMS),
        (Case(136, 264, 72, c="row_odd"), NO_SUMS),
        (Case(136, 264, 72, broadcast="(M,1)"), NO_SUMS),
        (Case(40, 72, 24, batch=3, broadcast="(B,M,1)"), NO_SUMS),
    ],
    ids=str,
)
def test_a_configuration_without_an_fp32_d_refuses_what_needs_one(case, reason):
    names = without_fp32_d()
    assert {name.split("/")[0] for name in names} == {"wgmma_tma", "wgmma_multicast"}
    problem = case.problem(case.inputs("cpu"), torch.empty(case.shape, dtype=case.out_dtype or case.dtype))
    for name in names:
        assert Plan.of(problem, H200, name).candidates[0].reason == reason
        assert refusal(name, case) == reason
    others = [x for x in Plan.of(problem, H200).candidates if f"{x.kernel}/{x.index}" not in names and x.kernel != "mma_direct"]
    assert {NO_FP32_D, NO_SUMS}.isdisjoint(x.reason for x in others)


@pytest.mark.parametrize("name", without_fp32_d())
def test_a_configuration_without_an_fp32_d_takes_every_concern_of_the_grid_that_needs_none(name):
    """The GPU tests leave out the cases that it refuses. This says what must be left, whatever the planner refuses."""
    kernel = next(x for x in tc.kernels() if x["name"] == name.split("/")[0])
    halves = [case for case in kernel_grid(kernel) if case.dtype != torch.float32]
    taken = [case for case in halves if multiplies(kernel, name, adapted(case, name))]
    for concern in ("m", "k", "dtype", "a", "b", "activation", "batch"):
        values = lambda cases: {getattr(case, concern) for case in cases}  # noqa: B023, E731
        assert values(taken) == values(halves), concern
    assert {str((x.beta, x.alpha)) for x in taken} == {str((x.beta, x.alpha)) for x in halves}
    assert {"row", "row_pitched"} <= {x.c for x in taken} and {"(N)", "(1,N)", "(M,N)", "(B,M,N)"} <= {
        x.broadcast for x in taken
    }
    # Nothing that TMA reaches is left out: 16-bit rows of C and D, whole, contiguous and in one matrix or stacked ones.
    plain = [x for x in halves if (x.out_dtype, x.self_dtype, x.c, x.broadcast, x.batch) == (None, None, "row", "(M,N)", None)]
    assert len(plain) > 300 and set(plain) <= set(taken)


def test_mma_stationary_says_what_it_cannot_run():
    def reason(m, n, k, **options):
        return next(x.reason for x in plan(Case(m, n, k, **options)).candidates if x.kernel == "mma_stationary")

    assert reason(20000, 300, 100) is None
    assert reason(20000, 300, 100, a="col") is None  # it is repacked
    assert "do not fit shared memory" in reason(20000, 300, 4096)  # 64 columns of B take 512 KB


def test_mma_streamed_says_what_it_cannot_run():
    """A bulk copy brings what lies between rows too, so that rows of A which lie apart are copied first."""

    def candidate(m, n, k, **options):
        return next(x for x in plan(Case(m, n, k, **options)).candidates if x.kernel == "mma_streamed")

    assert "do not fit shared memory" in candidate(20000, 300, 4096).reason
    assert candidate(20000, 300, 4096, alpha=0).reason is None  # none of A is read
    for k in (0, 1, 13, 147):
        assert candidate(20000, 300, k).reason is None
    for options, repacked in (({}, False), ({"a": "row_odd"}, False), ({"a": "col"}, True), ({"a": "strided"}, True)):
        x = candidate(20000, 300, 147, **options)
        assert (x.reason, x.repack_a, x.repack_b) == (None, repacked, False)
    a, b = torch.empty(5000, 400, dtype=torch.float16, device="meta"), torch.empty(64, 40, dtype=torch.float16, device="meta")
    apart = next(x for x in tc.plan(None, a[:, :40], b.t(), gpu=H200).candidates if x.kernel == "mma_streamed")
    assert apart.repack_a and not apart.repack_b


def test_wgmma_bf16x6_streamed_says_what_it_cannot_run():
    """Its shared memory holds the parts of B's columns, all of K deep, and rows of A beside them."""

    def candidates(m, n, k, **options):
        found = plan(Case(m, n, k, torch.float32, **options)).candidates
        return sorted((x for x in found if x.kernel == "wgmma_bf16x6_streamed"), key=lambda x: x.index)

    def runs(*case, **options):
        return [x.index for x in candidates(*case, **options) if not x.reason]

    assert runs(20000, 300, 0) == runs(20000, 300, 147) == runs(20000, 300, 147, a="row_odd") == [0, 1, 2]
    assert runs(20000, 300, 200) == [1] and runs(20, 300, 200) == [0, 1, 2]  # few rows leave room
    assert runs(20000, 64, 4096, alpha=0) == [0, 1, 2]  # none of A is read
    assert all("beside rows of A" in x.reason for x in candidates(20000, 300, 300))
    assert all(x.repack_a and not x.repack_b for x in candidates(20000, 300, 147, a="col", b="row_odd"))
    assert runs(40, 20000, 147) == [0, 1, 2]  # more panels of columns than an H200 has SMs


def test_vectors_of_four_columns_stay_inside_a_b_of_one_column():
    """Vectors reach into the next rows: after the last whole step of K, one row of two elements is too few, and two suffice."""

    def reason(name, k, pitch, dtype):
        a, b = torch.empty(4, k, dtype=dtype, device="meta"), torch.empty(k, pitch, dtype=dtype, device="meta")
        d = torch.empty(4, 2, dtype=dtype, device="meta")  # with rows apart, so that the operands are not exchanged
        return Plan.of(problem_key(None, a, b[:, :1], out=d[:, :1]), H200, name).candidates[0].reason

    beyond = "its vectors would reach beyond B, whose rows are short"
    for name, dtype, step in (("mma_skinny/2", torch.bfloat16, 32), ("simt_skinny/0", torch.float32, 16)):
        assert reason(name, 4 * step + 1, 2, dtype) == beyond
        assert all(reason(name, 4 * step + left, 2, dtype) is None for left in (0, 2))
        assert reason(name, 4 * step + 1, 3, dtype) is None
        assert reason(name, 1, 2, dtype) is None  # no vector: the only step is cut
    assert reason("mma_skinny/0", 4 * 32 + 1, 2, torch.bfloat16) is None  # it repacks a B that is not aligned to 16 bytes


NO_WORDS = "its rows of A, C and D are not contiguous in whole 32-bit words"


@pytest.mark.parametrize(
    "case, reason",
    [
        (Case(300, 300, 100), None),
        (Case(300, 2, 2, torch.bfloat16), None),
        (Case(300, 300, 0), None),
        (Case(300, 16, 100, a="row_odd"), None),  # A is repacked
        (Case(300, 16, 100, a="col", b="row_odd"), None),
        (Case(300, 16, 100, broadcast="(N)"), None),
        (Case(300, 16, 100, batch=3, broadcast="(B,1,N)"), None),
        (Case(300, 16, 100, c="row_pitched"), None),
        (Case(300, 301, 100), NO_WORDS),
        (Case(300, 301, 100, broadcast="(N)"), NO_WORDS),
        (Case(300, 300, 101), NO_WORDS),
        (Case(300, 300, 100, c="row_odd"), NO_WORDS),
        (Case(300, 300, 100, c="col"), NO_WORDS),
        (Case(300, 300, 100, broadcast="(M,1)"), NO_WORDS),
        (Case(300, 300, 100, out_dtype=torch.float32), NO_FP32_D),
        (Case(300, 300, 258), "its rows of A do not fit a warp's registers"),
        (Case(301, 299, 101, torch.float32), None),
        (Case(300, 300, 100, torch.float32, c="col"), NO_WORDS),
        (Case(300, 300, 257, torch.float32), "its rows of A do not fit a warp's registers"),
        (Case(300, 300, 100, torch.float32, tf32=True), None),  # it keeps more bits than TF32
    ],
    ids=str,
)
def test_mma_direct_says_what_it_cannot_run(case, reason):
    found = sorted((x for x in plan(case).candidates if x.kernel == "mma_direct"), key=lambda x: x.index)
    halves, last = case.dtype != torch.float32, found.pop()
    assert last.reason == ("it does not multiply operands of this dtype" if halves else reason)
    for x, longest in zip(found, (128, 256, 512), strict=True):
        assert case.k * case.dtype.itemsize > longest or x.reason == reason
    assert not halves or found[-1].reason == reason


@pytest.mark.parametrize("name", [f"mma_direct/{i}" for i in range(4)])
def test_mma_direct_takes_every_concern_of_the_grid_that_has_words(name):
    """The GPU tests leave out the cases that it refuses. This says what must be left, whatever the planner refuses."""
    kernel = next(x for x in tc.kernels() if x["name"] == "mma_direct")
    maths = kernel["configs"][int(name.split("/")[1])]["maths"]
    grid = [adapted(case, name) for case in kernel_grid(kernel | {"maths": maths})]
    taken = {case for case in grid if multiplies(kernel, name, case)}
    for concern in ("m", "n", "k", "dtype", "a", "b", "activation", "batch"):
        values = lambda cases: {getattr(case, concern) for case in cases}  # noqa: B023, E731
        assert values(taken) == values(grid), concern
    plain = [x for x in grid if (x.out_dtype, x.self_dtype, x.batch) == (None, None, None)]
    plain = [x for x in plain if x.c in ("row", "row_pitched") and x.broadcast in ("(N)", "(1,N)", "(M,N)")]
    assert len(plain) > 150 * len(maths) and set(plain) <= taken


def test_too_old_gpu_gets_no_kernel_and_a_reason():
    result = plan(Case(256, 256, 256), TURING)
    assert result.kernel is None
    assert {c.reason for c in result.candidates} == {"the GPU is too old for it"}


def test_shared_memory_size_limits_the_configurations():
    small = tc.Gpu(sm=86, num_sms=28, smem_per_block=64 * 1024)
    names = {x for x in HALVES if not x.startswith("wgmma")}
    candidates = [
        c for c in plan(Case(256, 256, 256), small).candidates if c.kernel in names and "float16" in c.config["maths"]
    ]
    for_hopper_alone = {"wmma_kstage/1", "mma_swizzle/0", "mma_skinny/5", "mma_guarded/0"}
    hopper_kernels = ("mma_stationary", "mma_streamed", "mma_direct")
    for_hopper_alone |= {f"{c.kernel}/{c.index}" for c in candidates if c.kernel in hopper_kernels}
    reasons = {f"{c.kernel}/{c.index}": c.reason for c in candidates}
    assert {x for x in reasons if reasons[x] == "this build has no machine code for it"} == for_hopper_alone
    for c in candidates:
        if f"{c.kernel}/{c.index}" not in for_hopper_alone:
            fits = c.config["smem_bytes"] <= 64 * 1024
            assert c.reason == (None if fits else "its tiles do not fit the GPU's shared memory")


def test_tma_kernels_are_unsupported_where_coordinates_overflow():
    make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="meta")  # noqa: E731
    for n, fits in ((2**31 - 1024, True), (2**31 - 1023, False)):
        candidates = tc.plan(make(n), make(2, 1), make(1, n), gpu=H200).candidates
        assert {c.reason is None for c in candidates if c.kernel in HALVES and c.kernel.startswith("wgmma")} == {fits}
        assert any(c.reason is None for c in candidates)


@pytest.mark.parametrize(
    "name, sizes, reason",
    [
        ("simt_skinny/2", (2**31 + 5, 1, 1), "the numbers of its tiles do not fit 32 bits"),
        ("simt_rows/0", (2**31 + 5, 1, 1), "the numbers of its tiles do not fit 32 bits"),
        ("simt_columns/0", (4, 2**36, 8), "the numbers of its tiles do not fit 32 bits"),
        ("simt_kstage/2", (1, 1, 2**31), "its K does not fit 32 bits"),
        ("simt_kstage/2", (1, 1, 2**31 - 1), None),
    ],
)
def test_kernels_refuse_what_their_32_bit_numbers_do_not_hold(name, sizes, reason):
    m, n, k = sizes
    a, b = torch.empty(m, k, device="meta"), torch.empty(k, n, device="meta")
    # Not contiguous along M, and with more columns than rows where simt_columns is asked: the planner exchanges no operands.
    out = torch.empty(m, 2 * n, device="meta")[:, :n]
    key = problem_key(None, a, b, out=out)
    assert {x.reason for x in Plan.of(key, H200, name).candidates} == {reason}
    assert Plan.of(key, H200).pick


@pytest.mark.parametrize("m", (1, 7, 8))
def test_wgmma_interleaved_takes_fewer_rows_than_kinds(m):
    found = plan(Case(m, 144, 75)).candidates
    assert {x.reason for x in found if x.kernel == "wgmma_interleaved"} == {None}
