"""What the planner says of every candidate: how it runs a problem, what it repacks. No test needs a GPU."""

import math

import pytest
import torch
from planned import TENSOR_CORES, plan

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.tools.planning import H200, Plan, cluster_name, problem_key


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


def test_a_configuration_without_an_fp32_d_splits_k_in_clusters_alone():
    case = Case(128, 256, 65536)
    few = [x for x in plan(case).candidates if not x.reason and not x.config["fp32_d"]]
    assert few and all(x.k_slices == (x.cluster or (1, 1, 1))[2] for x in few)
    assert any(x.k_slices > 3 for x in plan(case).candidates if not x.reason)


def test_multicast_repacks_an_a_without_k_contiguous():
    for a, repacked in (("row", False), ("col", True)):
        assert all(c.repack_a == repacked and not c.repack_b for c in multicast(Case(264, 264, 264, a=a, b="col")).values())


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


def test_a_batch_is_one_product_only_where_kernels_can_number_its_rows():
    """batch_invariant TF32 needs wgmma, whose tensor maps hold 2^31 rows."""
    a = torch.empty(2**15, 2**16, 4, device="meta")
    b = torch.empty(1, 4, 4, device="meta").expand(2**15, 4, 4)
    assert Plan.of(problem_key(None, a, b, precision="tf32", batch_invariant=True), H200).pick
