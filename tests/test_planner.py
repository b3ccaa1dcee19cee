"""The planner: supported candidates, the pick, unsupported reasons and predictions. All but two tests need no GPU."""

import itertools
import math
import subprocess
import sys

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case, case_grid
from torch_addmm_tc.tools.planning import H200, cluster_name

AMPERE = tc.Gpu(sm=80, num_sms=108, smem_per_block=163 * 1024, name="NVIDIA A100-SXM4-80GB")
ADA = tc.Gpu(sm=89, num_sms=128, smem_per_block=99 * 1024, name="NVIDIA GeForce RTX 4090")
BLACKWELL = tc.Gpu(sm=100, num_sms=148, smem_per_block=227 * 1024)
TURING = tc.Gpu(sm=75, num_sms=40, smem_per_block=64 * 1024)
TENSOR_CORES = {kernel["name"] for kernel in tc.kernels()} - {"simt", "simt_skinny", "simt_kstage"}

HALVES = {kernel["name"] for kernel in tc.kernels() if "float16" in kernel["maths"]}  # kernels that multiply fp16


def plan(case, gpu=H200, **kwargs):
    return tc.plan(*case.inputs("cpu"), **case.scalars, out_dtype=case.out_dtype, gpu=gpu, **kwargs)


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("gpu", (AMPERE, ADA, H200))
def test_model_layers_use_tensor_cores(dtype, gpu):
    for n, k in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
        for b in ("row", "col"):
            assert plan(Case(1024, n, k, dtype, b=b, broadcast="(N)"), gpu).kernel in TENSOR_CORES


def test_fp32_without_tf32_uses_tensor_cores_where_they_are_faster():
    kernels = {m: plan(Case(m, 2048, 1024, torch.float32, b="col")).kernel for m in (1, 32, 128, 1024)}
    assert kernels == {1: "simt_skinny", 32: "mma_skinny", 128: "wgmma_bf16x6_rs", 1024: "wgmma_bf16x6"}
    assert plan(Case(1, 2048, 1024, torch.float32, b="col"), AMPERE).kernel == "simt_skinny"


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


