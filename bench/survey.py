"""The survey: torch.ops.tc.addmm compared with torch.addmm on problems drawn from a seed, on which nothing was tuned.

    python -m bench.survey [--seed S] [--count N] [--json FILE] [--gpu-busy] [--only TEXT] [--float32] [--cublaslt] [--regret]
                           [--batch-invariant]

bench/shapes.py draws the problems. A problem without a C is compared with torch.mm, which F.linear calls without a bias.

The command prints tables. --json writes the figures to FILE and the tables to the .md file beside it. --gpu-busy leaves out the
rests between contenders, as on a loaded server, and takes less time. --float32 runs the 16-bit problems, except the largest, in
float32 without TF32. --cublaslt and --regret are those of bench.sweep. --batch-invariant times the op with batch_invariant=True
beside the op without it and a persistent Triton kernel (bench/persistent.py). It also compares the bits of each problem's rows
in batches of other sizes. torch.addmm is not batch-invariant.
Without a GPU, the command runs the smallest problems on the CPU, so that it can be tried anywhere.
"""

import argparse
import dataclasses
import json
import math
import random
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.ceilings import ceilings
from bench.cublaslt import CublasLt
from bench.report import SLOWER, Row, closing, geometric_mean, heading
from bench.shapes import GROUPS, MAX_M, TF32, SurveyProblem, draw, in_float32
from bench.sweep import containing, run_by_name, shortest_predicted
from bench.timing import record, sets_to_rotate, source_record
from torch_addmm_tc import timing
from torch_addmm_tc.testing.reference import reference
from torch_addmm_tc.tools.check_invariance import bits

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
CPU_FLOPS = 1e8  # the most of a problem that runs on the CPU
ROUNDS = 5
SECONDS_BUSY, SECONDS_RESTED = 0.001, 0.01  # that a contender runs in a round
GRAPH_MICROSECONDS = 1000  # the least that a graph's calls take, so that the graph's own launch hardly counts
LAUNCH_MICROSECONDS = 2  # a kernel's launch, which the tables add to the limit
MAX_SETS = 1024  # of operands. Capturing makes a call for each, and a call costs the host 9 to 18 us (bench.sweep).
# A large result is checked in some rows only, because the float64 reference of all would take longer than the timing. The rows
# take at most so many products and elements, but there are at least MIN_ROWS.
CHECKED_PRODUCTS, CHECKED_ELEMENTS, MIN_ROWS = 2**34, 2**26, 16
# The batches that --batch-invariant compares: of each kind; the least rows of the largest one; the elements of its A or D.
BATCHES, MIN_BATCH, MOST_BATCH_ELEMENTS = 20, 300, 2**28
TRITON_TF32_ERROR = 2.01  # of a result's bound: Triton cuts TF32's operands off, instead of rounding them
WORST = 25  # problems that the second table lists
M_RANGES = ((1, 4), (5, 16), (17, 32), (33, 64), (65, 128), (129, 256), (257, 512), (513, 1024), (1025, MAX_M))
ALIGNMENTS = {"multiples of 128 bytes": (128,), "multiples of 16 bytes": (64, 32, 16), "others": (8, 4, 2)}


@dataclasses.dataclass(frozen=True)
class SurveyRow(Row, SurveyProblem):
    """The figures of one problem, as Row describes them.

    `kernel` describes the planner's pick. `torch_addmm` is torch.mm's time if there is no C. `mm` is None. The others belong to
    --batch-invariant.

    Args:
        default: the op's time without batch_invariant.
        persistent: the Triton kernel's time.
        batches: batches whose rows were compared with those of the largest.
        misses: batches whose bits differ.
    """

    default: float | None = None
    persistent: float | None = None
    batches: int | None = None
    misses: int | None = None


