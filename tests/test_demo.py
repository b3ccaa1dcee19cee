"""`python -m torch_addmm_tc` as users run it, and the benchmark's own arithmetic."""

import json
import math
import subprocess
import sys

import torch

from bench import ladder, sweep
from torch_addmm_tc import demo, timing


def run(*arguments):
    return subprocess.run([sys.executable, "-m", "torch_addmm_tc", *arguments], capture_output=True, text=True)


def test_table():
    done = run()
    assert done.returncode == 0, done.stderr
    for text in ("torch:", "device:", "error/bound", "vs torch.addmm", "gpt2 mlp in", "within their error bound"):
        assert text in done.stdout


def test_json():
    result = json.loads(run("--json").stdout)
    assert result["environment"]["torch"] == torch.__version__
    for row in result["rows"]:
        assert row["ok"] is True and 0 <= row["error"] <= 1 and row["microseconds"] > 0 and row["ratio"] > 0
        if "H200" in result["environment"]["device"]:
            assert row["kernel"] != "simt"
    assert len({r["layer"] for r in result["rows"]}) >= 4


def test_a_wrong_result_fails_the_check(monkeypatch, capsys):
    layer, dtype = demo.layers("cpu")[1]
    monkeypatch.setattr(demo, "environment", lambda device: {})
    monkeypatch.setattr(demo, "layers", lambda device: [(layer, dtype)])
    monkeypatch.setattr(demo.reference(*[torch.ones(1, 1)] * 3).__class__, "error", lambda self, result: math.nan)
    assert demo.run() == 1
    assert "WRONG" in capsys.readouterr().out


def test_interleaved_tells_slow_from_fast():
    x = torch.randn(300, 300)
    times = timing.interleaved(
        {"one": [lambda: x @ x], "four": [lambda: x @ x @ x @ x @ x]}, cuda=False, rounds=5, seconds=0.01
    )
    assert times["one"].fastest <= times["one"].median <= times["one"].slowest
    assert times["four"].median > 2 * times["one"].median
    assert times["one"].spread >= 0


def test_sweep_covers_every_form_and_its_table_shows_the_figures():
    problems = list(sweep.problems())
    assert len(problems) == len(set(problems)) == 3 * 2 * 2 * len(sweep.SHAPES) + 2 * len(sweep.FP32_SHAPES)
    row = sweep.Row(1000, 1000, 1000, "row", "float16", "full", "wmma_block", 0.5, 10.0, 25.0, 20.0, 0.01, 0.02, 5.0)
    assert row.tflops == 200 and row.ratio == 2.5
    result = {"record": {"device": "X"}, "ceilings": {"float16": 8e14, "bytes": 4e12}, "host": {"call": 3.0}}
    text = sweep.table(result, [row])
    assert "| 1000, 1000, 1000 | row | float16 | full | wmma_block | 0.50 | 10.0 ±1% | 200 | 2.50x |" in text
    assert "full: 2.50x" in text and "50%" in text
    assert math.isclose(sweep.geometric_mean([1.0, 4.0]), 2.0)


def test_the_readmes_ladder_is_the_committed_measurement():
    result = json.loads((ladder.ROOT / "bench/results/h200-ladder.json").read_text())
    readme = (ladder.ROOT / "README.md").read_text()
    assert ladder.insert(ladder.table(result), readme) == readme


def test_the_readmes_figures_are_in_the_committed_sweep():
    rows = json.loads((ladder.ROOT / "bench/results/h200-sweep.json").read_text())["rows"]
    names = {"full": "fp16 full", "full fp32": "fp32 full", "bias": "1-D bias"}
    measured = {
        f"| {r['m']}, {r['n']}, {r['k']} | {names[r['c']]} | {r['kernel']} | {r['tflops']:.0f} | {r['ratio']:.2f}x |"
        for r in rows
        if r["b"] == "row" and r["dtype"] == "float16"
    }
    section = (ladder.ROOT / "README.md").read_text().split("| M, N, K | C | kernel |")[1].split("One eager call")[0]
    quoted = [line for line in section.splitlines()[2:] if line.startswith("|")]
    assert len(quoted) >= 5 and set(quoted) <= measured
