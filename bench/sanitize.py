"""Runs of every configuration of every kernel on awkward shapes, for compute-sanitizer.

    compute-sanitizer --tool memcheck python -m bench.sanitize         (or racecheck, synccheck, initcheck)
    ... python -m bench.sanitize --kernel NAME/INDEX                   runs one configuration, or a kernel by its name alone
    ... python -m bench.sanitize --grid [--kernel ...] [--part I/N]    runs the tests' whole case grid instead

Every tensor and every workspace is an allocation of its own that ends with its last element: memcheck then reports any access
past the end. Inputs and references are computed on the CPU: the GPU runs this package's kernels alone, which a sanitizer slows
down. The exit code is 1 if a result is outside its error bound, or if no check ran.
"""

import argparse
import functools
import math
import os
import sys
from typing import NamedTuple

os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"  # torch reads the variable at import

import torch  # noqa: E402

import torch_addmm_tc as tc  # noqa: E402
from torch_addmm_tc.testing.cases import (  # noqa: E402
    Case,
    adapted,
    asked_configs,
    checked_kernels,
    kernel_grid,
    multiplies,
)
from torch_addmm_tc.testing.inputs import matrices, matrix  # noqa: E402

F32, BF16 = torch.float32, torch.bfloat16


class Check(NamedTuple):
    """A case and the layout of its result."""

    case: Case
    d: str = "row"  # a name in torch_addmm_tc.testing.inputs.LAYOUTS


CHECKS = [
    # M, N and K are no multiples of a tile's sizes. The rows of A, B, C and D do not start or end at 16-byte boundaries.
    Check(Case(137, 265, 331)),
    Check(Case(137, 265, 331, BF16, a="col", b="col", c="col"), d="col"),
    Check(Case(131, 141, 151, a="row_odd", b="row_odd", c="row_odd"), d="row_odd"),
    Check(Case(137, 265, 72, out_dtype=F32, c="misaligned", a="misaligned", b="misaligned"), d="misaligned"),
    # A and B are aligned. A row of C or D ends inside a vector.
    Check(Case(200, 3001, 72, b="col", broadcast="(N)")),
    Check(Case(200, 3001, 72, BF16, b="col", broadcast="(1,N)", activation="relu"), d="row_pitched"),
    Check(Case(72, 3004, 72, b="col", broadcast="(N)", out_dtype=F32)),
    Check(Case(264, 521, 136, b="col", c="row_pitched")),  # C by TMA, D by element
    Check(Case(264, 521, 136, BF16, b="col", c="col"), d="row_pitched"),  # C by element, D by TMA
    Check(Case(264, 521, 136, b="col", c="strided"), d="strided"),
    Check(Case(264, 521, 136, b="col", self_dtype=F32, out_dtype=F32)),
    Check(Case(264, 522, 136, b="col", self_dtype=F32, out_dtype=F32, c="row_pitched"), d="row_pitched"),
    # All matrices are aligned: C and D go by TMA. A and B are row-major and column-major.
    Check(Case(264, 520, 200, BF16, activation="gelu")),
    Check(Case(264, 136, 416, a="col_pitched", b="row_pitched", broadcast="(N)", activation="gelu_tanh")),
    Check(Case(264, 136, 416, b="col_pitched", out_dtype=F32)),
    Check(Case(131, 141, 151, b="col", broadcast="(N)")),  # a bias of a cut tile
    # A, C and D are whole vectors, and the last rows and columns of tiles are cut.
    Check(Case(1011, 144, 24, b="col", broadcast="(N)")),
    Check(Case(1011, 104, 64, BF16, b="col", c="row_pitched", activation="gelu"), d="row_pitched"),
    Check(Case(1011, 144, 0, a="row_pitched", broadcast="(N)")),  # A has rows, but no element
    Check(Case(1011, 101, 25, F32, b="col", broadcast="(N)")),
    # D has one row or column, or few rows and a K that split-K may divide.
    Check(Case(1, 264, 331)),
    Check(Case(3, 144, 75, out_dtype=F32)),  # fewer rows than kinds of rows in wgmma_interleaved
    Check(Case(1, 1001, 4096, b="col")),
    Check(Case(1001, 1, 333, BF16, broadcast="(M,1)")),
    Check(Case(40, 28, 5000, BF16, broadcast="(N)")),
    Check(Case(40, 27, 5001, c="col"), d="col"),
    # Operands are repacked, or fp32.
    Check(Case(72, 136, 200, a="strided", b="strided", broadcast="()")),
    Check(Case(72, 141, 200, F32, a="row_odd", broadcast="(N)")),
    Check(Case(137, 265, 331, F32)),
    Check(Case(264, 136, 416, F32, a="col", b="col", broadcast="(N)", activation="gelu")),
    Check(Case(131, 141, 151, F32, a="misaligned", b="row_odd", c="col"), d="row_odd"),
    Check(Case(3, 1001, 4096, F32, b="col")),
    Check(Case(40, 28, 5000, F32)),
    Check(Case(72, 141, 203, F32, tf32=True)),
    Check(Case(72, 136, 200, F32, b="col", c="row_pitched", tf32=True)),
    # Batches, whose matrices lie at any distance. The last matrix ends with the allocation.
    Check(Case(40, 72, 24, batch=3, broadcast="(B,M,N)", batches=("stacked", "between", "stacked"))),
    Check(Case(73, 141, 75, BF16, batch=3, broadcast="(B,M,N)", batches=("odd", "odd", "odd"))),
    Check(Case(40, 136, 1100, batch=2, broadcast="(B,1,N)", batches=("shared", "stacked", "stacked"))),
    Check(Case(73, 136, 200, F32, batch=2, broadcast="(B,M,N)", batches=("odd", "shared", "stacked"))),
    Check(Case(72, 136, 200, F32, batch=2, broadcast="(N)", tf32=True)),
]


