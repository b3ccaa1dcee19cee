"""The survey: what it draws, what it checks, how it sums up, and the whole command on the CPU."""

import dataclasses
import json
import math
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
import torch

import torch_addmm_tc as tc
from bench import batches, candidates, fit, shapes, survey
from bench.timing import ROOT
from torch_addmm_tc import timing
from torch_addmm_tc.tools.planning import H200, Plan, problem_key

DRAWN = {seed: shapes.draw(seed, 400) for seed in (0, 1, 2)}
PEAKS = {"float16": 8e14, "bfloat16": 8e14, "tf32": 4e14, "bytes": 4e12}


def test_draw_depends_on_the_seed_alone():
    assert shapes.draw(1, 400) == DRAWN[1] and shapes.draw(1, 30) == DRAWN[1][:30]
    assert len(set(DRAWN[0]) & set(DRAWN[1])) < 20


def pitch_classes(problem) -> set[int]:
    """Return the classes in PITCHES of the padded leading dimensions."""
    widths = (problem.k, problem.n if problem.b == "row" else problem.k, problem.n)
    padded = [x * problem.itemsize for x, width in zip((problem.lda, problem.ldb, problem.ldc), widths) if x != width]
    return {next(pitch for pitch in shapes.PITCHES if x % pitch == 0) for x in padded}


@pytest.mark.parametrize("seed", DRAWN)
def test_every_kind_is_drawn(seed):
    problems = DRAWN[seed]
    assert {p.group for p in problems} == {*shapes.GROUPS, shapes.TF32}
    assert {p.dtype for p in problems} == PEAKS.keys() - {"bytes"} and {p.b for p in problems} == {"row", "col"}
    assert {(p.c, p.scale) for p in problems} == {("bias", 1.0), ("none", 1.0), ("full", 0.5), ("full", 1.0)}
    assert set.union(*map(pitch_classes, problems)) == set(shapes.PITCHES)
    assert {p.alignment for p in problems} >= {128, 16, 2} and 40 < sum(p.padded for p in problems) < 120
    share = {name: sum(p.c == name for p in problems) / 400 for name in ("bias", "full", "none")}
    assert abs(share["bias"] - 0.70) < 0.08 and abs(share["full"] - 0.25) < 0.08 and abs(share["none"] - 0.05) < 0.04
    assert 0.85 < sum(p.b == "col" for p in problems) / 400 < 0.95
    assert all((p.group == shapes.TF32) == (p.dtype == "tf32") for p in problems)
    assert any(", 1/8 of N" in p.source for p in problems) and any(" of K" in p.source for p in problems)


@pytest.mark.parametrize("seed", DRAWN)
def test_problems_are_within_bounds(seed):
    ranges = {"LLM, M <= 32": (1, 32), "LLM, M 33-512": (33, 512), "LLM, M > 512": (513, 8192)}
    for p in DRAWN[seed]:
        low, high = ranges.get(p.group, (1, shapes.MAX_M))
        assert low <= p.m <= high and 1 <= p.n <= 262_208 and 1 <= p.k <= 57_344 and p.flops <= shapes.MAX_FLOPS
        assert p.itemsize * (sum(p.spans) + p.m * p.n) < 8e9
        assert p.lda >= p.k and p.ldb >= (p.n if p.b == "row" else p.k) and p.ldc >= p.n
        for (shape, strides), span in zip(p.views, p.spans, strict=True):
            view = torch.empty(span, device="meta").as_strided(shape, strides)  # raises if the span is too short
            assert view.stride()[-1 if p.b == "row" else 0] == 1 or view.stride(-1) == 1


def test_float32_takes_the_16_bit_problems_that_are_not_too_large():
    drawn = DRAWN[1][:200]
    chosen = shapes.in_float32(drawn)
    assert 100 < len(chosen) < 200 and {p.dtype for p in chosen} == {"float32"}
    small = [p for p in drawn if p.flops <= shapes.MAX_FLOAT32_FLOPS and 2 * p.bytes <= shapes.MAX_BYTES]
    assert [p.shape for p in chosen] == [p.shape for p in small if p.is_16_bit]


