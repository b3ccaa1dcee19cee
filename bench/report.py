"""The report of a sweep: its full table, its summary, its row of means and its two pictures.

    python -m bench.report bench/results/NAME.json [--docs]

The command writes NAME.md, NAME-roofline.png and NAME-ratios.png beside the JSON file (needs matplotlib). --docs replaces the
summary between the markers in docs/performance.md and the row of means in README.md.
"""

import argparse
import dataclasses
import json
import math
from pathlib import Path

from bench.timing import ROOT

FORMS = {"full": "full C", "full fp32": "fp32 C and D", "bias": "1-D bias"}  # Problem.c -> its name in tables
README, PERFORMANCE = ROOT / "README.md", ROOT / "docs" / "performance.md"
SLOWER = 0.97  # README counts the rows whose speed relative to torch.addmm is below this


@dataclasses.dataclass(frozen=True)
class Problem:
    """A problem of the sweep or, as a subclass, of the survey.

    Args:
        m, n, k: the sizes of D (M, N) = A (M, K) B (K, N).
        b: "row" for a row-major B, "col" for a weight-major B (the transpose of a row-major (N, K) weight).
        dtype: A's and B's dtype: "float16", "bfloat16", "float32", or "tf32" for float32 operands that may be rounded to TF32.
        c: "full" for an (M, N) C in A's dtype, "full fp32" for an (M, N) C and D in fp32, "bias" for an (N,) C in A's dtype,
            "none" for the plain product.
    """

    m: int
    n: int
    k: int
    b: str
    dtype: str
    c: str

    @property
    def shape(self) -> tuple[int, int, int]:
        """(M, N, K)."""
        return self.m, self.n, self.k

    @property
    def is_16_bit(self) -> bool:
        """Whether A and B have a 16-bit dtype."""
        return self.dtype in ("float16", "bfloat16")

    @property
    def itemsize(self) -> int:
        """The bytes of an element of A or B."""
        return 2 if self.is_16_bit else 4

    @property
    def flops(self) -> int:
        """The FLOPs of A B."""
        return 2 * self.m * self.n * self.k

    @property
    def bytes(self) -> int:
        """The bytes of A, B, C and D, each moved once."""
        c, size = {"bias": self.n, "none": 0}.get(self.c, self.m * self.n), self.itemsize
        return size * (self.m * self.k + self.k * self.n) + (4 if self.c == "full fp32" else size) * (c + self.m * self.n)

    def limit(self, peaks: dict) -> float:
        """Return the microseconds that the ceilings allow: those of the FLOPs or of the bytes, whichever are more.

        Args:
            peaks: what bench.ceilings.ceilings() returned.
        """
        return 1e6 * max(self.flops / peaks[self.dtype], self.bytes / peaks["bytes"])

    @classmethod
    def of(cls, figures: dict):
        """Return the problem, or the row, that has these fields. Other entries do not count."""
        return cls(**{field.name: figures[field.name] for field in dataclasses.fields(cls) if field.name in figures})


@dataclasses.dataclass(frozen=True)
class Row(Problem):
    """The figures of one problem. Times are in microseconds.

    Args:
        kernel: the kernel that ran.
        error: the largest error of an element, as a fraction of the bound of torch_addmm_tc/testing/reference.py.
        tc: the op's time.
        torch_addmm: torch.addmm's time.
        mm: the time of torch.mm, the product without C. None if it was not measured.
        tc_spread, torch_addmm_spread: half the difference of the slowest and the fastest round, as a fraction of the median.
        limit: the time that the ceilings of FLOP/s and of bytes/s allow, the larger of the two.
        regret: the time of the planner's pick over that of the fastest candidate that was timed. None if it was not measured.
        cublaslt: the time of cuBLASLt's fastest algorithm. None if it was not measured.
    """

    kernel: str
    error: float
    tc: float
    torch_addmm: float
    mm: float | None
    tc_spread: float
    torch_addmm_spread: float
    limit: float
    regret: float | None = None
    cublaslt: float | None = None

    @property
    def tflops(self) -> float:
        """The op's TFLOP/s."""
        return self.flops / self.tc * 1e-6

    @property
    def ratio(self) -> float:
        """torch.addmm's time over the op's time."""
        return self.torch_addmm / self.tc

    def figures(self) -> dict:
        """Return the row as the JSON file keeps it."""
        return dataclasses.asdict(self) | {"tflops": self.tflops, "ratio": self.ratio, "of_limit": self.limit / self.tc}


