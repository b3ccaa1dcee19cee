"""Times of every likely candidate on problems drawn from a seed: the data to which the cost model's constants are fitted.

    python -m bench.candidates --json FILE [--seed S] [--count N] [--only TEXT] [--float32] [--within X] [--most N]
                               [--random N] [--kernel NAME] [--batches] [--alone]

For each problem of bench/shapes.py, the command times torch.addmm and the candidates predicted to take at most X times the
shortest time: of each kernel, the N with the shortest predictions. Each runs in every cluster that it can have, with whole
tiles and with the narrower ones that have the shortest prediction, with K whole and in as many slices as the planner would
choose. Each of these ways counts as a candidate. --random adds N of the others at random: a fit to likely candidates alone
does not see what its new constants take beyond them. --float32 is that of bench.survey. --batches takes the problems of
bench.batches instead. The command prints the fastest candidate, the planner's pick and torch of each problem. Contenders run
back to back. --alone times each candidate beside torch only, after a rest, much as bench.survey times the planner's picks.
Among many contenders the GPU runs at the clock that all of them leave it, and those that draw less power gain nothing.
`python -m bench.fit FILE` compares the times with the predictions.
"""

import argparse
import dataclasses
import functools
import itertools
import json
import math
import random
import statistics
import time
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench import batches
from bench.ceilings import ceilings
from bench.shapes import draw, in_float32
from bench.survey import GRAPH_MICROSECONDS, LAUNCH_MICROSECONDS, MAX_SETS, SECONDS_BUSY, Pool, sampled_error
from bench.sweep import containing, run_by_name
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.tools.planning import Plan, cluster_name, problem_key

ROUNDS = 3
ROUNDS_ALONE, REST_SECONDS = 5, 0.05  # of a candidate alone beside torch, and before its turn
SIZES = ("tile_m", "tile_n", "tile_k", "stages", "threads", "blocks_per_sm")  # of a configuration


def shape_text(row: dict) -> str:
    """Return a row's sizes: "MxNxK", or "B x MxNxK" for a batch."""
    return (f"{row['batch']} x " if "batch" in row else "") + f"{row['m']}x{row['n']}x{row['k']}"


def facts(candidate) -> list:
    """Return what a candidate's name stands for. Names are stable only while configurations and the cost model are."""
    return [*(candidate.config[name] for name in SIZES), candidate.repack_a, candidate.repack_b]


def names(problem: str, gpu, within: float, most: int, kernel: str, at_random: int = 0) -> list[str]:
    """Return the exact names of the candidates to time: of `kernel`, or of all kernels if it is empty.

    Args:
        problem: the text that problem_key returned.
        gpu: a Gpu.
        within: the most predicted time of a candidate, over the shortest.
        most: candidates of a kernel.
        at_random: candidates to add at random, from all others within `within`. The same problem gives the same ones.
    """
    plan = Plan.of(problem, gpu)
    traits = {entry["name"]: entry for entry in tc.kernels()}

    def widths(x, cluster):
        narrower = [f"/n{x.config['tile_n'] - columns}" for columns in traits[x.kernel]["narrower"]]
        times = {y: Plan.of(problem, gpu, f"{x.kernel}/{x.index}{cluster}{y}").pick.microseconds for y in narrower}
        return ["", *sorted(times, key=times.get)[:1]]

    runnable = [x for x in plan.candidates if not x.reason and kernel in ("", x.kernel)]
    longest = within * min((x.microseconds for x in runnable), default=0)
    chosen = {}
    for x in runnable:
        if x.microseconds > longest:
            continue
        for shape in traits[x.kernel]["clusters"]:
            cluster = f"/{cluster_name(shape)}" if x.cluster else ""
            splits = traits[x.kernel]["split_k"] and shape[2] == 1
            for width, slices in itertools.product(widths(x, cluster), ("", "/k1") if splits else ("",)):
                mode = Plan.of(problem, gpu, f"{x.kernel}/{x.index}{cluster}{width}{slices}").pick
                if mode and ((not width and not slices) or mode.microseconds <= longest):
                    chosen[mode.exact_name] = mode
    by_time = sorted(chosen, key=lambda name: chosen[name].microseconds)
    kernels = dict.fromkeys(mode.kernel for mode in chosen.values())
    likely = [name for kernel in kernels for name in [name for name in by_time if chosen[name].kernel == kernel][:most]]
    others = [name for name in by_time if name not in set(likely)]
    return likely + random.Random(problem).sample(others, min(at_random, len(others)))


def operation(problem, dtype):
    """Return the functions of (C, A, B) that a problem compares: run(args, name), torch(args), and error(args, result); and the
    scalars of its key."""
    if isinstance(problem, batches.BatchProblem):
        return batches.run_by_name, lambda args: batches.torch_product(*args), batches.sampled_error, {}
    scalars = {} if problem.scale == 1 else {"beta": problem.scale, "alpha": problem.scale}
    tf32 = problem.dtype == "tf32"
    return (
        functools.partial(run_by_name, out_dtype=dtype, tf32=tf32, **scalars),
        lambda args: torch.mm(*args[1:]) if args[0] is None else torch.addmm(*args, **scalars),
        functools.partial(sampled_error, tf32=tf32, **scalars),
        scalars,
    )


