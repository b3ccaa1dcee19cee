"""The sweep: torch.ops.tc.addmm beside torch.addmm and the plain product, over the shapes that models run.

    python -m bench.sweep [--json FILE] [--kernel NAME] [--only TEXT] [--seconds S] [--regret]

Each shape in three forms (full C in the operands' dtype, full C in fp32 with an fp32 result, 1-D bias), with B row-major and
weight-major (the transpose of a row-major (N, K) weight), in fp16 and bf16; then fp32. Prints a table and, with --json,
writes every figure to FILE and the table to the .md file beside it. --regret also times every instance that the planner
predicts within twice its pick's time: regret is the pick's time over the fastest instance's.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.timing import ceilings, record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.testing import matrix, reference

SHAPES = [
    (1024, 1024, 1024),
    (2048, 2048, 2048),
    (4096, 4096, 4096),
    (8192, 8192, 8192),
    (16384, 16384, 1024),
    (4096, 14336, 4096),
    (8192, 2304, 768),
    (16384, 4096, 128),
    (65536, 256, 256),
    (4096, 4096, 64),
    (1, 4096, 4096),
    (16, 4096, 4096),
    (128, 4096, 14336),
    (1024, 50257, 768),
    (4095, 4097, 4099),
]
FP32_SHAPES = [(4096, 4096, 4096), (4095, 4097, 4099)]

BETA = ALPHA = 0.5


@dataclasses.dataclass
class Row:
    """One problem's figures. Times in microseconds; spread is half the rounds' range over their median."""

    m: int
    n: int
    k: int
    b: str  # row, or col for weight-major
    dtype: str
    c: str  # full, full fp32, or bias
    kernel: str
    error: float  # as a fraction of the bound of torch_addmm_tc/testing.py
    tc: float
    torch_addmm: float
    mm: float
    tc_spread: float
    torch_addmm_spread: float
    limit: float
    regret: float | None = None

    @property
    def tflops(self):
        return 2e-6 * self.m * self.n * self.k / self.tc

    @property
    def ratio(self):
        return self.torch_addmm / self.tc

    def figures(self):
        return dataclasses.asdict(self) | {"tflops": self.tflops, "ratio": self.ratio, "of_limit": self.limit / self.tc}


def problems():
    for c in ("full", "full fp32", "bias"):
        for dtype in (torch.float16, torch.bfloat16):
            for b in ("row", "col"):
                for m, n, k in SHAPES:
                    yield m, n, k, b, dtype, c
    for c in ("full", "bias"):
        for m, n, k in FP32_SHAPES:
            yield m, n, k, "row", torch.float32, c


def measure(m, n, k, b, dtype, c, *, kernel, peaks, seconds, regret=False):
    out_dtype = torch.float32 if c == "full fp32" else dtype
    c_elements = n if c == "bias" else m * n
    nbytes = (m * k + k * n) * dtype.itemsize + (c_elements + m * n) * out_dtype.itemsize
    limit = max(2 * m * n * k / peaks[str(dtype).removeprefix("torch.")], nbytes / peaks["bytes"])
    sets = []
    for _ in range(sets_to_rotate(nbytes)):
        self = matrix("row", 1, n, out_dtype, "cuda")[0] if c == "bias" else matrix("row", m, n, out_dtype, "cuda")
        sets.append((self, matrix("row", m, k, dtype, "cuda"), matrix(b, k, n, dtype, "cuda")))
    scalars = {} if c == "bias" else {"beta": BETA, "alpha": ALPHA}
    wide = {"out_dtype": out_dtype} if out_dtype != dtype else {}

    def by_name(args, name):
        out = torch.empty(m, n, dtype=out_dtype, device="cuda")
        torch.ops.tc.addmm_by_kernel_out(*args, **scalars, kernel=name, out=out)
        return out

    def ours(args):
        return by_name(args, kernel) if kernel else tc.addmm(*args, **scalars, **wide)

    error = reference(*sets[0], **scalars, **wide).error(ours(sets[0]))
    contenders = {
        "tc": [lambda args=args: ours(args) for args in sets],
        "torch": [lambda args=args: torch.addmm(*args, **scalars, **wide) for args in sets],
        "mm": [lambda args=args: torch.mm(args[1], args[2], **wide) for args in sets],
    }
    plan = tc.plan(*sets[0], **scalars, **wide)
    near = [x.name for x in plan.candidates if not x.rejection and x.microseconds <= 2 * plan.candidates[0].microseconds]
    if regret:
        contenders |= {name: [lambda args=args, name=name: by_name(args, name) for args in sets] for name in near}
    times = timing.interleaved(contenders, cuda=True, rounds=7, seconds=seconds)
    micro = {name: time.median * 1e6 for name, time in times.items()}
    return Row(
        m, n, k, b, str(dtype).removeprefix("torch."), c, kernel or plan.kernel, error,
        micro["tc"], micro["torch"], micro["mm"], times["tc"].spread, times["torch"].spread, limit * 1e6,
        micro[near[0]] / min(micro[name] for name in near) if regret else None,
    )  # fmt: skip


def host_costs():
    """Microseconds of host time per eager call, under no_grad as inference runs and with grad mode left on."""
    a, b, c = (matrix("row", 64, 64, torch.float16, "cuda") for _ in range(3))
    bias, out = c[0].clone(), torch.empty_like(c)
    calls = {
        "torch.addmm, full C": lambda: torch.addmm(c, a, b),
        "torch.addmm, bias": lambda: torch.addmm(bias, a, b),
        "torch.ops.tc.addmm, full C": lambda: torch.ops.tc.addmm(c, a, b),
        "torch.ops.tc.addmm, bias": lambda: torch.ops.tc.addmm(bias, a, b),
        "torch_addmm_tc.addmm, full C": lambda: tc.addmm(c, a, b),
        "torch.ops.tc.addmm_out, full C": lambda: torch.ops.tc.addmm_out(c, a, b, out=out),
    }
    costs = {}
    for name, call in calls.items():
        with torch.no_grad():
            costs[name] = timing.host_seconds(call, cuda=True) * 1e6
        costs[name + ", grad mode on"] = timing.host_seconds(call, cuda=True) * 1e6
    return costs


def geometric_mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def table(result, rows):
    """The rows as a markdown table, under a heading that says where they were measured."""
    lines = [f"{name}: {value}  " for name, value in result["record"].items()]
    lines += [
        "ceilings of this run: "
        + ", ".join(f"{name} {v / 1e12:.0f} TFLOP/s" for name, v in result["ceilings"].items() if name != "bytes")
        + f", copy {result['ceilings']['bytes'] / 1e12:.2f} TB/s",
        "",
        "Host microseconds per eager call: " + "; ".join(f"{k} {v:.1f}" for k, v in result["host"].items()),
        "",
        "| M, N, K | B | dtype | C | kernel | error/bound | us | TFLOP/s | vs torch | torch.addmm us | mm us | of limit "
        "| regret |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r.m}, {r.n}, {r.k} | {r.b} | {r.dtype} | {r.c} | {r.kernel} | {r.error:.2f} | {r.tc:.1f} ±{r.tc_spread:.0%} "
            f"| {r.tflops:.0f} | {r.ratio:.2f}x | {r.torch_addmm:.1f} ±{r.torch_addmm_spread:.0%} | {r.mm:.1f} "
            f"| {r.limit / r.tc:.0%} | {'' if r.regret is None else f'{r.regret:.2f}'} |"
        )
    for c in dict.fromkeys(r.c for r in rows):
        lines.append(f"\ngeometric mean vs torch.addmm, {c}: {geometric_mean(r.ratio for r in rows if r.c == c):.2f}x")
    regrets = [r.regret for r in rows if r.regret is not None]
    if regrets:
        lines.append(f"\ngeometric mean of the planner's regret: {geometric_mean(regrets):.3f}; worst {max(regrets):.2f}")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it as .md")
    parser.add_argument("--kernel", help="force a kernel, or NAME/INDEX for one of its instances")
    parser.add_argument("--only", default="", help="only problems whose description contains this, e.g. '4096,4096,4096,row'")
    parser.add_argument("--seconds", type=float, default=0.01, help="for each contender in each round")
    parser.add_argument("--regret", action="store_true", help="time the planner's other candidates too")
    options = parser.parse_args()
    result = {"record": record(), "ceilings": ceilings(), "host": host_costs()}
    chosen = [p for p in problems() if options.only in ",".join(map(str, p)).replace("torch.", "")]
    with torch.inference_mode():
        rows = [
            measure(*problem, kernel=options.kernel, peaks=result["ceilings"], seconds=options.seconds, regret=options.regret)
            for problem in track(chosen, "sweep")
        ]
    result["rows"] = [row.figures() for row in rows]
    text = table(result, rows)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(text)
    wrong = [row for row in rows if not row.error <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} rows are outside their error bound")


if __name__ == "__main__":
    main()
