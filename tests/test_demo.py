"""`python -m torch_addmm_tc` as a process, and the arithmetic and tables of the benchmarks."""

import dataclasses
import json
import math
import subprocess
import sys

import pytest
import torch

from bench import ladder, report, sweep
from bench.timing import ROOT
from torch_addmm_tc import timing
from torch_addmm_tc.tools import demo


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "torch_addmm_tc", *arguments], capture_output=True, text=True)


def test_demo_prints_a_table():
    done = run()
    assert done.returncode == 0, done.stderr
    for text in ("torch:", "device:", "error/bound", "vs torch.addmm", "gpt2 mlp in", "within their error bound"):
        assert text in done.stdout


def test_demo_prints_json():
    result = json.loads(run("--json").stdout)
    assert result["environment"]["torch"] == torch.__version__
    for row in result["rows"]:
        assert row["ok"] is True and 0 <= row["error"] <= 1 and row["microseconds"] > 0 and row["ratio"] > 0
        if "H200" in result["environment"]["device"]:
            assert row["kernel"] != "simt"
    assert len({r["layer"] for r in result["rows"]}) >= 4


def test_demo_fails_on_a_wrong_result(monkeypatch, capsys):
    layer, dtype = demo.layers("cpu")[1]
    monkeypatch.setattr(demo, "environment", lambda device: {})
    monkeypatch.setattr(demo, "layers", lambda device: [(layer, dtype)])
    monkeypatch.setattr(demo.reference(*[torch.ones(1, 1)] * 3).__class__, "error", lambda self, result: math.nan)
    assert demo.run() == 1
    assert "WRONG" in capsys.readouterr().out


def test_interleaved_separates_slow_from_fast():
    work = {"one": [lambda: sum(range(10_000))], "eight": [lambda: sum(range(80_000))]}
    times = timing.interleaved(work, cuda=False, rounds=5, seconds=0.01)
    assert times["one"].fastest <= times["one"].median <= times["one"].slowest
    assert times["eight"].median > 2 * times["one"].median
    assert times["one"].spread >= 0


def test_interleaved_changes_the_order_from_round_to_round():
    """Otherwise the same contender always follows the same other, and on a busy GPU runs at the clock which that one left."""
    called = []
    contenders = {name: [lambda name=name: called.append(name)] for name in "abcd"}
    timing.interleaved(contenders, cuda=False, rounds=9, seconds=1e-9)
    rounds = ["".join(called[i : i + 4]) for i in range(8, len(called), 4)]  # each contender is called twice before the rounds
    assert len(rounds) == 11 and all(sorted(r) == list("abcd") for r in rounds)
    assert len(set(rounds)) > 5 and len({r[0] for r in rounds}) == 4


def test_host_seconds_separates_slow_from_fast():
    work = {"none": lambda: None, "some": lambda: sum(range(2000))}
    seconds = timing.host_seconds(work, cuda=False, calls=50, rounds=3)
    assert seconds.keys() == work.keys() and seconds["some"] > 2 * seconds["none"] > 0


@pytest.fixture
def clock(monkeypatch):
    """A clock that stands still: its entry is the time in seconds."""
    now = [0.0]
    monkeypatch.setattr(timing.time, "perf_counter", lambda: now[0])
    return now


def test_interleaved_gives_the_time_of_a_call(clock):
    """A run makes three calls. Two runs count the calls of a round, and two rounds of warm-up do not count either."""
    called = []

    def call():
        called.append(None)
        clock[0] += 100 if len(called) <= 4 * 3 else 2

    times = timing.interleaved({"three": [call] * 3}, cuda=False, rounds=5, seconds=1e-9)
    assert times["three"] == timing.Timing(2, 2, 2) and len(called) == (4 + 5) * 3


def test_host_seconds_gives_the_time_of_a_call(clock):
    def call():
        clock[0] += 2

    assert timing.host_seconds({"call": call}, cuda=False, calls=7, rounds=3) == {"call": 2}


