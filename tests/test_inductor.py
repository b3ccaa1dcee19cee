"""Compiled models: the products that the pass replaces, those that it leaves, its log, and unchanged results."""

import itertools
import logging
import os
import pickle
import random
import subprocess
import sys

import pytest
import torch
from torch import nn
from torch._inductor.custom_graph_pass import CustomGraphPass

import torch_addmm_tc as tc
from torch_addmm_tc.integrations.fusion import FORMULAS
from torch_addmm_tc.integrations.inductor import Pass

LOGGER = "torch_addmm_tc.inductor"


class Model(nn.Module):
    """A model with a bias, a 2-D residual, a plain product, and a float64 product, which stays with torch."""

    def __init__(self, device, dtype=torch.bfloat16):
        super().__init__()
        self.up, self.down, self.head = nn.Linear(48, 33), nn.Linear(33, 48, bias=False), nn.Linear(48, 8, bias=False)
        self.to(device, dtype).requires_grad_(False)

    def forward(self, x):
        hidden = self.head(self.down(torch.relu(self.up(x))) + x)
        return hidden.double() @ torch.ones(8, 3, dtype=torch.float64, device=x.device)


def compiled(model, mode=None, options=None, **kwargs):
    torch._dynamo.reset()
    return torch.compile(model, options=tc.compile_options(mode, options), fullgraph=True, **kwargs)


@pytest.fixture
def logged(caplog):
    caplog.set_level(logging.DEBUG, logger=LOGGER)
    return lambda: [record.getMessage() for record in caplog.records if record.name == LOGGER]


@pytest.mark.parametrize("mode", (None, "reduce-overhead"))
@pytest.mark.parametrize("dynamic", (False, True))
def test_pass_replaces_products(device, logged, mode, dynamic):
    model = Model(device)
    # On CUDA, Inductor pads odd sizes where its own kernels measure faster with padding. Padding separates a product from the
    # operators that follow, so the pass could fuse nothing.
    options = {"fx_graph_cache": False, "shape_padding": False}
    fast = compiled(model, mode, options, dynamic=dynamic)
    for rows in (16, 24, 40) if dynamic else (16,):
        x = torch.randn(rows, 48, device=device, dtype=torch.bfloat16)
        assert (fast(x) - model(x)).abs().max() <= 0.02 * model(x).abs().max()
    replaced = {"aten.mm + aten.add": 1, "aten.addmm.default": 1, "aten.mm.default": 1, "tc.addmm.default + relu": 1}
    assert f"replaced {replaced}; left {{'aten.mm.default': 1}}" in logged()
    assert any(line.startswith("left aten.mm.default") and line.endswith("its dtype is torch.float64") for line in logged())


def pytest_generate_tests(metafunc):
    """On a GPU a compilation takes over a second, so that a sample of the layers runs there; --full-grid runs all."""
    if metafunc.function is not test_pass_fuses_activations_into_products:
        return
    dtypes, layers = (torch.float16, torch.bfloat16, torch.float32), ((False, nn.Linear), (True, nn.Linear), (True, tc.Linear))
    cases, option = list(itertools.product(FORMULAS, dtypes, layers)), metafunc.config.option
    on_gpu = cases if option.full_grid else random.Random(option.grid_seed).sample(cases, 9)
    parameters = [("cpu", *case) for case in cases]
    parameters += [pytest.param("cuda", *case, marks=pytest.mark.gpu) for case in on_gpu]
    metafunc.parametrize("device, formula, dtype, linear", parameters)


def test_pass_fuses_activations_into_products(device, formula, dtype, linear, logged):
    (name, function), (bias, layer) = formula, linear
    if device == "cuda" and dtype == torch.float32:
        torch.set_float32_matmul_precision("high")
    up, down = layer(48, 96, bias), layer(96, 48)
    layers = nn.ModuleList([up, down]).to(device, dtype).requires_grad_(False)
    x = torch.randn(2, 8, 48, device=device, dtype=dtype)
    try:
        result = compiled(lambda x: down(function(up(x))), options={"fx_graph_cache": False})(x)
    finally:
        torch.set_float32_matmul_precision("highest")
    exact = layers.double()[1](function(layers[0](x.double())))
    assert (result - exact).abs().max() <= 0.02 * exact.abs().max()
    assert f"'aten.{'addmm' if bias else 'mm'}.default'" in logged()[-1] or layer is tc.Linear
    assert f"'tc.addmm.default + {name}': 1" in logged()[-1]


def test_pass_leaves_gates_and_products_with_other_uses(device, logged):
    """Fusing a gate's activation saves nothing, because Inductor computes it in the kernel that multiplies the two factors.

    The second model needs the product before the activation too, and a fused activation would not store that product.
    """
    gate, up = (nn.Linear(48, 96, device=device, dtype=torch.bfloat16).requires_grad_(False) for _ in range(2))
    x = torch.randn(16, 48, device=device, dtype=torch.bfloat16)
    for model in (
        lambda x: torch.nn.functional.silu(gate(x)) * up(x),
        lambda x: (torch.relu(h := gate(x)), h + up(x)),
    ):
        compiled(model, options={"fx_graph_cache": False})(x)
        assert logged()[-1] == "replaced {'aten.addmm.default': 2}; left nothing"


def test_gradients_match_eager(device, logged):
    model = Model(device).requires_grad_(True)
    x = torch.randn(16, 48, device=device, dtype=torch.bfloat16)
    model(x).sum().backward()
    expected = [p.grad for p in model.parameters()]
    model.zero_grad()
    compiled(model, options={"fx_graph_cache": False})(x).sum().backward()
    assert sum("replaced {" in line for line in logged()) == 2  # the forward and the backward graph
    for p, grad in zip(model.parameters(), expected, strict=True):
        assert (p.grad - grad).abs().max() <= 0.02 * grad.abs().max()