def rows_of(result: dict) -> list[Row]:
    """Return the rows of a sweep's JSON file."""
    return [Row.of(figures) for figures in result["rows"]]


def geometric_mean(values) -> float:
    """Return the geometric mean of positive numbers, NaN if there are none."""
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def insert(name: str, text: str, page: str) -> str:
    """Return the page with `text` between the markers of `name`."""
    begin, end = (f"<!-- {name}: {which} -->" for which in ("begin", "end"))
    return page[: page.index(begin) + len(begin)] + "\n" + text + page[page.index(end) :]


def insert_row(row: str, page: str) -> str:
    """Return the page with `row` in place of the table row that has the same first cell."""
    lines, first = page.split("\n"), row.split(" | ")[0] + " | "
    (at,) = (i for i, line in enumerate(lines) if line.startswith(first))
    return "\n".join([*lines[:at], row, *lines[at + 1 :]])


# ---- tables ----


def heading(result: dict) -> list[str]:
    """Return the lines of a run's record and, if it measured them, of its ceilings."""
    lines, peaks = [f"{name}: {value}  " for name, value in result["record"].items()], result["ceilings"]
    if peaks:
        rates = [f"{name} {rate / 1e12:.0f} TFLOP/s" for name, rate in peaks.items() if name != "bytes"]
        lines.append(f"ceilings of this run: {', '.join(rates)}, copy {peaks['bytes'] / 1e12:.2f} TB/s")
    return lines


def closing(rows) -> list[str]:
    """Return the lines about cuBLASLt and about the planner's regret, for the rows that have them."""
    lines = []
    for c in dict.fromkeys(r.c for r in rows if r.cublaslt):
        mean = geometric_mean(r.cublaslt / r.tc for r in rows if r.c == c and r.cublaslt)
        lines.append(f"\ngeometric mean vs cuBLASLt's fastest algorithm, {c}: {mean:.2f}x")
    regrets = [r.regret for r in rows if r.regret is not None]
    if regrets:
        lines.append(f"\ngeometric mean of the planner's regret: {geometric_mean(regrets):.3f}; worst {max(regrets):.2f}")
    return lines


