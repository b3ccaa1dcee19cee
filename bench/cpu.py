"""The op on the CPU, compared with torch.addmm, on a machine without a GPU.

    python -m bench.cpu [--json FILE] [--seconds S] [--seed N]

The shapes are three linear layers, and `--seed` draws three more. Each runs in fp16, bf16 and fp32, with a 1-D bias and with a
full C, with B row-major and weight-major. Calls of the op and of torch.addmm alternate, and the figures are medians.
The command prints a table. --json writes the figures to FILE and the table to the .md file beside it.
"""

import argparse
import json
import platform
import random
import re
import statistics
import time
from pathlib import Path

import torch

import torch_addmm_tc as tc
from bench.timing import source_record
from torch_addmm_tc.testing.inputs import matrix
from torch_addmm_tc.testing.reference import reference

# M, N, K
SHAPES = [(1, 4096, 4096), (64, 2304, 768), (1024, 768, 768)]
DTYPES = (torch.float16, torch.bfloat16, torch.float32)


def drawn_shapes(seed: int) -> list[tuple[int, int, int]]:
    """Draw three shapes whose sizes are log-uniform."""
    draw = random.Random(seed)
    return [(int(2 ** draw.uniform(2, 9)), int(2 ** draw.uniform(8, 12)), int(2 ** draw.uniform(8, 12))) for _ in range(3)]


def measure(m: int, n: int, k: int, dtype, b: str, c: str, seconds: float) -> dict:
    """Check the op on one problem and time it; the op and torch.addmm run for about `seconds` together."""
    addend = matrix("row", 1, n, dtype, "cpu")[0] if c == "bias" else matrix("row", m, n, dtype, "cpu")
    args = addend, matrix("row", m, k, dtype, "cpu"), matrix(b, k, n, dtype, "cpu")
    error = reference(*args).error(tc.addmm(*args))

    def timed(function):
        begin = time.perf_counter()
        function(*args)
        return time.perf_counter() - begin

    calls = {"tc": torch.ops.tc.addmm, "torch": torch.addmm}
    rounds = max(7, min(100, int(seconds / sum(timed(call) for call in calls.values()))))
    times = {name: [] for name in calls}
    for i in range(rounds):  # each contender goes first in every other round
        for name in sorted(calls, reverse=bool(i % 2)):
            times[name].append(timed(calls[name]))
    ours, theirs = (statistics.median(times[name]) * 1e6 for name in ("tc", "torch"))
    shape, name = [m, n, k], str(dtype).removeprefix("torch.")
    return {"shape": shape, "dtype": name, "b": b, "c": c, "error": error, "microseconds": ours, "torch": theirs}


def table(result: dict) -> str:
    record = result["record"]
    lines = [
        "Microseconds of the op, and how many times as fast as torch.addmm. "
        f"{result['cpu']}, {result['threads']} threads, torch {record['torch']}, commit {record['commit']}. "
        f"The last {result['drawn']} shapes were drawn.\n",
        "| M, N, K | dtype | row-major B, bias | row-major B, full C | weight-major B, bias | weight-major B, full C |",
        "|---|---|---|---|---|---|",
    ]
    cells = {}
    for row in result["rows"]:
        cell = f"{row['microseconds']:.0f}, {row['torch'] / row['microseconds']:.2f}x"
        cells.setdefault((*row["shape"], row["dtype"]), []).append(cell)
    lines += [f"| {m}, {n}, {k} | {dtype} | {' | '.join(row)} |" for (m, n, k, dtype), row in cells.items()]
    return "\n".join(lines) + "\n"


def cpu_name() -> str:
    """Return the CPU's name, as Linux says it."""
    info = Path("/proc/cpuinfo")
    found = re.search(r"model name\s*: (.*)", info.read_text()) if info.exists() else None
    return found[1] if found else platform.processor()


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.cpu", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures here, and the table beside it as .md")
    parser.add_argument("--seconds", type=float, default=1.0, help="for each problem")
    parser.add_argument("--seed", type=int, default=0, help="draws the last three shapes")
    options = parser.parse_args()
    drawn, rows = drawn_shapes(options.seed), []
    with torch.inference_mode():
        for shape in SHAPES + drawn:
            for dtype in DTYPES:
                for b in ("row", "col"):
                    rows += [measure(*shape, dtype, b, c, options.seconds) for c in ("bias", "full")]
    facts = {"record": source_record(), "cpu": cpu_name(), "threads": torch.get_num_threads(), "drawn": len(drawn)}
    result = facts | {"seed": options.seed, "rows": rows}
    text = table(result)
    print(text)
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(text)
    wrong = [row for row in rows if not row["error"] <= 1]
    if wrong:
        raise SystemExit(f"{len(wrong)} problems are outside their error bound")


if __name__ == "__main__":
    main()
