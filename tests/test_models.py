"""The benchmarks of models, run with --small: tiny networks, in every mode of integration."""

import json
import math
import os
import subprocess
import sys
from importlib.util import find_spec

import pytest
import torch

from bench.timing import ROOT

needs_transformers = pytest.mark.skipif(
    not find_spec("transformers"), reason="needs transformers, which 'make test' and the extra [bench] install"
)


def run(*command):
    done = subprocess.run(
        [sys.executable, "-m", *command], cwd=ROOT, capture_output=True, text=True, env={**os.environ, "OMP_NUM_THREADS": "1"}
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


@needs_transformers
def test_models_benchmark_measures_every_task(tmp_path):
    run("bench.models", "--small", "--only", "GPT-2", "--rounds", "1", "--json", str(tmp_path / "models.json"))
    rows = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert [row["task"] for row in rows] == ["prefill", "decode", "decode"] * 2
    for row in rows:
        assert all(ms > 0 for ms in row["milliseconds"].values()) and all(ms > 0 for ms in row["milliseconds of work"].values())
        assert row["spread"].keys() == row["milliseconds"].keys()
        assert all(0 < row["milliseconds of products"][x] <= row["milliseconds of work"][x] for x in ("torch", "enabled()"))
    assert len(rows[0]["error against float32"]) == 5 and rows[0]["greedy steps alike"] > 0


@needs_transformers
def test_models_benchmark_runs_float32_against_float64(tmp_path):
    run("bench.models", "--small", "--float32", "--only", "ViT", "--rounds", "1", "--json", str(tmp_path / "models.json"))
    (row,) = json.loads((tmp_path / "models.json").read_text())["rows"]
    assert row["dtype"] == "float32" and 0 < row["error against float64"]["enabled()"] < 1e-5
    assert "the relative error against float64" in (tmp_path / "models.md").read_text()


def test_tensor_parallel_is_as_accurate_as_one_gpu():
    launch = ["torch.distributed.run", "--nproc-per-node", str(min(2, torch.cuda.device_count()) or 2)]
    result = json.loads(run(*launch, "-m", "bench.tensor_parallel", "--small"))
    assert result["error"]["sharded, torch_addmm_tc"] <= 1.05 * result["error"]["one GPU, torch"]


@needs_transformers
def test_every_mode_of_this_package_is_compared_with_torchs():
    from bench import models

    errors = dict.fromkeys(("torch", "torch.compile", *models.OF_THEIRS), 1.0)
    assert len(errors) == 5 and models.worse_than_torch([{"error against float32": errors}, {}]) == []
    for ours in models.OF_THEIRS:
        for error in (1.06, math.nan):
            assert models.worse_than_torch([{"error against float32": errors | {ours: error}}]) == [ours]
