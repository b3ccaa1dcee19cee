"""The ladder: what each technique buys, on one problem size after another.

    python -m bench.ladder [--json FILE] [--png FILE] [--docs] [--from-json FILE]

Every kernel by name (its fastest instance), the planner's pick and torch.addmm, fp16 with a full C, alpha = beta = 0.5, at 512
to 8192 cubed, and the ceilings of bench/ceilings.cu in the same run: loops of mma.sync and wgmma, timed in turn with the
kernels because the GPU's clock follows its power, and a copy in 16-byte pieces.
--docs replaces the table between the markers in docs/performance.md; --png draws TFLOP/s per rung (needs matplotlib).
"""

import argparse
import json
import math
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.ceilings import Ceilings, has_wgmma
from bench.report import PERFORMANCE, insert
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.testing import matrix, reference

SIZES = (512, 1024, 2048, 4096, 8192)
SCALARS = {"beta": 0.5, "alpha": 0.5}


CEILING, WGMMA_CEILING = "mma.sync, registers only", "wgmma, shared memory only"
PICK = "torch.ops.tc.addmm"


def measure(size: int, seconds: float, ceilings: Ceilings) -> dict:
    """TFLOP/s and spread of each kernel's fastest instance, of torch.addmm at size cubed, and of the mma.sync ceiling."""
    nbytes = 4 * size * size * 2
    sets = [[matrix("row", size, size, torch.float16, "cuda") for _ in range(3)] for _ in range(sets_to_rotate(nbytes))]
    expected = reference(*sets[0], **SCALARS)

    def call(name, args, poison=False):
        out = torch.empty(size, size, dtype=torch.float16, device="cuda")
        if poison:
            out.fill_(math.nan)
        torch.ops.tc.addmm_out(*args, **SCALARS, kernel_name=name, out=out)
        return out

    contenders = {
        PICK: [lambda args=args: torch.ops.tc.addmm(*args, **SCALARS) for args in sets],
        "torch.addmm": [lambda args=args: torch.addmm(*args, **SCALARS) for args in sets],
        CEILING: [ceilings.mma_sync],
    }
    if has_wgmma():
        contenders[WGMMA_CEILING] = [ceilings.wgmma]
    errors = {}
    for kernel in tc.kernels():
        for i in range(len(kernel["configs"])):
            name = f"{kernel['name']}/{i}"
            errors[name] = expected.error(call(name, sets[0], poison=True))
            contenders[name] = [lambda args=args, name=name: call(name, args) for args in sets]
    times = timing.interleaved(contenders, cuda=True, rounds=5, seconds=seconds)
    best = {}
    for name, time in times.items():
        rung = name.split("/")[0]
        flops = {CEILING: ceilings.mma_sync, WGMMA_CEILING: ceilings.wgmma}.get(name, lambda: 2 * size**3)()
        if rung not in best or time.median < best[rung]["seconds"]:
            best[rung] = {"instance": name, "seconds": time.median, "tflops": flops / time.median / 1e12, "spread": time.spread}
    wrong = {name: error for name, error in errors.items() if not error <= 1}
    if wrong:
        raise SystemExit(f"outside their error bound at {size}: {wrong}")
    return best


def table(result: dict) -> str:
    """A markdown table: a row for each rung, TFLOP/s at each size, and the largest part of the same size's ceiling."""
    sizes = result["sizes"]
    rungs = [kernel["name"] for kernel in tc.kernels()] + [PICK, "torch.addmm", CEILING, WGMMA_CEILING]
    rungs = [rung for rung in rungs if all(rung in figures for figures in sizes.values())]
    lines = ["| TFLOP/s | " + " | ".join(f"{s}³" for s in sizes) + " | of mma.sync |", "|---|" + "---|" * (len(sizes) + 1)]
    for rung in rungs:
        share = max(figures[rung]["tflops"] / figures[CEILING]["tflops"] for figures in sizes.values())
        cells = [f"{figures[rung]['tflops']:.0f}" for figures in sizes.values()]
        lines.append(f"| {rung} | " + " | ".join(cells) + f" | {share:.0%} |")
    r = result["record"]
    lines += [
        "",
        f"fp16, full C, alpha = beta = 0.5; {r['device']}, torch {r['torch']}, commit {r['commit']}. Each column was timed in "
        "one interleaved run and shows each rung's fastest instance there; the last one is its largest share of the mma.sync "
        f"loop in a column. A copy moved {result['copy TB/s']:.2f} TB/s.",
    ]
    return "\n".join(lines) + "\n"


def draw(result: dict, path: Path) -> None:
    """TFLOP/s over the matrix size, a line for each rung, torch.addmm dotted and the mma.sync ceiling dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    sizes = [int(s) for s in result["sizes"]]
    for rung in next(iter(result["sizes"].values())):
        style = {"torch.addmm": {"color": "black", "linestyle": ":"}, PICK: {"color": "black"}}
        style |= {CEILING: {"color": "gray", "linestyle": "--"}, WGMMA_CEILING: {"color": "gray", "linestyle": "-."}}
        axes.plot(
            sizes, [result["sizes"][s][rung]["tflops"] for s in result["sizes"]], label=rung, **style.get(rung, {"marker": "o"})
        )
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.set(xlabel="M = N = K", ylabel="TFLOP/s", title=f"addmm, fp16, full C, {result['record']['device']}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.ladder", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    parser.add_argument("--from-json", type=Path, help="measure nothing; render a result written earlier")
    parser.add_argument("--docs", action="store_true", help="update docs/performance.md")
    parser.add_argument("--seconds", type=float, default=0.01, help="for each contender in each round")
    options = parser.parse_args()
    if options.from_json:
        result = json.loads(options.from_json.read_text())
    else:
        ceilings = Ceilings()
        result = {"record": record(), "copy TB/s": ceilings.copy_tbytes()}
        with torch.inference_mode():
            result["sizes"] = {str(size): measure(size, options.seconds, ceilings) for size in track(SIZES, "ladder")}
    text = table(result)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.png:
        draw(result, options.png)
    if options.docs:
        PERFORMANCE.write_text(insert("ladder", text, PERFORMANCE.read_text()))


if __name__ == "__main__":
    main()
