"""Batch invariance: a row's bits do not depend on the other rows, on their number, on strides or on the kernel."""

import random
import threading
from unittest.mock import patch

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from planned import AMPERE
from torch._subclasses import FakeTensorMode

import torch_addmm_tc as tc
from torch_addmm_tc import _C
from torch_addmm_tc.__main__ import main
from torch_addmm_tc.registration.table import OPS
from torch_addmm_tc.tools import check_invariance
from torch_addmm_tc.tools.planning import H200, problem_key

KERNELS = {kernel["name"]: kernel for kernel in _C.kernels()}
UNITS = {name: kernel["unit"] for name, kernel in KERNELS.items()}
ON_CPU = "batch-invariant results are promised for CUDA tensors, but got tensors on the CPU"
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


# ---- the planner ----


def operand(rows, cols, dtype, order, padding):
    """Return a meta matrix of rows or columns that are `padding` elements longer in memory."""
    outer, inner = (rows, cols) if order == "row" else (cols, rows)
    x = torch.empty(outer, inner + padding, dtype=dtype, device="meta")[:, :inner]
    return x if order == "row" else x.t()


def plan(m, n, k, dtype=torch.float16, b="col", padding=0, gpu=H200, batch_invariant=True, **options):
    mat1, mat2 = operand(m, k, dtype, "row", padding), operand(k, n, dtype, b, padding)
    return tc.plan(None, mat1, mat2, gpu=gpu, batch_invariant=batch_invariant, **options)


@settings(max_examples=200)
@given(
    m=st.integers(1, 9000), n=st.one_of(st.integers(1, 9000), st.integers(1, 1100)), k=st.integers(0, 20000),
    dtype=st.sampled_from(DTYPES), b=st.sampled_from(("row", "col")), padding=st.sampled_from((0, 1, 8, 12)),
    fp32=st.booleans(), gpu=st.sampled_from((H200, AMPERE)), precision=st.sampled_from(("ieee", "tf32")),
)  # fmt: skip
def test_candidates_add_in_the_order_of_k(m, n, k, dtype, b, padding, fp32, gpu, precision):
    options = {"gpu": gpu, "precision": precision, "out_dtype": torch.float32 if fp32 else dtype}
    chosen = plan(m, n, k, dtype, b, padding, **options)
    assert chosen.pick
    able = [x for x in chosen.candidates if x.reason is None]
    for x in able:
        assert x.math in KERNELS[x.kernel]["in_order"] and x.config["warp_slices"] == 1
        assert x.cluster is None or x.cluster[2] in (1, x.k_slices)
        assert x.k_slices == 1 or UNITS[x.kernel] == "wgmma"  # others divide K elsewhere
    of_one_row = plan(1, n, k, dtype, b, **options).pick  # maths and slices differ in bits
    assert {(x.math, x.k_slices) for x in able} == {(of_one_row.math, of_one_row.k_slices)}
    halves = n <= 1024 and k > 2048 and gpu is H200 and (dtype is not torch.float32 or precision == "tf32")
    assert of_one_row.k_slices == 1 + halves


def test_a_column_major_d_exchanges_no_parts():
    a, b = torch.empty(500, 700, device="meta"), torch.empty(700, 300, device="meta")
    out = torch.empty(300, 500, device="meta").t()
    assert tc.plan(None, a, b, out=out, gpu=H200).exchanged
    chosen = tc.plan(None, a, b, out=out, batch_invariant=True, gpu=H200)
    assert chosen.pick.math == "bf16x6" and not chosen.exchanged


def test_a_column_major_d_divides_k_alike():
    a, b = (
        torch.empty(5000, 4096, dtype=torch.float16, device="meta"),
        torch.empty(4096, 300, dtype=torch.float16, device="meta"),
    )
    out = torch.empty(300, 5000, dtype=torch.float16, device="meta").t()
    for options in ({}, {"out": out}):
        assert tc.plan(None, a, b, batch_invariant=True, gpu=H200, **options).pick.k_slices == 2


@pytest.mark.parametrize(
    "n, kernels", ((4096, ("simt", "mma_skinny", "mma_stationary")), (512, ("simt", "mma_swizzle", "wmma_block")))
)
def test_kernels_outside_the_mode_are_refused(n, kernels):
    reasons = {x.kernel: x.reason for x in plan(4, n, 4096).candidates}
    assert {reasons[name] for name in kernels} == {"its bits depend on the batch"}


