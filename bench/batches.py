"""Batches of products: torch_addmm_tc.bmm and baddbmm compared with torch.bmm and torch.baddbmm.

    python -m bench.batches [--seed S] [--count N] [--cases] [--json FILE] [--gpu-busy] [--only TEXT]

draw() takes problems from a seed: products of attention over a prompt and in decoding, experts, and log-uniform sizes. --cases
runs CASES instead, which users have reported against torch. --json and --gpu-busy are those of bench.survey.
Without a GPU, the command runs the smallest problems on the CPU, so that it can be tried anywhere.
"""

import argparse
import dataclasses
import math
import random
from pathlib import Path

import torch

import torch_addmm_tc as tc
from bench.ceilings import ceilings
from bench.report import SLOWER, geometric_mean, heading
from bench.survey import (
    CPU_FLOPS,
    DEVICE,
    GRAPH_MICROSECONDS,
    LAUNCH_MICROSECONDS,
    MAX_SETS,
    ROUNDS,
    SECONDS_BUSY,
    SECONDS_RESTED,
    WORST,
    Pool,
    collect,
)
from bench.sweep import containing
from bench.timing import record, sets_to_rotate, source_record
from torch_addmm_tc import timing
from torch_addmm_tc.testing.reference import reference

MOST_FLOPS, MOST_BYTES = 2e12, 8e9
CHECKED = (4, 64)  # products, and rows of each, that are checked
MOST_HEADS = 64  # of one prompt. torch.matmul copies the heads of several prompts, which have no common stride.
GROUPS = ("attention, prompt", "attention, decoding", "experts", "log-uniform, multiples of 8", "log-uniform, any")


@dataclasses.dataclass(frozen=True)
class BatchProblem:
    """A batch of products.

    Args:
        group: a name in GROUPS, or where the problem comes from.
        batch, m, n, k: its sizes.
        b: "row" or "col", the order of each B. A is row-major.
        heads: whether A and B lie as heads of attention do: each row of a matrix follows the same row of the matrix before.
        c: "none", "bias" (B, 1, N) or "full".
        dtype: "float16" or "bfloat16".
    """

    group: str
    batch: int
    m: int
    n: int
    k: int
    b: str = "row"
    heads: bool = False
    c: str = "none"
    dtype: str = "float16"

    @classmethod
    def of(cls, row: dict) -> "BatchProblem":
        """Return the problem of a row that dataclasses.asdict() made. Other entries are ignored."""
        return cls(**{field.name: row[field.name] for field in dataclasses.fields(cls)})

    @property
    def views(self) -> list[tuple]:
        """(shape, strides) of C, if there is one, of A and of B."""

        def view(rows, cols, swapped=False):
            if swapped:
                (batch, *shape), (of_batch, *strides) = view(cols, rows)
                return (batch, *shape[::-1]), (of_batch, *strides[::-1])
            return (self.batch, rows, cols), (cols, self.batch * cols, 1) if self.heads else (rows * cols, cols, 1)

        operands = [view(self.m, self.k), view(self.k, self.n, swapped=self.b == "col")]
        rows = {"none": 0, "bias": 1, "full": self.m}[self.c]
        return ([((self.batch, rows, self.n), (rows * self.n, self.n, 1))] if rows else []) + operands

    @property
    def spans(self) -> list[int]:
        return [math.prod(shape) for shape, _ in self.views]

    @property
    def bytes(self) -> int:
        return 2 * (sum(self.spans) + self.batch * self.m * self.n)

    @property
    def flops(self) -> float:
        return 2.0 * self.batch * self.m * self.n * self.k

    def limit(self, peaks) -> float:
        """Microseconds at the ceilings of a run."""
        return max(self.flops / peaks[self.dtype], self.bytes / peaks["bytes"]) * 1e6


def _with_types(groups_of):
    return [BatchProblem(*sizes, dtype=dtype, **more) for *sizes, more in groups_of for dtype in ("float16", "bfloat16")]


CASES = _with_types(
    [
        ("384 x 1024x1024x140", 384, 1024, 1024, 140, {}),
        *((f"{batch} of a large product", batch, 8192, 8192, 4096, {}) for batch in (1, 2, 4)),
        ("8209 outer products", 8209, 512, 512, 1, {}),
        ("scores of 16x12 heads", 192, 1024, 1024, 64, {"b": "col"}),
        ("values of 16x12 heads", 192, 1024, 64, 1024, {}),
        ("64 experts", 64, 128, 1408, 2048, {}),
        ("64 experts, weight-major", 64, 128, 1408, 2048, {"b": "col"}),
    ]
)


