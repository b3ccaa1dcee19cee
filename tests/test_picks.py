"""Which kernel the planner picks, where measurements found the fastest. No test needs a GPU."""

import itertools

import pytest
import torch
from planned import ADA, AMPERE, BLACKWELL, TENSOR_CORES, plan

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.tools.planning import H200, cluster_name


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("gpu", (AMPERE, ADA, H200))
def test_model_layers_use_tensor_cores(dtype, gpu):
    for n, k in ((2304, 768), (768, 768), (3072, 768), (768, 3072)):
        for b in ("row", "col"):
            assert plan(Case(1024, n, k, dtype, b=b, broadcast="(N)"), gpu).kernel in TENSOR_CORES


def test_fp32_without_tf32_uses_tensor_cores_where_they_are_faster():
    kernels = {m: plan(Case(m, 2048, 1024, torch.float32, b="col")).kernel for m in (1, 32, 128, 1024)}
    assert kernels == {1: "simt_skinny", 32: "mma_skinny", 128: "wgmma_bf16x6_rs", 1024: "wgmma_bf16x6"}
    assert plan(Case(1, 2048, 1024, torch.float32, b="col"), AMPERE).kernel == "simt_columns"


def test_a_few_rows_against_columns_of_b_use_simt_columns():
    """It was the fastest kernel on an H200 there: 1x5120x960 took 7.0 us, 10.6 in simt_skinny, and 8.8 in torch.addmm.

    16384x1x256 took 6.5, 10.8 and 9.9; 65536x1x400 29.5, 41.2 and 39.5; 2x32768x512 19.2, 26.4 and 23.1. 640 of 1x2704x32 with
    a full C took 34.7, 70 in mma_skinny, and 44.5 in torch.baddbmm.
    """
    for m, n, k in ((1, 5120, 960), (16384, 1, 256), (65536, 1, 400), (2, 32768, 512)):
        assert plan(Case(m, n, k, torch.float32, b="col", broadcast="(N)")).kernel == "simt_columns"
    assert plan(Case(1, 2704, 32, torch.bfloat16, b="col", batch=640, broadcast="(B,M,N)")).kernel == "simt_columns"


def test_a_few_rows_against_a_row_major_b_in_fp32_use_simt_rows():
    """It was the fastest kernel on an H200 there: 5x32768x8192 took 268 us, 366 in the next, and 261 in torch.addmm.

    8x50257x768 took 52, 93 and 84; 1x5120x5120 28, 35 and 30; 4x14336x4096 58, 68 and 91; 1x12288x960 13.4, 17.2 and 13.6.
    """
    for m, n, k in ((5, 32768, 8192), (8, 50257, 768), (1, 5120, 5120), (4, 14336, 4096), (1, 12288, 960)):
        assert plan(Case(m, n, k, torch.float32, broadcast="(N)")).kernel == "simt_rows"


def test_the_shortest_k_in_fp32_uses_simt_short():
    """It was the fastest kernel on an H200 there: 23x9496x8 took 2.9 us, 4.7 in the next, and 3.5 in torch.addmm.

    79x5477x16 took 3.5, 5.1 and 4.2; 6304x1005x2 14.2, 22.3 and 14.5; 1362x8124x2 21.9, 25.2 and 23.5.
    """
    for m, n, k in ((23, 9496, 8), (79, 5477, 16), (6304, 1005, 2), (1362, 8124, 2)):
        assert plan(Case(m, n, k, torch.float32, b="col", broadcast="(N)")).kernel == "simt_short"


