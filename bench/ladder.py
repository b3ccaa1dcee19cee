"""The ladder: what each technique buys, on one problem size after another.

    python -m bench.ladder [--json FILE] [--png FILE] [--readme] [--from-json FILE]

Every kernel by name (its fastest instance) beside torch.addmm, fp16 with a full C, alpha = beta = 0.5, at 1024 to 8192 cubed,
and two ceilings measured in the same run by bench/ceilings.cu: a loop of mma.sync on registers, and a copy in 16-byte pieces.
--readme replaces the table between the markers in README.md; --png draws TFLOP/s per rung (needs matplotlib).
"""

import argparse
import ctypes
import json
import subprocess
import tempfile
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.testing import matrix, reference

ROOT = Path(__file__).parent.parent
SIZES = (1024, 2048, 4096, 8192)
MARKERS = ("<!-- ladder: begin -->", "<!-- ladder: end -->")
SCALARS = {"beta": 0.5, "alpha": 0.5}


def ceilings() -> dict:
    """TFLOP/s of mma.sync m16n8k16 from registers and TB/s (read + written) of a copy, compiled and run here."""
    major, minor = torch.cuda.get_device_capability()
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "ceilings.so"
        arch = f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"
        subprocess.run(
            ["nvcc", "-std=c++17", "-O3", arch, "-shared", "-Xcompiler=-fPIC", "-o", library, ROOT / "bench/ceilings.cu"],
            check=True,
        )
        functions = ctypes.CDLL(str(library))
        functions.mma_sync_tflops.restype = functions.copy_tbytes.restype = ctypes.c_double
        result = {"mma.sync TFLOP/s": functions.mma_sync_tflops(), "copy TB/s": functions.copy_tbytes()}
    if min(result.values()) <= 0:
        raise RuntimeError(f"a ceiling kernel failed: {result}")
    return result


def measure(size: int, seconds: float) -> dict:
    """TFLOP/s, spread and error of each kernel's fastest instance, and of torch.addmm, at size cubed."""
    nbytes = 4 * size * size * 2
    sets = [[matrix("row", size, size, torch.float16, "cuda") for _ in range(3)] for _ in range(sets_to_rotate(nbytes))]
    expected = reference(*sets[0], **SCALARS)

    def call(name, args):
        out = torch.empty(size, size, dtype=torch.float16, device="cuda")
        torch.ops.tc.addmm_by_kernel_out(*args, **SCALARS, kernel=name, out=out)
        return out

    contenders, errors = {"torch.addmm": [lambda args=args: torch.addmm(*args, **SCALARS) for args in sets]}, {}
    for kernel in tc.kernels():
        for i in range(len(kernel["instances"])):
            name = f"{kernel['name']}/{i}"
            errors[name] = expected.error(call(name, sets[0]))
            contenders[name] = [lambda args=args, name=name: call(name, args) for args in sets]
    times = timing.interleaved(contenders, cuda=True, rounds=5, seconds=seconds)
    flops = 2 * size**3
    best = {}
    for name, time in times.items():
        rung = name.split("/")[0]
        if rung not in best or time.median < best[rung]["seconds"]:
            best[rung] = {"instance": name, "seconds": time.median, "tflops": flops / time.median / 1e12, "spread": time.spread}
    wrong = {name: error for name, error in errors.items() if not error <= 1}
    if wrong:
        raise SystemExit(f"outside their error bound at {size}: {wrong}")
    return best


def table(result: dict) -> str:
    """A markdown table: a row for each rung, a column for each size, TFLOP/s and the fraction of the mma.sync ceiling."""
    ceiling, sizes = result["ceilings"]["mma.sync TFLOP/s"], result["sizes"]
    rungs = [kernel["name"] for kernel in tc.kernels()] + ["torch.addmm"]
    lines = ["| TFLOP/s | " + " | ".join(f"{s}³" for s in sizes) + " | of mma.sync |", "|---|" + "---|" * (len(sizes) + 1)]
    for rung in rungs:
        figures = [sizes[s][rung] for s in sizes]
        share = max(f["tflops"] for f in figures) / ceiling
        lines.append(f"| {rung} | " + " | ".join(f"{f['tflops']:.0f}" for f in figures) + f" | {share:.0%} |")
    r = result["record"]
    lines += [
        "",
        f"fp16, full C, alpha = beta = 0.5; {r['device']}, torch {r['torch']}, commit {r['commit']}. Ceilings of the same run: "
        f"mma.sync {ceiling:.0f} TFLOP/s, copy {result['ceilings']['copy TB/s']:.2f} TB/s.",
    ]
    return "\n".join(lines) + "\n"


def draw(result: dict, path: Path) -> None:
    """TFLOP/s over the matrix size, a line for each rung, the mma.sync ceiling dashed."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(figsize=(8, 5))
    sizes = [int(s) for s in result["sizes"]]
    for rung in next(iter(result["sizes"].values())):
        style = {"color": "black", "linestyle": ":"} if rung == "torch.addmm" else {"marker": "o"}
        axes.plot(sizes, [result["sizes"][s][rung]["tflops"] for s in result["sizes"]], label=rung, **style)
    axes.axhline(result["ceilings"]["mma.sync TFLOP/s"], color="gray", linestyle="--", label="mma.sync ceiling")
    axes.set_xscale("log", base=2)
    axes.set_xticks(sizes, [str(s) for s in sizes])
    axes.set(xlabel="M = N = K", ylabel="TFLOP/s", title=f"addmm, fp16, full C, {result['record']['device']}")
    axes.legend(fontsize="small")
    figure.tight_layout()
    figure.savefig(path, dpi=120)


def insert(text: str, readme: str) -> str:
    """README with the table between its markers replaced."""
    begin, end = readme.index(MARKERS[0]) + len(MARKERS[0]), readme.index(MARKERS[1])
    return readme[:begin] + "\n" + text + readme[end:]


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.ladder", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--png", type=Path)
    parser.add_argument("--from-json", type=Path, help="measure nothing; render a result written earlier")
    parser.add_argument("--readme", action="store_true")
    parser.add_argument("--seconds", type=float, default=0.01, help="for each contender in each round")
    options = parser.parse_args()
    if options.from_json:
        result = json.loads(options.from_json.read_text())
    else:
        result = {"record": record(), "ceilings": ceilings()}
        with torch.inference_mode():
            result["sizes"] = {str(size): measure(size, options.seconds) for size in track(SIZES, "ladder")}
    text = table(result)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
    if options.png:
        draw(result, options.png)
    if options.readme:
        readme = ROOT / "README.md"
        readme.write_text(insert(text, readme.read_text()))


if __name__ == "__main__":
    main()
