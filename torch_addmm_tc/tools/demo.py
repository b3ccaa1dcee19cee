"""The demo and self-check: shows the environment, then runs real layer shapes, checked against float64 and timed."""

import dataclasses
import json
import platform

import torch

import torch_addmm_tc as tc
from torch_addmm_tc import _C, timing
from torch_addmm_tc.testing import Layer, gpt2_layers, matrix, reference

COLUMNS = ("layer", "M x N x K", "dtype", "kernel", "error/bound", "time", "TFLOP/s", "vs torch.addmm")


@dataclasses.dataclass
class Row:
    """One layer's result; times in microseconds, `error` as a fraction of the bound, `ratio` torch.addmm's time over ours."""

    layer: str
    m: int
    n: int
    k: int
    dtype: str
    kernel: str
    error: float
    microseconds: float
    tflops: float
    ratio: float

    @property
    def ok(self):
        return self.error <= 1  # False for NaN

    def cells(self):
        return (
            self.layer,
            f"{self.m} x {self.n} x {self.k}",
            self.dtype,
            self.kernel,
            f"{self.error:.2f}" + ("" if self.ok else " WRONG"),
            f"{self.microseconds:.1f} us",
            f"{self.tflops:.2f}",
            f"{self.ratio:.2f}x",
        )


def environment(device):
    """What a bug report needs."""
    facts = {
        "torch": torch.__version__,
        "torch CUDA": torch.version.cuda or "none (CPU-only build)",
        "torch_addmm_tc kernels": ", ".join(k["name"] for k in tc.kernels() if k["compiled"]) or "none (CPU-only build)",
        "python": platform.python_version(),
    }
    if device == "cuda":
        gpu = tc.Gpu.of(torch.cuda.current_device())
        facts["device"] = f"{torch.cuda.get_device_name()}, sm_{gpu.sm}, {gpu.num_sms} SMs"
    else:
        facts["device"] = f"CPU, {torch.get_num_threads()} threads"
        if torch.cuda.is_available():
            facts["device"] += " (there is a GPU, but this build has no CUDA kernels: install nvcc and reinstall)"
    return facts


def layers(device):
    if device == "cuda":
        work = gpt2_layers(tokens=1024) + [Layer("square", 4096, 4096, 4096)]
        return [(layer, dtype) for layer in work for dtype in (torch.float16, torch.bfloat16)]
    return [(layer, dtype) for layer in gpt2_layers(tokens=64) for dtype in (torch.float32, torch.bfloat16)]


def measure(layer, dtype, device):
    a = matrix("row", layer.m, layer.k, dtype, device)
    b = matrix(layer.b, layer.k, layer.n, dtype, device)
    bias = matrix("row", 1, layer.n, dtype, device)[0]
    error = reference(bias, a, b).error(torch.ops.tc.addmm(bias, a, b))
    calls = {"tc": [lambda: torch.ops.tc.addmm(bias, a, b)], "torch": [lambda: torch.addmm(bias, a, b)]}
    times = timing.interleaved(calls, cuda=device == "cuda", rounds=5)
    ours = times["tc"].median
    kernel = tc.plan(bias, a, b).kernel if device == "cuda" else "aten (CPU)"
    return Row(
        layer.name, layer.m, layer.n, layer.k, str(dtype).removeprefix("torch."), kernel, error, ours * 1e6,
        2 * layer.m * layer.n * layer.k / ours / 1e12, times["torch"].median / ours,
    )  # fmt: skip


def rows_with_progress(work, device):
    """Measures every row; the finished ones and the one in progress show on a terminal that has rich."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return [measure(layer, dtype, device) for layer, dtype in work]
    console = Console(stderr=True)
    return [measure(layer, dtype, device) for layer, dtype in track(work, "measuring", console=console, transient=True)]


def run(as_json=False) -> int:
    """Prints the table, or one JSON object; returns the exit code, 1 if any result is outside its error bound."""
    device = "cuda" if _C.with_cuda and torch.cuda.is_available() else "cpu"
    facts = environment(device)
    if not as_json:
        for name, value in facts.items():
            print(f"{name + ':':<24}{value}")
        print()
    with torch.inference_mode():
        rows = rows_with_progress(layers(device), device)
    if as_json:
        print(json.dumps({"environment": facts, "rows": [dataclasses.asdict(r) | {"ok": r.ok} for r in rows]}, indent=2))
    else:
        cells = [COLUMNS] + [row.cells() for row in rows]
        widths = [max(len(line[i]) for line in cells) for i in range(len(COLUMNS))]
        for line in cells:
            print("  ".join(c.ljust(w) if i < 4 else c.rjust(w) for i, (c, w) in enumerate(zip(line, widths))).rstrip())
        wrong = sum(not row.ok for row in rows)
        print(f"\n{wrong} of {len(rows)} rows are WRONG" if wrong else f"\nall {len(rows)} rows are within their error bound")
    return 0 if all(row.ok for row in rows) else 1
