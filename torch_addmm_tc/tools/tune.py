"""`python -m torch_addmm_tc tune` measures plans on this GPU and writes a table that load_plans reads (plans.py)."""

import argparse
import csv
import importlib
import json
import math
import sys
import tempfile
from functools import partial
from pathlib import Path

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.integrations.enabled import enabled
from torch_addmm_tc.testing.reference import reference
from torch_addmm_tc.timing import Timing, interleaved
from torch_addmm_tc.tools import plans
from torch_addmm_tc.tools.explain import Problem, size
from torch_addmm_tc.tools.planning import Gpu, Plan

CANDIDATES = 6  # timed for each problem, as bench.sweep --regret does
ROUNDS, SECONDS = 7, 0.005  # a pass has ROUNDS, in each of which a contender runs for SECONDS
MAX_SETS = 1024  # of operands: capturing makes a call for each, at 9 to 18 us of the host's time (bench.sweep)
MAX_CHECKED = 8, 64, 1024  # products of a batch, and rows and columns of a result, that are checked
SIZES = {"a": ("m", "k"), "b": ("k", "n"), "c": ("m", "n"), "d": ("m", "n")}  # rows and columns
SOURCES = "At least one of --shapes, --log and --model says what to measure."
ACTIVATIONS = {"none": "none", "relu": "relu", "gated": "gelu"}  # a problem's activation -> the one that is timed

COLUMNS = ("m", "n", "k", "b", "dtype", "c")
CHOICES = {"b": ("col", "row"), "dtype": ("float16", "bfloat16", "float32", "tf32"), "c": ("bias", "full", "fp32", "none")}


# ---- problems ----


def problem_of(given) -> str:
    """Return the problem of a shape: (M, N, K), then optionally B's order, dtype and C, the first of CHOICES each by default.

    Raises:
        ValueError: if the shape is not accepted.
    """
    if not isinstance(given, (list, tuple)) or not 3 <= len(given) <= len(COLUMNS):
        raise ValueError(f"a shape has {', '.join(COLUMNS)}, of which m, n and k must be given, but got {given!r}")
    try:
        m, n, k = (size(str(x).strip()) for x in given[:3])
    except argparse.ArgumentTypeError as error:
        raise ValueError(f"{error} in {given!r}") from None
    chosen = {name: choices[0] for name, choices in CHOICES.items()}
    chosen |= {name: str(x).strip() for name, x in zip(CHOICES, given[3:]) if x is not None and str(x).strip()}
    for name, choices in CHOICES.items():
        if chosen[name] not in choices:
            raise ValueError(f"{name} must be one of {', '.join(choices)}, but got {chosen[name]!r}")
    tf32 = chosen["dtype"] == "tf32"
    dtype = torch.float32 if tf32 else getattr(torch, chosen["dtype"])
    return Problem(m, n, k, dtype, "row", chosen["b"], chosen["c"]).key("tf32" if tf32 else "ieee")


def read_shapes(path) -> list[str]:
    """Return the problems of a file: a JSON list of lists or objects, or CSV with or without a line of names.

    Raises:
        OSError: if the file cannot be read.
        ValueError: if a shape is not accepted.
    """
    text = Path(path).read_text()
    try:
        if text.lstrip().startswith("["):
            rows = [[row.get(x) for x in COLUMNS] if isinstance(row, dict) else row for row in json.loads(text)]
        else:
            rows = [row for row in csv.reader(text.splitlines()) if row]
            rows = rows[1:] if rows and rows[0][0].strip().lower() == "m" else rows
        return [problem_of(row) for row in rows]
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from None


def problems_of_model(name: str) -> list[str]:
    """Return the problems of a model's linear layers, in one run.

    Args:
        name: "MODULE:FUNCTION". The function takes nothing and returns (model, inputs). The inputs are the model's argument, a
            tuple of its arguments or a dict of its keywords.
    """
    module, _, function = name.partition(":")
    model, inputs = getattr(importlib.import_module(module), function)()
    with tempfile.TemporaryDirectory() as folder, torch.inference_mode(), enabled():
        path = Path(folder) / "log"
        plans.log_problems(path)
        try:
            model(**inputs) if isinstance(inputs, dict) else model(*inputs) if isinstance(inputs, tuple) else model(inputs)
        finally:
            plans.log_problems(None)
        return plans.read_log(path)


# ---- measuring ----


def wins(x: Timing, y: Timing) -> bool:
    """Whether x is faster than y by more than the spread of both."""
    return y.median - x.median > x.median * x.spread + y.median * y.spread