def test_models_have_distinct_sizes():
    sizes = [*shapes.GATED.values(), *shapes.PLAIN.values()]
    assert len(sizes) == len(set(sizes)) >= 35 and not shapes.GATED.keys() & shapes.PLAIN.keys()
    for hidden, query, key, intermediate, vocabulary in sizes:
        assert hidden % 32 == query % key == 0 and hidden < intermediate and vocabulary >= 1000
    for layers in shapes.MODELS.values():
        assert len({name for name, *_ in layers}) == len(layers)
    assert ("gate and up", 28672, 4096, "N") in shapes.MODELS["Llama 3 8B"]
    assert ("qkv", 2304, 768, "N") in shapes.MODELS["GPT-2"]


def problem(**changes) -> shapes.SurveyProblem:
    """Return a small problem of the group "vision" with changes."""
    sizes = {"m": 40, "n": 24, "k": 16, "lda": 16, "ldb": 16, "ldc": 24}
    kind = {"b": "col", "dtype": "float16", "c": "bias", "group": "vision", "source": "", "scale": 1.0}
    return shapes.SurveyProblem(**sizes | kind | changes)


@pytest.mark.parametrize("c", ("bias", "full", "none"))
def test_operands_are_distinct_views_of_the_pool(c):
    p = problem(c=c, ldc=30 if c == "full" else 24, ldb=19)
    (*addend, a, b), again = survey.Pool("cpu").sets(p, torch.float16, 2)
    assert a.stride() == (16, 1) and b.stride() == (1, 19) and b.shape == (16, 24)
    assert again[1].data_ptr() == a.data_ptr()  # the pool on a CPU holds one set
    starts = sorted((x.data_ptr(), span) for x, span in zip([x for x in (*addend, a, b) if x is not None], p.spans))
    assert all(start % 512 == starts[0][0] % 512 for start, _ in starts)
    assert all(start + 2 * span <= after for (start, span), (after, _) in zip(starts, starts[1:]))
    assert {"bias": (24,), "full": (40, 24), "none": None}[c] == (None if addend[0] is None else tuple(addend[0].shape))


@pytest.mark.parametrize("c", ("bias", "full", "none"))
@pytest.mark.parametrize("products", (0, 2**34))
def test_sampled_error_finds_errors_in_checked_rows(c, products, monkeypatch):
    monkeypatch.setattr(survey, "CHECKED_PRODUCTS", products)
    monkeypatch.setattr(survey, "CHECKED_ELEMENTS", 40 if products else 20 * 24)  # one or a few columns at a time
    addend, a, b = survey.Pool("cpu").sets(problem(c=c), torch.float16, 1)[0]
    exact = 0.5 * (a.double() @ b.double()) + (0 if addend is None else 0.5 * addend.double())
    result = exact.half()
    assert survey.sampled_error((addend, a, b), result, tf32=False, beta=0.5, alpha=0.5) <= 1
    for wrong in (1e3, math.nan):
        for row, column in ((0, 0), (39, 23)):
            broken = result.clone()
            broken[row, column] = wrong
            assert not survey.sampled_error((addend, a, b), broken, tf32=False, beta=0.5, alpha=0.5) <= 1


def test_measure_times_every_contender(monkeypatch):
    """A GPU's path on the CPU: contenders check their results instead of being timed."""

    def interleaved(contenders, *, cuda, rounds, seconds, rests):
        assert cuda and not rests and list(contenders)[:2] == ["tc", "torch"] and list(contenders)[8:] == ["cublaslt"]
        expected = [call() for call in contenders["torch"]]
        for calls in contenders.values():
            assert len(calls) == 485 and all(torch.allclose(call(), x, atol=0.01) for call, x in zip(calls[:3], expected))
        return {name: survey.timing.Timing(i * 1e-6, i * 1e-6, i * 1.5e-6) for i, name in enumerate(contenders, 1)}

    class CublasLt:
        def fastest(self, sets, *, out_dtype, **scalars):
            return [lambda args=args: torch.addmm(*args, **scalars) for args in sets]

    monkeypatch.setattr(survey, "sets_to_rotate", lambda _: 3)
    monkeypatch.setattr(survey.timing, "interleaved", interleaved)
    monkeypatch.setattr(survey, "run_by_name", lambda args, name, *, out_dtype, tf32, **scalars: torch.addmm(*args, **scalars))
    p = problem(c="full", scale=0.5, m=4096, n=12, k=8, lda=8, ldb=8, ldc=12)
    pool = SimpleNamespace(device="cuda", sets=survey.Pool("cpu").sets)
    row = survey.measure(p, pool, peaks=PEAKS, busy=True, regret=True, cublaslt=CublasLt())
    assert math.isclose(row.limit, 2 * (4096 * 8 + 8 * 12 + 2 * 4096 * 12) / 4e12 * 1e6)  # 485 calls: 1000 us / (limit + 2 us)
    assert (row.tc, row.torch_addmm, row.cublaslt, row.regret) == pytest.approx((1, 2, 9, 1)) and row.error <= 1
    assert row.tc_spread == pytest.approx(0.25) and "/" in row.kernel and " predicted " in row.kernel
    assert survey.SurveyRow.of(json.loads(json.dumps(row.figures()))) == row


