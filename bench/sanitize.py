"""Every instance of every kernel on awkward shapes, for compute-sanitizer: nothing else runs on the GPU.

    compute-sanitizer --tool racecheck python -m bench.sanitize        (or memcheck, synccheck, initcheck)

Inputs are made and results checked on the CPU, so that the tool's time goes into this package's kernels alone. Exits with 1 if
a result is outside its error bound.
"""

import math
import sys

import torch

import torch_addmm_tc as tc
from torch_addmm_tc.testing import Case, reference

CASES = [
    Case(137, 265, 331),  # tails in every direction, misaligned lines
    Case(264, 136, 416, a="col_pitched", b="row_pitched", broadcast="(N)"),  # aligned, several K tiles, A and B MN-major
    Case(264, 136, 416, b="col_pitched", out_dtype=torch.float32),  # K-major, fp32 result
    Case(40, 24, 1500, torch.bfloat16, c="col"),  # K long enough to be split
    Case(264, 520, 200, torch.bfloat16),  # aligned, full C, several tiles
    Case(72, 136, 200, a="strided", b="strided"),  # repacked with a turn
]


def main() -> int:
    wrong = count = 0
    for kernel in tc.kernels():
        for i in range(len(kernel["instances"])):
            for case in CASES:
                args = case.inputs("cpu")
                out = torch.full((case.m, case.n), math.nan, dtype=case.out_dtype or case.dtype).cuda()
                name = f"{kernel['name']}/{i}"
                torch.ops.tc.addmm_by_kernel_out(*(x.cuda() for x in args), **case.scalars, kernel=name, out=out)
                error = reference(*args, **case.scalars, out_dtype=case.out_dtype).error(out.cpu())
                count += 1
                if not error <= 1:
                    wrong += 1
                    print(f"{name} {case}: {error:.1f} times its bound")
    print(f"{wrong} of {count} results are WRONG" if wrong else f"all {count} results are within their error bound")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