class CountingPass(CustomGraphPass):
    def __init__(self):
        self.graphs = 0

    def __call__(self, graph):
        self.graphs += 1

    def uuid(self):
        return "counting"


def test_a_users_pass_runs_too(device):
    counter, calls = CountingPass(), []
    x = torch.randn(16, 48, device=device, dtype=torch.bfloat16)
    compiled(Model(device), options={"post_grad_custom_pre_pass": counter, "fx_graph_cache": False})(x)
    assert counter.graphs == 1
    with torch._inductor.config.patch(post_grad_custom_pre_pass=calls.append):
        # A plain function has no uuid. Then the pass has none either, and torch does not cache the graph.
        assert Pass([counter]).uuid() and tc.compile_options()["post_grad_custom_pre_pass"].uuid() is None
        compiled(Model(device))(x)
    assert len(calls) == 1


def test_uuid_depends_on_the_users_passes():
    ours = tc.compile_options()["post_grad_custom_pre_pass"].uuid()
    assert ours == Pass().uuid() != Pass([CountingPass()]).uuid()


def test_pass_pickles_and_works_in_serialized_compilation(device):
    import torch._inductor.compile_fx as compile_fx

    ours = tc.compile_options()["post_grad_custom_pre_pass"]
    assert pickle.loads(pickle.dumps(ours)).uuid() == ours.uuid()
    x = torch.randn(16, 48, device=device, dtype=torch.bfloat16)
    model = Model(device)
    before, compile_fx.fx_compile_mode = compile_fx.fx_compile_mode, compile_fx.FxCompileMode.SERIALIZE
    try:
        result = compiled(model, options={"fx_graph_cache": False})(x)
    finally:
        compile_fx.fx_compile_mode = before
    assert (result - model(x)).abs().max() <= 0.02 * model(x).abs().max()


def test_batch_invariant_options_leave_no_product_to_inductor():
    options = tc.compile_options("max-autotune", batch_invariant=True)
    assert options["coordinate_descent_tuning"] is options["shape_padding"] is False and options["max_autotune"]
    assert tc.compile_options(options={"shape_padding": True}, batch_invariant=True)["shape_padding"]


def test_compile_options_merge_mode_and_options():
    options = tc.compile_options("max-autotune", {"max_autotune": False, "epilogue_fusion": True})
    assert not options["max_autotune"] and options["epilogue_fusion"] and options["coordinate_descent_tuning"]
    with pytest.raises(RuntimeError, match="Unrecognized mode"):
        tc.compile_options("fastest")


def test_pass_leaves_sums_that_addmm_cannot_compute(device, logged):
    def model(a, b, c):
        product = a @ b
        return product + product, (a @ b.flip(0)) + c  # c has three dimensions

    a, b, c = (torch.randn(*s, device=device).bfloat16() for s in ((16, 32), (32, 24), (2, 16, 24)))
    for result, expected in zip(compiled(model, options={"fx_graph_cache": False})(a, b, c), model(a, b, c), strict=True):
        assert (result - expected).abs().max() <= 0.02 * expected.abs().max()
    assert logged()[-1].startswith("replaced {'aten.mm.default': 2}")


AOT_INDUCTOR = """
import sys, torch
device, path, ours = sys.argv[1:]
options = {}
if ours == "True":
    import torch_addmm_tc as tc
    options = tc.compile_options(options={"fx_graph_cache": False})
x = torch.randn(16, 48, device=device, dtype=torch.bfloat16)
model = torch.nn.Sequential(torch.nn.Linear(48, 33), torch.nn.ReLU(), torch.nn.Linear(33, 48, bias=False)).to(x)
program = torch.export.export(model, (x,))
package = torch._inductor.aoti_compile_and_package(program, package_path=path, inductor_configs=options)
loaded = torch._inductor.aoti_load_package(package)
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
    result = loaded(x)
expected = model(x)
assert (result - expected).abs().max() <= 0.02 * expected.abs().max()
print([event.count for event in profile.key_averages() if event.key == "tc::addmm"])
"""


def test_aot_inductor_runs_the_op(device, tmp_path):
    """A process of its own compiles, loads and runs a model, because AOTInductor may crash: it does where g++ links libstdc++
    statically. The test is skipped only where the same model crashes alike in a process that never imports this package.
    """

    def run(ours):
        command = [sys.executable, "-c", AOT_INDUCTOR, device, tmp_path / f"{ours}.pt2", str(ours)]
        alone = os.environ | {"TORCHINDUCTOR_COMPILE_THREADS": "1"}  # workers would outlive a crash and keep the pipes open
        return subprocess.run(command, capture_output=True, text=True, env=alone)

    done = run(True)
    if done.returncode < 0 and run(False).returncode == done.returncode:
        pytest.skip(f"AOTInductor ends with signal {-done.returncode} on this machine, and does so without this package too")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split("\n")[-2] == "[2]"


@pytest.mark.parametrize("setting, level", [("torch_addmm_tc", "INFO"), ("+torch_addmm_tc", "DEBUG")])
def test_torch_logs_sets_the_passs_logger(setting, level):
    """docs/integrations.md names these settings. torch reads the variable when it is imported."""
    code = (
        f"import logging, torch, torch_addmm_tc; print(logging.getLevelName(logging.getLogger({LOGGER!r}).getEffectiveLevel()))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TORCH_LOGS": setting}, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, level), done.stderr
