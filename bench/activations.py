"""The cost of an activation in the epilogue, compared with torch's activations.

    python -m bench.activations [--json FILE] [--seconds S]

The shapes are feed-forward layers of GPT-2, BERT, a ViT and Llama, in fp16 with a 1-D bias and a weight-major B. These run:

    the op without an activation, and with each activation
    torch.addmm
    torch.addmm followed by torch's activation, which is a second kernel
    torch._addmm_activation, which has relu and gelu_tanh

The command prints a table. --json writes the figures to FILE and the table to the .md file beside it.
"""

import argparse
import json
from pathlib import Path

import torch
from rich.progress import track

import torch_addmm_tc as tc
from bench.timing import record, sets_to_rotate
from torch_addmm_tc import timing
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import ACTIVATIONS, reference

# M, N, K
SHAPES = [(8192, 3072, 768), (12608, 3072, 768), (4096, 14336, 4096), (1024, 4096, 1024), (512, 2048, 512), (16384, 4096, 128)]
FUSED_BY_TORCH = {"relu": False, "gelu_tanh": True}  # torch._addmm_activation's use_gelu


def measure(m, n, k, *, seconds) -> dict:
    """Check and time every contender on one shape. Each contender runs for about `seconds` in each round."""
    sets = []
    for _ in range(sets_to_rotate(2 * (m * k + k * n + m * n))):
        bias = matrix("row", 1, n, torch.float16, "cuda")[0]
        sets.append((bias, matrix("row", m, k, torch.float16, "cuda"), matrix("col", k, n, torch.float16, "cuda")))
    calls = {"tc": tc.addmm, "torch": torch.addmm}
    for name, function in ACTIVATIONS.items():
        calls[f"tc {name}"] = lambda *args, name=name: tc.addmm(*args, activation=name)
        calls[f"torch, then {name}"] = lambda *args, function=function: function(torch.addmm(*args))
        if name in FUSED_BY_TORCH:
            gelu = FUSED_BY_TORCH[name]
            calls[f"torch {name}"] = lambda *args, gelu=gelu: torch._addmm_activation(*args, use_gelu=gelu)
    error = max(reference(*sets[0], activation=name).error(calls[f"tc {name}"](*sets[0])) for name in ACTIVATIONS)
    contenders = {name: [lambda call=call, args=args: call(*args) for args in sets] for name, call in calls.items()}
    times = timing.interleaved(contenders, cuda=True, rounds=7, seconds=seconds)
    return {
        "shape": [m, n, k],
        "error": error,  # as a fraction of the bound of torch_addmm_tc/testing/reference.py
        "microseconds": {name: time.median * 1e6 for name, time in times.items()},
        "spread": {name: time.spread for name, time in times.items()},
    }


def table(rows) -> str:
    """Return a markdown table of what measure() returned for each shape."""
    lines = [
        "A cell gives microseconds: torch.ops.tc.addmm with the activation; torch.addmm followed by torch's activation; and "
        "torch._addmm_activation, if it has the activation.\n",
        "| M, N, K | none | " + " | ".join(ACTIVATIONS) + " |",
        "|---" * (len(ACTIVATIONS) + 2) + "|",
    ]
    for row in rows:
        times = row["microseconds"]
        cells = [f"{times['tc']:.1f}, torch {times['torch']:.1f}"]
        for name in ACTIVATIONS:
            theirs = [f"{times[key]:.1f}" for key in (f"torch, then {name}", f"torch {name}") if key in times]
            cells.append(", ".join([f"{times[f'tc {name}']:.1f}", *theirs]))
        lines.append(f"| {', '.join(map(str, row['shape']))} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.activations", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file and the table to the .md file beside it")
    parser.add_argument("--seconds", type=float, default=0.005, help="seconds that each contender runs in each round")
    options = parser.parse_args()
    with torch.inference_mode():
        rows = [measure(*shape, seconds=options.seconds) for shape in track(SHAPES, "activations")]
    text = table(rows)
    print(text)
    if options.json:
        options.json.write_text(json.dumps({"record": record(), "rows": rows}, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(text)
    wrong = [row for row in rows if not row["error"] <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} of {len(rows)} shapes have a result outside its error bound")


if __name__ == "__main__":
    main()