@pytest.mark.parametrize("batch_invariant", (False, True))
def test_a_problems_text_names_the_mode_where_it_holds(batch_invariant):
    """Texts of older logs and tables are those of problems outside the mode."""
    x = torch.empty(4, 4, dtype=torch.float16, device="meta")
    text = problem_key(None, x, x, batch_invariant=batch_invariant)
    assert text.endswith("activation=none batch_invariant=1" if batch_invariant else "activation=none")
    assert _C.describe_problem(text)["batch_invariant"] is batch_invariant
    for wrong in (text + " batch_invariant=0", text + " batch_invariant=1 ", text + "x"):
        with pytest.raises(ValueError, match="a problem must be written as"):
            _C.describe_problem(wrong)


# ---- the mode ----


def test_blocks_nest_and_are_a_threads_own():
    seen = []

    def note():
        seen.append(_C.in_batch_invariant_block())

    with tc.batch_invariant():
        with pytest.raises(ZeroDivisionError), tc.batch_invariant():
            1 / 0  # noqa: B018
        note()
        thread = threading.Thread(target=note)
        thread.start()
        thread.join()
    note()
    assert seen == [True, False, False]


def test_a_plan_shows_what_a_block_runs():
    outside = plan(4, 4096, 4096, batch_invariant=False)
    with tc.batch_invariant():
        inside = plan(4, 4096, 4096, batch_invariant=False)
    assert inside == plan(4, 4096, 4096) != outside


@pytest.mark.parametrize("call", ("argument", "block", "out", "mm", "linear"))
def test_the_cpu_raises_and_writes_nothing(call):
    x, out = torch.ones(4, 4), torch.full((4, 4), 7.0)
    with pytest.raises(RuntimeError, match=ON_CPU):
        if call == "argument":
            tc.addmm(x, x, x, batch_invariant=True)
        elif call == "block":
            with tc.batch_invariant():
                torch.ops.tc.addmm(x, x, x)
        elif call == "out":
            tc.addmm(x, x, x, out=out, batch_invariant=True)
        else:
            getattr(tc, call)(x, x, batch_invariant=True)
    assert (out == 7).all()


def test_tracing_accepts_the_argument():
    x = torch.ones(4, 4, device="meta")
    assert tc.addmm(x, x, x, batch_invariant=True).shape == (4, 4)
    with FakeTensorMode(), tc.batch_invariant(), pytest.raises(RuntimeError, match=ON_CPU):
        torch.ops.tc.addmm(*3 * [torch.ones(4, 4)])


# ---- integrations ----


def test_enabled_raises_where_torch_would_compute(device):
    x = torch.randn(4, 6, device=device, dtype=torch.float64)
    with tc.enabled(device, batch_invariant=True):
        assert _C.in_batch_invariant_block()
        with pytest.raises(RuntimeError, match="torch would compute this product, because its dtype is torch.float64"):
            x @ x.t()
        with pytest.raises(RuntimeError, match="its gradient is asked for"):
            x.float().requires_grad_() @ x.float().t()
        with pytest.raises(RuntimeError, match="torch would compute this product, because its dtype is torch.float64"):
            torch.bmm(torch.stack((x, x)), torch.stack((x.t(), x.t())))
    assert not _C.in_batch_invariant_block()
    assert (x @ x.t()).shape == (4, 4)


PRODUCTS_OF_TORCH = {
    "an out tensor": lambda a, b: torch.mm(a, b, out=torch.empty(0, device=a.device, dtype=a.dtype)),
    "in place": lambda a, b: torch.zeros(4, 4, device=a.device, dtype=a.dtype).addmm_(a, b),
    "a vector": lambda a, b: a @ b[:, 0],
    "a subclass": lambda a, b: a.as_subclass(type("Subclass", (torch.Tensor,), {})) @ b,
    "float64 with a shared matrix": lambda a, b: a.double().expand(3, 4, 6)[:, 1:3] @ b.double(),
}


@pytest.mark.parametrize("call", PRODUCTS_OF_TORCH.values(), ids=PRODUCTS_OF_TORCH)
def test_enabled_raises_for_each_form_of_a_product(device, call, interception):
    a, b = torch.randn(4, 6, device=device).bfloat16(), torch.randn(6, 4, device=device).bfloat16()
    with tc.enabled(device):
        call(a, b)
    with tc.enabled(device, batch_invariant=True), pytest.raises(RuntimeError, match="torch would compute this product"):
        call(a, b)


