"""The ladder: the TFLOP/s of every rung at M = N = K from 512 to 8192.

    python -m bench.ladder [--json FILE] [--png FILE] [--docs] [--from-json FILE]

The problem is fp16 with a full C and alpha = beta = 0.5. The contenders are every configuration that takes it, the planner's
pick, torch.addmm, and the loops of mma.sync and wgmma of bench/ceilings.cu. A kernel's row shows its fastest configuration. All
contenders take turns in one run, because the GPU's clock follows its power. The run also measures a copy in 16-byte vectors.

--docs replaces the table between the markers in docs/performance.md. --png draws TFLOP/s per rung (needs matplotlib).
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
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import reference
from torch_addmm_tc.tools.planning import Plan, problem_key

SIZES = (512, 1024, 2048, 4096, 8192)  # M = N = K
SCALARS = {"beta": 0.5, "alpha": 0.5}

CEILING, WGMMA_CEILING = "mma.sync, registers only", "wgmma, shared memory only"
PICK = "torch.ops.tc.addmm"


def measure(size: int, seconds: float, ceilings: Ceilings) -> dict:
    """Time every rung at M = N = K = size.

    Args:
        size: M, N and K.
        seconds: how long each contender runs in each round.
        ceilings: a Ceilings.

    Returns:
        rung -> {"instance", "seconds", "tflops", "spread"} of its fastest configuration. "instance" names the configuration.

    Raises:
        SystemExit: if a result is outside its error bound.
    """
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
    errors, problem, gpu = {}, problem_key(*sets[0], **SCALARS), tc.Gpu.of(torch.cuda.current_device())
    for kernel in tc.kernels():
        for i in range(len(kernel["configs"])):
            name = f"{kernel['name']}/{i}"
            if Plan.of(problem, gpu, name).pick is None:  # for fp32 or a short K alone, or for other GPUs
                continue
            errors[name] = expected.error(call(name, sets[0], poison=True))
            contenders[name] = [lambda args=args, name=name: call(name, args) for args in sets]
    times = timing.interleaved(contenders, cuda=True, rounds=5, seconds=seconds)
    best = {}
    for name, time in times.items():
        rung = name.split("/")[0]
        flops = {CEILING: ceilings.mma_sync, WGMMA_CEILING: ceilings.wgmma}.get(name, lambda: 2 * size**3)()
        if rung not in best or time.median < best[rung]["seconds"]:
            # The committed results name the configuration's key "instance".
            best[rung] = {"instance": name, "seconds": time.median, "tflops": flops / time.median / 1e12, "spread": time.spread}
    wrong = {name: error for name, error in errors.items() if not error <= 1}
    if wrong:
        raise SystemExit(f"results at M = N = K = {size} are outside their error bound; error/bound: {wrong}")
    return best


def table(result: dict) -> str:
    """Return a markdown table with a row for each rung: TFLOP/s at each size, and the largest share of the mma.sync ceiling."""
    sizes = result["sizes"]
    rungs = [kernel["name"] for kernel in tc.kernels()] + [PICK, "torch.addmm", CEILING, WGMMA_CEILING]
    rungs = [rung for rung in rungs if any(rung in figures for figures in sizes.values())]
    lines = ["| TFLOP/s | " + " | ".join(f"{s}³" for s in sizes) + " | of mma.sync |", "|---|" + "---|" * (len(sizes) + 1)]
    for rung in rungs:
        share = max(figures[rung]["tflops"] / figures[CEILING]["tflops"] for figures in sizes.values() if rung in figures)
        cells = [f"{figures[rung]['tflops']:.0f}" if rung in figures else "" for figures in sizes.values()]
        lines.append(f"| {rung} | " + " | ".join(cells) + f" | {share:.0%} |")
    r = result["record"]
    lines += [
        "",
        "A cell gives a rung's TFLOP/s for fp16, a full C and alpha = beta = 0.5, with the rung's fastest configuration at "
        "the size. All rungs of a size were timed in one interleaved run. The last column is a rung's largest share of "
        f"the mma.sync loop at any size. A copy moved {result['copy TB/s']:.2f} TB/s. The table was measured on an "
        f"{r['device']} with torch {r['torch']} at commit {r['commit']}.",
    ]
    return "\n".join(lines) + "\n"


def draw(result: dict, path: Path) -> None:
    """Draw TFLOP/s over the matrix size to `path`, with a line for each rung (needs matplotlib).

    torch.addmm's line is dotted. The lines of the ceilings are dashed.
    """
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    for rung in dict.fromkeys(rung for figures in result["sizes"].values() for rung in figures):
        sizes = {int(size): figures[rung]["tflops"] for size, figures in result["sizes"].items() if rung in figures}
        style = {"torch.addmm": {"color": "black", "linestyle": ":"}, PICK: {"color": "black"}}
        style |= {CEILING: {"color": "gray", "linestyle": "--"}, WGMMA_CEILING: {"color": "gray", "linestyle": "-."}}
        axes.plot(sizes.keys(), sizes.values(), label=rung, **style.get(rung, {"marker": "o"}))
    axes.set_xscale("log", base=2)
    axes.set_xticks([int(size) for size in result["sizes"]], result["sizes"])
    axes.set(xlabel="M = N = K", ylabel="TFLOP/s", title=f"addmm, fp16, full C, {result['record']['device']}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.ladder", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file")
    parser.add_argument("--png", type=Path, help="draw TFLOP/s over the size to this file (needs matplotlib)")
    parser.add_argument("--from-json", type=Path, help="read the figures that --json wrote instead of measuring")
    parser.add_argument("--docs", action="store_true", help="update the table in docs/performance.md")
    parser.add_argument("--seconds", type=float, default=0.01, help="seconds that each contender runs in each round")
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
