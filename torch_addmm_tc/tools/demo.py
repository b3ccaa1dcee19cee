"""The self-check: it shows the environment, runs real layer shapes, checks each result against float64 and times it."""

import dataclasses
import json
import platform

import torch

import torch_addmm_tc as tc
from torch_addmm_tc import _C, timing
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import reference

COLUMNS = ("layer", "M x N x K", "dtype", "kernel", "error/bound", "time", "TFLOP/s", "vs torch.addmm")


@dataclasses.dataclass(frozen=True)
class Layer:
    """The product of a model's layer.

    Args:
        name: the layer's name.
        m, n, k: the sizes of D (M, N) = A (M, K) B (K, N).
        b: "row" for a (K, N) weight, "col" for the transpose of an (N, K) weight.
    """

    name: str
    m: int
    n: int
    k: int
    b: str = "row"


def gpt2_layers(tokens: int) -> list[Layer]:
    """Return the four linear layers of GPT-2 small. Its Conv1D keeps weights as (K, N)."""
    return [
        Layer("gpt2 attention in", tokens, 2304, 768),
        Layer("gpt2 attention out", tokens, 768, 768),
        Layer("gpt2 mlp in", tokens, 3072, 768),
        Layer("gpt2 mlp out", tokens, 768, 3072),
    ]


@dataclasses.dataclass
class Row:
    """The result of one layer.

    Args:
        layer: the layer's name.
        m, n, k: the sizes of D (M, N) = A (M, K) B (K, N).
        dtype: the operands' dtype.
        kernel: the kernel that the planner picks.
        error: the largest error of an element, as a fraction of its bound.
        microseconds: the op's time.
        tflops: the op's TFLOP/s.
        ratio: torch.addmm's time over the op's time.
    """

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
    def ok(self) -> bool:
        """Whether every element is within its error bound. A NaN error is not."""
        return self.error <= 1

    def cells(self) -> tuple[str, ...]:
        """Return the row's text for each of COLUMNS."""
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


def environment(device) -> dict[str, str]:
    """Return the versions and the device that a bug report needs."""
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
            facts["device"] += (
                " (a GPU is present, but this build has no CUDA kernels; install nvcc and reinstall torch_addmm_tc)"
            )
    return facts


def layers(device) -> list[tuple[Layer, torch.dtype]]:
    """Return the layers to run on `device`, each with its dtype."""
    if device == "cuda":
        gpu_layers = gpt2_layers(tokens=1024) + [Layer("square", 4096, 4096, 4096)]
        return [(layer, dtype) for layer in gpu_layers for dtype in (torch.float16, torch.bfloat16)]
    return [(layer, dtype) for layer in gpt2_layers(tokens=64) for dtype in (torch.float32, torch.bfloat16)]


def measure(layer, dtype, device) -> Row:
    """Check a layer's result against float64, and time the op and torch.addmm in turn."""
    a = matrix("row", layer.m, layer.k, dtype, device)
    b = matrix(layer.b, layer.k, layer.n, dtype, device)
    bias = matrix("row", 1, layer.n, dtype, device)[0]
    error = reference(bias, a, b).error(torch.ops.tc.addmm(bias, a, b))
    calls = {"tc": [lambda: torch.ops.tc.addmm(bias, a, b)], "torch": [lambda: torch.addmm(bias, a, b)]}
    # Five rounds were too few on a CPU: a row at 0.97x read 0.89x straight after a build.
    times = timing.interleaved(calls, cuda=device == "cuda", rounds=5 if device == "cuda" else 25)
    ours = times["tc"].median
    kernel = tc.plan(bias, a, b).kernel if device == "cuda" else "aten (CPU)"
    return Row(
        layer.name, layer.m, layer.n, layer.k, str(dtype).removeprefix("torch."), kernel, error, ours * 1e6,
        2 * layer.m * layer.n * layer.k / ours / 1e12, times["torch"].median / ours,
    )  # fmt: skip


def rows_with_progress(chosen, device) -> list[Row]:
    """Measure the (layer, dtype) pairs in `chosen`. A progress bar shows on stderr if rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        return [measure(layer, dtype, device) for layer, dtype in chosen]
    console = Console(stderr=True)
    return [measure(layer, dtype, device) for layer, dtype in track(chosen, "measuring", console=console, transient=True)]


def run(as_json=False) -> int:
    """Run the self-check and print its results.

    Args:
        as_json: whether to print one JSON object instead of a table.

    Returns:
        The exit code: 1 if a result is outside its error bound, else 0.
    """
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