def test_enabled_passes_the_block_on():
    x = torch.ones(4, 4)
    with tc.enabled("cpu", batch_invariant=True), pytest.raises(RuntimeError, match=ON_CPU):
        x @ x
    with (
        tc.enabled("cpu"),
        tc.batch_invariant(),
        torch.autocast("cpu", torch.bfloat16),
        pytest.raises(RuntimeError, match=ON_CPU),
    ):
        torch.addmm(x, x, x)
    with tc.enabled("cpu"):
        assert (x @ x == 4).all()


def test_layers_are_in_the_block():
    layer = tc.Linear(4, 4)
    with tc.batch_invariant(), torch.no_grad(), pytest.raises(RuntimeError, match=ON_CPU):
        layer(torch.ones(2, 4))


def test_compiled_layers_are_in_the_block(device):
    layer, x = tc.Linear(96, 48, device=device).requires_grad_(False), torch.randn(70, 96, device=device)
    torch._dynamo.reset()
    compiled = torch.compile(layer, fullgraph=True, dynamic=True, backend="eager")
    assert torch.allclose(compiled(x), layer(x))
    with tc.batch_invariant():
        if device == "cpu":
            with pytest.raises(RuntimeError, match=ON_CPU):
                compiled(x)
        else:
            assert torch.equal(compiled(x)[:3], compiled(x[:3]))


def test_layers_of_the_cpu_raise_where_torch_would_compute():
    with tc.batch_invariant(), pytest.raises(RuntimeError, match="torch would compute this product"):
        tc.Linear(4, 4)(torch.ones(2, 4))


def test_layers_leave_what_is_no_tensor_to_torch():
    with tc.batch_invariant(), pytest.raises(TypeError):
        tc.Linear(4, 4)([1.0] * 4)


@pytest.mark.gpu
def test_layers_raise_where_torch_would_compute():
    layer, x = tc.Linear(8, 8, device="cuda"), torch.ones(2, 8, device="cuda")
    with tc.batch_invariant(), pytest.raises(RuntimeError, match="torch would compute this product"):
        layer(x)
    with tc.enabled(), tc.batch_invariant(), torch.no_grad(), torch.autocast("cuda", torch.bfloat16):
        assert layer(x).dtype == torch.bfloat16


def test_sharding_sums_no_parts_over_processes():
    from torch_addmm_tc.registration import sharding

    x = torch.empty(8, 8, device="meta")

    def results(**kwargs):
        return {str(rule["result"]) for rule in sharding._placements(OPS[0].bind((x, x, x), kwargs))}

    assert any("P" in x for x in results()) and not any("P" in x for x in results(batch_invariant=True))


def test_compiled_graphs_call_the_op_with_the_argument():
    from torch_addmm_tc.integrations.inductor import Pass

    def graph_of(dtype):
        graph = torch.fx.Graph()
        x, y = graph.placeholder("x"), graph.placeholder("y")
        x.meta["val"], y.meta["val"] = (torch.empty(4, 4, dtype=dtype, device="meta") for _ in range(2))
        with patch("torch_addmm_tc.integrations.routing.device_kind", return_value="cuda"):
            product = graph.call_function(torch.ops.aten.mm.default, (x, y))
            product.meta["val"] = torch.empty(4, 4, dtype=dtype, device="meta")
            graph.output(product)
            Pass(batch_invariant=True)(graph)
        return [node.kwargs for node in graph.nodes if node.op == "call_function"]

    assert graph_of(torch.float16) == [{"batch_invariant": True}]
    with pytest.raises(
        RuntimeError, match=r"batch-invariant results were asked for, but aten.mm.default mm_default stays with torch"
    ):
        graph_of(torch.float64)
    assert Pass().uuid() != Pass(batch_invariant=True).uuid()


# ---- bits ----


@pytest.mark.gpu
@pytest.mark.parametrize("math", check_invariance.MATHS)
@pytest.mark.parametrize("index", range(6))
def test_bits_do_not_depend_on_the_batch(math, index, request):
    seed = f"{math} {index} {request.config.getoption('grid_seed')}"
    problem = check_invariance.Problem.draw(random.Random(seed), math)
    tally = check_invariance.check(problem, tc.Gpu.of(torch.cuda.current_device()))
    assert tally.batches > 50 and tally.misses == [], str(problem)