def row(tc, torch_addmm, **changes) -> survey.SurveyRow:
    """Return a row with made-up times."""
    p = problem(**changes)
    return survey.SurveyRow(*dataclasses.astuple(p), "wgmma_tma/0", 0.5, tc, torch_addmm, None, 0.01, 0.02, 8.0, None, None)


def test_summary_matches_hand_computed_values():
    cells = survey.summary([row(10, 20), row(20, 20), row(20, 19), row(40, 20)])
    assert cells == {
        "n": "4",
        "vs torch": "0.99x",  # (2 * 1 * 0.95 * 0.5) ** (1 / 4)
        "below 0.97x": "2",
        "below 0.9x": "1",
        "worst": "0.50x",
        "time over limit + 2 us": "2.00",  # (1 * 2 * 2 * 4) ** (1 / 4)
        "torch's": "1.97",  # (2 * 2 * 1.9 * 2) ** (1 / 4)
    }


def test_table_has_every_part_and_the_worst_problems():
    rows = [
        row(10, 20, m=3, n=64, k=64, lda=64, ldb=64, ldc=64),
        row(10, 9, m=1000, group="LLM, M > 512", source="GPT-2 down"),
        row(10, 5, c="full", ldc=31, dtype="bfloat16"),
        row(10, 40, c="none"),
        row(10, 70, dtype="tf32", group=shapes.TF32),
    ]
    rows[2] = dataclasses.replace(rows[2], regret=1.5, cublaslt=8.0)
    facts = {"record": {"device": "X", "commit": "abc"}, "ceilings": PEAKS, "seed": 7, "count": 9, "busy": True}
    text = survey.table(facts | {"rows": [r.figures() for r in rows]})
    lines = [line.split(" | ") for line in text.splitlines()]
    counts = {(line[0].removeprefix("| "), line[1]): int(line[2]) for line in lines if len(line) == 9 and line[2].isdigit()}
    assert counts == {
        ("LLM, M > 512", "bias"): 1,
        ("vision", "bias"): 1,
        ("vision", "full"): 1,
        ("vision", "none"): 1,
        ("TF32", "bias"): 1,
        ("all 16-bit", "bias"): 2,
        ("all 16-bit", "full"): 1,
        ("all 16-bit", "none"): 1,
        ("all 16-bit", "any"): 4,
        ("leading dimensions multiples of 128 bytes", "bias"): 1,
        ("leading dimensions multiples of 16 bytes", "bias"): 1,
        ("multiples of 128 bytes, M 1-4", "bias"): 1,
    }
    worst = [line[0] for line in lines if len(line) == 11 and line[0].endswith("x")]
    assert worst == ["| 0.50x", "| 0.90x", "| 2.00x", "| 4.00x", "| 7.00x"]
    assert (
        "| 0.50x | 40, 24, 16 | 16, 16, 31 | col | full | bfloat16 | vision | wgmma_tma/0 | 10.0 ±1% | 5.0 ±2% | 80% |" in text
    )
    assert "Seed 7, 5 of 9 problems, contenders back to back." in text and "copy 4.00 TB/s" in text
    assert "cuBLASLt's fastest algorithm, full: 0.80x" in text and "regret: 1.500; worst 1.50" in text


