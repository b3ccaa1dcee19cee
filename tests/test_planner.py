"""What the planner says of every candidate: how it runs a problem, what it repacks, why it cannot run. No test needs a GPU."""

import math

import pytest
import torch
from planned import TENSOR_CORES, TURING, plan

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case, adapted, kernel_grid, multiplies, refusal
from torch_addmm_tc.tools.planning import H200, Plan, cluster_name, problem_key

HALVES = {kernel["name"] for kernel in tc.kernels() if "float16" in kernel["maths"]}  # kernels that multiply fp16


def test_parts_of_both_operands_take_workspace():
    case = Case(200, 72, 100, torch.float32, a="strided", b="expanded")
    x = next(x for x in plan(case).candidates if x.kernel == "wgmma_bf16x6" and x.k_slices == 1)
    parts = [rows * 3 * 128 * 2 + -(-rows // 64) * 32 * 4 for rows in (200, 72)]  # K is padded to 128; a mark has 4 bytes
    assert x.repack_a and x.repack_b and x.math == "bf16x6"
    assert x.workspace_bytes == sum(-(-size // 256) * 256 for size in parts)


def test_tf32_needs_precision_tf32():
    case = Case(2048, 2048, 512, torch.float32)
    reasons = {}
    for candidate in plan(case, precision="ieee").candidates:
        reasons.setdefault(candidate.kernel, set()).add(candidate.reason)
    needs, lacks = 'its TF32 needs precision="tf32"', "it does not multiply operands of this dtype"
    assert reasons["wmma_block"] == {lacks}
    assert reasons["wmma_kstage"] == reasons["mma_swizzle"] == {needs}
    assert reasons["wgmma_tma"] == reasons["wgmma_multicast"] == {needs, lacks}  # some of their tiles are for 16 bits only
    assert plan(case, precision="tf32").kernel in TENSOR_CORES


def test_operand_without_unit_stride_is_repacked_or_unsupported():
    by_kernel = {c.kernel: c for c in plan(Case(256, 256, 256, a="strided")).candidates}
    assert by_kernel["simt"].reason is None
    assert by_kernel["wmma_block"].reason == "an operand has no direction of stride 1"
    repacked = by_kernel["wgmma_tma"]
    assert repacked.reason is None and repacked.repack_a and not repacked.repack_b
    assert repacked.workspace_bytes == 256 * 256 * 2


@pytest.mark.parametrize(
    "case, rows, row_length",
    [
        (Case(131, 264, 151, a="row_odd"), 131, 151),
        (Case(131, 264, 151, a="misaligned"), 131, 151),
        (Case(131, 264, 151, a="col_odd"), 151, 131),
        (Case(131, 264, 151, a="strided"), 131, 151),
        (Case(1, 264, 151, a="strided"), 1, 151),
        (Case(131, 264, 1, a="strided"), 131, 1),
        (Case(264, 131, 152, b="row_odd"), 152, 131),
        (Case(264, 131, 152, b="col_odd"), 131, 152),
        (Case(264, 131, 152, b="strided"), 131, 152),
        (Case(131, 264, 151, torch.float32, a="row_odd", b="col_pitched"), 131, 151),
        (Case(131, 264, 151, torch.float32, a="col_odd", b="col_pitched"), 131, 151),
        (Case(264, 136, 152, torch.float32, b="row"), 136, 152),
    ],
    ids=str,
)
def test_repacking_keeps_the_order_that_kernels_can_read(case, rows, row_length):
    """A 16-bit operand that is contiguous along M or N stays so. Every other operand becomes contiguous along K.

    The padding of the rows, and so the workspace's size, shows the order.
    """
    alignment = 16 if row_length * case.dtype.itemsize < 1024 else 128  # bytes; every row starts at a multiple
    leading_dim = -(-row_length * case.dtype.itemsize // alignment) * alignment  # bytes
    for c in plan(case, precision="tf32").candidates:
        if c.kernel == "mma_swizzle":
            assert c.repack_a + c.repack_b == 1 and c.k_slices == 1
            assert -(-rows * leading_dim // 256) * 256 == -(-c.workspace_bytes // 256) * 256


def test_a_long_k_is_split_when_tiles_are_few():
    split = [c for c in plan(Case(128, 128, 16384)).candidates if c.kernel == "mma_swizzle"]
    assert max(c.k_slices for c in split) > 1
    for c in split:
        assert c.workspace_bytes == (c.k_slices * 128 * 128 * 4 if c.k_slices > 1 else 0)
    for c in plan(Case(4096, 4096, 4096)).candidates:
        assert (c.k_slices == 1) == (c.kernel != "wgmma_cluster")


@pytest.mark.parametrize("m, n, k", [(64, 64, 100000), (40, 4096, 4096), (128, 4096, 14336), (5000, 5000, 64), (8, 8, 0)])
def test_clusters_split_k_without_workspace(m, n, k):
    """Blocks that share K have one tile each, so that all clusters run at once. wgmma_cluster has no other way to run."""
    for c in plan(Case(m, n, k)).candidates:
        if c.cluster and c.cluster[2] > 1:
            tiles = -(-m // (c.config["tile_m"] * c.cluster[0])) * -(-n // (c.config["tile_n"] * c.cluster[1]))
            assert c.k_slices == c.cluster[2] and c.workspace_bytes == 0 and "/k" not in c.exact_name
            assert tiles * math.prod(c.cluster) <= H200.num_sms or (c.kernel, c.k_slices) == ("wgmma_cluster", 2)
        assert c.kernel != "wgmma_cluster" or 2 <= c.k_slices <= 4


def multicast(case):
    """The candidates of wgmma_multicast, by tile."""
    of_kernel = [c for c in plan(case).candidates if c.kernel == "wgmma_multicast"]
    return {(c.config["tile_m"], c.config["tile_n"]): c for c in of_kernel}


def test_multicast_clusters_hold_tiles_of_the_problem():
    shapes = [tuple(x) for x in next(k for k in tc.kernels() if k["name"] == "wgmma_multicast")["clusters"]]
    assert shapes[0] == (1, 1, 1)
    for m, n, k in ((1, 64, 64), (100, 64, 512), (20, 4096, 4096), (300, 16384, 3072), (4104, 4104, 4104)):
        for (tile_m, tile_n), c in multicast(Case(m, n, k)).items():
            assert c.cluster in shapes and c.cluster[0] <= -(-m // tile_m) and c.cluster[1] <= -(-n // tile_n)
            columns = f"/n{c.columns}" if c.columns < tile_n else ""
            assert c.name == f"wgmma_multicast/{c.index}/{cluster_name(c.cluster)}{columns}"


def test_only_multicast_narrows_tiles_and_only_where_b_is_contiguous_along_k():
    """TMA loads other tiles of B as boxes of 64 columns."""
    for case in (Case(48, 9216, 16384), Case(48, 9216, 16384, b="col")):
        for c in plan(case).candidates:
            narrow = c.columns < c.config["tile_n"]
            assert not narrow or (c.kernel == "wgmma_multicast" and case.b == "col")


@pytest.mark.parametrize(
    "case, apart",
    [
        (Case(40, 264, 200, broadcast="(N)"), False),
        (Case(40, 264, 200), False),
        (Case(40, 268, 200, b="col", self_dtype=torch.float32, out_dtype=torch.float32), False),
        (Case(40, 264, 200, out_dtype=torch.float32), True),  # a 16-bit C for an fp32 D
        (Case(40, 268, 200, b="col", out_dtype=torch.float32, broadcast="(N)"), True),  # the bias ends in a part of a vector
        (Case(40, 263, 200, b="col"), True),  # rows of D begin anywhere
        (Case(40, 264, 200, c="col"), True),
        (Case(40, 264, 200, broadcast="(M,1)"), True),
    ],
    ids=str,
)
def test_the_reduction_finishes_d_where_tma_does_not_reach_c_or_d(case, apart):
    for c in multicast(case).values():
        layers = c.k_slices // c.cluster[2]
        if not c.config["fp32_d"]:
            assert layers == 1 and (c.reason is not None) == (apart or case.out_dtype == torch.float32)
            continue
        assert c.reason is None and c.workspace_bytes == (layers if apart or layers > 1 else 0) * 40 * -(-case.n // 4) * 16


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


def test_a_configuration_without_an_fp32_d_splits_k_in_clusters_alone():
    case = Case(128, 256, 65536)
    few = [x for x in plan(case).candidates if not x.reason and not x.config["fp32_d"]]
    assert few and all(x.k_slices == (x.cluster or (1, 1, 1))[2] for x in few)
    assert any(x.k_slices > 3 for x in plan(case).candidates if not x.reason)


def test_multicast_repacks_an_a_without_k_contiguous():
    for a, repacked in (("row", False), ("col", True)):
        assert all(c.repack_a == repacked and not c.repack_b for c in multicast(Case(264, 264, 264, a=a, b="col")).values())


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


def test_wgmma_interleaved_repacks_what_it_cannot_read():
    """B's K tiles begin anywhere only if rows of B are contiguous. Products must begin whole rows apart."""
    apart = {"batch": 3, "broadcast": "(B,M,N)", "batches": ("odd",) * 3}
    for case in (Case(130, 64, 75, b="col_pitched"), Case(130, 64, 75, a="col"), Case(130, 64, 75, **apart)):
        x = next(x for x in plan(case).candidates if x.kernel == "wgmma_interleaved")
        assert x.repack_a and not x.reason


def test_tf32_is_repacked_only_where_k_is_not_contiguous():
    """No instruction transposes fp32 operands. Kernels read 16-bit operands in both orders, but for simt_columns."""
    for b, repacked in (("col", False), ("row", True)):
        for c in plan(Case(2048, 2048, 512, torch.float32, b=b), precision="tf32").candidates:
            if c.kernel in ("wgmma_tma", "mma_swizzle"):
                assert (c.repack_a, c.repack_b) == (False, repacked)
        of_16_bits = {c.kernel for c in plan(Case(2048, 2048, 512, b=b)).candidates if c.repack_a or c.repack_b}
        assert of_16_bits == ({"simt_columns"} if repacked else set())


def test_an_expanded_operand_is_repacked():
    """A tensor map of TMA cannot have a stride of 0."""
    assert all(c.repack_a for c in plan(Case(256, 256, 256, a="expanded")).candidates if c.kernel == "wgmma_tma")


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


def test_wmma_block_has_configurations_for_both_shared_memory_sizes():
    sizes = [i["smem_bytes"] for k in tc.kernels() if k["name"] == "wmma_block" for i in k["configs"]]
    assert min(sizes) <= 64 * 1024 < max(sizes)


def test_a_column_major_result_exchanges_the_operands():
    c, a, b = Case(256, 128, 64).inputs("cpu")
    assert tc.plan(c, a, b, out=torch.empty(128, 256).half().t()).exchanged
    assert not tc.plan(c, a, b, out=torch.empty(256, 128).half()).exchanged


def test_str_shows_the_pick_and_every_reason():
    result = plan(Case(256, 256, 256, a="strided"))
    text = str(result)
    assert text.startswith(f"-> {result.kernel}") and "predicted" in text and "A repacked" in text
    assert "no direction of stride 1" in text


def test_meta_tensors_can_be_planned():
    x = torch.empty(4096, 4096, dtype=torch.float16, device="meta")
    assert tc.plan(x, x, x, gpu=H200).kernel in TENSOR_CORES


@pytest.mark.parametrize("m, n, k", [(0, 8, 8), (8, 0, 8), (0, 0, 0), (8, 8, 0), (0, 8, 8200), (8200, 0, 8200)])
def test_empty_problems_can_be_planned(m, n, k):
    result = plan(Case(m, n, k))
    assert result.kernel is not None and all(math.isfinite(c.microseconds) for c in result.candidates)


def test_tma_kernels_are_unsupported_where_coordinates_overflow():
    make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="meta")  # noqa: E731
    for n, fits in ((2**31 - 1024, True), (2**31 - 1023, False)):
        candidates = tc.plan(make(n), make(2, 1), make(1, n), gpu=H200).candidates
        assert {c.reason is None for c in candidates if c.kernel in HALVES and c.kernel.startswith("wgmma")} == {fits}
        assert any(c.reason is None for c in candidates)


def test_a_key_holds_only_what_plans_depend_on():
    """TF32 is about fp32 operands, and beta = 0 leaves C unread, so that neither makes another key."""
    x, single = (torch.empty(64, 64, dtype=dtype, device="meta") for dtype in (torch.float16, torch.float32))
    assert problem_key(x, x, x, precision="tf32") == problem_key(x, x, x, precision="ieee")
    assert problem_key(single, single, single, precision="tf32") != problem_key(single, single, single, precision="ieee")
    assert problem_key(x, x, x, beta=0) == problem_key(None, x, x)
    wrong = torch.empty(8, 2, dtype=torch.float16, device="meta")  # the op resizes it
    assert problem_key(x, x, x, out=wrong) == problem_key(x, x, x)


def test_batches_beyond_a_grids_limit_are_planned_by_their_first_part():
    def products(count):
        x = torch.empty(count, 8, 8, dtype=torch.float16, device="meta")
        return problem_key(None, x, x)

    assert products(65536) == products(10**6) == products(65535) and Plan.of(products(65536), H200).pick


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
    out = torch.empty(m, 2 * n, device="meta")[:, :n]  # not contiguous along M, so that the planner exchanges no operands
    key = problem_key(None, a, b, out=out)
    assert {x.reason for x in Plan.of(key, H200, name).candidates} == {reason}
    assert Plan.of(key, H200).pick


def test_a_batch_is_one_product_only_where_kernels_can_number_its_rows():
    """batch_invariant TF32 needs wgmma, whose tensor maps hold 2^31 rows."""
    a = torch.empty(2**15, 2**16, 4, device="meta")
    b = torch.empty(1, 4, 4, device="meta").expand(2**15, 4, 4)
    assert Plan.of(problem_key(None, a, b, precision="tf32", batch_invariant=True), H200).pick


@pytest.mark.parametrize("m", (1, 7, 8))
def test_wgmma_interleaved_takes_fewer_rows_than_kinds(m):
    found = plan(Case(m, 144, 75)).candidates
    assert {x.reason for x in found if x.kernel == "wgmma_interleaved"} == {None}
