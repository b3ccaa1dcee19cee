"""The op with features of torch: opcheck, compile, export, autocast, vmap, CUDA graphs, streams, threads and devices."""

import threading
from contextlib import nullcontext

import pytest
import torch
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import torch_addmm_tc as tc
from torch_addmm_tc.testing.cases import Case
from torch_addmm_tc.testing.reference import reference

OPS = torch.ops.tc
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broadcast", ("()", "(N)", "(M,1)", "(M,N)"))
def test_opcheck(device, dtype, broadcast):
    args = Case(6, 10, 8, dtype, broadcast=broadcast, b="col").inputs(device)
    opcheck(OPS.addmm.default, args, {"beta": 0.5, "alpha": 2})
    opcheck(OPS.addmm.default, args, {"beta": 0.5, "out_dtype": torch.float32, "activation": "gelu", "precision": "tf32"})
    out = torch.empty(6, 10, dtype=dtype, device=device)
    opcheck(OPS.addmm_out.default, args, {"out": out, "kernel_name": "simt" if device == "cuda" else ""})
    opcheck(OPS.addmm_out.default, (None, *args[1:]), {"out": out, "activation": "relu"})


@pytest.mark.parametrize("dynamic", (False, True))
def test_compile_fullgraph(device, dynamic):
    @torch.compile(fullgraph=True, dynamic=dynamic)
    def model(c, a, b):
        hidden = tc.addmm(c, a, b, beta=0.5).relu()
        return tc.addmm(c, a, b, out_dtype=torch.float32), hidden + 1

    for m in (16, 24, 40):
        c, a, b = Case(m, 32, 48, broadcast="(N)").inputs(device)
        wide, hidden = model(c, a, b)
        assert reference(c, a, b, out_dtype=torch.float32).error(wide) <= 1
        assert torch.equal(hidden, tc.addmm(c, a, b, beta=0.5).relu() + 1)


def test_compile_writes_out_in_place(device):
    @torch.compile(fullgraph=True)
    def accumulate(c, a, b):
        OPS.addmm_out(c, a, b, out=c)
        return c * 2

    c, a, b = Case(16, 32, 48).inputs(device)
    expected = reference(c, a, b)
    doubled = accumulate(c, a, b)
    assert expected.error(c) <= 1 and torch.equal(doubled, c * 2)


def test_compile_raises_the_eager_shape_error(device):
    c, a, b = Case(16, 32, 48).inputs(device)
    with pytest.raises(Exception, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.compile(tc.addmm, fullgraph=True)(c, a, b[:-1])


class Layer(torch.nn.Module):
    def __init__(self, device):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.randn(32, 48, device=device).half(), requires_grad=False)
        self.bias = torch.nn.Parameter(torch.randn(32, device=device).half(), requires_grad=False)

    def forward(self, x):
        return tc.addmm(self.bias, x, self.weight.t())


def test_export_with_dynamic_rows(device):
    layer, x = Layer(device), torch.randn(16, 48, device=device).half()
    rows = torch.export.Dim("rows", min=2, max=4096)
    program = torch.export.export(layer, (x,), dynamic_shapes=({0: rows},))
    assert OPS.addmm.default in {node.target for node in program.graph.nodes}
    for m in (16, 33):
        x = torch.randn(m, 48, device=device).half()
        assert torch.equal(program.module()(x), layer(x))


def test_meta_results_have_the_shape_strides_and_dtype():
    x = torch.empty(6, 8, device="meta", dtype=torch.bfloat16)
    result = tc.addmm(x[:, 0:1], x, x.t(), out_dtype=torch.float32)
    assert result.shape == (6, 6) and result.stride() == (6, 1) and result.dtype == torch.float32 and result.is_meta


