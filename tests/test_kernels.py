"""Every configuration of every kernel, by name, against the float64 reference and its error bound.

Inputs are random, and the output starts as NaN. test_grid_cases gives each configuration a sample of the case grid. The sample
has every size, layout, scalar and dtype combination of the grid; a configuration that also runs in clusters takes every second
case in one. A configuration without an fp32 D of 16-bit operands takes the cases that need none, with N a multiple of 8, and
mma_direct those of whole words; tests/test_refusals.py says which must be left, and the other tests expect their refusal of the
rest. --grid-seed draws another sample; --full-grid runs every case in every way; --kernel chooses kernels.
"""

import itertools
import math
import re
from itertools import groupby

import pytest
import torch
from conftest import NO_GPU, chosen_configs

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import (
    Case,
    adapted,
    kernel_grid,
    multiplies,
    refusal,
    runnable_configs,
    sample,
    suited,
    takes_k,
)
from torch_addmm_tc.testing.inputs import integers, matrix
from torch_addmm_tc.testing.reference import reference

if NO_GPU:
    pytest.skip(f"every test needs {NO_GPU}", allow_module_level=True)

pytestmark = pytest.mark.gpu

KERNELS = [(kernel, chosen_configs(kernel["name"])) for kernel in tc.kernels()]
CONFIGS = [name for _, names in KERNELS for name in names]


def as_chosen(kernel, names):
    """Return a kernel's name, or that of the first configuration if not all of them are tested."""
    return kernel["name"] if names == runnable_configs()[kernel["name"]] else names[0]


def all_adapted(cases, name):
    """Return the cases, adapted to a configuration, each once."""
    return list(dict.fromkeys(adapted(case, name) for case in cases))


def pytest_generate_tests(metafunc):
    if metafunc.function is test_grid_cases:
        options, cases = metafunc.config.option, []
        for kernel, names in KERNELS:
            grid = kernel_grid(kernel)
            for config, ways in groupby(names, key=lambda name: name.split("/")[:2]):
                ways = list(ways)
                runs = [case for case in all_adapted(grid, ways[0]) if multiplies(kernel, ways[0], case)]
                chosen = runs if options.full_grid else sample(runs, f"{'/'.join(config)} {options.grid_seed}")
                for i, case in enumerate(chosen):
                    in_turn = ways if options.full_grid else [ways[i % len(ways)]]
                    cases += [pytest.param(name, case, id=f"{name}-{case}") for name in in_turn]
        metafunc.parametrize("kernel, case", cases)


def refuses(case, kernel, args, out):
    """Return whether a configuration refuses the case's C or D. It must then say so and write nothing."""
    reason, before = refusal(kernel, case, args, out), out.clone()
    if reason:
        with pytest.raises(RuntimeError, match=re.escape(reason)):
            case.run(kernel, args, out)
        assert torch.allclose(out, before, rtol=0, atol=0, equal_nan=True)
    return reason is not None


