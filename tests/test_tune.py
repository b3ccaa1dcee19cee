"""Tables of measured plans, the log of problems, and `tune`. All but one test need no GPU."""

import json
import random
import subprocess
import sys
import threading
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import torch_addmm_tc as tc
from torch_addmm_tc import _C
from torch_addmm_tc.__main__ import main
from torch_addmm_tc.testing.cases import Case, case_grid
from torch_addmm_tc.timing import Timing
from torch_addmm_tc.tools import plans, tune
from torch_addmm_tc.tools.planning import H200, Plan, problem_key

CASE = Case(128, 4096, 14336, b="col", broadcast="(N)", beta=1, alpha=1)
PROBLEM = tune.problem_of((128, 4096, 14336))


@pytest.fixture(autouse=True)
def nothing_loaded():
    yield
    tc.unload_plans()
    tc.log_problems(None)


@pytest.fixture
def table(tmp_path):
    """Return a function that writes a table for an H200, changed by keywords, and returns its path."""

    def write(names, **changes):
        content = plans.new_table(H200.name, H200.sm, H200.num_sms) | {
            "plans": {x: {"plan": name} for x, name in names.items()}
        }
        path = tmp_path / "plans.json"
        path.write_text(json.dumps(content | changes))
        return path

    return write


def planned(problem=PROBLEM, name=""):
    """Return (NAME/INDEX, K slices): what a name runs, or the plan of this thread's cache."""
    return _C.planned(problem, H200.facts, name)


# ---- names and problems ----


def test_names_fix_clusters_and_k_slices():
    assert planned(name="wgmma_tma/0/k3") == ("wgmma_tma/0", 3) and planned(name="mma_swizzle/0/k1")[1] == 1
    small = tune.problem_of((200, 512, 4096))
    for name in ("wgmma_multicast/4/2x1/k2", "wgmma_multicast/4/k2", "wgmma_multicast/4/2x1/n40/k2", "wgmma_multicast/4/n8/k2"):
        assert planned(small, name) == ("wgmma_multicast/4", 2)
    assert Plan.of(small, H200, "wgmma_multicast/4/n40").pick.columns == 40
    assert Plan.of(small, H200, "wgmma_multicast/4/2x1").pick.columns == 64  # a cluster without columns means whole tiles
    assert planned(name="wgmma_tma/0/k64") == (None, 0)  # the planner does not consider it
    assert planned(name="wgmma_cluster/0/1x1x3") == ("wgmma_cluster/0", 3)
    assert planned(small, "wgmma_multicast/4/1x1x2") == (
        "wgmma_multicast/4",
        2,
    )  # two blocks share K, so that it has two slices
    ends = ("0/", "0/k0", "0/k03", "0/k65", "k2", "0/3", "0/k2/k2", "0/2x1")
    tma = (f"wgmma_tma/{end}" for end in (*ends, "0/n56"))
    multicast = (f"wgmma_multicast/4/{end}" for end in ("n64", "n0", "n44", "n072", "n40/2x1", "k2/n40", "k2/2x1"))
    for name in (*tma, *multicast, "wgmma_cluster/0/k2", "wgmma_multicast/4/1x1x5", "simt/0/k1", "/"):
        with pytest.raises(ValueError, match="there is no kernel"):
            planned(name=name)


def test_exact_names_run_every_candidate():
    for problem in (PROBLEM, tune.problem_of((20, 4096, 4096)), tune.problem_of((300, 1000, 520, "row", "tf32", "fp32"))):
        for x in Plan.of(problem, H200).candidates:
            if x.reason is None:
                assert planned(problem, x.exact_name) == (f"{x.kernel}/{x.index}", x.k_slices) and "/k" not in x.name


def test_keys_survive_a_round_trip():
    options = ("beta", "alpha", "activation", "out_dtype")
    texts = {problem_key(*case.inputs("cpu"), **{x: getattr(case, x) for x in options}) for case in case_grid()[::5]}
    assert len(texts) > 100
    for text in texts:
        facts = _C.describe_problem(text)
        a = facts["a"]
        assert f" m={facts['m']} n={facts['n']} k={facts['k']} a={a[0]}:{a[1]},{a[2]},{a[3]}@{a[4]} " in text
    for wrong in ("", "x", PROBLEM + " ", PROBLEM.replace("none", "gelu"), PROBLEM.replace("@16", "@272"), PROBLEM[:-1]):
        with pytest.raises(ValueError, match="a problem must be written as"):
            _C.describe_problem(wrong)


ODD = Case(7, 33, 50, a="col_odd", b="row_pitched", c="col", beta=1, alpha=1)
SLIM = Case(5, 1, 9, a="misaligned", broadcast="(M,1)", out_dtype=torch.float32)