def test_narrow_tiles_fill_waves_evenly():
    """48x9216x16384 streams its weights in 144 tiles of 64 columns or 72 of 128, and in one wave of 128 tiles of 72."""
    for m, n, k in ((48, 9216, 16384), (27, 8960, 5120), (24, 17920, 5120), (9, 4608, 6144)):
        pick = plan(Case(m, n, k, b="col", broadcast="(N)")).pick
        assert pick.columns % 8 == 0 and pick.config["tile_n"] - 64 < pick.columns < pick.config["tile_n"]
        tiles, last = -(-n // pick.columns), H200.num_sms
        assert tiles % last == 0 or tiles % last > 0.8 * last
        assert pick.name == f"wgmma_multicast/{pick.index}/{cluster_name(pick.cluster)}/n{pick.columns}"


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
        assert c.reason is None and c.workspace_bytes == (layers if apart or layers > 1 else 0) * 40 * -(-case.n // 4) * 16


def test_multicast_repacks_an_a_without_k_contiguous():
    for a, repacked in (("row", False), ("col", True)):
        assert all(c.repack_a == repacked and not c.repack_b for c in multicast(Case(264, 264, 264, a=a, b="col")).values())


@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=str)
@pytest.mark.parametrize("c", ("(N)", None))
def test_clusters_are_picked_for_one_wave_only(dtype, c):
    """A block computes a single tile. In a second wave, each block would wait for memory and for its cluster again."""
    sizes = (17, 64, 100, 128, 200, 256, 1000, 1024, 4097, 16384)
    for m, n, k in itertools.product(sizes, (*sizes, 50257), (64, 128, 512, 1024, 4096)):
        make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="meta")  # noqa: E731
        self = make(*(n,) if c else (m, n)).to(dtype)
        pick = tc.plan(self, make(m, k), make(n, k).t(), out_dtype=dtype, gpu=H200).candidates[0]
        if pick.kernel == "wgmma_cluster":
            tiles = -(-m // pick.config["tile_m"]) * -(-n // pick.config["tile_n"])
            assert tiles * pick.k_slices <= H200.num_sms, (m, n, k)


def test_medium_row_counts_use_clusters_that_share_k():
    """Such clusters were the fastest way on an H200 there, or took at most 3 % more time."""
    few = ((64, 4096, 4096), (128, 4096, 14336), (32, 768, 3072), (192, 1024, 4096), (224, 1008, 2152))
    for m, n, k in (*few, (32, 896, 5120), (48, 768, 6144), (48, 2304, 4608), (128, 1536, 3072)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).pick.cluster[2] > 1


def test_odd_sizes_with_a_short_k_use_mma_short():
    """It was the fastest kernel on an H200 there: 839x2307x19 took 5.6 us, and 6.0 in mma_guarded."""
    for m, n, k in ((839, 2307, 19), (1305, 899, 11), (863, 342, 10)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_short"


def test_many_rows_with_a_short_k_use_mma_stationary():
    """It was the fastest kernel on an H100 there: 20000x300x100 took 18.1 us, and 28.2 in wgmma_tma with two repacks.

    401408x144x24 took 69.6 us, and 102 in wgmma_multicast.
    """
    for m, n, k in ((20000, 300, 100), (10**6, 300, 100), (401408, 144, 24), (16384, 512, 13)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_stationary"


def test_mma_stationary_says_what_it_cannot_run():
    def reason(m, n, k, **options):
        return next(x.reason for x in plan(Case(m, n, k, **options)).candidates if x.kernel == "mma_stationary")

    assert reason(20000, 300, 100) is None
    assert reason(20000, 300, 100, a="col") is None  # it is repacked
    assert "do not fit shared memory" in reason(20000, 300, 4096)  # 64 columns of B take 512 KB


def test_weights_whose_rows_begin_anywhere_use_wgmma_shifted():
    """It was the fastest kernel on an H100 there: 120x32064x3072 took 108 us, and 183 in wmma_kstage."""
    for m, n, k in ((120, 32064, 3072), (128, 4096, 4096)):
        pick = plan(Case(m, n, k, b="col_odd", broadcast="(N)")).pick
        assert (pick.kernel, pick.repack_a, pick.repack_b) == ("wgmma_shifted", False, False)
    unread = next(x for x in plan(Case(120, 320, 72, a="row_odd", b="strided")).candidates if x.kernel == "wgmma_shifted")
    assert unread.repack_a and unread.repack_b  # TMA does not read this A, and no vectors hold this B


def test_attention_over_an_odd_number_of_keys_uses_wgmma_interleaved():
    """It was the fastest kernel on an H100 there: 400 of 1257x72x1257 took 675 us, and 1385 in wgmma_tma with a repack."""

    for batch, m, n in ((400, 1257, 72), (112, 1018, 64), (160, 828, 80)):
        weights, values = (torch.empty(batch, m, x, dtype=torch.float16, device="meta") for x in (m, n))
        pick = tc.plan(None, weights, values, gpu=H200).pick
        assert (pick.kernel, pick.repack_a, pick.repack_b) == ("wgmma_interleaved", False, False)


def test_wgmma_interleaved_repacks_what_it_cannot_read():
    """B's K tiles begin anywhere only if rows of B are contiguous. Products must begin whole rows apart."""
    apart = {"batch": 3, "broadcast": "(B,M,N)", "batches": ("odd",) * 3}
    for case in (Case(130, 64, 75, b="col_pitched"), Case(130, 64, 75, a="col"), Case(130, 64, 75, **apart)):
        x = next(x for x in plan(case).candidates if x.kernel == "wgmma_interleaved")
        assert x.repack_a and not x.reason


def test_batches_of_small_products_use_blocks_of_one_warp():
    """They were the fastest on an H100 there: 320 of 6x103x64 took 4.7 us, and 8.7 in mma_short."""
    for batch, m, n, k, b in ((320, 6, 103, 64, "col"), (675, 4, 29, 96, "col"), (269, 4, 111, 25, "row")):
        pick = plan(Case(m, n, k, b=b, batch=batch, broadcast="()", beta=0)).pick
        assert (pick.kernel, pick.config["threads"]) == ("mma_skinny", 32)


def test_tf32_is_repacked_only_where_k_is_not_contiguous():
    """No instruction transposes fp32 operands. Kernels read 16-bit operands in both orders."""
    for b, repacked in (("col", False), ("row", True)):
        for c in plan(Case(2048, 2048, 512, torch.float32, b=b), precision="tf32").candidates:
            if c.kernel in ("wgmma_tma", "mma_swizzle"):
                assert (c.repack_a, c.repack_b) == (False, repacked)
        assert not any(c.repack_a or c.repack_b for c in plan(Case(2048, 2048, 512, b=b)).candidates)


def test_few_rows_use_mma_skinny():
    """With few rows, as in decoding, each element of B is used once. With more rows, tiles that reuse B are faster.

    On an H200 mma_skinny was the fastest, or not, of the likely candidates at each of these shapes. 16x4096x4096 with a
    row-major B took 12.2 us in mma_skinny and 11.1 in clusters of wgmma_multicast that share K; one row took 10.6 and 10.8.
    """
    for m, b, streams in (
        *((1, "row", True), (16, "row", False), (32, "row", False), (1024, "row", False)),
        *((3, "col", True), (4, "col", True), (8, "col", True), (24, "col", False)),
    ):
        assert (plan(Case(m, 4096, 4096, b=b)).kernel == "mma_skinny") == streams, (m, b)


def test_an_expanded_operand_is_repacked():
    """A tensor map of TMA cannot have a stride of 0."""
    assert all(c.repack_a for c in plan(Case(256, 256, 256, a="expanded")).candidates if c.kernel == "wgmma_tma")


@pytest.mark.parametrize("layout", ("row", "col", "row_odd", "misaligned", "expanded"))
def test_any_contiguous_layout_and_alignment_uses_tensor_cores(layout):
    assert plan(Case(256, 256, 256, a=layout, b=layout)).kernel in TENSOR_CORES


def test_too_old_gpu_gets_no_kernel_and_a_reason():
    result = plan(Case(256, 256, 256), TURING)
    assert result.kernel is None
    assert {c.reason for c in result.candidates} == {"the GPU is too old for it"}


def test_only_hopper_uses_wgmma():
    case = Case(4096, 4096, 4096)
    assert plan(case).kernel == "wgmma_tma"
    for gpu, reason in ((AMPERE, "the GPU is too old for it"), (BLACKWELL, "the GPU no longer has its instructions")):
        result = plan(case, gpu)
        assert result.kernel == "mma_swizzle"
        assert {c.reason for c in result.candidates if c.kernel.startswith("wgmma")} == {reason}


def test_shared_memory_size_limits_the_configurations():
    small = tc.Gpu(sm=86, num_sms=28, smem_per_block=64 * 1024)
    names = {x for x in HALVES if not x.startswith("wgmma")}
    candidates = [c for c in plan(Case(256, 256, 256), small).candidates if c.kernel in names]
    reasons = {fits: {c.reason for c in candidates if (c.config["smem_bytes"] <= 64 * 1024) == fits} for fits in (True, False)}
    no_code = "this build has no machine code for it"  # of configurations for Hopper alone
    assert reasons == {True: {None}, False: {"its tiles do not fit the GPU's shared memory", no_code}}


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
        candidates = tc.plan(make(), make(2, 1), make(1, n), gpu=H200).candidates
        assert {c.reason is None for c in candidates if c.kernel in HALVES and c.kernel.startswith("wgmma")} == {fits}
        assert any(c.reason is None for c in candidates)


def test_pick_is_the_fastest_supported_candidate():
    for case in case_grid((torch.float16,))[::7]:
        if case.m * case.n == 0:
            continue
        candidates = plan(case).candidates
        assert candidates[0].microseconds == min(c.microseconds for c in candidates if c.reason is None)


def padded_candidates(m, n, k, pitch) -> dict:
    """Return {(kernel, index): Candidate} for fp16 with a bias, where both operands' rows lie `pitch` elements apart."""
    a, b = (torch.empty(rows, pitch, dtype=torch.float16, device="meta")[:, :k] for rows in (m, n))
    return {(x.kernel, x.index): x for x in tc.plan(a.new_empty(n), a, b.t(), gpu=H200).candidates}


def test_rows_that_straddle_lines_cost_tma_time():
    """A pitch of 4104 elements is a multiple of 16 bytes, not of 128: TMA reads more lines. Other kernels read vectors."""
    whole, straddling = padded_candidates(4096, 4096, 4096, 4096), padded_candidates(4096, 4096, 4096, 4104)
    for key, x in whole.items():
        assert not straddling[key].repack_a and not straddling[key].repack_b
        longest = 2.3 * x.microseconds if key[0].startswith("wgmma") else x.microseconds
        assert x.microseconds <= straddling[key].microseconds <= longest
        if key[0] == "wgmma_tma":
            assert straddling[key].microseconds > 1.05 * x.microseconds


@given(m=st.integers(1, 2**17), n=st.integers(1, 2**17), k=st.integers(0, 2**17))
def test_predictions_are_positive_and_do_not_shrink_with_size(m, n, k):
    """A doubled size does not lower the prediction by more than 5 %.

    Sizes are multiples of 8: an odd size may cost more than twice that size, because TMA cannot read it. The 5 % are for
    tiles and K slices, which may divide a doubled size more evenly.
    """

    def cost(m, n, k):
        make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="meta")  # noqa: E731
        return tc.plan(make(n), make(m, k), make(k, n), gpu=H200).candidates[0].microseconds

    assert cost(m, n, k) > 0
    least = 0.95 * cost(8 * m, 8 * n, 8 * k)
    assert least <= cost(16 * m, 8 * n, 8 * k)
    assert least <= cost(8 * m, 16 * n, 8 * k)
    assert least <= cost(8 * m, 8 * n, 16 * k)


def test_peaks_are_found_by_the_drivers_name():
    assert tc.Gpu(90, 132, 227 * 1024, "NVIDIA H200").peaks == H200.peaks
    assert H200.peaks["dram_gb_per_s"] == 4800 and H200.peaks["wgmma_tflops"] == 989.4
    h100 = tc.Gpu(90, 132, 227 * 1024, "NVIDIA H100 80GB HBM3").peaks
    assert h100["wgmma_tflops"] == H200.peaks["wgmma_tflops"] and h100["dram_gb_per_s"] == 3350
    nvl = tc.Gpu(90, 132, 227 * 1024, "NVIDIA H200 NVL").peaks  # the longest matching name wins
    assert nvl["wgmma_tflops"] < H200.peaks["wgmma_tflops"]
    mig = tc.Gpu(90, 66, 227 * 1024, "NVIDIA H200 MIG 3g.71gb").peaks  # a GPU with half of the SMs is not the table's H200
    assert mig["wgmma_tflops"] < 0.6 * H200.peaks["wgmma_tflops"]


@pytest.mark.parametrize("gpu", (AMPERE, ADA, H200))
def test_gpu_outside_the_table_gets_peaks_of_its_generation(gpu):
    """Derived peaks assume 1.7 GHz, so they are near the table's peaks."""
    derived = tc.Gpu(gpu.sm, gpu.num_sms, gpu.smem_per_block, "an unknown GPU").peaks
    for unit in ("fp32_tflops", "mma_sync_tflops", "wgmma_tflops"):
        assert (derived[unit] > 0) == (gpu.peaks[unit] > 0)
        assert derived[unit] <= 2.2 * gpu.peaks[unit] and gpu.peaks[unit] <= 2.2 * derived[unit]


def test_predictions_follow_the_gpus_peaks():
    """Twice the bandwidth speeds up memory-bound products only, and twice the arithmetic rate compute-bound products only."""
    slow = {"fp32_tflops": 30.0, "mma_sync_tflops": 300.0, "wgmma_tflops": 500.0, "dram_gb_per_s": 2000.0}
    fast_dram, fast_math = slow | {"dram_gb_per_s": 4000.0}, slow | {"mma_sync_tflops": 600.0, "wgmma_tflops": 1000.0}

    def time(case, peaks):
        return plan(case, tc.Gpu(90, 132, 227 * 1024, peaks=peaks)).candidates[0].microseconds

    memory, compute = Case(4096, 4096, 8), Case(2048, 2048, 2048)
    assert time(memory, fast_dram) < 0.8 * time(memory, slow) and time(memory, fast_math) > 0.95 * time(memory, slow)
    assert time(compute, fast_math) < 0.8 * time(compute, slow) and time(compute, fast_dram) > 0.95 * time(compute, slow)


@pytest.mark.gpu
def test_measured_peaks_are_near_the_tables():
    """Measure the peaks of a GPU in the table, as the planner does for a GPU outside the table."""
    gpu = tc.Gpu.of(0)
    if tc._C.gpu_peaks(gpu.name, gpu.sm, gpu.num_sms) == tc._C.gpu_peaks("", gpu.sm, gpu.num_sms):
        pytest.skip(f"the table has no {gpu.name}, so there is nothing to compare with")
    known, measured = tc._C.device_peaks(0), tc._C.measure_device_peaks(0)
    for name, value in known.items():
        assert measured[name] == pytest.approx(value, rel=0.25)


@pytest.mark.gpu
def test_the_first_call_of_a_process_may_be_captured():
    """The first call reads the GPU's specification. For a GPU outside the table, it also measures the peaks."""
    code = (
        "import torch, torch_addmm_tc as tc\n"
        "a, graph = torch.ones(64, 64, device='cuda').half(), torch.cuda.CUDAGraph()\n"
        "with torch.cuda.graph(graph):\n    tc._C.measure_device_peaks(0); d = tc.addmm(a, a, a)\n"
        "graph.replay(); assert (d == 65).all()"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
