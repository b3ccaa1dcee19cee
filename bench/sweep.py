"""The sweep: torch.ops.tc.addmm compared with torch.addmm and torch.mm over the shapes that models run.

    python -m bench.sweep [--json FILE] [--kernel NAME] [--only TEXT] [--seconds S] [--regret] [--cublaslt]

Each shape runs in fp16 and in bf16, with a row-major B and with a weight-major B (the transpose of a row-major (N, K) weight),
and in three forms: a full C in the operands' dtype, a full C and D in fp32, and a 1-D bias. Some shapes also run in fp32, with
and without TF32.

The command prints a table. --json writes the figures to FILE and the table to the .md file beside it; bench/report.py makes
further tables and pictures from FILE. --regret also times the configurations with the shortest predicted times. The regret is
the time of the planner's pick over the time of the fastest of them. --cublaslt also times the algorithms that cuBLASLt's
heuristics offer, and keeps the fastest.
"""

import argparse
import dataclasses
import json
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.ceilings import ceilings
from bench.cublaslt import CublasLt
from bench.report import Problem, Row, table
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import reference

# M, N, K
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
REGRET_CONFIGS = 6  # configurations that --regret times


def problems():
    """Yield the sweep's problems."""
    for c in ("full", "full fp32", "bias"):
        for dtype in ("float16", "bfloat16"):
            for b in ("row", "col"):
                for m, n, k in SHAPES:
                    yield Problem(m, n, k, b, dtype, c)
    for dtype in ("float32", "tf32"):
        for c in ("full", "bias"):
            for m, n, k in FP32_SHAPES:
                yield Problem(m, n, k, "row", dtype, c)


def containing(text: str, problems) -> list:
    """Return the problems whose fields, joined by commas, contain `text`."""
    return [p for p in problems if text in ",".join(map(str, dataclasses.astuple(p)))]


def run_by_name(args, name, *, out_dtype, tf32, **scalars) -> torch.Tensor:
    """Run a kernel by name on args = (C, A, B).

    Args:
        name: a kernel's name, or "NAME/INDEX" for one of its configurations.
        out_dtype: the result's dtype.
        tf32: whether float32 operands may be rounded to TF32.
        scalars: beta and alpha.
    """
    _, a, b = args
    out = torch.empty(a.shape[0], b.shape[1], dtype=out_dtype, device=a.device)
    torch.ops.tc.addmm_out(*args, **scalars, precision="tf32" if tf32 else "ieee", kernel_name=name, out=out)
    return out


def shortest_predicted(plan) -> list[str]:
    """Return the names of the REGRET_CONFIGS candidates with the shortest predicted times. The planner's pick comes first."""
    by_prediction = sorted((x for x in plan.candidates if not x.reason), key=lambda x: x.microseconds)
    return [x.name for x in by_prediction[:REGRET_CONFIGS]]


def measure(problem, *, kernel, peaks, seconds, regret=False, cublaslt=None) -> Row:
    """Check and time one problem.

    Args:
        problem: a Problem.
        kernel: "NAME" or "NAME/INDEX" of the kernel to run, or None for the planner's pick.
        peaks: what bench.ceilings.ceilings() returned.
        seconds: how long each contender runs in each round.
        regret: whether to time the REGRET_CONFIGS configurations with the shortest predicted times.
        cublaslt: a CublasLt, or None to leave cuBLASLt out.

    Raises:
        SystemExit: if cuBLASLt's result is outside the error bound.
    """
    m, n, k, b, c = *problem.shape, problem.b, problem.c
    tf32 = problem.dtype == "tf32"
    dtype = torch.float32 if tf32 else getattr(torch, problem.dtype)
    out_dtype = torch.float32 if c == "full fp32" else dtype
    sets = []
    for _ in range(sets_to_rotate(problem.bytes)):
        self = matrix("row", 1, n, out_dtype, "cuda")[0] if c == "bias" else matrix("row", m, n, out_dtype, "cuda")
        sets.append((self, matrix("row", m, k, dtype, "cuda"), matrix(b, k, n, dtype, "cuda")))
    scalars = {} if c == "bias" else {"beta": BETA, "alpha": ALPHA}
    fp32_out = {"out_dtype": out_dtype} if out_dtype != dtype else {}
    torch.set_float32_matmul_precision("high" if tf32 else "highest")

    def by_name(args, name):
        return run_by_name(args, name, out_dtype=out_dtype, tf32=tf32, **scalars)

    def ours(args):
        return by_name(args, kernel) if kernel else tc.addmm(*args, **scalars, **fp32_out)

    expected = reference(*sets[0], **scalars, **fp32_out, tf32=tf32)
    error = expected.error(ours(sets[0]))
    contenders = {
        "tc": [lambda args=args: ours(args) for args in sets],
        "torch": [lambda args=args: torch.addmm(*args, **scalars, **fp32_out) for args in sets],
        "mm": [lambda args=args: torch.mm(args[1], args[2], **fp32_out) for args in sets],
    }
    plan = tc.plan(*sets[0], **scalars, **fp32_out)
    regret_configs = shortest_predicted(plan)
    if regret:
        contenders |= {name: [lambda args=args, name=name: by_name(args, name) for args in sets] for name in regret_configs}
    if cublaslt and problem.dtype != "float32":
        calls = cublaslt.fastest(sets, **scalars, out_dtype=out_dtype, tf32=tf32)
        if calls:
            # The bound for TF32 is for rounded operands. cuBLASLt truncates them, so that only 16-bit results are checked.
            if problem.is_16_bit and not expected.error(calls[0]()) <= 1:
                raise SystemExit(f"cuBLASLt's result is outside its error bound at {problem}")
            contenders["cublaslt"] = calls
    times = timing.interleaved(contenders, cuda=True, rounds=7, seconds=seconds)
    micro = {name: time.median * 1e6 for name, time in times.items()}
    return Row(
        *dataclasses.astuple(problem), kernel or plan.kernel, error,
        micro["tc"], micro["torch"], micro["mm"], times["tc"].spread, times["torch"].spread,
        problem.limit(peaks),
        micro[regret_configs[0]] / min(micro[name] for name in regret_configs) if regret else None, micro.get("cublaslt"),
    )  # fmt: skip