def decide(names, measure) -> tuple[str, dict[str, Timing]]:
    """Choose a plan.

    The planner's pick stays unless another candidate wins by more than the spread of both, in two passes. Of several winners
    that tie with the fastest, the first counts.

    Args:
        names: the planner's pick, then the other candidates.
        measure: names -> {name: Timing}, a pass whose operands are its own.

    Returns:
        The name, and the first pass.
    """
    default, times = names[0], measure(names)
    faster = [name for name in names if wins(times[name], times[default])]
    if not faster:
        return default, times
    fastest = min(faster, key=lambda name: times[name].median)
    chosen = next(name for name in faster if not wins(times[fastest], times[name]))
    second = measure([default, chosen])
    return chosen if wins(second[chosen], second[default]) else default, times


def operands(problem: dict, count: int, device="cuda") -> list[dict]:
    """Return `count` sets of random tensors, {"a", "b", "c", "d"}, with a problem's strides and alignments. "c" may be None.

    The tensors are batches, of one product each for a problem without a batch.
    """
    sets = [{} for _ in range(count)]
    for name, (rows, cols) in SIZES.items():
        dtype, row, col, batch, alignment = problem[name]
        dtype, shape, strides = getattr(torch, dtype), (problem["batch"], problem[rows], problem[cols]), (batch, row, col)
        offset = alignment % 16 // dtype.itemsize
        span = offset + 1 + sum((size - 1) * stride for size, stride in zip(shape, strides))
        pitch = -(-span // 256) * 256  # torch's allocator aligns to 512 bytes, too
        pool = torch.randn(count * pitch if alignment else 0, dtype=dtype, device=device)
        for i, tensors in enumerate(sets):
            tensors[name] = pool.as_strided(shape, strides, i * pitch + offset) if alignment else None
    return sets


def options_of(problem: dict) -> dict:
    options = {"precision": problem["precision"], "activation": ACTIVATIONS[problem["activation"]]}
    return options | {"batch_invariant": problem["batch_invariant"]}


def run_plan(problem: dict, tensors: dict, name: str):
    """Run a plan by name. The result is in tensors["d"]."""
    c, a, b, d = (tensors[x] for x in "cabd")
    torch.ops.tc.baddbmm_out(c, a, b, **options_of(problem), kernel_name=name, out=d)


def is_correct(problem: dict, name: str) -> bool:
    """Whether a plan's result is within its error bound, on evenly spaced products, rows and columns."""
    (tensors,) = operands(problem, 1)
    c, a, b, d = (tensors[x] for x in "cabd")
    d.fill_(math.nan)
    run_plan(problem, tensors, name)
    products, rows, cols = (
        torch.arange(min(size, most), device=d.device) * (size - 1) // max(min(size, most) - 1, 1)
        for size, most in zip(d.shape, MAX_CHECKED)
    )

    def checked(x):
        return x[products][:, rows][:, :, cols]

    c = d.new_zeros(()) if c is None else checked(c)
    activation, tf32 = ACTIVATIONS[problem["activation"]], problem["precision"] == "tf32"
    activation = None if activation == "none" else activation
    expected = reference(c, a[products][:, rows], b[products][:, :, cols], activation=activation, out_dtype=d.dtype, tf32=tf32)
    return expected.error(checked(d)) <= 1


def bytes_moved(problem: dict) -> int:
    """The bytes of A, B and D. Products that share a matrix move it once."""
    moved = 0
    for name in "abd":
        dtype, _, _, of_batch, _ = problem[name]
        batch = problem["batch"] if of_batch else 1
        moved += batch * math.prod(problem[x] for x in SIZES[name]) * getattr(torch, dtype).itemsize
    return moved


def measure(problem: dict, names) -> dict[str, Timing]:
    """Time plans on new random operands, which rotate through sets that exceed three times the L2."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    sets = operands(problem, min(MAX_SETS, math.ceil(3 * l2 / bytes_moved(problem)) + 1))
    calls = {name: [partial(run_plan, problem, tensors, name) for tensors in sets] for name in names}
    return interleaved(calls, cuda=True, rounds=ROUNDS, seconds=SECONDS)


def tune(text: str, gpu: Gpu, candidates: int, wrong: set[str]) -> dict | None:
    """Measure a problem, and return its entry of the table.

    Args:
        text: the problem.
        gpu: the GPU.
        candidates: how many candidates to time.
        wrong: gets the problem if a candidate's result is outside its error bound.

    Returns:
        The entry, or None if there is nothing to compute, no kernel for it, or the planner's pick is wrong.
    """
    problem, plan = _C.describe_problem(text), Plan.of(text, gpu)
    if plan.pick is None or not all(problem[size] for size in ("batch", "m", "n", "k")):
        return None
    able = [x for x in plan.candidates[1:] if x.reason is None]
    able.sort(key=lambda x: x.microseconds)
    names = [x.exact_name for x in (plan.pick, *able[: candidates - 1])]
    outside = [name for name in names if not is_correct(problem, name)]
    if outside:
        print(f"{text}: outside the error bound: {', '.join(outside)}; please report it", file=sys.stderr)
        wrong.add(text)
    names = [name for name in names if name not in outside]
    if not names or names[0] != plan.pick.exact_name:
        return None
    chosen, times = decide(names, partial(measure, problem))
    return {
        "plan": chosen,
        "planner": names[0],
        "microseconds": {name: round(time.median * 1e6, 3) for name, time in times.items()},
        "spread": {name: round(time.spread, 4) for name, time in times.items()},
    }


# ---- the command ----


def add_command(commands):
    """Add `tune` to the command line's subparsers."""
    about = "measure plans on this GPU and write a table for torch_addmm_tc.load_plans"
    parser = commands.add_parser("tune", help=about, description="Measure plans on this GPU. " + SOURCES)
    parser.add_argument(
        "--shapes", action="append", default=[], metavar="FILE", help="JSON list or CSV of M, N, K[, B[, dtype[, C]]]"
    )
    parser.add_argument("--log", action="append", default=[], metavar="FILE", help="a log of torch_addmm_tc.log_problems")
    parser.add_argument(
        "--model", action="append", default=[], metavar="MODULE:FUNCTION", help="a function that returns (model, inputs)"
    )
    parser.add_argument(
        "--out",
        default="plans.json",
        help="the table; a table of this GPU and build keeps its other plans (default: %(default)s)",
    )
    parser.add_argument(
        "--candidates", type=int, default=CANDIDATES, help="candidates to time for each problem (default: %(default)s)"
    )
    parser.set_defaults(run=lambda options: run(options, parser))


def with_progress(problems):
    """Yield the problems. A progress bar shows on stderr if rich is installed, else a line for each."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        for i, problem in enumerate(problems):
            print(f"{i + 1}/{len(problems)} {problem}", file=sys.stderr)
            yield problem
        return
    yield from track(problems, "measuring", console=Console(stderr=True), transient=True)


def run(options, parser) -> int:
    """Measure, and write the table after each problem. Return the exit code: 1 if a result was outside its error bound."""
    if not (options.shapes or options.log or options.model):
        parser.error("there is nothing to measure. " + SOURCES)
    if options.candidates < 1:
        parser.error(f"--candidates must be 1 or more, but got {options.candidates}")
    try:
        problems = [x for path in options.shapes for x in read_shapes(path)]
        problems += [x for path in options.log for x in plans.read_log(path)]
    except (OSError, ValueError) as error:
        parser.error(str(error))
    if not (_C.with_cuda and torch.cuda.is_available()):
        parser.error("tune measures a GPU, and needs one that torch finds and a build of torch_addmm_tc with CUDA kernels")
    plans.unload_plans()
    gpu = Gpu.of(torch.cuda.current_device())
    table, out = plans.new_table(gpu.name, gpu.sm, gpu.num_sms), Path(options.out)
    try:
        problems += [x for name in options.model for x in problems_of_model(name)]
        if out.exists():
            old = plans.read_table(out)
            if old | {"plans": {}} == table:
                table["plans"] = old["plans"]
    except (ImportError, AttributeError, OSError, ValueError) as error:
        parser.error(str(error))
    if not problems:
        parser.error("the sources hold no problem to measure")
    changed, measured, wrong = 0, 0, set()
    for problem in with_progress(list(dict.fromkeys(problems))):
        entry = tune(problem, gpu, options.candidates, wrong)
        if entry is None:
            continue
        table["plans"][problem] = entry
        measured, changed = measured + 1, changed + (entry["plan"] != entry["planner"])
        part = out.with_name(out.name + ".part")  # a run that is cut short leaves a whole table
        part.write_text(json.dumps(table, indent=1) + "\n")
        part.replace(out)
    print(f"{measured} problems were measured, and {changed} of their plans are not the planner's. Table: {out}")
    if wrong:
        print(f"{len(wrong)} of {len(set(problems))} problems had results outside the error bound", file=sys.stderr)
    return 1 if wrong else 0
