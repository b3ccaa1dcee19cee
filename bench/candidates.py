"""Times of every likely candidate on problems drawn from a seed: the data to which the cost model's constants are fitted.

    python -m bench.candidates --json FILE [--seed S] [--count N] [--only TEXT] [--within X] [--kernel NAME]

For each problem of bench/shapes.py, the command times torch.addmm and the candidates predicted to take at most X times the
shortest time. Those that run by name only are among them, and each runs in every cluster that it can have. The command prints
the fastest candidate, the planner's pick and torch.addmm of each problem. Contenders run back to back.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.ceilings import ceilings
from bench.shapes import draw
from bench.survey import GRAPH_MICROSECONDS, LAUNCH_MICROSECONDS, MAX_SETS, SECONDS_BUSY, Pool, sampled_error
from bench.sweep import containing, run_by_name
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing

ROUNDS = 3


def names(plan, within: float, kernel: str) -> list[str]:
    """Return the names of the candidates to time: of `kernel`, or of all kernels if it is empty."""
    clusters = {entry["name"]: entry["clusters"] for entry in tc.kernels()}
    runnable = [x for x in plan.candidates if not x.reason and kernel in ("", x.kernel)]
    shortest = min((x.microseconds for x in runnable), default=0)
    chosen = []
    for x in runnable:
        if x.microseconds <= within * shortest:
            fixed = [f"/{m}x{n}" for m, n in clusters[x.kernel]] if x.cluster else [""]
            chosen += [f"{x.kernel}/{x.index}{cluster}" for cluster in fixed]
    return chosen


def measure(problem, pool, *, peaks, within, kernel) -> dict:
    """Check and time a problem's candidates.

    Returns:
        The problem's fields, "limit", "torch", "pick" (its name), "times" and "predicted" {name: microseconds}, and "errors"
        {name: the largest error of an element, as a fraction of its bound}.
    """
    tf32, limit = problem.dtype == "tf32", problem.limit(peaks)
    dtype = torch.float32 if tf32 else getattr(torch, problem.dtype)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    sets = pool.sets(problem, dtype, min(MAX_SETS, sets_to_rotate(problem.bytes)))
    calls = min(MAX_SETS, math.ceil(GRAPH_MICROSECONDS / (limit + LAUNCH_MICROSECONDS)))
    scalars = {} if problem.scale == 1 else {"beta": problem.scale, "alpha": problem.scale}
    plan = tc.plan(*sets[0], **scalars)
    options = {"out_dtype": dtype, "tf32": tf32, **scalars}

    def contender(function):
        return [lambda args=args: function(args) for args in (sets[i % len(sets)] for i in range(calls))]

    contenders = {"torch": contender(lambda args: torch.mm(*args[1:]) if args[0] is None else torch.addmm(*args, **scalars))}
    errors = {}
    for name in {plan.pick.name: None} | dict.fromkeys(names(plan, within, kernel)):
        errors[name] = sampled_error(sets[0], run_by_name(sets[0], name, **options), tf32=tf32, **scalars)
        contenders[name] = contender(lambda args, name=name: run_by_name(args, name, **options))
    times = timing.interleaved(contenders, cuda=True, rounds=ROUNDS, seconds=SECONDS_BUSY, rests=False)
    micro = {name: time.median * 1e6 for name, time in times.items()}
    predicted = {x.name: x.microseconds for x in plan.candidates if not x.reason}
    figures = {"limit": limit, "torch": micro.pop("torch"), "pick": plan.pick.name}
    return dataclasses.asdict(problem) | figures | {"times": micro, "predicted": predicted, "errors": errors}


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, required=True, help="write the figures to this file")
    parser.add_argument("--seed", type=int, default=0, help="draws the problems")
    parser.add_argument("--count", type=int, default=100, help="problems to draw")
    parser.add_argument("--only", default="", help="only problems whose fields, joined by commas, contain this")
    parser.add_argument("--within", type=float, default=2.0, help="most of the shortest predicted time that is timed")
    parser.add_argument("--kernel", default="", help="time this kernel's candidates and the planner's pick only")
    options = parser.parse_args()
    result = {"record": record(), "ceilings": ceilings(), "seed": options.seed, "rows": []}
    pool = Pool("cuda")
    with torch.inference_mode():
        for problem in track(containing(options.only, draw(options.seed, options.count)), "candidates"):
            row = measure(problem, pool, peaks=result["ceilings"], within=options.within, kernel=options.kernel)
            result["rows"].append(row)
            options.json.write_text(
                json.dumps(result) + "\n"
            )  # writing after each row keeps the rows of a run that is cut short
            times, best = row["times"], min(row["times"], key=row["times"].get)
            print(
                f"{row['m']}x{row['n']}x{row['k']} {row['b']} {row['c']}: {best} {times[best]:.1f} us, "
                f"pick {row['pick']} {times[row['pick']]:.1f} us, torch {row['torch']:.1f} us, limit {row['limit']:.1f} us"
            )
            torch.cuda.empty_cache()
    wrong = [
        (row["m"], row["n"], row["k"], name, e) for row in result["rows"] for name, e in row["errors"].items() if not e <= 1
    ]
    if wrong:
        raise SystemExit(f"results outside their error bound: {wrong}")


if __name__ == "__main__":
    main()