def host_costs():
    """Return {call: microseconds of host time per eager call}, under no_grad and with grad mode on."""
    a, b, c = (matrix("row", 64, 64, torch.float16, "cuda") for _ in range(3))
    bias, out = c[0].clone(), torch.empty_like(c)
    calls = {
        "torch.addmm, full C": lambda: torch.addmm(c, a, b),
        "torch.addmm, bias": lambda: torch.addmm(bias, a, b),
        "torch.ops.tc.addmm, full C": lambda: torch.ops.tc.addmm(c, a, b),
        "torch.ops.tc.addmm, bias": lambda: torch.ops.tc.addmm(bias, a, b),
        "torch.ops.tc.addmm, bias, batch_invariant": lambda: torch.ops.tc.addmm(bias, a, b, batch_invariant=True),
        "torch_addmm_tc.addmm, full C": lambda: tc.addmm(c, a, b),
        "torch_addmm_tc.addmm, bias": lambda: tc.addmm(bias, a, b),
        "torch.ops.tc.addmm_out, full C": lambda: torch.ops.tc.addmm_out(c, a, b, out=out),
    }
    with torch.no_grad():
        costs = timing.host_seconds(calls, cuda=True)
    costs |= {f"{name}, grad mode on": seconds for name, seconds in timing.host_seconds(calls, cuda=True).items()}
    return {name: seconds * 1e6 for name, seconds in costs.items()}


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.sweep", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file and the table to the .md file beside it")
    parser.add_argument("--kernel", help="run this kernel, or NAME/INDEX for one of its configurations")
    parser.add_argument(
        "--only", default="", help="run only problems whose M,N,K,B,dtype,C contains this, such as '4096,4096,4096,row'"
    )
    parser.add_argument("--seconds", type=float, default=0.01, help="seconds that each contender runs in each round")
    parser.add_argument("--regret", action="store_true", help="also time the planner's next best configurations")
    parser.add_argument("--cublaslt", action="store_true", help="also time cuBLASLt (compiles bench/cublaslt.cu)")
    options = parser.parse_args()
    result = {"record": record(), "ceilings": ceilings(), "host": host_costs()}
    chosen = containing(options.only, problems())
    maths = {kernel["name"]: kernel["maths"] for kernel in tc.kernels()}
    if options.kernel and options.kernel.split("/")[0] in maths:
        chosen = [p for p in chosen if p.dtype in maths[options.kernel.split("/")[0]]]
    cublaslt = CublasLt() if options.cublaslt else None
    rows = []
    with torch.inference_mode():
        for problem in track(chosen, "sweep"):
            peaks, seconds = result["ceilings"], options.seconds
            rows.append(
                measure(problem, kernel=options.kernel, peaks=peaks, seconds=seconds, regret=options.regret, cublaslt=cublaslt)
            )
            result["rows"] = [row.figures() for row in rows]
            if options.json:  # writing after each row keeps the rows of a run that is cut short
                options.json.write_text(json.dumps(result, indent=1) + "\n")
    text = table(result)
    print(text)
    if options.json:
        options.json.with_suffix(".md").write_text(text)
    wrong = [row for row in rows if not row.error <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(rows)} rows have a result outside its error bound")


if __name__ == "__main__":
    main()
