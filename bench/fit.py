"""The cost model's predictions beside the times of bench.candidates. It needs no GPU: the planner is a function of the problem
and the GPU's facts, which the file holds.

    python -m bench.fit FILE [FILE ...] [--worst N]

After a change of a constant in csrc/gemm/cost_*.cpp or of a configuration's rate, build and run the command again. It
prints

- for each configuration, how many times as long as predicted its runs took: the median, and the range of the middle 80 %.
  A median away from 1 points to a wrong rate or epilogue, a wide range to a wrong form of the model;
- what picks among the timed candidates cost over the fastest of them (regret), and the speed relative to torch;
- the N problems where the picks lose most.
"""

import argparse
import dataclasses
import functools
import json
import statistics
from pathlib import Path

import torch_addmm_tc as tc
from bench.batches import BatchProblem
from bench.candidates import SIZES, facts, shape_text
from bench.report import SLOWER, geometric_mean
from bench.shapes import SurveyProblem
from torch_addmm_tc.tools.planning import Gpu, Plan


@functools.cache
def sizes_of(kernel: str) -> list[list]:
    """Return the sizes of each of a kernel's configurations, as facts() begins with them."""
    return next(([[y[name] for name in SIZES] for y in x["configs"]] for x in tc.kernels() if x["name"] == kernel), [])


def moved(rows) -> dict[str, str]:
    """Return {"KERNEL/INDEX" of a file: of this build}, for configurations with the same sizes.

    Where several have the same sizes, as pingpong and cooperative warpgroups do, they are told apart by their order. Those of
    which the file and the build have different numbers are left out.

    Args:
        rows: the rows of bench.candidates' file.
    """
    found = {}
    for kernel, index, sizes in {(*n.split("/")[:2], tuple(f[: len(SIZES)])) for row in rows for n, f in row["facts"].items()}:
        found.setdefault((kernel, sizes), []).append(int(index))
    names = {}
    for (kernel, sizes), indices in found.items():
        today = [i for i, x in enumerate(sizes_of(kernel)) if tuple(x) == sizes]
        if len(today) == len(indices):
            names |= {f"{kernel}/{old}": f"{kernel}/{new}" for old, new in zip(sorted(indices), today)}
    return names


@dataclasses.dataclass(frozen=True)
class Timed:
    """A problem's candidates that were timed and that this build has too.

    Args:
        problem: the SurveyProblem or BatchProblem.
        key: the problem's text for the planner.
        gpu: the Gpu.
        torch_addmm: torch.addmm's time in microseconds.
        candidates: (Candidate with this build's prediction, measured microseconds) pairs.
        unknown: names that this build does not have, or for which it would run something else.
        pick_is_timed: whether the planner's pick in this build is among the candidates.
    """

    problem: SurveyProblem | BatchProblem
    key: str
    gpu: Gpu
    torch_addmm: float
    candidates: tuple
    unknown: tuple[str, ...]
    pick_is_timed: bool

    @classmethod
    def of(cls, row: dict, gpu: Gpu, names: dict) -> "Timed":
        """Predict a row of bench.candidates' file anew. `names` is what moved() returned."""
        found, unknown, pick = [], [], Plan.of(row["key"], gpu).pick
        for name, time in row["times"].items():
            kernel, index, *modes = name.split("/")
            try:
                candidate = Plan.of(row["key"], gpu, "/".join([names[f"{kernel}/{index}"], *modes])).pick
            except (KeyError, ValueError):  # this build has no such configuration, or no such modes
                candidate = None
            if candidate and facts(candidate) == row["facts"].get(name):
                found.append((candidate, time))
            else:
                unknown.append(name)
        pick_is_timed = pick.exact_name in (x.exact_name for x, _ in found)
        problem = (BatchProblem if "batch" in row else SurveyProblem).of(row)
        return cls(problem, row["key"], gpu, row["torch"], tuple(found), tuple(unknown), pick_is_timed)

    @property
    def pick(self):
        """The (candidate, measured time) with the shortest prediction."""
        return min(self.candidates, key=lambda x: x[0].microseconds)

    @property
    def fastest(self):
        """The (candidate, measured time) with the shortest time."""
        return min(self.candidates, key=lambda x: x[1])


