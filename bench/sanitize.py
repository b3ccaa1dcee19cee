"""Every instance of every kernel on awkward shapes, for compute-sanitizer: nothing else runs on the GPU.

    compute-sanitizer --tool racecheck python -m bench.sanitize        (or memcheck, synccheck, initcheck)
    ... python -m bench.sanitize --grid [--kernel NAME] [--part I/N]   the tests' whole case grid instead, for minutes

Inputs are made and results checked on the CPU, so that the tool's time goes into this package's kernels alone. Exits with 1 if
a result is outside its error bound.
"""

import argparse
import math
import sys

import torch

import torch_addmm_tc as tc
from torch_addmm_tc.testing import Case, kernel_grid

CASES = [
    Case(137, 265, 331),  # tails in every direction, misaligned lines
    Case(264, 136, 416, a="col_pitched", b="row_pitched", broadcast="(N)"),  # aligned, several K tiles, A and B MN-major
    Case(264, 136, 416, b="col_pitched", out_dtype=torch.float32),  # K-major, fp32 result
    Case(40, 24, 5000, torch.bfloat16, c="col"),  # K long enough to be split
    Case(1, 1001, 4096, b="col"),  # the same, into layers that are not 16-byte aligned
    Case(264, 520, 200, torch.bfloat16, activation="gelu"),  # aligned, full C, several tiles
    Case(264, 520, 200, broadcast="(N)", activation="gelu_tanh"),  # the shorter gate
    Case(72, 136, 200, a="strided", b="strided"),  # repacked with a turn
    Case(72, 136, 200, torch.float32, a="row_odd", tf32=True),
    Case(264, 521, 136, self_dtype=torch.float32, out_dtype=torch.float32),  # fp32 C and D that TMA cannot reach
    Case(264, 521, 136, c="row_pitched"),  # C by TMA, D in pieces
    Case(264, 521, 136, torch.bfloat16, c="col"),  # C by element, D in pieces
]


def on_device(x: torch.Tensor) -> torch.Tensor:
    """x on the GPU at the same strides and offset in its storage."""
    storage = x.as_strided((x.untyped_storage().nbytes() // x.element_size(),), (1,), 0).cuda()
    return storage.as_strided(x.shape, x.stride(), x.storage_offset())


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.sanitize", description=__doc__.split("\n")[0])
    parser.add_argument("--grid", action="store_true", help="the tests' whole case grid")
    parser.add_argument("--kernel", help="only this one")
    parser.add_argument("--part", default="0/1", help="I/N: every Nth case from the Ith, so that N processes share the grid")
    options = parser.parse_args()
    part, parts = map(int, options.part.split("/"))
    wrong = count = 0
    for kernel in tc.kernels():
        if options.kernel not in (None, kernel["name"]):
            continue
        chosen = [c for c in CASES if not (kernel["contiguous_operands"] and "strided" in (c.a, c.b))]
        chosen = [c for c in chosen if not c.tf32 or "tf32" in kernel["operands"]]
        for case in (kernel_grid(kernel) if options.grid else chosen)[part::parts]:
            args = case.inputs("cpu")
            expected = case.reference(args)
            on_gpu = [on_device(x) for x in args]
            for i in range(len(kernel["instances"])):
                name = f"{kernel['name']}/{i}"
                out = torch.full((case.m, case.n), math.nan, dtype=case.out_dtype or case.dtype).cuda()
                case.run(name, on_gpu, out)
                error = expected.error(out.cpu())
                count += 1
                if not error <= 1:
                    wrong += 1
                    print(f"{name} {case}: {error:.1f} times its bound")
    print(f"{wrong} of {count} results are WRONG" if wrong else f"all {count} results are within their error bound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
