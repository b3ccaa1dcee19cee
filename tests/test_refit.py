"""bench.refit: the copy of the planner whose constants are variables, and the fit."""

import dataclasses
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from bench.candidates import facts
from bench.refit import as_variables, declarations
from bench.shapes import SurveyProblem
from torch_addmm_tc.tools.planning import H200, Plan, problem_key

ROOT = Path(__file__).parent.parent
SIZES = list(itertools.product((64, 200, 1000), (512, 1152, 4096), (64, 768, 4096)))


def timed_row(m, n, k, later: float) -> dict:
    """Return a row of bench.candidates' file, whose times are the predicted ones, and `later` us longer for wgmma_multicast."""
    problem = SurveyProblem(m, n, k, "col", "float16", "bias", "", "", k, k, n, 1.0)
    c, a, b = (torch.empty_strided(*view, dtype=torch.float16, device="meta") for view in problem.views)
    key = problem_key(c, a, b)
    runnable = (x for x in Plan.of(key, H200).candidates if not x.reason and x.kernel in ("wgmma_tma", "wgmma_multicast"))
    candidates = sorted(runnable, key=lambda x: x.microseconds)[:40]
    times = {x.exact_name: x.microseconds + later * (x.kernel == "wgmma_multicast") for x in candidates}
    described = {x.exact_name: facts(x) for x in candidates}
    return dataclasses.asdict(problem) | {"key": key, "torch": min(times.values()), "times": times, "facts": described}


def refit(*arguments) -> subprocess.CompletedProcess:
    command = [sys.executable, "-m", "bench.refit", *map(str, arguments)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)


def test_a_refit_finds_the_constant_that_made_the_times(tmp_path):
    """The start of wgmma_multicast is a term of its own in its predictions, so that longer times make it longer by as much."""
    file = tmp_path / "candidates.json"
    file.write_text(json.dumps({"gpu": dataclasses.asdict(H200), "rows": [timed_row(*size, later=0.3) for size in SIZES]}))
    done = refit(file, "--constants", "kMulticastStart", "--rounds", 12)
    assert done.returncode == 0, done.stderr
    lines = {line.split(" | ")[0].strip("| "): line.strip("| ").split(" | ")[1:] for line in done.stdout.splitlines() if line}
    now, *fitted = map(float, lines["kMulticastStart"])
    assert fitted == pytest.approx(3 * [now + 0.3], rel=0.02)
    assert float(lines["nothing"][-1].split(",")[0]) > 1.002
    assert lines["all"] == ["1.0000, 0 of 14", "1.0000, 0 of 13", "1.0000, 0 of 27"]


def test_a_refit_of_unknown_constants_names_the_known_ones(tmp_path):
    done = refit(tmp_path / "none.json", "--constants", "kMulticastStart,kNone")
    assert done.returncode == 2 and "declares no kNone; it declares" in done.stderr and "kMulticastStart" in done.stderr


def test_constants_become_variables():
    source = "constexpr double kA = 1.5, kB = -2e-3;  // two\nconstexpr int kC = 3;\nconstexpr double kD = 2 * kA;\n"
    assert declarations(source) == {"kA": 1.5, "kB": -0.002}
    first, a_and_b, *others = as_variables(source).splitlines()
    assert first == '#include "variable.h"' and others == source.splitlines()[1:]
    assert a_and_b == 'double kA = variable("kA", kA, 1.5); double kB = variable("kB", kB, -0.002);  // two'