def load(file: Path) -> list[Timed]:
    """Return the problems of bench.candidates' file for which at least one candidate is left."""
    result = json.loads(file.read_text())
    names = moved(result["rows"])
    rows = [Timed.of(row, Gpu(**result["gpu"]), names) for row in result["rows"]]
    return [row for row in rows if row.candidates]


def configurations(rows) -> list[str]:
    """Return a table's lines: each configuration's measured time over its predicted time."""
    ratios, wins = {}, {}
    for row in rows:
        fastest = row.fastest[0]
        for x, time in row.candidates:
            key = (x.kernel, x.index, "x".join(str(x.config[f"tile_{s}"]) for s in "mnk"))
            ratios.setdefault(key, []).append(time / x.microseconds)
            wins[key] = wins.get(key, 0) + (x is fastest)
    lines = ["| configuration | tile | times | fastest | measured / predicted | middle 80 % |", "|---|---|---|---|---|---|"]
    for (kernel, index, tile), values in sorted(ratios.items()):
        deciles = statistics.quantiles(values, n=10, method="inclusive") if len(values) > 1 else 2 * values
        lines.append(
            f"| {kernel}/{index} | {tile} | {len(values)} | {wins[kernel, index, tile]} | {statistics.median(values):.2f} | "
            f"{deciles[0]:.2f} to {deciles[-1]:.2f} |"
        )
    return lines


def choices(rows) -> list[str]:
    """Return a table's lines: regret and speed of the picks, and the speed of the fastest candidates."""
    lines = ["| times of | problems | regret | worst | vs torch.addmm | slower | worst |", "|---|---|---|---|---|---|---|"]

    for name, times in (("picks", [row.pick[1] for row in rows]), ("the fastest", [row.fastest[1] for row in rows])):
        regrets = [time / row.fastest[1] for row, time in zip(rows, times)]
        ratios = [row.torch_addmm / time for row, time in zip(rows, times)]
        lines.append(
            f"| {name} | {len(times)} | {geometric_mean(regrets):.3f} | {max(regrets):.2f} | {geometric_mean(ratios):.2f}x | "
            f"{sum(x < SLOWER for x in ratios) / len(ratios):.0%} | {min(ratios):.2f}x |"
        )
    return lines


def worst(rows, count: int) -> list[str]:
    """Return a line for each of the `count` problems whose pick takes longest over the fastest candidate."""
    lines = []
    for row in sorted(rows, key=lambda row: -row.pick[1] / row.fastest[1])[:count]:
        (pick, pick_us), (best, best_us), p = row.pick, row.fastest, row.problem
        lines.append(
            f"{pick_us / best_us:.2f}x at {shape_text(vars(p))} {p.b} {p.c} {p.dtype}: "
            f"pick {pick.exact_name} {pick_us:.1f} us for {pick.microseconds:.1f} predicted, "
            f"fastest {best.exact_name} {best_us:.1f} for {best.microseconds:.1f}, torch.addmm {row.torch_addmm:.1f}"
        )
    return lines


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.fit", description=__doc__.split("\n")[0])
    parser.add_argument("files", type=Path, nargs="+", help="what bench.candidates wrote")
    parser.add_argument("--worst", type=int, default=20, help="problems to list")
    options = parser.parse_args()
    rows = [row for file in options.files for row in load(file)]
    if not rows:
        raise SystemExit("these files hold no time of a candidate that this build has")
    print("\n".join([*configurations(rows), "", *choices(rows), "", *worst(rows, options.worst)]))
    unknown = sorted({name for row in rows for name in row.unknown})
    if unknown:
        print(f"\nThis build would not run {len(unknown)} of the timed names as they were run: {', '.join(unknown[:5])}")
    untimed = sum(not row.pick_is_timed for row in rows)
    if untimed:
        print(f"\nThe planner's own pick was not timed at {untimed} of {len(rows)} problems; their regret is of the next one.")


if __name__ == "__main__":
    main()
