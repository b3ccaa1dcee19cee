"""Predicted times, and the peaks of GPUs that they follow from. All but two tests need no GPU."""

import subprocess
import sys

import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from planned import ADA, AMPERE, plan

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case, case_grid
from torch_addmm_tc.tools.planning import H200


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
@example(m=1, n=1, k=174)  # these shrank by 6 to 12 % before kPortAgain and kAlongN
@example(m=1, n=8, k=926)
@example(m=1, n=44, k=671)
@example(m=5, n=4, k=120)
def test_predictions_are_positive_and_do_not_shrink_with_size(m, n, k):
    """A doubled size does not lower the prediction by more than 5 %.

    Sizes are multiples of 8: an odd size may cost more than twice that size, because TMA cannot read it. So may rows of an odd
    multiple of 8 elements, which begin within sectors of 32 bytes. The 5 % are for tiles and K slices, which may divide a
    doubled size more evenly.
    """

    def cost(m, n, k):
        make = lambda *shape: torch.empty(shape, dtype=torch.float16, device="meta")  # noqa: E731
        return tc.plan(make(n), make(m, k), make(k, n), gpu=H200).candidates[0].microseconds

    assert cost(m, n, k) > 0
    least = 0.95 * cost(8 * m, 8 * n, 8 * k)
    assert least <= cost(16 * m, 8 * n, 8 * k)
    assert n % 2 == 1 or least <= cost(8 * m, 16 * n, 8 * k)
    assert k % 2 == 1 or least <= cost(8 * m, 8 * n, 16 * k)


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