def test_flop_count_equals_torchs(device):
    c, a, b = Case(6, 10, 8, broadcast="(N)").inputs(device)
    calls = (
        lambda: tc.addmm(c, a, b),
        lambda: tc.addmm(c, a, b, beta=0.5, out_dtype=torch.float32),
        lambda: tc.addmm(c, a, b, activation="gelu"),
        lambda: tc.addmm(c, a, b, out=torch.empty(6, 10, dtype=a.dtype, device=device)),
        lambda: tc.mm(a, b),
        lambda: tc.mm(a, b, activation="relu", out_dtype=torch.float32),
    )
    for call in (lambda: torch.addmm(c, a, b), *calls):
        with FlopCounterMode(display=False) as counter:
            call()
        assert counter.get_total_flops() == 2 * 6 * 10 * 8


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
@pytest.mark.parametrize("given", (torch.float32, torch.float16, torch.bfloat16), ids=str)
def test_autocast_casts_to_its_dtype(device, dtype, given):
    args = Case(16, 32, 48, given).inputs(device)
    with torch.autocast(device, dtype=dtype):
        result, theirs = tc.addmm(*args), torch.addmm(*args)
        wide = tc.addmm(*args, out_dtype=torch.float32)
    assert result.dtype == theirs.dtype == dtype and wide.dtype == torch.float32
    cast = [x.to(dtype) for x in args]
    assert torch.equal(result, tc.addmm(*cast))
    with torch.autocast(device, dtype=dtype), torch.autocast(device, enabled=False):
        assert tc.addmm(*args).dtype == given


def test_autocast_mixes_dtypes_like_torch(device):
    c, a, b = Case(16, 32, 48, torch.float32).inputs(device)
    with torch.autocast(device, dtype=torch.bfloat16):
        assert tc.addmm(c.half(), a, b.half()).dtype == torch.addmm(c.half(), a, b.half()).dtype == torch.bfloat16