def times_alone(contenders: dict, of_torch: list) -> dict[str, float]:
    """Time each contender alone beside torch, after a rest.

    Returns:
        name -> seconds. "torch" is the median of its times. A contender's time is relative to torch's beside it, so that the
        clock favours none.
    """
    order, pairs = list(contenders), {}
    random.Random(0).shuffle(order)
    for name in order:
        time.sleep(REST_SECONDS)
        pairs[name] = timing.interleaved(
            {"torch": of_torch, "": contenders[name]}, cuda=True, rounds=ROUNDS_ALONE, seconds=SECONDS_BUSY, rests=False
        )
    usual = statistics.median(pair["torch"].median for pair in pairs.values())
    return {"torch": usual} | {name: usual * pair[""].median / pair["torch"].median for name, pair in pairs.items()}


def measure(problem, pool, *, peaks, alone, **which) -> dict:
    """Check and time a problem's candidates: each alone beside torch, or all in turn. `which` goes to names().

    Returns:
        The problem's fields, "key" (its text for the planner), "limit", "torch", "pick" (its name), "times" {name:
        microseconds}, "facts" {name: what facts() returned}, and "errors" {name: the largest error of an element, as a
        fraction of its bound}.
    """
    tf32, limit = problem.dtype == "tf32", problem.limit(peaks)
    dtype = torch.float32 if tf32 else getattr(torch, problem.dtype)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    sets = pool.sets(problem, dtype, min(MAX_SETS, sets_to_rotate(problem.bytes)))
    calls = min(MAX_SETS, math.ceil(GRAPH_MICROSECONDS / (limit + LAUNCH_MICROSECONDS)))
    run, of_torch, error, scalars = operation(problem, dtype)
    key, gpu = problem_key(*sets[0], **scalars), tc.Gpu.of(0)
    pick = Plan.of(key, gpu).pick.exact_name

    def contender(function):
        return [lambda args=args: function(args) for args in (sets[i % len(sets)] for i in range(calls))]

    contenders, errors, described = {}, {}, {}
    for name in {pick: None} | dict.fromkeys(names(key, gpu, **which)):
        errors[name] = error(sets[0], run(sets[0], name))
        contenders[name] = contender(lambda args, name=name: run(args, name))
        described[name] = facts(Plan.of(key, gpu, name).pick)
    if alone:
        seconds = times_alone(contenders, contender(of_torch))
    else:
        together = {"torch": contender(of_torch)} | contenders
        times = timing.interleaved(together, cuda=True, rounds=ROUNDS, seconds=SECONDS_BUSY, rests=False)
        seconds = {name: x.median for name, x in times.items()}
    micro = {name: x * 1e6 for name, x in seconds.items()}
    figures = {"key": key, "limit": limit, "torch": micro.pop("torch"), "pick": pick}
    return dataclasses.asdict(problem) | figures | {"times": micro, "facts": described, "errors": errors}


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.candidates", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, required=True, help="write the figures to this file")
    parser.add_argument("--seed", type=int, default=0, help="draws the problems")
    parser.add_argument("--count", type=int, default=100, help="problems to draw")
    parser.add_argument("--only", default="", help="only problems whose fields, joined by commas, contain this")
    parser.add_argument("--float32", action="store_true", help="the 16-bit problems in float32 without TF32")
    parser.add_argument("--batches", action="store_true", help="the problems of bench.batches")
    parser.add_argument("--within", type=float, default=2.0, help="most of the shortest predicted time that is timed")
    parser.add_argument("--most", type=int, default=12, help="candidates of a kernel that are timed")
    parser.add_argument("--random", type=int, default=0, dest="at_random", help="candidates to add at random")
    parser.add_argument("--alone", action="store_true", help="time each candidate alone beside torch, after a rest")
    parser.add_argument("--kernel", default="", help="time this kernel's candidates and the planner's pick only")
    options = parser.parse_args()
    gpu = dataclasses.asdict(tc.Gpu.of(0))
    result = {"record": record(), "gpu": gpu, "ceilings": ceilings(), "seed": options.seed, "rows": []}
    pool = Pool("cuda")
    with torch.inference_mode():
        drawn = (batches.draw if options.batches else draw)(options.seed, options.count)
        for problem in track(containing(options.only, in_float32(drawn) if options.float32 else drawn), "candidates"):
            which = {"within": options.within, "most": options.most, "kernel": options.kernel, "at_random": options.at_random}
            row = measure(problem, pool, peaks=result["ceilings"], alone=options.alone, **which)
            result["rows"].append(row)
            # Writing after each row keeps the rows of a run that is cut short.
            options.json.write_text(json.dumps(result) + "\n")
            times, best = row["times"], min(row["times"], key=row["times"].get)
            print(
                f"{shape_text(row)} {row['b']} {row['c']}: {best} {times[best]:.1f} us, "
                f"pick {row['pick']} {times[row['pick']]:.1f} us, torch {row['torch']:.1f} us, limit {row['limit']:.1f} us"
            )
            torch.cuda.empty_cache()
    wrong = [(shape_text(row), name, e) for row in result["rows"] for name, e in row["errors"].items() if not e <= 1]
    if wrong:
        raise SystemExit(f"results outside their error bound: {wrong}")


if __name__ == "__main__":
    main()