class Pool:
    """Random normal elements of each dtype, of which operands are views.

    Args:
        device: "cuda" or "cpu".
    """

    def __init__(self, device: str):
        self.device, self._elements = device, {}

    def sets(self, problem, dtype, count: int) -> list[tuple]:
        """Return `count` sets of (C or None, A, B). Where the pool ends, sets begin again at its start."""
        spans = [-(-span // 256) * 256 for span in problem.spans]  # torch's allocator aligns to 512 bytes, too
        size = sum(spans)
        l2 = torch.cuda.get_device_properties(self.device).L2_cache_size if self.device == "cuda" else 0
        needed = max(size, 6 * l2 // dtype.itemsize)  # so that the sets in the pool exceed three times the L2
        if dtype not in self._elements or len(self._elements[dtype]) < needed:
            self._elements.pop(dtype, None)
            self._elements[dtype] = torch.randn(needed, dtype=dtype, device=self.device)
        pool, sets = self._elements[dtype], []
        for i in range(count):
            start = i % (len(pool) // size) * size
            operands = [pool.as_strided(*view, start + sum(spans[:j])) for j, view in enumerate(problem.views)]
            sets.append((None, *operands) if problem.c == "none" else tuple(operands))
        return sets


def sampled_error(args, result, *, tf32, **scalars) -> float:
    """Return the largest error of an element, as a fraction of its bound. In a large result, evenly spaced rows are checked.

    Args:
        args: (C or None, A, B).
        result: D.
        tf32: whether float32 operands may be rounded to TF32.
        scalars: beta and alpha.
    """
    c, a, b = args
    (m, k), n = a.shape, b.shape[1]
    count = min(m, max(MIN_ROWS, min(CHECKED_PRODUCTS // (n * k), CHECKED_ELEMENTS // max(n, k))))
    rows = torch.arange(count, device=a.device) * (m - 1) // max(count - 1, 1)  # the first and the last row are among them
    c = a.new_zeros(n) if c is None else c[rows] if c.dim() == 2 else c
    a, result, width = a[rows], result[rows], max(1, 2 * CHECKED_ELEMENTS // k)
    columns = [slice(first, first + width) for first in range(0, n, width)]
    return max(reference(c[..., s], a, b[:, s], tf32=tf32, **scalars).error(result[:, s]) for s in columns)


def compare_batches(problem, b, c, scalars) -> tuple[int, int]:
    """Compare the op's rows in BATCHES batches of the first M rows, and in as many single rows, with those of one large batch.

    Args:
        problem: a SurveyProblem, whose N, K and leading dimension of A count.
        b: B, (K, N).
        c: C that broadcasts, or None. A full C is drawn anew, since the batch is another.
        scalars: beta and alpha.

    Returns:
        How many batches were compared, and how many differ.
    """
    rng, options = random.Random(f"{problem}"), {"batch_invariant": True, **scalars}
    rows = max(MIN_BATCH, min(problem.m, MOST_BATCH_ELEMENTS // max(problem.n, problem.k)))
    a = torch.randn(rows, problem.lda, dtype=b.dtype, device=b.device)[:, : problem.k]
    if problem.c == "full":
        c = torch.randn(rows, problem.n, dtype=b.dtype, device=b.device)
    whole = bits(tc.addmm(c, a, b, **options))
    firsts = [(0, m) for m in sorted(rng.sample(range(1, rows), BATCHES))]
    spans = [*firsts, *((row, row + 1) for row in rng.sample(range(rows), BATCHES))]
    misses = 0
    for begin, end in spans:
        of_c = c[begin:end] if problem.c == "full" else c
        misses += not torch.equal(bits(tc.addmm(of_c, a[begin:end], b, **options)), whole[begin:end])
    return len(spans), misses


def measure(problem, pool, *, peaks, busy, regret=False, cublaslt=None, batch_invariant=False) -> SurveyRow:
    """Check and time one problem.

    Args:
        problem: a SurveyProblem.
        pool: a Pool. The problem runs on its device.
        peaks: what bench.ceilings.ceilings() returned, or {} on the CPU.
        busy: whether contenders run without rests.
        regret: whether to time the candidates with the shortest predicted times.
        cublaslt: a CublasLt, or None to leave cuBLASLt out. It runs 16-bit problems with a full C and without padding.
        batch_invariant: whether the op is batch-invariant, and has the contenders of --batch-invariant.

    Raises:
        SystemExit: if cuBLASLt's result is outside the error bound.
    """
    cuda, tf32, limit = pool.device == "cuda", problem.dtype == "tf32", problem.limit(peaks) if peaks else math.nan
    dtype = torch.float32 if tf32 else getattr(torch, problem.dtype)
    torch.set_float32_matmul_precision("high" if tf32 else "highest")
    sets = pool.sets(problem, dtype, min(MAX_SETS, sets_to_rotate(problem.bytes)) if cuda else 1)
    calls = max(len(sets), math.ceil(GRAPH_MICROSECONDS / (limit + LAUNCH_MICROSECONDS))) if cuda else 1
    scalars = {} if problem.scale == 1 else {"beta": problem.scale, "alpha": problem.scale}

    def contender(function):
        rotated = [lambda args=args: function(args) for args in sets]
        return [rotated[i % len(sets)] for i in range(calls)]

    mode, compared = {"batch_invariant": batch_invariant}, {}
    error = sampled_error(sets[0], tc.addmm(*sets[0], **scalars, **mode), tf32=tf32, **scalars)
    contenders = {
        "tc": contender(lambda args: tc.addmm(*args, **scalars, **mode)),
        "torch": contender(lambda args: torch.mm(*args[1:]) if args[0] is None else torch.addmm(*args, **scalars)),
    }
    if batch_invariant:
        from bench import persistent  # needs Triton

        most = TRITON_TF32_ERROR if tf32 else 1
        if not sampled_error(sets[0], persistent.addmm(*sets[0], **scalars), tf32=tf32, **scalars) <= most:
            raise SystemExit(f"the Triton kernel's result is outside its error bound at {problem}")
        contenders["default"] = contender(lambda args: tc.addmm(*args, **scalars))
        contenders["persistent"] = contender(lambda args: persistent.addmm(*args, **scalars))
        compared = dict(zip(("batches", "misses"), compare_batches(problem, sets[0][2], sets[0][0], scalars)))
    plan = tc.plan(*sets[0], **scalars, **mode)
    names = shortest_predicted(plan) if regret else []
    for name in names:
        contenders[name] = contender(lambda args, name=name: run_by_name(args, name, out_dtype=dtype, tf32=tf32, **scalars))
    if cublaslt and problem.is_16_bit and problem.c == "full" and not problem.padded:
        fastest = cublaslt.fastest(sets, **scalars, out_dtype=dtype)
        if fastest:
            if not sampled_error(sets[0], fastest[0](), tf32=False, **scalars) <= 1:
                raise SystemExit(f"cuBLASLt's result is outside its error bound at {problem}")
            contenders["cublaslt"] = [fastest[i % len(sets)] for i in range(calls)]
    seconds = SECONDS_BUSY if busy else SECONDS_RESTED
    times = timing.interleaved(contenders, cuda=cuda, rounds=ROUNDS, seconds=seconds, rests=not busy)
    micro = {name: time.median * 1e6 for name, time in times.items()}
    return SurveyRow(
        **dataclasses.asdict(problem), error=error, mm=None, limit=limit,
        kernel=" ".join([plan.pick.name, *str(plan.pick).split()[1:]]) if cuda else "aten (CPU)",
        tc=micro["tc"], torch_addmm=micro["torch"], tc_spread=times["tc"].spread, torch_addmm_spread=times["torch"].spread,
        regret=micro[names[0]] / min(micro[name] for name in names) if names else None, cublaslt=micro.get("cublaslt"),
        default=micro.get("default"), persistent=micro.get("persistent"), **compared,
    )  # fmt: skip


# ---- tables ----


def summary(rows) -> dict[str, str]:
    """Return {column: cell} of the first table for some rows."""
    ratios = [r.ratio for r in rows]

    def over_limit(times):
        return f"{geometric_mean(time / (r.limit + LAUNCH_MICROSECONDS) for time, r in zip(times, rows)):.2f}"

    others = {}
    if all(r.default for r in rows):
        others["vs default"] = f"{geometric_mean(r.default / r.tc for r in rows):.2f}x"
        others["vs Triton"] = f"{geometric_mean(r.persistent / r.tc for r in rows):.2f}x"
    return {
        "n": str(len(rows)),
        "vs torch": f"{geometric_mean(ratios):.2f}x",
        **others,
        f"below {SLOWER}x": f"{sum(x < SLOWER for x in ratios)}",
        "below 0.9x": f"{sum(x < 0.9 for x in ratios)}",
        "worst": f"{min(ratios):.2f}x",
        f"time over limit + {LAUNCH_MICROSECONDS} us": over_limit(r.tc for r in rows),
        "torch's": over_limit(r.torch_addmm for r in rows),
    }


def parts(rows):
    """Yield (name, C, rows) for each line of the first table. A part may have no rows."""
    for group in (*GROUPS, TF32):
        for c in ("bias", "full", "none"):
            yield group, c, [r for r in rows if (r.group, r.c) == (group, c)]
    rows = [r for r in rows if r.dtype != "tf32"]
    for name, of_dtype in (
        ("all 16-bit", [r for r in rows if r.is_16_bit]),
        ("all float32", [r for r in rows if not r.is_16_bit]),
    ):
        for c in ("bias", "full", "none"):
            yield name, c, [r for r in of_dtype if r.c == c]
        yield name, "any", of_dtype
    rows = [r for r in rows if r.c == "bias"]
    for name, alignments in ALIGNMENTS.items():
        yield f"leading dimensions {name}", "bias", [r for r in rows if r.alignment in alignments]
    rows = [r for r in rows if r.alignment == 128]
    for low, high in M_RANGES:
        yield f"multiples of 128 bytes, M {low}-{high}", "bias", [r for r in rows if low <= r.m <= high]


def invariance(rows) -> list[str]:
    """Return the line about the comparison of batches, for the rows that have one."""
    rows = [r for r in rows if r.batches is not None]
    if not rows:
        return []
    batches, misses = sum(r.batches for r in rows), sum(r.misses for r in rows)
    return [f"\nbatches of {len(rows)} problems whose rows have other bits than in the largest batch: {misses} of {batches}"]


def table(result: dict) -> str:
    """Return two markdown tables of a survey: its parts, and the problems with the lowest ratios."""
    rows = [SurveyRow.of(figures) for figures in result["rows"]]
    cells = [{"group": name, "C": c} | summary(part) for name, c, part in parts(rows) if part]
    lines = [
        *heading(result),
        "",
        f"Seed {result['seed']}, {len(rows)} of {result['count']} problems, "
        + ("contenders back to back." if result["busy"] else "each contender after a rest."),
        "",
        f"| {' | '.join(cells[0])} |",
        "|---" * len(cells[0]) + "|",
        *(f"| {' | '.join(line.values())} |" for line in cells),
        *closing(rows),
        *invariance(rows),
        "",
        "| vs torch | M, N, K | lda, ldb, ldc if padded | B | C | dtype | layer or group | pick | us | torch us | of limit |",
        "|---" * 11 + "|",
    ]
    for r in sorted(rows, key=lambda r: r.ratio)[:WORST]:
        lines.append(
            f"| {r.ratio:.2f}x | {r.m}, {r.n}, {r.k} | {f'{r.lda}, {r.ldb}, {r.ldc}' if r.padded else ''} | {r.b} | {r.c} "
            f"| {r.dtype} | {r.source or r.group} | {r.kernel} | {r.tc:.1f} ±{r.tc_spread:.0%} "
            f"| {r.torch_addmm:.1f} ±{r.torch_addmm_spread:.0%} | {r.limit / r.tc:.0%} |"
        )
    return "\n".join(lines) + "\n"


def collect(problems, measure_one, result: dict, path, table) -> None:
    """Measure problems one by one, and print the table.

    Args:
        problems: the problems.
        measure_one: problem -> its figures, which are added to result["rows"].
        result: what is known of the run, with an empty list of rows.
        path: the JSON file to write after each row, which keeps the rows of a run that is cut short; or None. The table goes to
            the .md file beside it.
        table: result -> its table.
    """
    with torch.inference_mode():
        for problem in track(problems, "problems"):
            result["rows"].append(measure_one(problem))
            if path:
                path.write_text(json.dumps(result, indent=1) + "\n")
            if DEVICE == "cuda":
                torch.cuda.empty_cache()  # memory of a graph that is gone stays reserved, and other graphs cannot use it
    text = table(result)
    print(text)
    if path:
        path.with_suffix(".md").write_text(text)


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.survey", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="draws the problems")
    parser.add_argument("--count", type=int, default=400, help="problems to draw")
    parser.add_argument("--json", type=Path, help="write the figures to this file and the tables to the .md file beside it")
    parser.add_argument("--gpu-busy", action="store_true", help="run contenders back to back")
    parser.add_argument("--only", default="", help="run only problems whose fields, joined by commas, contain this: 'GPT-2'")
    parser.add_argument("--float32", action="store_true", help="run the 16-bit problems in float32 without TF32")
    parser.add_argument("--cublaslt", action="store_true", help="also time cuBLASLt for a full C (compiles bench/cublaslt.cu)")
    parser.add_argument("--regret", action="store_true", help="also time the planner's next best configurations")
    parser.add_argument("--batch-invariant", action="store_true", help="batch-invariant results, beside those of the default")
    options = parser.parse_args()
    if DEVICE == "cpu" and (options.cublaslt or options.regret or options.batch_invariant):
        parser.error("--cublaslt, --regret and --batch-invariant need a GPU")
    drawn = draw(options.seed, options.count)
    chosen = containing(options.only, in_float32(drawn) if options.float32 else drawn)
    chosen = [p for p in chosen if DEVICE == "cuda" or p.flops <= CPU_FLOPS]
    if not chosen:
        parser.error("no problem is left: draw more with --count, or change --only")
    torch.manual_seed(options.seed)
    facts = {"record": record(), "ceilings": ceilings()} if DEVICE == "cuda" else {"record": source_record(), "ceilings": {}}
    result = facts | {"seed": options.seed, "count": options.count, "busy": options.gpu_busy, "rows": []}
    pool, cublaslt = Pool(DEVICE), CublasLt() if options.cublaslt else None
    how = {"peaks": result["ceilings"], "busy": options.gpu_busy, "regret": options.regret, "cublaslt": cublaslt}
    how["batch_invariant"] = options.batch_invariant
    collect(chosen, lambda problem: measure(problem, pool, **how).figures(), result, options.json, table)
    if any(row["misses"] for row in result["rows"]):
        raise SystemExit("batch-invariant results depend on the batch")
    wrong = [row for row in result["rows"] if not row["error"] <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(chosen)} rows have a result outside its error bound")


if __name__ == "__main__":
    main()