def table(result: dict) -> str:
    """Return a markdown table of every row, under the run's record."""
    rows = rows_of(result)
    lines = [
        *heading(result),
        "",
        "Host microseconds per eager call: " + "; ".join(f"{k} {v:.1f}" for k, v in result["host"].items()),
        "",
        "| M, N, K | B | dtype | C | kernel | error/bound | us | TFLOP/s | vs torch | torch.addmm us | mm us "
        "| cuBLASLt us | of limit | regret |",
        "|---|---|---|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for r in rows:
        lines.append(
            f"| {r.m}, {r.n}, {r.k} | {r.b} | {r.dtype} | {r.c} | {r.kernel} | {r.error:.2f} | {r.tc:.1f} ±{r.tc_spread:.0%} "
            f"| {r.tflops:.0f} | {r.ratio:.2f}x | {r.torch_addmm:.1f} ±{r.torch_addmm_spread:.0%} | {r.mm:.1f} "
            f"| {'' if r.cublaslt is None else f'{r.cublaslt:.1f}'} | {r.limit / r.tc:.0%} "
            f"| {'' if r.regret is None else f'{r.regret:.2f}'} |"
        )
    for c in dict.fromkeys(r.c for r in rows):
        lines.append(f"\ngeometric mean vs torch.addmm, {c}: {geometric_mean(r.ratio for r in rows if r.c == c):.2f}x")
    return "\n".join(lines + closing(rows)) + "\n"


def means(result: dict) -> str:
    """Return README's row: the geometric mean of each form over the 16-bit rows, and the number of rows below SLOWER."""
    rows = [r for r in rows_of(result) if r.is_16_bit]
    shapes, slower = len({r.shape for r in rows}), sum(r.ratio < SLOWER for r in rows)
    cells = [f"[the sweep](docs/performance.md#the-sweep): {shapes} shapes, on which the kernels were tuned"]
    cells += [f"{geometric_mean(r.ratio for r in rows if r.c == c):.2f}x" for c in FORMS]
    return f"| {' | '.join(cells)} | {slower} of {len(rows)} |"


def summary(result: dict) -> str:
    """Return the summary of docs/performance.md.

    It has a row for each shape, the means over the 16-bit rows, the shapes slower than torch.addmm, and the host's times.
    """
    rows = rows_of(result)
    rows_16_bit = [r for r in rows if r.is_16_bit]
    lines = ["| M, N, K | " + " | ".join(FORMS.values()) + " |", "|---|" + "---|" * len(FORMS)]
    for shape in dict.fromkeys(r.shape for r in rows_16_bit):
        shown = {r.c: r for r in rows_16_bit if (r.shape, r.dtype, r.b) == (shape, "float16", "row")}
        cells = [f"{shown[c].tflops:.0f} TFLOP/s, {shown[c].ratio:.2f}x" for c in FORMS]
        lines.append(f"| {', '.join(map(str, shape))} | " + " | ".join(cells) + " |")
    groups = {
        "geometric mean, all shapes": rows_16_bit,
        "geometric mean, N and K multiples of 8": [r for r in rows_16_bit if r.n % 8 == r.k % 8 == 0],
        "geometric mean, other N or K": [r for r in rows_16_bit if r.n % 8 or r.k % 8],
    }
    for name, group in groups.items():
        cells = [f"{geometric_mean(r.ratio for r in group if r.c == c):.2f}x" for c in FORMS]
        lines.append(f"| *{name}* | " + " | ".join(cells) + " |")
    ratios_of = {c: [r.ratio for r in rows_16_bit if r.c == c] for c in FORMS}
    counts = (f"{sum(ratio < 1 for ratio in ratios_of[c])} of {len(ratios_of[c])}" for c in FORMS)
    lines.append("| *rows slower than torch.addmm* | " + " | ".join(counts) + " |")
    worst = {}
    for r in sorted(rows, key=lambda r: r.ratio):
        if r.ratio < 1:
            name = ("" if r.is_16_bit else f"{r.dtype} operands, ") + FORMS[r.c]
            worst.setdefault(name, {}).setdefault("x".join(map(str, r.shape)), r.ratio)
    listed = "; ".join(f"{name}: " + ", ".join(f"{s} {q:.2f}x" for s, q in shapes.items()) for name, shapes in worst.items())
    r, host = result["record"], result["host"]
    lines += [
        "",
        "A cell gives TFLOP/s and the speed relative to torch.addmm, for fp16, a row-major B and alpha = beta = 0.5 (1 with a "
        "bias). The means and counts are over fp16 and bf16, and over row-major and weight-major B. The table was "
        f"measured on an {r['device']} with torch {r['torch']} at commit {r['commit']}.",
        "",
        "These shapes are slower than torch.addmm in at least one dtype and layout. Each figure is the shape's lowest. "
        f"{listed}."
        if listed
        else "No row is slower than torch.addmm.",
        "",
        "| host microseconds of an eager call | full C | 1-D bias | full C, grad mode on | 1-D bias, grad mode on |",
        "|---|---|---|---|---|",
    ]
    for call in ("torch.addmm", "torch.ops.tc.addmm", "torch_addmm_tc.addmm"):
        names = (f"{call}, {c}{grad}" for grad in ("", ", grad mode on") for c in ("full C", "bias"))
        lines.append(f"| {call} | " + " | ".join(f"{host[name]:.1f}" if name in host else "" for name in names) + " |")
    return "\n".join(lines) + "\n"


# ---- pictures ----


def roofline(result: dict):
    """Draw TFLOP/s over FLOPs per byte for the fp16 rows. This package's markers are filled, torch.addmm's are open."""
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5), layout="constrained")
    peak, bandwidth = result["ceilings"]["float16"] / 1e12, result["ceilings"]["bytes"] / 1e12
    rows = [r for r in rows_of(result) if r.dtype == "float16"]
    for (form, label), colour in zip(FORMS.items(), ("tab:blue", "tab:orange", "tab:green")):
        chosen = [r for r in rows if r.c == form]
        intensity, ours = [r.flops / r.bytes for r in chosen], [r.tflops for r in chosen]
        theirs = [r.tflops / r.ratio for r in chosen]
        axes.vlines(intensity, theirs, ours, color=colour, linewidth=0.6)
        axes.scatter(intensity, theirs, facecolors="none", edgecolors=colour, s=18, label=f"torch.addmm, {label}")
        axes.scatter(intensity, ours, color=colour, s=18, label=f"torch.ops.tc.addmm, {label}")
    left, right = min(r.flops / r.bytes for r in rows) / 1.5, 8000
    axes.plot([left, peak / bandwidth, right], [left * bandwidth, peak, peak], color="black", linewidth=1)
    axes.annotate(f"copy: {bandwidth:.2f} TB/s", (left * 1.6, left * bandwidth * 2.6), rotation=38, fontsize="small")
    axes.annotate(f"{peak:.0f} TFLOP/s", (peak / bandwidth * 1.2, peak * 1.08), fontsize="small")
    axes.set(xscale="log", yscale="log", xlabel="FLOPs per byte, each matrix moved once", ylabel="TFLOP/s")
    axes.set_title("fp16 rows of the sweep, {device}, commit {commit}".format_map(result["record"]), fontsize="medium")
    axes.legend(fontsize="x-small", loc="lower right")
    return figure