class PrecisionRecorder(TorchDispatchMode):
    """Record the precision of each call of tc::addmm and tc::baddbmm."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func in (OPS.addmm.default, OPS.baddbmm.default):
            self.seen.append((kwargs or {}).get("precision", "ieee"))
        return func(*args, **(kwargs or {}))


@pytest.fixture
def matmul_precision():
    before = torch.get_float32_matmul_precision()
    yield torch.set_float32_matmul_precision
    torch.set_float32_matmul_precision(before)


CALLS = {
    "addmm": lambda module, c, a, b: module.addmm(c, a, b),
    "mm": lambda module, c, a, b: module.mm(a, b),
    "baddbmm": lambda module, c, a, b: module.baddbmm(c[None], a[None], b[None]),
    "bmm": lambda module, c, a, b: module.bmm(a[None], b[None]),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
@pytest.mark.parametrize("enabled", (False, True), ids=("functions", "enabled"))
def test_torchs_tf32_setting_reaches_the_op(device, matmul_precision, call, enabled):
    """The package's functions pass it for float32, and so do torch's inside enabled()."""
    args, fp16_args = Case(6, 10, 8, torch.float32).inputs(device), Case(6, 10, 8).inputs(device)
    with tc.enabled(device) if enabled else nullcontext(), PrecisionRecorder() as mode:
        for precision in ("highest", "high", "highest"):
            matmul_precision(precision)
            call(torch if enabled else tc, *args)
            call(torch if enabled else tc, *fp16_args)
    assert mode.seen == ["ieee", "ieee", "tf32", "ieee", "ieee", "ieee"]


def test_a_compiled_graph_follows_torchs_tf32_setting(device, matmul_precision):
    args, graphs = Case(6, 10, 8, torch.float32).inputs(device), []

    def backend(graph, _):
        calls = [node for node in graph.graph.nodes if node.target is OPS.addmm.default]
        graphs.append([node.kwargs.get("precision", "ieee") for node in calls])
        return graph.forward

    compiled = torch.compile(tc.addmm, fullgraph=True, backend=backend)
    for precision in ("highest", "high"):
        matmul_precision(precision)
        compiled(*args)
    assert graphs == [["ieee"], ["tf32"]]


@pytest.mark.parametrize("in_dims", [(0, None, None), (None, 0, None), (None, None, 0), (0, 0, None), (0, 1, 2), (None, 2, 1)])
@pytest.mark.parametrize("broadcast", ("()", "(N)", "(M,1)", "(M,N)"))
@pytest.mark.parametrize("batch, m, k", [(3, 6, 8), (0, 6, 8), (3, 0, 8), (3, 6, 0)])
def test_vmap(device, in_dims, broadcast, batch, m, k):
    base = Case(m, 10, k, torch.float32, broadcast=broadcast).inputs(device)
    args = []
    for x, dim in zip(base, in_dims):
        dim = dim if dim is None else min(dim, x.dim())
        batched = None if dim is None else torch.stack([x * (i + 1) for i in range(max(batch, 1))], dim)
        args.append((x, None) if dim is None else (batched.narrow(dim, 0, batch), dim))
    tensors, dims = [x for x, _ in args], tuple(d for _, d in args)
    result = torch.vmap(tc.addmm, dims)(*tensors)
    assert result.shape == (batch, m, 10)
    for i in range(batch):
        item = [x if d is None else x.select(d, i) for x, d in args]
        assert reference(*item).error(result[i].contiguous()) <= 1


def test_vmap_raises_the_error_of_one_item(device):
    c, a, b = Case(6, 10, 8, torch.float32).inputs(device)
    for args, dims, message in (
        ((c, a[None], b[0]), (None, 0, None), "mat2 must be a matrix, got 1-D tensor"),
        ((c, a, b[:, 0]), (None, 0, None), "mat1 must be a matrix, got 1-D tensor"),
        ((c, a[None], b[:7]), (None, 0, None), "mat1 and mat2 shapes cannot be multiplied"),
        ((c, a[None][:0], b[:7]), (None, 0, None), "mat1 and mat2 shapes cannot be multiplied"),
        ((c[None, None], a[None], b), (0, 0, None), "number of sizes provided"),
    ):
        with pytest.raises(RuntimeError, match=message):
            torch.vmap(tc.addmm, dims)(*args)


def test_inference_mode_and_inference_tensors(device):
    with torch.inference_mode():
        args = Case(16, 32, 48).inputs(device)
        result = tc.addmm(*args)
        assert reference(*args).error(result) <= 1
        assert result.is_inference()
    with torch.no_grad():
        assert torch.equal(tc.addmm(*args), result)


@pytest.mark.gpu
def test_cuda_graph_capture_and_replay():
    c, a, b = Case(300, 520, 200).inputs("cuda")
    tc.addmm(c, a, b)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = tc.addmm(c, a, b)
    for seed in (1, 2, 3):
        for x, fresh in zip((c, a, b), Case(300, 520, 200).inputs("cuda", seed)):
            x.copy_(fresh)
        graph.replay()
        assert reference(c, a, b).error(result) <= 1


@pytest.mark.gpu
def test_reduce_overhead_mode():
    compiled = torch.compile(lambda c, a, b: tc.addmm(c, a, b).relu(), mode="reduce-overhead", fullgraph=True)
    args = Case(64, 128, 96).inputs("cuda")
    for _ in range(4):
        assert torch.equal(compiled(*args), tc.addmm(*args).relu())


@pytest.mark.gpu
def test_runs_on_the_current_stream():
    """The side stream sleeps and then doubles B. The product is queued after that, so it must see the doubled B."""
    side = torch.cuda.Stream()
    c, a, b = Case(512, 512, 512).inputs("cuda")
    expected = reference(c, a, b * 2)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        torch.cuda._sleep(50_000_000)
        b.mul_(2)
        result = tc.addmm(c, a, b)
    side.synchronize()
    assert expected.error(result) <= 1


@pytest.mark.gpu
def test_two_concurrent_streams_give_correct_results():
    cases = [Case(700, 900, 300), Case(900, 700, 500, torch.bfloat16)]
    inputs = [case.inputs("cuda") for case in cases]
    streams = [torch.cuda.Stream() for _ in cases]
    torch.cuda.synchronize()
    results = [[], []]
    for _ in range(20):
        for args, stream, into in zip(inputs, streams, results):
            with torch.cuda.stream(stream):
                into.append(tc.addmm(*args))
    torch.cuda.synchronize()
    for args, into in zip(inputs, results):
        expected = reference(*args)
        assert all(expected.error(r) <= 1 and torch.equal(r, into[0]) for r in into)


@pytest.mark.gpu
def test_concurrent_threads_give_equal_results():
    args = Case(300, 300, 300).inputs("cuda")
    expected, failures = tc.addmm(*args), []

    def work():
        for _ in range(50):
            if not torch.equal(tc.addmm(*args), expected):
                failures.append(1)

    threads = [threading.Thread(target=work) for _ in range(4)]
    [t.start() for t in threads]
    [t.join() for t in threads]
    assert not failures


@pytest.mark.gpu
@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_op_runs_on_a_device_that_is_not_current():
    args = Case(130, 140, 150).inputs("cuda:1")
    with torch.cuda.device(0):
        result = tc.addmm(*args)
        assert torch.cuda.current_device() == 0
    assert result.device == torch.device("cuda:1")
    assert reference(*args).error(result) <= 1