def on_device(x: torch.Tensor) -> torch.Tensor:
    """Return a copy of x on the GPU with x's strides and offset, in an allocation that ends with the last element."""
    last = x.storage_offset() + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
    storage = x.as_strided((last + 1 if x.numel() else 0,), (1,), 0).cuda()
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


@functools.lru_cache(maxsize=len(CHECKS))
def inputs_and_reference(case: Case, seed: int):
    """Return a case's (inputs, reference) on the CPU."""
    args = case.inputs("cpu", seed)
    return args, case.reference(args)


def empty_result(case: Case, d: str) -> torch.Tensor:
    """Return a CPU tensor of NaN for a case's result in layout `d`."""
    made = {"rows": case.m, "cols": case.n, "dtype": case.out_dtype or case.dtype, "device": "cpu"}
    return (matrix(d, **made) if case.batch is None else matrices("stacked", case.batch, d, **made)).fill_(math.nan)


def runs(kernel: dict, configs: list[str], checks: list[Check]) -> list[tuple[Check, list[str]]]:
    """Return (check, the configurations that support it) for each check, and for those that adapted() makes of it.

    Args:
        kernel: an entry of torch_addmm_tc.kernels().
        configs: the names of the kernel's configurations to run.
        checks: the checks.
    """
    found = []
    for case, d in checks:
        if kernel["contiguous_operands"] and "strided" in (case.a, case.b):
            continue
        names_of = {}
        for name in configs:
            wide = adapted(case, name)
            if multiplies(kernel, name, wide, empty_result(wide, d)):
                names_of.setdefault(wide, []).append(name)
        found += [(Check(wide, d), names) for wide, names in names_of.items()]
    return found


def main() -> int:
    """Run the checks. Return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m bench.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("--grid", action="store_true", help="run the tests' whole case grid")
    parser.add_argument("--kernel", action="append", default=[], help="a kernel, or NAME/INDEX, to run alone; may be repeated")
    parser.add_argument("--part", default="0/1", help="I/N: run every Nth case from the Ith; N processes can share the cases")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random inputs")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    if not 0 <= part < parts:
        parser.error(f"--part {options.part}: I must be from 0 to N - 1")
    try:
        asked = checked_kernels(options.kernel)
    except ValueError as error:
        parser.error(str(error))
    if not torch.cuda.is_available():
        sys.exit("python -m bench.sanitize: no GPU was found; run it with an NVIDIA GPU and a CUDA build of torch")
    wrong = count = 0
    for kernel in tc.kernels():
        if not (configs := asked_configs(kernel["name"], asked)):
            continue
        chosen = [Check(case) for case in kernel_grid(kernel)] if options.grid else CHECKS
        for (case, d), names in runs(kernel, configs, chosen[part::parts]):
            args, expected = inputs_and_reference(case, options.seed)
            on_gpu, empty = [on_device(x) for x in args], empty_result(case, d)
            for name in names:
                out = case.run(name, on_gpu, on_device(empty))
                error = expected.error(out.cpu())
                count += 1
                if not error <= 1:
                    wrong += 1
                    print(f"{name} {case} D:{d}: the error is {error:.1f} times its bound")
    if not count:
        print("no check of this part suits these configurations")
    else:
        print(f"{wrong} of {count} results are WRONG" if wrong else f"all {count} results are within their error bound")
    return 1 if wrong or not count else 0


if __name__ == "__main__":
    sys.exit(main())