def draw(seed: int, count: int) -> list[BatchProblem]:
    """Draw problems. The first problems of a longer draw are those of a shorter one."""
    rng = random.Random(f"batches {seed}")

    def size(low, high, unit=1):
        return max(unit, int(math.exp(rng.uniform(math.log(low), math.log(high + 1)))) // unit * unit)

    def one():
        group = rng.choices(GROUPS, (3, 2, 2, 2, 1))[0]
        options = {
            "dtype": rng.choice(("float16", "bfloat16")),
            "c": rng.choices(("none", "bias", "full"), (0.6, 0.15, 0.25))[0],
        }
        if group.startswith("attention"):
            batch, depth = size(1, 32) * rng.choice((4, 8, 12, 16, 25, 32, 40)), rng.choice((32, 64, 72, 80, 96, 128, 256))
            keys = size(16, 4096)
            rows = keys if group.endswith("prompt") else size(1, 16)
            options["heads"] = batch <= MOST_HEADS and rng.random() < 0.5
            if rng.random() < 0.5:
                return BatchProblem(group, batch, rows, keys, depth, b="col", **options)
            return BatchProblem(group, batch, rows, depth, keys, **options | {"heads": False})
        if group == "experts":
            hidden, wide = rng.choice(((2048, 1408), (4096, 14336), (2048, 768), (7168, 2048), (5120, 1536), (1024, 512)))
            n, k = (hidden, wide) if rng.random() < 0.5 else (wide, hidden)
            return BatchProblem(
                group, rng.choice((4, 8, 16, 32, 64, 128)), size(1, 512), n, k, rng.choice(("row", "col")), **options
            )
        unit = 8 if group.endswith("8") else 1
        sizes = size(2, 512), size(1, 2048, unit), size(1, 2048, unit), size(1, 2048, unit)
        return BatchProblem(group, *sizes, rng.choice(("row", "col")), **options)

    problems = []
    while len(problems) < count:
        problem = one()
        if problem.flops <= MOST_FLOPS and problem.bytes <= MOST_BYTES and problem not in problems:
            problems.append(problem)
    return problems


def torch_product(c, a, b) -> torch.Tensor:
    """Run torch.baddbmm, or torch.bmm without a C."""
    return torch.bmm(a, b) if c is None else torch.baddbmm(c, a, b)


def run_by_name(args, name) -> torch.Tensor:
    """Run a kernel by name on args = (C, A, B). bench.sweep says what a name is."""
    _, a, b = args
    out = torch.empty(len(a), a.shape[1], b.shape[2], dtype=a.dtype, device=a.device)
    torch.ops.tc.baddbmm_out(*args, kernel_name=name, out=out)
    return out


def sampled_error(args, result) -> float:
    """Return the largest error of an element as a fraction of its bound, in evenly spaced products and rows."""
    c, a, b = args
    products, rows = (
        torch.arange(min(size, most), device=a.device) * (size - 1) // max(min(size, most) - 1, 1)
        for size, most in zip(result.shape, CHECKED)
    )
    c = a.new_zeros(()) if c is None else c[products] if c.shape[1] == 1 else c[products][:, rows]
    return reference(c, a[products][:, rows], b[products]).error(result[products][:, rows])


def measure(problem, pool, *, peaks, busy) -> dict:
    """Check and time one problem, as bench.survey does. The times are microseconds."""
    cuda, limit = pool.device == "cuda", problem.limit(peaks) if peaks else math.nan
    sets = pool.sets(problem, getattr(torch, problem.dtype), min(MAX_SETS, sets_to_rotate(problem.bytes)) if cuda else 1)
    calls = max(len(sets), math.ceil(GRAPH_MICROSECONDS / (limit + LAUNCH_MICROSECONDS))) if cuda else 1

    def contender(function):
        rotated = [lambda args=args: function(*args) for args in sets]
        return [rotated[i % len(sets)] for i in range(calls)]

    error = sampled_error(sets[0], tc.baddbmm(*sets[0]))
    times = timing.interleaved(
        {"tc": contender(tc.baddbmm), "torch": contender(torch_product)},
        cuda=cuda, rounds=ROUNDS, seconds=SECONDS_BUSY if busy else SECONDS_RESTED, rests=not busy,
    )  # fmt: skip
    plan = tc.plan(*sets[0])
    return dataclasses.asdict(problem) | {
        "error": error, "limit": limit, "tc": times["tc"].median * 1e6, "torch": times["torch"].median * 1e6,
        "tc_spread": times["tc"].spread, "torch_spread": times["torch"].spread,
        "kernel": " ".join([plan.pick.name, *str(plan.pick).split()[1:]]) if cuda else "aten (CPU)",
    }  # fmt: skip


# ---- tables ----


def table(result: dict) -> str:
    """Return two markdown tables: by group, and the problems with the lowest ratios."""
    rows = [row | {"ratio": row["torch"] / row["tc"]} for row in result["rows"]]
    groups = {row["group"]: None for row in rows}
    parts = {name: [row for row in rows if row["group"] == name] for name in groups}
    parts |= {f"C: {c}": [row for row in rows if row["c"] == c] for c in ("none", "bias", "full")}
    lines = [
        *heading(result),
        "",
        f"{len(rows)} problems"
        + (f" of seed {result['seed']}" if result["seed"] is not None else "")
        + (", contenders back to back." if result["busy"] else ", each contender after a rest."),
        "",
        f"| group | n | vs torch | below {SLOWER}x | worst | time over limit + {LAUNCH_MICROSECONDS} us | torch's |",
        "|---" * 7 + "|",
    ]
    for name, part in (parts | {"all": rows}).items():
        if not part:
            continue
        slow = sum(row["ratio"] < SLOWER for row in part)
        over = [geometric_mean(row[who] / (row["limit"] + LAUNCH_MICROSECONDS) for row in part) for who in ("tc", "torch")]
        lines.append(
            f"| {name} | {len(part)} | {geometric_mean(row['ratio'] for row in part):.2f}x | {slow} "
            f"| {min(row['ratio'] for row in part):.2f}x | {over[0]:.2f} | {over[1]:.2f} |"
        )
    lines += [
        "",
        "| vs torch | B x M, N, K | B, heads | C | dtype | group | pick | us | torch us | of limit |",
        "|---" * 10 + "|",
    ]
    for row in sorted(rows, key=lambda row: row["ratio"])[:WORST]:
        lines.append(
            "| {ratio:.2f}x | {batch} x {m}, {n}, {k} | {b}{0} | {c} | {dtype} | {group} | {kernel} | {tc:.1f} ±{tc_spread:.0%}"
            " | {torch:.1f} ±{torch_spread:.0%} | {1:.0%} |".format(
                ", heads" if row["heads"] else "", row["limit"] / row["tc"], **row
            )
        )
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.batches", description=__doc__.split("\n")[0])
    parser.add_argument("--seed", type=int, default=0, help="draws the problems")
    parser.add_argument("--count", type=int, default=150, help="problems to draw")
    parser.add_argument("--cases", action="store_true", help="run the problems that users have reported instead")
    parser.add_argument("--json", type=Path, help="write the figures to this file and the tables to the .md file beside it")
    parser.add_argument("--gpu-busy", action="store_true", help="run contenders back to back")
    parser.add_argument("--only", default="", help="run only problems whose fields, joined by commas, contain this: 'experts'")
    options = parser.parse_args()
    chosen = containing(options.only, CASES if options.cases else draw(options.seed, options.count))
    chosen = [p for p in chosen if DEVICE == "cuda" or p.flops <= CPU_FLOPS]
    if not chosen:
        parser.error("no problem is left: draw more with --count, or change --only")
    torch.manual_seed(options.seed)
    facts = {"record": record(), "ceilings": ceilings()} if DEVICE == "cuda" else {"record": source_record(), "ceilings": {}}
    result = facts | {"seed": None if options.cases else options.seed, "busy": options.gpu_busy, "rows": []}
    pool = Pool(DEVICE)
    how = {"peaks": result["ceilings"], "busy": options.gpu_busy}
    collect(chosen, lambda problem: measure(problem, pool, **how), result, options.json, table)
    wrong = [row for row in result["rows"] if not row["error"] <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(chosen)} rows have a result outside its error bound")


if __name__ == "__main__":
    main()