def ratios(result: dict):
    """Draw torch.addmm's time over this package's, with a panel for each form of C and a line for each shape."""
    from matplotlib import pyplot

    rows = [r for r in rows_of(result) if r.is_16_bit]
    shapes = list(dict.fromkeys(r.shape for r in rows))[::-1]
    figure, panels = pyplot.subplots(1, len(FORMS), figsize=(11, 5), sharey=True, sharex=True, layout="constrained")
    dtypes, orders = (("float16", "o"), ("bfloat16", "s")), (("row", "tab:blue"), ("col", "tab:orange"))
    kinds = [(dtype, b, marker, colour) for dtype, marker in dtypes for b, colour in orders]
    for axes, (form, label) in zip(panels, FORMS.items()):
        for dtype, b, marker, colour in kinds:
            chosen = [r for r in rows if (r.c, r.dtype, r.b) == (form, dtype, b)]
            at = [shapes.index(r.shape) for r in chosen]
            name = f"{dtype}, B {'row' if b == 'row' else 'weight'}-major"
            axes.scatter([r.ratio for r in chosen], at, color=colour, marker=marker, s=16, label=name)
        axes.axvline(1, color="black", linewidth=1)
        axes.set(xscale="log", title=label)
        axes.set_xticks([0.5, 0.75, 1, 1.5, 2, 3, 4], ["0.5", "0.75", "1", "1.5", "2", "3", "4"])
        axes.minorticks_off()
        axes.grid(linewidth=0.3)
    panels[0].set_yticks(range(len(shapes)), [" x ".join(map(str, shape)) for shape in shapes])
    panels[1].set_xlabel("times as fast as torch.addmm")
    figure.legend(*axes.get_legend_handles_labels(), fontsize="small", ncols=len(kinds), loc="outside lower center")
    figure.suptitle("{device}, torch {torch}, commit {commit}".format_map(result["record"]))
    return figure


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.report", description=__doc__.split("\n")[0])
    parser.add_argument("json", type=Path, help="the JSON file that bench.sweep wrote")
    parser.add_argument("--docs", action="store_true", help="update docs/performance.md and README.md")
    options = parser.parse_args()
    result = json.loads(options.json.read_text())
    options.json.with_suffix(".md").write_text(table(result))
    for name, draw in (("roofline", roofline), ("ratios", ratios)):
        draw(result).savefig(options.json.with_name(f"{options.json.stem}-{name}.png"), dpi=120)
    if options.docs:
        PERFORMANCE.write_text(insert("sweep", summary(result), PERFORMANCE.read_text()))
        README.write_text(insert_row(means(result), README.read_text()))


if __name__ == "__main__":
    main()