def test_command_runs_on_the_cpu(tmp_path):
    file = tmp_path / "survey.json"
    command = [sys.executable, "-m", "bench.survey", "--seed", "1", "--count", "40", "--gpu-busy", "--json", str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(file.read_text())
    assert result["rows"] and file.with_suffix(".md").read_text() == survey.table(result)
    for figures in result["rows"]:
        assert figures["error"] <= 1 and figures["tc"] > 0 and figures["torch_addmm"] > 0
        assert shapes.SurveyProblem.of(figures) in DRAWN[1][:40]


@pytest.fixture(scope="module")
def key():
    """A problem's text whose D has tiles enough for every cluster, and few enough for split-K."""
    x = torch.empty(300, 4096, dtype=torch.float16, device="meta")
    return problem_key(x.new_empty(1024), x, x.new_empty(1024, 4096).t())


def test_candidates_are_timed_in_every_cluster_and_two_widths_with_k_whole_and_split(key):
    chosen = candidates.names(key, H200, within=math.inf, most=10000, kernel="")
    assert len(chosen) == len(set(chosen)) and Plan.of(key, H200).pick.exact_name in chosen
    kernels = {kernel["name"]: kernel for kernel in tc.kernels()}
    modes = {}
    for name in chosen:
        x = Plan.of(key, H200, name).pick
        assert x.exact_name == name
        narrow = x.columns < x.config["tile_n"]
        modes.setdefault((x.kernel, x.index, x.cluster, narrow), {}).setdefault(x.columns, set()).add(x.k_slices)
    assert all(len(widths) == 1 for widths in modes.values())
    modes = {mode: slices for mode, widths in modes.items() for slices in widths.values()}
    multicast = [mode for mode in modes if mode[0] == "wgmma_multicast"]
    assert len(multicast) == 2 * len(kernels["wgmma_multicast"]["configs"]) * len(kernels["wgmma_multicast"]["clusters"])
    for (kernel, _, cluster, _), slices in modes.items():
        if cluster and cluster[2] > 1:
            assert slices == {cluster[2]}
        elif kernel in ("wgmma_tma", "wgmma_multicast"):
            assert 1 in slices and len(slices) <= 2
    assert any(len(slices) == 2 for slices in modes.values())


def test_candidates_keep_to_their_kernel_and_times(key):
    near, all_of_it = (candidates.names(key, H200, within, 1000, "wgmma_tma") for within in (1.5, math.inf))
    predicted = {name: Plan.of(key, H200, name).pick.microseconds for name in near}
    assert predicted and all(name.startswith("wgmma_tma/") for name in predicted)
    best = min(x.microseconds for x in Plan.of(key, H200).candidates if x.kernel == "wgmma_tma" and not x.reason)
    assert min(predicted.values()) == best and len(predicted) < len(all_of_it)
    few = candidates.names(key, H200, math.inf, 2, "")
    assert sorted(predicted.values())[:2] == [predicted[name] for name in few if name in predicted]
    assert max(sum(name.startswith(kernel["name"] + "/") for name in few) for kernel in tc.kernels()) == 2


def test_candidates_at_random_come_from_the_others_and_repeat(key):
    likely = candidates.names(key, H200, 1.5, 3, "")
    chosen, again = (candidates.names(key, H200, 1.5, 3, "", at_random=5) for _ in range(2))
    others = set(candidates.names(key, H200, 1.5, 10000, "")) - set(likely)
    assert chosen == again and chosen[: len(likely)] == likely and len(chosen) == len(set(chosen)) == len(likely) + 5
    assert set(chosen[len(likely) :]) < others
    assert set(candidates.names(key, H200, 1.5, 3, "", at_random=10000)) == set(likely) | others


def test_times_alone_are_relative_to_torch_beside_them(monkeypatch):
    """The clock falls from pair to pair. A contender that takes twice torch's time in its pair takes twice the usual time."""
    clock, slept = iter((1.0, 0.8, 0.5)), []

    def interleaved(contenders, *, rests, **_):
        assert list(contenders) == ["torch", ""] and not rests
        slower = 1 / next(clock)
        return {name: timing.Timing(seconds * slower, 0, 0) for name, seconds in contenders.items()}

    monkeypatch.setattr(candidates.timing, "interleaved", interleaved)
    monkeypatch.setattr(candidates.time, "sleep", slept.append)
    times = candidates.times_alone({"half": 1e-6, "same": 2e-6, "twice": 4e-6}, 2e-6)
    assert times == pytest.approx({"torch": 2.5e-6, "half": 1.25e-6, "same": 2.5e-6, "twice": 5e-6})
    assert slept == 3 * [candidates.REST_SECONDS]


@pytest.fixture
def timed(key, tmp_path):
    """A file of bench.candidates: every time is twice the predicted one, but wgmma_multicast takes a tenth."""
    names = candidates.names(key, H200, within=3, most=1000, kernel="")
    times = {name: Plan.of(key, H200, name).pick.microseconds * 2 for name in names}
    times = {name: time / 20 if name.startswith("wgmma_multicast") else time for name, time in times.items()}
    torch_addmm = max(times.values())
    p = problem(m=300, n=1024, k=4096, lda=4096, ldb=4096, ldc=1024)
    described = {name: candidates.facts(Plan.of(key, H200, name).pick) for name in times}
    other = next(name for name in times if name.startswith("mma_swizzle"))
    described[other] = [0, *described[other][1:]]  # another tile had this name
    row = dataclasses.asdict(p) | {"key": key, "torch": torch_addmm, "times": times | {"removed/0": 1.0}, "facts": described}
    del times[other]
    file = tmp_path / "candidates.json"
    file.write_text(json.dumps({"gpu": dataclasses.asdict(H200), "rows": [row, row]}))
    return file, times


def test_fit_compares_times_with_predictions(timed, capsys, monkeypatch):
    file, times = timed
    rows = fit.load(file)
    assert [len(row.unknown) for row in rows] == [2, 2] and "removed/0" in rows[0].unknown and rows[0].pick_is_timed
    assert rows[0].problem.shape == (300, 1024, 4096)
    assert {x.exact_name: time for x, time in rows[0].candidates} == times
    configurations = fit.configurations(rows)[2:]
    for line in configurations:
        ratio = "0.10" if "wgmma_multicast" in line else "2.00"
        assert line.endswith(f" | {ratio} | {ratio} to {ratio} |"), line
    assert sum(int(line.split(" | ")[2]) for line in configurations) == 2 * len(times)
    assert sum(int(line.split(" | ")[3]) for line in configurations) == 2

    picks, fastest = (line.strip("| ").split(" | ") for line in fit.choices(rows)[2:])
    best, pick = min(times.values()), rows[0].pick[1]
    assert rows[0].pick[0].microseconds == min(x.microseconds for x, _ in rows[0].candidates)
    assert picks[1:5] == ["2", f"{pick / best:.3f}", f"{pick / best:.2f}", f"{rows[0].torch_addmm / pick:.2f}x"]
    speed = f"{rows[0].torch_addmm / best:.2f}x"
    assert fastest[1:] == ["2", "1.000", "1.00", speed, "0%", speed]

    monkeypatch.setattr(sys, "argv", ["bench.fit", str(file), str(file), "--worst", "1"])
    fit.main()
    printed = capsys.readouterr().out
    assert printed.count(" at 300x1024x4096 col bias float16: pick ") == 1 and "would not run 2 of the timed names" in printed
    assert "not timed at" not in printed
    text = file.read_text()
    pick = Plan.of(json.loads(text)["rows"][0]["key"], H200).pick.exact_name
    file.write_text(text.replace(f'"{pick}"', '"removed/1"'))
    fit.main()
    assert "The planner's own pick was not timed at 4 of 4 problems" in capsys.readouterr().out


def test_fit_finds_configurations_that_moved():
    sizes = fit.sizes_of("wgmma_multicast")
    pingpong, cooperative = (fit.sizes_of("wgmma_tma")[i] for i in (1, 4))
    assert pingpong == cooperative
    facts = {
        "wgmma_multicast/3/2x1/n40/k1": [*sizes[5], False, False],
        "wgmma_multicast/4": [*sizes[7], True, False],
        "wgmma_multicast/5": [0, *sizes[5][1:], False, False],  # no longer there
        "wgmma_tma/2/k1": [*cooperative, False, False],
        "removed/0": [*sizes[5], False, False],
    }
    today = {"wgmma_multicast/3": "wgmma_multicast/5", "wgmma_multicast/4": "wgmma_multicast/7"}
    assert fit.moved([{"facts": facts}]) == today  # which of two wgmma_tma/2 was, the file does not tell
    both = [{"facts": facts}, {"facts": {"wgmma_tma/0/k2": [*pingpong, False, False]}}]
    assert fit.moved(both) == today | {"wgmma_tma/0": "wgmma_tma/1", "wgmma_tma/2": "wgmma_tma/4"}


def test_fit_takes_the_times_of_batches():
    file = ROOT / "bench/results/h100-candidates-batches-20320404.json"
    rows = fit.load(file)
    assert len(rows) == len(json.loads(file.read_text())["rows"])
    assert all(isinstance(row.problem, batches.BatchProblem) and row.candidates for row in rows)
    p = max(rows, key=lambda row: row.pick[1] / row.fastest[1]).problem
    assert f" at {p.batch} x {p.m}x{p.n}x{p.k} {p.b} {p.c} {p.dtype}: pick " in fit.worst(rows, 1)[0]


@pytest.mark.parametrize("c", ("none", "bias", "full"))
def test_candidates_of_a_batch_are_compared_with_torch(c):
    p = batches.BatchProblem("", 2, 3, 4, 5, c=c, dtype="float32")
    args = [torch.randn(shape) for shape, _ in p.views]
    args = [None, *args] if c == "none" else args
    _, of_torch, error, scalars = candidates.operation(p, torch.float32)
    assert error(args, of_torch(args)) <= 1 < error(args, of_torch(args) + 1) and scalars == {}
    assert candidates.shape_text(dataclasses.asdict(p)) == "2 x 3x4x5"


def test_batches_are_drawn_from_the_seed_alone():
    drawn = batches.draw(1, 200)
    assert batches.draw(1, 50) == drawn[:50] and len(set(drawn)) == 200 and len(set(drawn) & set(batches.draw(2, 200))) < 10
    assert {p.group for p in drawn} == set(batches.GROUPS) and {p.c for p in drawn} == {"none", "bias", "full"}
    for p in drawn + batches.CASES:
        assert p.bytes <= batches.MOST_BYTES and p.flops <= 4 * batches.MOST_FLOPS
        for (shape, strides), span in zip(p.views, p.spans, strict=True):
            torch.empty(span, device="meta").as_strided(shape, strides)  # raises if the span is too short


def test_the_limit_of_a_batch_matches_hand_computed_values():
    p = batches.BatchProblem("", 2, 3, 4, 5)
    assert (p.flops, p.bytes) == (240, 2 * 2 * (15 + 20 + 12))
    assert p.limit({"float16": 60.0, "bytes": 1e9}) == 4e6 and p.limit({"float16": 1e9, "bytes": 47.0}) == 4e6


def test_the_table_of_batches_matches_hand_computed_values():
    def row(tc, torch, **changes):
        p = batches.BatchProblem("experts", 2, 3, 4, 5, **changes)
        times = {"limit": 8.0, "tc": tc, "torch": torch, "tc_spread": 0.01, "torch_spread": 0.02}
        return dataclasses.asdict(p) | times | {"error": 0.5, "kernel": "simt/0"}

    record = {"device": "a GPU", "torch": "2.11", "commit": "0" * 7}
    rows = [row(10.0, 40.0), row(40.0, 10.0, c="full"), row(20.0, 20.0)]
    text = batches.table({"record": record, "ceilings": {}, "seed": 1, "busy": True, "rows": rows})
    assert "| experts | 3 | 1.00x | 1 | 0.25x | 2.00 | 2.00 |" in text  # (10 * 40 * 20) ** (1 / 3) / (8 + 2)
    assert "| C: full | 1 | 0.25x | 1 | 0.25x | 4.00 | 1.00 |" in text
    assert text.index("| 0.25x | 2 x 3, 4, 5 |") < text.index("| 1.00x | 2 x 3, 4, 5 |") < text.index("| 4.00x | 2 x 3, 4, 5 |")


def test_batches_run_on_the_cpu(tmp_path):
    file = tmp_path / "batches.json"
    command = [sys.executable, "-m", "bench.batches", "--seed", "4", "--count", "8", "--json", str(file)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr[-3000:]
    result = json.loads(file.read_text())
    assert result["rows"] and file.with_suffix(".md").read_text() == batches.table(result)
    assert all(0 <= row["error"] <= 1 and row["tc"] > 0 and row["torch"] > 0 for row in result["rows"])
