"""Batches of products: torch_addmm_tc.baddbmm and bmm, and torch's own batches on them."""

import math
from collections import Counter
from dataclasses import replace

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

import torch_addmm_tc as tc
from torch_addmm_tc.integrations import routing
from torch_addmm_tc.integrations.heads import fold, folds
from torch_addmm_tc.testing.cases import Case, batch_grid, sample
from torch_addmm_tc.testing.inputs import LAYOUTS
from torch_addmm_tc.testing.reference import reference
from torch_addmm_tc.tools.planning import problem_key

OPS = torch.ops.tc
DTYPES = (torch.float16, torch.bfloat16, torch.float32)
BASE = Case(131, 141, 151, batch=3, broadcast="(B,M,N)")
CASES = [case for dtype in DTYPES for case in sample(batch_grid(Case(131, 141, 151, dtype), LAYOUTS), str(dtype))]
PAIRS = "Expected size for first two dimensions of batch2 tensor to be"


def options(case):
    return {**case.scalars, "activation": case.activation}


@pytest.fixture
def called():
    """Which operators of the op's and torch's run in the test, counted."""
    counts = Counter()

    class Counting(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):
            counts[str(func).removesuffix(".default")] += 1
            return func(*args, **(kwargs or {}))

    with Counting():
        yield counts


@pytest.mark.parametrize("case", CASES, ids=str)
def test_results_are_within_the_bound(device, case):
    args = case.inputs(device)
    result = tc.baddbmm(*args, **options(case), out_dtype=case.out_dtype)
    assert result.is_contiguous() and case.reference(args).error(result) <= 1
    out = torch.full(case.shape, math.nan, dtype=result.dtype, device=device)
    assert tc.baddbmm(*args, **options(case), out=out) is out and case.reference(args).error(out) <= 1


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("place", ("between", "transposed", "spaced"))
def test_out_may_have_any_strides(device, dtype, place):
    case = replace(BASE, dtype=dtype, m=33, n=47, k=65)
    args = case.inputs(device)
    storage = torch.full((4, 36, 4, 50), math.nan, dtype=dtype, device=device)
    whole = {"between": storage[0].movedim(1, 0), "transposed": storage[:, 0].mT, "spaced": storage[:, :, 1]}[place]
    out = whole[:3, :33, :47] if place != "transposed" else storage.view(4, 50, 4 * 36)[:3, :47, :33].mT
    written = torch.zeros_like(storage, dtype=torch.bool)
    written.as_strided(out.shape, out.stride(), out.storage_offset()).fill_(True)
    assert tc.baddbmm(*args, **case.scalars, out=out) is out and case.reference(args).error(out) <= 1
    assert storage[~written].isnan().all()


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_out_may_be_self_and_is_resized(device, dtype):
    case = replace(BASE, dtype=dtype, m=33, n=47, k=65)
    c, a, b = case.inputs(device)
    expected = case.reference((c, a, b))
    assert expected.error(tc.baddbmm(c, a, b, **case.scalars, out=c)) <= 1
    out = torch.empty(2, dtype=a.dtype, device=device)
    with pytest.warns(UserWarning, match="was resized"):
        tc.baddbmm(None, a, b, out=out)
    assert torch.equal(out, tc.bmm(a, b))


@pytest.mark.parametrize(
    "batch, m, n, k", [(0, 3, 4, 5), (3, 0, 4, 5), (3, 4, 0, 5), (3, 4, 5, 0), (1, 1, 1, 1), (70000, 2, 3, 4)]
)
def test_any_number_of_any_matrices(device, batch, m, n, k):
    case = Case(m, n, k, batch=batch, broadcast="(B,M,N)")
    args = case.inputs(device)
    assert case.reference(args).error(tc.baddbmm(*args, **case.scalars)) <= 1
    assert reference(args[0], *args[1:], beta=0).error(tc.bmm(*args[1:])) <= 1


@pytest.mark.gpu
def test_more_elements_than_32_bits_count(much_gpu_memory):
    a, b = torch.randn(9, 16384, 8, device="cuda").half(), torch.randn(9, 8, 16384, device="cuda").half()
    result = tc.bmm(a, b)
    for i in (0, 7, 8):
        assert reference(a.new_zeros(()), a[i, -300:], b[i], beta=0).error(result[i, -300:]) <= 1