def test_k_is_split_where_tiles_fill_a_wave_and_a_part_of_the_next():
    """40x19008x5120 in fp32 has 149 tiles for 132 SMs: 228 us in five K slices (H200), 335 otherwise, 410 in torch.addmm."""
    pick = plan(Case(40, 19008, 5120, torch.float32, b="col", broadcast="(N)")).pick
    assert -(-19008 // pick.config["tile_n"]) > H200.num_sms and pick.k_slices > 1


@pytest.mark.parametrize("layout", ("row", "col", "row_odd", "misaligned", "expanded"))
def test_any_contiguous_layout_and_alignment_uses_tensor_cores(layout):
    assert plan(Case(256, 256, 256, a=layout, b=layout)).kernel in TENSOR_CORES


def test_only_hopper_uses_wgmma():
    case = Case(4096, 4096, 4096)
    assert plan(case).kernel == "wgmma_tma"
    for gpu, reason in ((AMPERE, "the GPU is too old for it"), (BLACKWELL, "the GPU no longer has its instructions")):
        result = plan(case, gpu)
        assert result.kernel == "mma_swizzle"
        assert {c.reason for c in result.candidates if c.kernel.startswith("wgmma")} == {reason}


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


def test_batches_of_small_products_use_blocks_of_one_warp():
    """They were the fastest on an H100 there: 320 of 6x103x64 took 4.7 us, and 8.7 in mma_short."""
    pick = plan(Case(6, 103, 64, b="col", batch=320, broadcast="()", beta=0)).pick
    assert (pick.kernel, pick.config["threads"]) == ("mma_skinny", 32)


def test_up_to_four_rows_or_columns_with_a_short_k_use_simt_columns():
    """It was the fastest kernel on an H200 there: 65536x3x40 took 5.8 us, 8.5 in wmma_naive, and 11.6 in torch.addmm.

    675 of 4x29x96 took 4.0, and 6.8 in torch.bmm; 128 of 200x4x64 3.0 and 5.0. In fp32, 10^6x3x40 took 75, 104 in simt_kstage,
    and 101 in torch.mm; 64 of 4x4096x128 40 and 114.
    """
    for batch, m, n, k, dtype in (
        (1, 65536, 3, 40, torch.float16),
        (675, 4, 29, 96, torch.float16),
        (128, 200, 4, 64, torch.float16),
        (1, 10**6, 3, 40, torch.float32),
        (64, 4, 4096, 128, torch.float32),
    ):
        broadcast = "(N)" if batch == 1 else "()"
        pick = plan(Case(m, n, k, dtype, b="col", batch=batch, broadcast=broadcast, beta=0)).pick
        assert (pick.kernel, pick.config["tile_m"], pick.exchanged) == ("simt_columns", 4, m > n)


def test_batches_of_small_products_use_small_tiles_of_mma_short():
    """They were the fastest on an H200 there: 440 of 26x128x26 took 5.0 us, 8.4 in tiles of 64x64, and 7.0 in torch.bmm.

    336 of 18x18x64 took 3.4, 5.9 and 3.7; 113 of 88x8x8 2.3, 2.6 and 3.4; 269 of 4x111x25 4.1, 4.2 and 7.3.
    """
    for batch, m, n, k, b in (
        (440, 26, 128, 26, "row"),
        (336, 18, 18, 64, "col"),
        (113, 88, 8, 8, "row"),
        (269, 4, 111, 25, "row"),
    ):
        pick = plan(Case(m, n, k, b=b, batch=batch, broadcast="()", beta=0)).pick
        assert (pick.kernel, pick.config["tile_m"]) == ("mma_short", 32)


def test_batches_of_few_rows_with_a_longer_k_use_blocks_of_four_warps():
    """They were the fastest on an H200 there: 360 of 16x32x126 took 4.3 us, 6.4 in mma_guarded, and 5.2 in torch.bmm.

    204 of 1x72x196 took 4.8, 9.1 and 7.5; 125 of 5x128x146 4.5, 7.1 and 6.2; 63 of 40x68x778 12.2, 15.9 and 11.2.
    """
    for batch, m, n, k in ((360, 16, 32, 126), (204, 1, 72, 196), (125, 5, 128, 146), (63, 40, 68, 778)):
        pick = plan(Case(m, n, k, b="row", batch=batch, broadcast="()", beta=0)).pick
        assert (pick.kernel, pick.config["threads"]) == ("mma_skinny", 128)


def test_large_problems_use_large_tiles():
    """128x256 was the fastest way on an H200 there, timed alone beside torch.addmm.

    8192x5120x5120 took 559 us, and 582 in 128x128 with pingpong; 4096 cubed took 182 and 189.
    """
    for m, n, k in ((4096, 4096, 4096), (8192, 5120, 5120), (5882, 7168, 5120), (7240, 4096, 3584), (1024, 20480, 7168)):
        bias, a, weights = (torch.empty(size, dtype=torch.float16, device="meta") for size in ((n,), (m, k), (n, k)))
        pick = tc.plan(bias, a, weights.t(), gpu=H200).pick
        assert (pick.kernel, pick.config["tile_m"], pick.config["tile_n"]) == ("wgmma_tma", 128, 256), (m, n, k)


def test_narrow_tiles_fill_waves_evenly():
    """48x9216x16384 streams its weights in 144 tiles of 64 columns or 72 of 128, and in one wave of 128 tiles of 72."""
    for m, n, k in ((48, 9216, 16384), (27, 8960, 5120), (24, 17920, 5120), (9, 4608, 6144)):
        pick = plan(Case(m, n, k, b="col", broadcast="(N)")).pick
        assert pick.columns % 8 == 0 and pick.config["tile_n"] - 64 < pick.columns < pick.config["tile_n"]
        tiles, last = -(-n // pick.columns), H200.num_sms
        assert tiles % last == 0 or tiles % last > 0.8 * last
        assert pick.name == f"wgmma_multicast/{pick.index}/{cluster_name(pick.cluster)}/n{pick.columns}"


def test_medium_row_counts_use_clusters_that_share_k():
    """Such clusters were the fastest way on an H200 there, or took at most 3 % more time."""
    few = ((32, 768, 3072), (192, 1024, 4096), (224, 1008, 2152))
    for m, n, k in (*few, (32, 896, 5120), (48, 768, 6144), (48, 2304, 4608), (128, 1536, 3072)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).pick.cluster[2] > 1


def test_a_wave_of_tiles_with_a_long_k_keeps_it_whole():
    """128x4096x14336 took 34.3 us on an H200 in 128 tiles of 64x64, and 40.6 in four slices.

    In an earlier run clusters that share K took 36.3, and these tiles 34.7.
    """
    pick = plan(Case(128, 4096, 14336, b="col", broadcast="(N)")).pick
    assert (pick.kernel, pick.config["tile_m"], pick.cluster, pick.k_slices) == ("wgmma_multicast", 64, (2, 1, 1), 1)


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


def test_odd_sizes_with_a_short_k_use_mma_short():
    """It was the fastest kernel on an H200 there: 839x2307x19 took 5.6 us, and 6.0 in mma_guarded."""
    for m, n, k in ((839, 2307, 19), (1305, 899, 11), (863, 342, 10)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_short"


def test_many_rows_with_a_short_odd_k_use_mma_stationary():
    for m, n, k in ((16384, 512, 13), (50000, 300, 99)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_stationary"


def test_few_columns_of_an_odd_row_major_b_use_mma_streamed():
    """50000x3x96 took 8.9 us there on an H200, 9.4 in simt_columns, and 14.2 in torch.addmm."""
    assert plan(Case(50000, 3, 96, torch.bfloat16, b="row", broadcast="(N)")).kernel == "mma_streamed"


def test_many_rows_with_a_short_even_k_use_mma_direct():
    """It was the fastest kernel on an H200 there: 32768x300x100 took 21.9 us, 28.3 in mma_streamed, and 28.8 in torch.addmm.

    200704x240x40 took 37.6, 44.7 in wgmma_multicast and 60.8, and 401408x144x24 43.9 and 93.1 in torch.addmm.
    20000x32x32 took 3.6 to 3.9, 4.0 to 5.0 in mma_short, and 3.9 in torch.addmm.
    """
    many = ((32768, 300, 100), (10**6, 300, 100), (200704, 240, 40), (401408, 144, 24), (10**6, 32, 32))
    for m, n, k in (*many, (20000, 32, 32)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_direct"
    for m, n, k in ((10**6, 32, 32), (401408, 16, 96)):
        assert plan(Case(m, n, k, b="row", broadcast="(N)")).kernel == "mma_direct"


def test_many_rows_with_a_short_k_in_fp32_use_mma_direct():
    """It was the fastest kernel on an H200 there: 401408x144x24 took 98 us, 263 in simt_kstage, and 191 in torch.addmm.

    401408x30x60 took 68, 111 and 105.
    """
    for m, n, k in ((401408, 144, 24), (100352, 240, 40), (10**6, 32, 32), (401408, 30, 60)):
        assert plan(Case(m, n, k, torch.float32, b="col", broadcast="(N)")).kernel == "mma_direct"


def test_many_rows_with_a_k_of_100_to_250_in_fp32_use_wgmma_bf16x6_streamed():
    """It was the fastest kernel on an H200 there: 65536x64x200 took 41.6 us, 51.8 in wgmma_bf16x6_rs, and 43.1 in torch.addmm.

    200704x24x144 took 50.3 us, 67.3 in mma_direct and 59.9. 802816x64x147 took 270 and 405; mma_direct's 437 are another run's.
    """
    for m, n, k in ((802816, 64, 147), (50176, 64, 147), (65536, 64, 200), (200704, 24, 144), (100352, 40, 147)):
        assert plan(Case(m, n, k, torch.float32, b="col", broadcast="(N)")).kernel == "wgmma_bf16x6_streamed"


def test_many_rows_that_begin_anywhere_use_mma_streamed():
    """It was the fastest kernel on an H200 there: 401408x64x147 took 68.8 us, and 80.7 in mma_stationary.

    8192x128x300 took 10.1 us, and 12.5.
    """
    for m, n, k in ((401408, 64, 147), (8192, 128, 300)):
        assert plan(Case(m, n, k, b="col", broadcast="(N)")).kernel == "mma_streamed"


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