@pytest.mark.parametrize("case", [CASE, ODD, SLIM], ids=str)
def test_operands_reproduce_the_problem(case):
    text = problem_key(*case.inputs("cpu"), out_dtype=case.out_dtype)
    for tensors in tune.operands(_C.describe_problem(text), 3, "cpu"):
        c, a, b, d = (tensors[x] for x in "cabd")
        assert problem_key(c, a, b, out=d) == text


def test_shapes_are_read(tmp_path):
    files = {
        "a.csv": "M,N,K,B\n128,4096,14336\n\n128, 4096, 14336, col, , bias\n",
        "b.json": '[[128, 4096, 14336], {"m": 128, "n": 4096, "k": 14336}]',
    }
    for name, text in files.items():
        (tmp_path / name).write_text(text)
        assert tune.read_shapes(tmp_path / name) == [PROBLEM] * 2
    assert problem_key(*CASE.inputs("cpu")) == PROBLEM
    for text, what in (
        ("1,2", "m, n and k"),
        ("1,2,x", "'x'"),
        ("1,2,3,up", "col, row"),
        ("[3]", "m, n and k"),
        ("[", "Expecting"),
    ):
        (tmp_path / "bad").write_text(text)
        with pytest.raises(ValueError, match=f"bad: .*{what}"):
            tune.read_shapes(tmp_path / "bad")


# ---- tables ----


def test_a_table_overrides_exactly_its_problems(table):
    before, other = tc.plan(*CASE.inputs("cpu"), gpu=H200), tune.problem_of((129, 4096, 14336))
    rival = next(x for x in before.candidates[1:] if x.kernel == "wgmma_tma" and x.k_slices > 2)
    name = f"wgmma_tma/{rival.index}/k{rival.k_slices - 1}"
    expected = planned(), planned(other)
    tc.load_plans(table({PROBLEM: name}))
    after = tc.plan(*CASE.inputs("cpu"), gpu=H200)
    assert after.pick.name == after.pick.exact_name == name and after.pick.from_table and "from the loaded table" in str(after)
    assert len(after.candidates) == len(before.candidates) + 1  # the planner's way to run the configuration stays listed
    assert planned() == (f"wgmma_tma/{rival.index}", rival.k_slices - 1) and planned(other) == expected[1]
    assert (
        not Plan.of(other, H200).pick.from_table and not Plan.of(PROBLEM, tc.Gpu(90, 114, 227 * 1024, "H100")).pick.from_table
    )
    tc.load_plans(table({PROBLEM: rival.exact_name}))  # every load reaches the cache
    assert planned()[1] == rival.k_slices and tc.plan(*CASE.inputs("cpu"), gpu=H200).pick.name == rival.name
    tc.unload_plans()
    assert (planned(), planned(other)) == expected and tc.plan(*CASE.inputs("cpu"), gpu=H200) == before


def test_a_plan_that_cannot_run_leaves_the_planners(table):
    expected = planned()
    tc.load_plans(table({PROBLEM: "wgmma_tma/0/k64"}))
    assert planned() == expected and not Plan.of(PROBLEM, H200).pick.from_table


def test_foreign_tables_are_ignored_with_one_warning(table, monkeypatch):
    for changes in ({"version": "0.0"}, {"candidate_set": "x"}, {"version": "0.0", "candidate_set": "x"}):
        with pytest.warns(UserWarning, match=" and ".join(f"{k} {v} where .*" for k, v in changes.items())) as caught:
            tc.load_plans(table({PROBLEM: "no such/1"}, **changes))
        assert len(caught) == 1 and "torch_addmm_tc tune" in str(caught[0].message)
    monkeypatch.setattr(torch.cuda, "_lazy_call", lambda call: call())  # as if CUDA were initialised
    a100 = {"name": "NVIDIA A100-SXM4-80GB", "sm": 80, "num_sms": 108}
    monkeypatch.setattr(plans, "_gpus", lambda: [a100])
    with pytest.warns(UserWarning, match="NVIDIA H200.* where this process has .*A100"):
        tc.load_plans(table({}))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        tc.load_plans(table({}, gpu=a100))


@pytest.mark.parametrize("changes, names, what", [
    ({"format": "2"}, {}, "'format' must be 'torch_addmm_tc plans 1', but got '2'"),
    ({"plans": []}, {}, "'plans' must be a dict"),
    ({"gpu": {"name": "x"}}, {}, "'gpu' must have a name, sm and num_sms"), ({"plans": {"x": 1}}, {}, "the entry of 'x'"),
    ({}, {"x": "simt/0"}, "a problem must be written as .* got 'x'"), ({}, {PROBLEM: "simt"}, "there is no plan 'simt'"),
    ({}, {PROBLEM: "simt/9"}, "no plan 'simt/9'; a plan is 'NAME/INDEX"),
])  # fmt: skip
def test_malformed_tables_load_nothing(table, changes, names, what):
    tc.load_plans(table({PROBLEM: "simt/0"}))
    with pytest.raises(ValueError, match=what):
        tc.load_plans(table(names, **changes))
    assert planned()[0] == "simt/0"