# ---- shared matrices ----


def test_products_that_share_weights_are_one_product():
    a, w = torch.empty(6, 50, 64, device="meta").half(), torch.empty(64, 96, device="meta").half()
    bias, c = torch.empty(96, device="meta").half(), torch.empty(6, 50, 96, device="meta").half()
    for addend in (None, bias, c):
        flat = addend.flatten(0, 1) if addend is c else addend
        assert problem_key(addend, a, w.expand(6, 64, 96)) == problem_key(flat, a.flatten(0, 1), w)
    rows = problem_key(None, a[0, :1].expand(6, 1, 64), torch.empty(6, 96, 64, device="meta").half().mT)
    assert " batch=1 m=1 n=576 k=64 " in f" {rows} "
    for apart in (problem_key(c[:, :1], a, w.expand(6, 64, 96)), problem_key(None, a[:, :40], w.expand(6, 64, 96))):
        assert apart.startswith("batch=6 ")


@pytest.mark.parametrize("shape", [(6, 50), (2, 3, 50), (6, 1)])
def test_matmul_with_shared_weights(device, shape):
    a, w = torch.randn(*shape, 64, device=device).half(), torch.randn(64, 96, device=device).half()
    a3 = a.flatten(0, -3) if a.dim() > 3 else a if a.dim() == 3 else a[None]
    result = tc.bmm(a3, w.expand(len(a3), 64, 96))
    assert reference(a.new_zeros(()), a3.flatten(0, 1), w, beta=0).error(result.flatten(0, 1)) <= 1


# ---- errors ----


