"""What every configuration asks of CUDA, checked without a GPU: tests/launches.cpp stands in for the CUDA runtime."""

import json
import re
import runpy
import subprocess
from pathlib import Path

import pytest
import torch

from torch_addmm_tc import _C

ROOT = Path(__file__).parent.parent
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_functions")


def test_launches_are_as_their_configurations_say(tmp_path):
    manifest = ROOT / SETUP["op_folder"](torch, _C.with_cuda) / "manifest.json"
    has_cuda = _C.with_cuda and torch.version.cuda  # a build with CUDA kernels loads beside a CPU build of torch, too
    toolkit = SETUP["find_toolkit"](torch.version.cuda.split(".")[0]) if has_cuda else None
    if not toolkit or not manifest.exists():
        pytest.skip("needs the kernels' objects, which a build of this checkout with nvcc leaves")
    kernels = [ROOT / entry["object"] for entry in json.loads(manifest.read_text())["kernels"]]
    planner = sorted((ROOT / SETUP["BUILD"] / "cuda").glob("*.o"))
    program = tmp_path / "launches"
    compiler = [*SETUP["find_compiler"](), "-std=c++17", "-O1", f"-I{toolkit}/include", "-o", program]
    subprocess.run([*compiler, ROOT / "tests/launches.cpp", *kernels, *planner], check=True)
    done = subprocess.run([program], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
    assert int(re.match(r"\d+", done.stdout)[0]) > 20_000