def test_files_that_are_no_tables_are_errors(tmp_path):
    (tmp_path / "x").write_text("{")
    with pytest.raises(ValueError, match="it is not JSON"):
        tc.load_plans(tmp_path / "x")
    with pytest.raises(FileNotFoundError):
        tc.load_plans(tmp_path / "y")


def test_environment_variables_load_and_log(table, tmp_path):
    env = {
        "TORCH_ADDMM_TC_PLANS": str(table({PROBLEM: "simt/0"})),
        "TORCH_ADDMM_TC_LOG": str(tmp_path / "log"),
        "PYTHONPATH": ":".join(sys.path),
    }
    code = "import sys; from torch_addmm_tc.tools.planning import H200, _C; print(_C.planned(sys.argv[1], H200.facts, '')[0])"
    for _ in range(2):
        done = subprocess.run([sys.executable, "-c", code, PROBLEM], env=env, capture_output=True, text=True)
        assert done.stdout == "simt/0\n", done.stderr
    assert plans.read_log(tmp_path / "log") == [PROBLEM] and (tmp_path / "log").read_text() == PROBLEM + "\n"


def test_the_log_has_each_problem_once(tmp_path):
    problems = [tune.problem_of((m, 64, 64)) for m in range(1, 200)]
    planned(problems[0])
    tc.log_problems(tmp_path / "log")
    threads = [threading.Thread(target=lambda: [planned(x) for x in problems * 2]) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    tc.log_problems(tmp_path / "log")
    planned(problems[5])
    tc.log_problems(None)
    planned(PROBLEM)
    lines = (tmp_path / "log").read_text().splitlines()
    assert len(lines) == len(problems) and set(lines) == set(problems) == set(plans.read_log(tmp_path / "log"))


def test_threads_plan_while_tables_come_and_go(table):
    path, own, stop, seen = table({PROBLEM: "simt/0"}), planned(), threading.Event(), set()

    def work():
        while not stop.is_set():
            seen.add(planned())

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for _ in range(100):
        tc.load_plans(path)
        tc.unload_plans()
    stop.set()
    for thread in threads:
        thread.join()
    assert seen <= {own, ("simt/0", 1)} and planned() == own


# ---- decisions ----

NAMES = ["default", "b", "c", "d"]


def passes(true, noise, seed):
    """Return a measure() whose rounds spread over a fraction `noise` around the true times."""
    rng = random.Random(seed)

    def measure(names):
        medians = {x: true[x] * (1 + noise * rng.uniform(-0.99, 0.99)) for x in names}
        return {x: Timing(medians[x], true[x] * (1 - noise), true[x] * (1 + noise)) for x in names}

    return measure


times = st.lists(st.floats(1e-6, 1e-3), min_size=4, max_size=4).map(lambda x: dict(zip(NAMES, x)))
noises, seeds = st.floats(0, 0.1), st.integers(0, 2**32)


@given(times, noises, seeds)
def test_a_plan_is_never_slower_than_the_default(true, noise, seed):
    seen = []
    measure = passes(true, noise, seed)
    chosen, first = tune.decide(NAMES, lambda names: seen.append(measure(names)) or seen[-1])
    assert seen[0] is first and (
        chosen == "default" or len(seen) == 2 and all(tune.wins(x[chosen], x["default"]) for x in seen)
    )
    assert true[chosen] * (1 - noise) <= true["default"] * (1 + noise)


@given(times, noises, seeds)
def test_ties_keep_the_default(true, noise, seed):
    tie = dict.fromkeys(NAMES, true["default"])
    assert tune.decide(NAMES, passes(tie, noise + 1e-6, seed))[0] == "default"


@given(seeds, seeds)
def test_decisions_repeat_under_noise_within_the_spread(one, other):
    """Gaps are none, or more than the noise. Of plans that tie, the first counts."""
    for true in ((10, 10, 10, 12), (10, 12, 7, 15), (10, 11, 10, 6), (10, 12, 6, 6)):
        chosen = {tune.decide(NAMES, passes(dict(zip(NAMES, true)), 0.05, seed))[0] for seed in (one, other)}
        assert chosen == {NAMES[true.index(min(true))]}


# ---- the command ----


def run(*arguments):
    return subprocess.run(
        [sys.executable, "-m", "torch_addmm_tc", "tune", *map(str, arguments)], capture_output=True, text=True
    )


@pytest.mark.parametrize("arguments, code, text", [
    (("--help",), 0, "measure plans on this GPU"), ((), 2, "there is nothing to measure"), (("--log", "none/x"), 2, "none/x"),
    (("--shapes", "SHAPES"), 2, "tune measures a GPU"), (("--shapes", "SHAPES", "--candidates", "0"), 2, "1 or more"),
])  # fmt: skip
def test_command_errors_are_one_sentence(tmp_path, monkeypatch, arguments, code, text):
    (tmp_path / "SHAPES").write_text("64,64,64\n")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    done = run(*(tmp_path / x if x == "SHAPES" else x for x in arguments))
    assert done.returncode == code and "Traceback" not in done.stderr
    assert text.lower() in (done.stderr.splitlines()[-1] if code else done.stdout).lower()


def test_a_problem_is_measured_as_it_was_called():
    a, b = torch.empty(3, 4, 5, dtype=torch.float16, device="meta"), torch.empty(1, 5, 6, dtype=torch.float16, device="meta")
    key = problem_key(None, a.mT.contiguous().mT, b.expand(3, 5, 6), activation="gelu", batch_invariant=True)
    problem = _C.describe_problem(key)
    assert tune.options_of(problem) == {"precision": "ieee", "activation": "gelu", "batch_invariant": True}
    assert problem["batch"] == 3 and tune.bytes_moved(problem) == 2 * (3 * 4 * 5 + 5 * 6 + 3 * 4 * 6)


@pytest.mark.parametrize("right", (True, False))
def test_a_tables_round_trip(tmp_path, monkeypatch, capsys, right):
    """The whole command with a GPU that is made up: ATen computes, and the second candidate is always faster.

    A wrong result has one element that is off.
    """

    def run_plan(problem, tensors, name):
        c, a, b, d = (tensors[x] for x in "cabd")
        d.copy_(a.float() @ b.float() + c)
        if not right:
            d[-1, -1] += 1.0

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    monkeypatch.setattr(_C, "with_cuda", True)
    monkeypatch.setattr(tune.Gpu, "of", lambda device: H200)
    monkeypatch.setattr(tune, "operands", lambda problem, count, make=tune.operands: make(problem, count, "cpu"))
    monkeypatch.setattr(tune, "run_plan", run_plan)
    monkeypatch.setattr(tune, "measure", lambda problem, names: {x: Timing(2 - i, 2 - i, 2 - i) for i, x in enumerate(names)})
    out = tmp_path / "plans.json"
    for sizes in ("16,128,256", "64,128,256\n0,8,8"):
        (tmp_path / "shapes.csv").write_text(sizes)
        assert main(["tune", "--shapes", str(tmp_path / "shapes.csv"), "--out", str(out), "--candidates", "2"]) == (
            0 if right else 1
        )
        assert "1 problems were measured, and 1 of" in capsys.readouterr().out if right else not out.exists()
    if right:
        tc.load_plans(out)
        entries = plans.read_table(out)["plans"]
        assert list(entries) == [tune.problem_of((m, 128, 256)) for m in (16, 64)]
        for problem, entry in entries.items():
            pick = Plan.of(problem, H200).pick
            assert pick.from_table and pick.exact_name == entry["plan"] == list(entry["microseconds"])[1]
    else:
        assert "outside the error bound: " in capsys.readouterr().err


@pytest.mark.gpu
def test_tune_measures_and_the_op_follows(tmp_path):
    (tmp_path / "shapes.csv").write_text("64,512,512\n40,264,200,row,bfloat16,full\n")
    done = run("--shapes", tmp_path / "shapes.csv", "--candidates", 3, "--out", tmp_path / "plans.json")
    assert done.returncode == 0 and "2 problems were measured" in done.stdout, done.stderr
    tc.load_plans(tmp_path / "plans.json")
    for problem, entry in plans.read_table(tmp_path / "plans.json")["plans"].items():
        pick = Plan.of(problem, tc.Gpu.of(0)).pick
        assert pick.from_table and pick.exact_name == entry["plan"] and len(entry["microseconds"]) == 3
    x, out = torch.randn(64, 512, device="cuda").half(), torch.empty(64, 512, dtype=torch.float16, device="cuda")
    weight, bias = torch.randn(512, 512, device="cuda").half(), torch.randn(512, device="cuda").half()
    name = tc.plan(bias, x, weight.t()).pick.exact_name
    tc.log_problems(tmp_path / "log")
    result = tc.linear(x, weight, bias)
    assert plans.read_log(tmp_path / "log") == [problem_key(bias, x, weight.t())]
    torch.ops.tc.addmm_out(bias, x, weight.t(), kernel_name=name, out=out)
    assert torch.equal(result, out)