def test_errors_say_what_was_given(device):
    c, a, b = replace(BASE, m=4, n=5, k=6).inputs(device)
    differentiable = a.clone().requires_grad_()
    for call, text in (
        (lambda: tc.bmm(a[:2], b), rf"{PAIRS}: \[2, 6\] but got: \[3, 6\]"),
        (lambda: tc.bmm(a, b.mT), rf"{PAIRS}: \[3, 6\] but got: \[3, 5\]"),
        (lambda: tc.bmm(a[0], b), "batch1 must be a 3D tensor, but got a 2-D tensor"),
        (lambda: tc.bmm(a, b[0]), "batch2 must be a 3D tensor, but got a 2-D tensor"),
        (lambda: tc.baddbmm(c[:2], a, b), r"expanded size of the tensor \(3\) must match the existing size \(2\)"),
        (lambda: tc.baddbmm(c[None], a, b), r"number of sizes provided \(3\) must be greater or equal"),
        (lambda: tc.baddbmm(c.double(), a, b), "self and batch2 must have the same dtype, but got Double and Half"),
        (lambda: tc.bmm(a, b.bfloat16()), "batch1 and batch2 must have the same dtype, but got Half and BFloat16"),
        (lambda: tc.bmm(a, None), "batch2 must be a tensor, but got None"),
        (lambda: tc.bmm(a, b, activation="tanh"), "activation must be one of none, relu, .*, but got 'tanh'"),
        (lambda: tc.bmm(differentiable, b), "forward-only, but batch1 requires grad"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    for out in (
        a.new_zeros(4, 5).expand(3, 4, 5),
        torch.zeros(20, dtype=a.dtype, device=device).as_strided((3, 4, 5), (1, 1, 1)),
    ):
        with pytest.raises(RuntimeError, match="more than one element of the written-to tensor"):
            tc.baddbmm(c, a, b, out=out)
    square = a.new_zeros(3, 4, 4)
    with pytest.raises(RuntimeError, match="some elements of the input tensor and the written-to tensor"):
        tc.baddbmm(None, square, square, out=square)


def test_torch_raises_the_same_shape_errors():
    c, a, b = replace(BASE, m=4, n=5, k=6, dtype=torch.float32, broadcast="()").inputs("cpu")
    for args in ((c, a[:2], b), (c, a, b.mT)):
        errors = []
        for function in (torch.baddbmm, tc.baddbmm):
            with pytest.raises(RuntimeError) as error:
                function(*args)
            errors.append(str(error.value))
        assert errors[0] == errors[1]


# ---- torch's features ----


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("broadcast", ("()", "(N)", "(B,1,N)", "(B,M,N)"))
def test_opcheck(device, dtype, broadcast):
    args = Case(6, 10, 8, dtype, broadcast=broadcast, b="col", batch=3).inputs(device)
    opcheck(OPS.baddbmm.default, args, {"beta": 0.5, "alpha": 2})
    opcheck(OPS.baddbmm.default, args, {"out_dtype": torch.float32, "activation": "gelu", "precision": "tf32"})
    out = torch.empty(3, 6, 10, dtype=dtype, device=device)
    opcheck(OPS.baddbmm_out.default, (None, *args[1:]), {"out": out, "activation": "relu"})


@pytest.mark.parametrize("dynamic", (False, True))
def test_compile_fullgraph(device, dynamic):
    @torch.compile(fullgraph=True, dynamic=dynamic)
    def model(c, a, b):
        return tc.baddbmm(c, a, b, beta=0.5).relu() + 1

    for batch, m in ((2, 16), (3, 24)):
        c, a, b = Case(m, 32, 48, batch=batch, broadcast="(N)").inputs(device)
        assert torch.equal(model(c, a, b), tc.baddbmm(c, a, b, beta=0.5).relu() + 1)


def test_export_with_dynamic_batches(device):
    class Experts(torch.nn.Module):
        def forward(self, x, weights):
            return tc.bmm(x, weights, activation="silu")

    args = Case(16, 32, 48, batch=4).inputs(device)[1:]
    experts = torch.export.Dim("experts", min=2, max=64)
    program = torch.export.export(Experts(), args, dynamic_shapes=({0: experts}, {0: experts}))
    assert OPS.baddbmm.default in {node.target for node in program.graph.nodes}
    args = Case(16, 32, 48, batch=7).inputs(device)[1:]
    assert torch.equal(program.module()(*args), tc.bmm(*args, activation="silu"))


def test_autocast_flops_and_meta(device):
    c, a, b = Case(6, 10, 8, torch.float32, batch=3, broadcast="(N)").inputs(device)
    with torch.autocast(device, dtype=torch.bfloat16), FlopCounterMode(display=False) as counter:
        assert tc.baddbmm(c, a, b).dtype == torch.bfloat16
        assert tc.baddbmm(c, a, b, out_dtype=torch.float32).dtype == torch.float32
    assert counter.get_total_flops() == 2 * 2 * 3 * 6 * 10 * 8
    result = tc.bmm(a.to("meta"), b.to("meta"), out_dtype=torch.float32)
    assert result.shape == (3, 6, 10) and result.is_contiguous()


@pytest.mark.parametrize("in_dims", [(0, 0, 0), (None, 0, None), (None, None, 0), (1, 2, 0), (0, None, None)], ids=str)
@pytest.mark.parametrize("addend", ("(N)", "(M,N)"))
def test_vmap_is_one_call(device, called, in_dims, addend):
    shapes = [{"(N)": (10,), "(M,N)": (6, 10)}[addend], (6, 8), (8, 10)]
    dims = [min(dim, len(shape)) if dim is not None else None for dim, shape in zip(in_dims, shapes)]
    args = [torch.randn(shape, device=device) for shape in shapes]
    args = [x if d is None else torch.stack([x, x + 1, x - 1], dim=d) for x, d in zip(args, dims)]
    expected = torch.vmap(torch.addmm, tuple(dims))(*args)
    called.clear()
    result = torch.vmap(OPS.addmm.default, tuple(dims))(*args)
    assert called["tc.baddbmm"] == 1 and not called["tc.addmm"] and not called["aten.stack"]
    assert torch.allclose(result, expected, atol=1e-4)


def test_vmap_of_batches_nests(device, called):
    a, b = torch.randn(5, 4, 3, 6, 8, device=device), torch.randn(4, 3, 8, 10, device=device)
    result = torch.vmap(torch.vmap(OPS.baddbmm.default, (None, 0, 0)), (None, 0, None))(torch.zeros(10, device=device), a, b)
    assert called["tc.baddbmm"] == 1 and torch.allclose(result, a @ b, atol=1e-4)


# ---- integrations ----


def attention(q, k, v):
    return (q @ k.mT / q.shape[-1] ** 0.5).softmax(-1) @ v


@pytest.mark.parametrize("dtype", (torch.float16, torch.bfloat16), ids=str)
def test_enabled_takes_every_form_of_a_batch(device, dtype, interception):
    q, k, v = torch.randn(3, 2, 4, 24, 16, device=device).to(dtype)
    c = torch.randn(8, 24, 24, device=device).to(dtype)
    q3, k3 = q.flatten(0, 1), k.flatten(0, 1)
    calls = {
        "matmul": lambda: torch.matmul(q, k.mT),
        "matmul that broadcasts": lambda: q @ k[:1, :1].mT,
        "bmm": lambda: torch.bmm(q3, k3.mT),
        "baddbmm": lambda: torch.baddbmm(c, q3, k3.mT, beta=0.5, alpha=0.25),
        "einsum": lambda: torch.einsum("bhqd,bhkd->bhqk", q, k),
        "attention": lambda: attention(q, k, v),
    }
    for name, call in calls.items():
        expected = call()
        with torch.no_grad(), tc.enabled(device), torch.profiler.profile() as profile:
            result = call()
        ran = {event.key for event in profile.key_averages()}
        assert ran & {"tc::baddbmm", "tc::addmm"}, name
        assert torch.allclose(result.float(), expected.float(), atol=0.06, rtol=0.02), name


def heads(shape, dtype, device, offset=0):
    """Return the heads of several sequences, (sequences, heads, tokens, size): their leading dimensions are not one."""
    sequences, count, tokens, size = shape
    memory = torch.randn(sequences * tokens * count * size + offset, device=device).to(dtype)
    return memory[offset:].view(sequences, tokens, count, size).transpose(1, 2)


# Heads of 16 bytes and of others, at aligned and at other addresses; one sequence, one head, no tokens, no elements.
@pytest.mark.parametrize("dtype", (torch.float16, torch.float32), ids=str)
@pytest.mark.parametrize("offset", (0, 3, 8))
@pytest.mark.parametrize(
    "shape", ((3, 2, 24, 16), (2, 3, 7, 5), (1, 3, 8, 16), (2, 1, 8, 16), (2, 3, 0, 8), (2, 3, 4, 0)), ids=str
)
def test_enabled_takes_heads_of_several_sequences(device, dtype, offset, shape, interception):
    q, k, v = (heads(shape, dtype, device, offset) for _ in range(3))
    weights = torch.randn(*shape[:2], shape[2], shape[2], device=device).to(dtype)
    for name, x, y in (("scores", q, k.mT), ("values", weights, v), ("transposed weights", weights.mT, v)):
        expected = torch.matmul(x.double(), y.double())
        with torch.no_grad(), tc.enabled(device), torch.profiler.profile() as profile:
            result = torch.matmul(x, y)
        ran = {event.key for event in profile.key_averages()}
        assert ran & {"tc::baddbmm", "tc::addmm"} or routing.unsupported_reason(x, y, rank=4), name
        assert result.dtype == dtype and result.is_contiguous() and result.shape == expected.shape, name
        assert torch.allclose(result.double(), expected, atol=0.03 if dtype == torch.float16 else 1e-4, rtol=0.01), name


def test_folded_heads_keep_every_bit(device):
    """Copies of 16 bytes at a time keep the payloads of NaNs."""
    bits = torch.randint(-(2**15), 2**15, (2, 24, 3, 16), dtype=torch.int16, device=device)
    x = bits.view(torch.float16).transpose(1, 2)
    for matrices, expected in ((x, bits.transpose(1, 2)), (x.mT, bits.transpose(1, 2).mT)):
        folded = fold(matrices)
        assert not folds(matrices) and torch.equal(folded.view(torch.int16), expected.reshape(6, *expected.shape[2:]))
        assert (folded.stride(-1) == 1) == (matrices.stride(-1) == 1)


def test_matmul_of_heads_returns_no_view(device, interception):
    q = heads((2, 3, 8, 16), torch.float16, device)
    with torch.no_grad(), tc.enabled(device):
        results = torch.matmul(q, q.mT), torch.matmul(q[:, 0], q[0, 0].mT)
    for result in results:
        assert not result._is_view()
        result.mul_(torch.ones(1, dtype=torch.float16, device=device, requires_grad=True))


def test_traces_of_heads_assume_no_alignment(device):
    q = heads((2, 3, 8, 16), torch.float16, device)
    with torch.no_grad(), tc.enabled(device):
        graph = make_fx(lambda x: torch.matmul(x, x.mT), tracing_mode="real")(q)
    other = heads((2, 3, 8, 16), torch.float16, device, offset=1)
    assert torch.allclose(graph(other).double(), other.double() @ other.double().mT, atol=0.03, rtol=0.01)


def test_matmul_of_other_shapes_keeps_torchs_semantics(device, interception):
    q = heads((2, 3, 8, 16), torch.float16, device)
    with torch.no_grad(), tc.enabled(device):
        for x, y in ((q, q[:, :1].mT), (q, q[0].mT), (q[0, 0], q.mT), (q, q[0, 0, 0])):
            result = torch.matmul(x, y)
            assert torch.allclose(result.double(), torch.matmul(x.double(), y.double()), atol=0.03, rtol=0.01)
        with pytest.raises(RuntimeError):
            torch.matmul(q, q)
    x = q.float().requires_grad_()
    with tc.enabled(device):
        torch.matmul(x, q.float().mT).sum().backward()
    assert x.grad is not None


def test_enabled_leaves_gradients_to_torch(device):
    a, b = torch.randn(2, 3, 4, device=device, requires_grad=True), torch.randn(2, 4, 5, device=device)
    with tc.enabled(device):
        torch.bmm(a, b).sum().backward()
    assert torch.allclose(a.grad, b.sum(-1)[:, None].expand_as(a), atol=1e-5)


def test_compiled_models_run_batches_on_the_op(device):
    c, a, b = Case(32, 48, 64, torch.float32, batch=3, broadcast="(N)").inputs(device)

    def model(c, a, b):
        return torch.relu(torch.bmm(a, b) + c) @ b.mT, torch.baddbmm(c, a, b, beta=0.5)

    expected = model(c, a, b)
    compiled = torch.compile(model, options=tc.compile_options(), fullgraph=True)
    with torch.no_grad():
        compiled(c, a, b)
        with torch.profiler.profile() as profile:
            results = compiled(c, a, b)
    ran = {event.key: event.count for event in profile.key_averages()}
    assert ran["tc::baddbmm"] == 3 and "aten::bmm" not in ran
    for result, x in zip(results, expected):
        assert torch.allclose(result, x, atol=1e-3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_batch_invariant_batches(dtype):
    """A row has the same bits in a batch of any number of products, in any place, and in a product of its own."""
    for n, k in ((264, 520), (136, 4100), (40, 77)):
        c, a, b = Case(70, n, k, dtype, batch=5, broadcast="(N)").inputs("cuda")
        whole = tc.baddbmm(c, a, b, batch_invariant=True)
        for i in (0, 4):
            assert torch.equal(whole[i : i + 1], tc.baddbmm(c, a[i : i + 1], b[i : i + 1], batch_invariant=True))
            assert torch.equal(whole[i], tc.addmm(c, a[i], b[i], batch_invariant=True))
            assert torch.equal(whole[i, :3], tc.addmm(c, a[i, :3], b[i], batch_invariant=True))
        assert torch.equal(whole[2:], tc.baddbmm(c, a[2:], b[2:], batch_invariant=True))
        row, columns = a[:1, :1].expand(5, 1, k), b.mT.contiguous().mT  # which would be one product of 5 N columns
        whole = tc.bmm(row, columns, batch_invariant=True)
        assert torch.equal(whole[3], tc.mm(row[0], columns[3], batch_invariant=True))