@pytest.mark.gpu
@pytest.mark.parametrize("value", (float("nan"), float("inf"), 3e38, 1e-38, 1e-40))
@pytest.mark.parametrize("place", ("a", "b"))
def test_special_values_of_float32_change_no_other_row(value, place):
    a, b = torch.randn(300, 200, device="cuda"), torch.randn(200, 144, device="cuda")
    if place == "b":  # then every row has the value, and small elements make sums that its parts do not hold
        b[:, 7], a[5:9] = value, a[5:9] * 1e-36
    expected = tc.mm(a, b, batch_invariant=True)
    if place == "a":
        a[40, 3], a[41] = value, a[41] * value
    result = tc.mm(a, b, batch_invariant=True)
    rows = [row for row in range(300) if place == "b" or row not in (40, 41)]
    assert torch.equal(result[rows].nan_to_num(7), expected[rows].nan_to_num(7))
    for row in (0, 5, 40, 41, 63, 64):
        alone = tc.mm(a[row : row + 1], b, batch_invariant=True)
        assert torch.equal(alone[0].nan_to_num(7), result[row].nan_to_num(7))


@pytest.mark.gpu
def test_out_and_self_in_place():
    c, a, b = (torch.randn(s, device="cuda").to(torch.bfloat16) for s in ((700, 264), (700, 1000), (1000, 264)))
    whole = tc.addmm(c, a, b, batch_invariant=True)
    part = c[:33].clone()
    assert torch.equal(tc.addmm(part, a[:33], b, out=part, batch_invariant=True), whole[:33])
    columns = torch.empty(264, 33, dtype=torch.bfloat16, device="cuda").t()
    assert torch.equal(tc.addmm(c[:33], a[:33], b, out=columns, batch_invariant=True), whole[:33])


@pytest.mark.gpu
def test_command_reports_misses(capsys):
    assert main(["check-invariance", "--count", "2", "--seed", "3"]) == 0
    assert " 0 misses in" in capsys.readouterr().out.replace("\n", " ")

    def depends_on_the_batch(*args, **kwargs):
        return torch.ops.tc.addmm(*args, **kwargs) + args[1].shape[0]

    with patch.object(check_invariance, "ADDMM", depends_on_the_batch):
        assert main(["check-invariance", "--count", "1", "--seed", "3"]) == 1
    assert "the first " in capsys.readouterr().out


def test_rows_are_compared_with_a_problems_own_options():
    drawn = (check_invariance.Problem.draw(random.Random(seed)) for seed in range(400))
    problems = [p for p in drawn if p.n * p.k < 1e5 and not p.special]
    assert {p.activation for p in problems} == set(check_invariance.ACTIVATIONS) and {p.c for p in problems} >= {"none", "full"}
    for p in problems:
        a, b = torch.randn(4, p.k).to(p.dtype), torch.randn(p.k, p.n).to(p.dtype)
        shape = () if p.c == "none" else tuple(p.n if x == -1 else min(x, 4) for x in check_invariance.C_SHAPES[p.c])
        c = None if p.c == "none" else torch.randn(shape).to(p.dtype)
        options = {name: x for name, x in p.options.items() if name != "batch_invariant"}
        result = torch.ops.tc.addmm(c, a, b, out_dtype=p.out_dtype, **options)
        expected = p.reference(c, a, b)
        assert expected.error(result) <= 1 < expected.error(result + 100), p


def test_drawn_problems_repeat_and_vary():
    draw = check_invariance.Problem.draw
    problems = [draw(random.Random(seed)) for seed in range(300)]
    assert problems == [draw(random.Random(seed)) for seed in range(300)]
    assert {p.math for p in problems} == set(check_invariance.MATHS)
    assert {p.c for p in problems} == {*check_invariance.C_SHAPES, "none"}
    assert all(p.n * p.k * check_invariance.ROWS <= check_invariance.MOST_PRODUCTS for p in problems)


def test_bits_tell_everything_but_the_payload_of_a_nan():
    x = torch.tensor([0x7FC0, 0xFFC1, 0x8000, 0, 0x3F80], dtype=torch.int64).to(torch.int16).view(torch.bfloat16)
    a = check_invariance.bits(x)
    assert a[0] == a[1] and a[2] != a[3] and a.dtype == torch.int16


@pytest.mark.skipif(torch.cuda.is_available(), reason="needs a machine without a GPU")
def test_command_needs_a_gpu(capsys):
    with pytest.raises(SystemExit):
        main(["check-invariance"])
    assert "needs a GPU that torch finds" in capsys.readouterr().err
