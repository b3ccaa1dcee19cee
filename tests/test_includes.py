"""Includes of csrc/ go one way: op -> gemm, kernels -> epilogue -> tile -> {ptx, layout, gemm}. Only op/ includes torch."""

import re
from pathlib import Path

import pytest

CSRC = Path(__file__).parent.parent / "csrc"

# A folder may include its own headers and those of the folders listed here.
ALLOWED = {
    "op": {"gemm", "layout"},
    "kernels": {"epilogue", "tile", "ptx", "layout", "gemm"},
    "epilogue": {"tile", "ptx", "layout", "gemm"},
    "tile": {"ptx", "layout", "gemm"},
    "gemm": set(),
    "layout": set(),
    "ptx": set(),
}
TORCH = re.compile(r"(torch|ATen|c10|caffe2|pybind11|Python\.h)")
CUDA = re.compile(r"(cuda|cublas|cooperative_groups|cutlass|cute/|mma\.h|nv/|vector_types\.h)")
TORCH_FREE = set(ALLOWED) - {"op"}
CUDA_FREE = {"gemm", "layout"}


def violations(csrc: Path) -> list[str]:
    """Return one sentence for each include that breaks the order."""
    found = []
    for path in sorted(x for x in csrc.rglob("*") if x.suffix in (".h", ".cuh", ".cpp", ".cu")):
        file, folder = path.relative_to(csrc), path.relative_to(csrc).parts[0]
        if folder not in ALLOWED:
            found.append(f"{file} lies in a folder that has no rule")
            continue
        for bracket, header in re.findall(r'^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', path.read_text(), re.MULTILINE):
            target = (path.parent / header).resolve()
            if folder in TORCH_FREE and TORCH.match(header):
                found.append(f"{file} includes {header}, which is torch's or Python's")
            elif folder in CUDA_FREE and CUDA.match(header):
                found.append(f"{file} includes {header}, which is CUDA's")
            elif bracket == "<":
                continue
            elif not target.is_file():
                found.append(f"{file} includes {header}, which does not exist beside it")
            elif not target.is_relative_to(csrc.resolve()):
                found.append(f"{file} includes {header}, which lies outside csrc")
            else:
                other = target.relative_to(csrc.resolve()).parts[0]
                if other != folder and other not in ALLOWED[folder]:
                    found.append(f"{file} includes {header}, but {folder} may not include {other}")
    return found


def test_includes_go_one_way():
    assert violations(CSRC) == []


@pytest.mark.parametrize(
    "file, line, sentence",
    [
        ("gemm/planner.h", '#include "../kernels/padded_smem.h"', "gemm may not include kernels"),
        ("gemm/planner.h", '#include "../tile/launch.h"', "gemm may not include tile"),
        ("gemm/planner.h", "#include <cuda_runtime.h>", "cuda_runtime.h, which is CUDA's"),
        ("gemm/planner.h", "  #  include <torch/types.h>", "torch/types.h, which is torch's"),
        ("layout/swizzle.h", '#include "../gemm/desc.h"', "layout may not include gemm"),
        ("layout/swizzle.h", "#include <mma.h>", "mma.h, which is CUDA's"),
        ("ptx/wgmma.cuh", '#include "../layout/swizzle.h"', "ptx may not include layout"),
        ("tile/copy.cuh", '#include "../epilogue/staged.cuh"', "tile may not include epilogue"),
        ("epilogue/staged.cuh", '#include "../kernels/padded_smem.h"', "epilogue may not include kernels"),
        ("epilogue/staged.cuh", "#include <ATen/ATen.h>", "ATen/ATen.h, which is torch's"),
        ("kernels/01_simt.cu", '#include "../op/backend.h"', "kernels may not include op"),
        ("op/op.cpp", '#include "../tile/launch.h"', "op may not include tile"),
        ("op/op.cpp", '#include "../gemm/nowhere.h"', "does not exist"),
        ("op/op.cpp", '#include "../../outside.h"', "lies outside csrc"),
        ("new/file.h", "", "no rule"),
    ],
)
def test_a_planted_include_is_reported(tmp_path, file, line, sentence):
    names = "gemm/desc.h gemm/planner.h kernels/padded_smem.h tile/launch.h tile/copy.cuh layout/swizzle.h epilogue/staged.cuh"
    for name in [*names.split(), "op/backend.h", "../outside.h"]:
        (tmp_path / "csrc" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "csrc" / name).write_text("#include <cstdint>\n")
    planted = tmp_path / "csrc" / file
    planted.parent.mkdir(exist_ok=True)
    planted.write_text(line + "\n")
    found = violations(tmp_path / "csrc")
    assert len(found) == 1 and found[0].startswith(file) and sentence in found[0]