def test_grid_cases(kernel, case):
    args = case.inputs("cuda")
    out = torch.full(case.shape, math.nan, dtype=case.out_dtype or case.dtype, device="cuda")
    assert case.reference(args).error(case.run(kernel, args, out)) <= 1


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("m, n, k", [(300, 520, 1100), (140, 264, 3000), (40, 520, 5000)])
def test_sums_of_integers_are_exact(kernel, m, n, k):
    """The error bound of a long K is too wide to reveal that the sum of a K slice was rounded to fp16. Exact sums reveal it."""
    case = suited(Case(m, n, k, beta=1, alpha=1), kernel)
    args, expected = integers(case.m, case.n, case.k, "cuda")
    args, out = [x.to(case.dtype) for x in args], torch.full(case.shape, math.nan, device="cuda")
    if not takes_k(kernel, case):
        with pytest.raises(RuntimeError, match="all of K deep, do not fit shared memory"):
            case.run(kernel, args, out)
        assert out.isnan().all()
        return
    if refuses(case, kernel, args, out):
        out = out.to(case.dtype)  # of the exact sum, which is rounded once
    assert torch.equal(case.run(kernel, args, out), expected.to(out.dtype))


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("out_dtype", (None, torch.float32), ids=str)
@pytest.mark.parametrize("layout", ("row", "col", "row_pitched", "col_odd", "misaligned", "strided"))
def test_result_layouts(kernel, out_dtype, layout):
    """D may have any strides, and the kernel must not write between D's elements."""
    for m, n in ((136, 264), (131, 141)):
        case = suited(Case(m, n, 72, out_dtype=out_dtype, activation="gelu" if layout in ("col", "strided") else None), kernel)
        args = case.inputs("cuda")
        out = matrix(layout, *case.shape, out_dtype or case.dtype, "cuda")
        if refuses(case, kernel, args, out):
            continue
        storage = out.as_strided((out.untyped_storage().nbytes() // out.element_size(),), (1,), 0)
        inside = torch.zeros_like(storage, dtype=torch.bool)
        inside.as_strided(out.shape, out.stride(), out.storage_offset()).fill_(True)
        storage.fill_(math.nan)
        before = storage.clone()
        case.run(kernel, args, out)
        assert case.reference(args).error(out) <= 1
        same_bits = storage.view(torch.uint8).view(len(storage), -1) == before.view(torch.uint8).view(len(storage), -1)
        assert same_bits[~inside].all()


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("m, n, k", [(131, 141, 151), (1, 1000, 77), (2000, 3, 40), (640, 768, 1000)])
def test_repeats_are_bitwise_equal(kernel, m, n, k):
    case = suited(Case(m, n, k), kernel)
    args = case.inputs("cuda")
    first = case.run(kernel, args, torch.empty(case.shape, dtype=case.dtype, device="cuda"))
    for _ in range(50):
        out = torch.full_like(first, math.nan)
        assert torch.equal(case.run(kernel, args, out), first)


def stability_cases():
    """Yield (configuration, case) for every kernel.

    Launches overlap, and the blocks of some kernels share K slices or clusters.
    """
    cases = (
        Case(137, 265, 331),  # tails in M, N and K; misaligned rows
        Case(40, 72, 24),  # K shorter than a stage
        Case(64, 64, 64),  # one tile, one stage
        Case(3000, 3000, 200, out_dtype=torch.float32),  # more tiles than blocks
        Case(1100, 1032, 264, b="misaligned", broadcast="(N)"),
        Case(40, 520, 5000, broadcast="(N)"),  # several K slices
        Case(140, 264, 3000, torch.bfloat16, out_dtype=torch.float32),
        Case(16, 1000, 2060, c="row_odd"),
        Case(9, 70, 60000),  # many K slices
        Case(300, 264, 520, torch.float32, tf32=True),  # B is repacked
        Case(300, 264, 520, torch.float32),
        Case(40, 520, 5000, torch.float32, broadcast="(N)"),
        Case(137, 265, 331, batch=7, broadcast="(B,M,N)"),
        Case(40, 264, 3000, batch=3, broadcast="(B,1,N)", batches=("stacked", "shared", "stacked")),
    )
    for kernel, names in KERNELS:
        for name in names:
            for case in all_adapted(cases, name):
                if multiplies(kernel, name, case):
                    yield pytest.param(name, case, id=f"{name}-{case}")


@pytest.mark.parametrize("kernel, case", list(stability_cases()))
def test_concurrent_launches_are_bitwise_equal(kernel, case):
    """Replay a CUDA graph ten times. The graph has 20 launches on two streams.

    TMA, barriers, programmatic dependent launch and the sum of K slices must not race between launches.
    """
    args = case.inputs("cuda")
    first = case.run(kernel, args, torch.empty(case.shape, dtype=case.out_dtype or case.dtype, device="cuda"))
    assert case.reference(args).error(first) <= 1
    outs = [torch.empty_like(first) for _ in range(20)]
    graph, streams = torch.cuda.CUDAGraph(), (torch.cuda.Stream(), torch.cuda.Stream())
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        for stream in streams:
            stream.wait_stream(torch.cuda.current_stream())
        for i, out in enumerate(outs):
            with torch.cuda.stream(streams[i % 2]):
                case.run(kernel, args, out)
        for stream in streams:
            torch.cuda.current_stream().wait_stream(stream)
    for _ in range(10):
        for out in outs:
            out.fill_(math.nan)
        graph.replay()
        assert all(torch.equal(out, first) for out in outs)


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("m, n, k", [(300, 520, 200), (263, 521, 72)])
def test_in_place_accumulation(kernel, m, n, k):
    case = suited(Case(m, n, k), kernel)
    c, a, b = case.inputs("cuda")
    expected = reference(c, a, b, **case.scalars)
    assert expected.error(case.run(kernel, (c, a, b), c)) <= 1


# Each comment says how wgmma_tma reads C and writes D.
MANY_TILES = (
    Case(5000, 5000, 40),  # C and D by TMA
    Case(5000, 5001, 33),  # C and D in vectors
    Case(5000, 5001, 33, self_dtype=torch.float32, out_dtype=torch.float32),  # C and D by element
    Case(5000, 5001, 40, c="row_pitched"),  # C by TMA, D in vectors
    Case(5000, 5001, 40, broadcast="(N)"),  # C as one row, D in vectors
    Case(5000, 5000, 40, c="col"),  # C by element, D by TMA
    Case(300, 300, 40, batch=300, broadcast="(B,M,N)"),  # C and D by TMA
)


@pytest.mark.parametrize("case", MANY_TILES, ids=str)
@pytest.mark.parametrize("kernel", CONFIGS)
def test_persistent_blocks_compute_several_tiles(kernel, case):
    """The problem has more tiles than the GPU runs at once, so a persistent block computes several."""
    case = suited(case, kernel)
    args = case.inputs("cuda")
    out = torch.full(case.shape, math.nan, dtype=case.out_dtype or case.dtype, device="cuda")
    if not refuses(case, kernel, args, out):
        assert case.reference(args).error(case.run(kernel, args, out)) <= 1


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("first, pitch", [(1, 81), (1, 82), (1, 84), (2, 82), (4, 84), (8, 88)])
def test_what_lies_beside_operands_does_not_reach_the_result(kernel, first, pitch):
    """Operands are parts of matrices of NaN, and their rows begin anywhere."""
    case = suited(Case(137, 72, 75, broadcast="(N)"), kernel)
    c, a, b = case.inputs("cuda")
    whole_a = torch.full((case.m + 2, pitch), math.nan, dtype=a.dtype, device="cuda")
    whole_b = torch.full((case.k + 2, 88), math.nan, dtype=b.dtype, device="cuda")
    part_a, part_b = whole_a[1:-1, first : first + case.k].copy_(a), whole_b[1:-1, 8:80].copy_(b)
    out = torch.full(case.shape, math.nan, dtype=case.dtype, device="cuda")
    assert case.reference((c, a, b)).error(case.run(kernel, (c, part_a, part_b), out)) <= 1


@pytest.mark.parametrize("kernel", CONFIGS)
@pytest.mark.parametrize("m, k", [(131, 75), (70, 74), (300, 76), (5, 141), (3, 9)])
def test_products_that_follow_each_other(kernel, m, k):
    """Rows of A begin anywhere, and a product's first row follows the last row of the product before."""
    case = suited(Case(m, 72, k, batch=5, broadcast="(B,M,N)"), kernel)
    args = [x.contiguous() for x in case.inputs("cuda")]
    out = torch.full(case.shape, math.nan, dtype=case.dtype, device="cuda")
    assert case.reference(args).error(case.run(kernel, args, out)) <= 1


def test_kernel_name_without_an_index_lets_the_planner_pick_the_configuration():
    case = Case(256, 256, 4096)
    args = case.inputs("cuda")
    results = [case.run(name, args, torch.empty(256, 256, dtype=case.dtype, device="cuda")) for name in ("simt", "simt/0")]
    assert torch.equal(*results)


def test_unknown_kernel_error_lists_the_kernels():
    args, out = Case(4, 4, 4).inputs("cuda"), torch.empty(4, 4, dtype=torch.float16, device="cuda")
    for name in ("nope", "simt/2", "simt/", "simt/x", "sim", "simt_"):
        with pytest.raises(RuntimeError, match=f"there is no kernel '{name}'; there are simt, .*wmma_block"):
            Case(4, 4, 4).run(name, args, out)


def test_unsupported_kernel_raises_its_reason_and_writes_nothing():
    case = Case(8, 8, 8, torch.float32)
    out = torch.full((8, 8), 7.0, device="cuda")
    with pytest.raises(RuntimeError, match="wmma_block: it does not multiply operands of this dtype"):
        case.run("wmma_block", case.inputs("cuda"), out)
    assert (out == 7).all()


def test_tf32_kernel_needs_precision_tf32():
    case = Case(8, 8, 8, torch.float32)
    out = torch.full((8, 8), 7.0, device="cuda")
    with pytest.raises(RuntimeError, match='wmma_kstage: its TF32 needs precision="tf32"'):
        case.run("wmma_kstage", case.inputs("cuda"), out)
    assert (out == 7).all()


def test_fp32_does_not_use_tf32_by_default():
    """TF32 keeps 11 bits of each operand and would miss the fp32 bound by orders of magnitude."""
    previous = torch.get_float32_matmul_precision()
    args = Case(256, 256, 256, torch.float32).inputs("cuda")
    try:
        torch.set_float32_matmul_precision("highest")
        assert reference(*args).error(tc.addmm(*args)) <= 1
    finally:
        torch.set_float32_matmul_precision(previous)


@pytest.mark.parametrize(
    "dtype, kernel",
    [(suited(Case(1, 1, 1), name).dtype, name) for name in (as_chosen(*entry) for entry in KERNELS if entry[1])]
    + ([(torch.float32, "simt")] if chosen_configs("simt") else []),
    ids=str,
)
def test_c_and_d_may_have_more_than_2_to_the_31_elements(dtype, kernel, much_gpu_memory):
    """C and D have more than 2^31 elements. The test compares the corners, because a 32-bit index wraps in the last rows."""
    case = suited(Case(2**16 + 3, 2**15 + 5, 24, dtype, alpha=2), kernel)
    _, a, b = Case(case.m, case.n, case.k, dtype, broadcast="()").inputs("cuda")
    c, out = torch.zeros(case.m, case.n, dtype=dtype, device="cuda"), torch.empty(case.m, case.n, dtype=dtype, device="cuda")
    c[-64:, -64:] = matrix("row", 64, 64, dtype, "cuda")
    corners = list(itertools.product((slice(0, 64), slice(-64, None)), repeat=2))
    for rows, cols in corners:
        out[rows, cols] = math.nan  # an earlier kernel's result may lie in this memory
    case.run(kernel, (c, a, b), out)
    for rows, cols in corners:
        expected = reference(c[rows, cols], a[rows], b[:, cols], **case.scalars)
        assert expected.error(out[rows, cols]) <= 1