def test_the_limit_of_a_problem_is_the_longer_of_flops_and_bytes():
    p = report.Problem(100, 100, 50, "row", "float16", "none")
    assert (p.flops, p.bytes) == (1e6, 2 * (10000 + 10000))
    assert p.limit({"float16": 1e6, "bytes": 1e9}) == 1e6 and p.limit({"float16": 1e12, "bytes": 4e4}) == 1e6


def test_sweep_has_every_problem_once():
    problems = list(sweep.problems())
    assert len(problems) == len(set(problems)) == 3 * 2 * 2 * len(sweep.SHAPES) + 4 * len(sweep.FP32_SHAPES)


def test_row_figures_match_hand_computed_values():
    row = report.Row(1000, 1000, 1000, "row", "float16", "full", "wmma_block", 0.5, 10.0, 25.0, 20.0, 0.01, 0.02, 5.0)
    assert row.tflops == 200 and row.ratio == 2.5 and row.bytes == 8e6
    assert dataclasses.replace(row, c="full fp32").bytes == 12e6 and dataclasses.replace(row, c="bias").bytes == 6e6 + 2e3
    assert report.Row.of(row.figures()) == row
    assert math.isclose(report.geometric_mean([1.0, 4.0]), 2.0)


def test_report_shows_every_figure_and_every_slower_row():
    rows = [
        report.Row(1000, 1000, k, "row", "float16", c, "wmma_block", 0.5, 10.0, us, 20.0, 0.01, 0.02, 5.0)
        for k, us in ((1000, 25.0), (1001, 5.0))
        for c in report.FORMS
    ]
    host = {f"torch.addmm, {c}{grad}": 3.25 for c in ("full C", "bias") for grad in ("", ", grad mode on")}
    record = {"device": "X", "torch": "2", "commit": "abc"}
    result = {"record": record, "ceilings": {"float16": 8e14, "bytes": 4e12}, "host": host, "rows": [r.figures() for r in rows]}
    text = report.table(result)
    assert "| 1000, 1000, 1000 | row | float16 | full | wmma_block | 0.50 | 10.0 ±1% | 200 | 2.50x |" in text
    assert "full: 1.12x" in text and "50%" in text
    text = report.summary(result)
    assert "| 1000, 1000, 1000 | 200 TFLOP/s, 2.50x | 200 TFLOP/s, 2.50x | 200 TFLOP/s, 2.50x |" in text
    assert "| *geometric mean, other N or K* | 0.50x | 0.50x | 0.50x |" in text and "| 1 of 2 | 1 of 2 | 1 of 2 |" in text
    assert "1-D bias: 1000x1000x1001 0.50x." in text and "on an X with torch 2 at commit abc" in text
    assert "| torch.addmm | 3.2 | 3.2 | 3.2 | 3.2 |" in text
    assert report.means(result).endswith("2 shapes, on which the kernels were tuned | 1.12x | 1.12x | 1.12x | 3 of 6 |")


def test_insert_row_replaces_the_row_with_the_same_first_cell():
    page = "| shapes | full C |\n|---|---|\n| a | 1.00x |\n| a b | 1.10x |\n"
    assert report.insert_row("| a | 2.00x |", page) == page.replace("1.00x", "2.00x")


def committed(name):
    return json.loads((ROOT / f"bench/results/h200-{name}.json").read_text())


def test_pages_show_the_committed_measurements():
    readme, performance = report.README.read_text(), report.PERFORMANCE.read_text()
    assert report.insert("ladder", ladder.table(committed("ladder")), performance) == performance
    assert report.insert("sweep", report.summary(committed("sweep")), performance) == performance
    assert report.insert_row(report.means(committed("sweep")), readme) == readme
    assert (ROOT / "bench/results/h200-sweep.md").read_text() == report.table(committed("sweep"))


def test_report_draws_its_pictures(tmp_path):
    pytest.importorskip("matplotlib")
    for draw in (report.roofline, report.ratios):
        draw(committed("sweep")).savefig(tmp_path / "x.png")
        assert (tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
