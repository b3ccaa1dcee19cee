"""Bank conflicts of each access: the count of torch_addmm_tc/tools/banks.py compared with the GPU's counters.

    python -m bench.conflicts [--json FILE]        (needs Nsight Compute's ncu on PATH)

One warp replays every access of every layout, address by address (bench/conflicts.cu). ncu reads the counters of shared-memory
bank conflicts. --json writes the figures to FILE and the table to the .md file beside it.
"""

import argparse
import csv
import ctypes
import json
import subprocess
import sys
from pathlib import Path

import torch

from bench.compile import library
from bench.timing import record
from torch_addmm_tc.tools.banks import LAYOUTS, WARP, Access

COUNTERS = [f"l1tex__data_bank_conflicts_pipe_lsu_mem_shared_op_{op}.sum" for op in ("ld", "st")]


def accesses() -> list[tuple[str, str, Access]]:
    """Return (name in LAYOUTS, layout's name, access) of every access."""
    return [(name, x.name, access) for name, (_, layouts) in LAYOUTS.items() for x in layouts for access in x.accesses]


def replay() -> None:
    """Launch one kernel for each of accesses(), in order."""
    functions = library("conflicts")
    functions.replay.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_int]
    for name, form, access in accesses():
        addresses = torch.tensor(access.addresses, dtype=torch.int32, device="cuda")
        sink = torch.empty(WARP, dtype=torch.int32, device="cuda")
        kind = 0 if "store" in access.name else 2 if "matrix" in access.name else 1
        smem_bytes = max(access.addresses) + access.width
        status = functions.replay(kind, access.width, addresses.data_ptr(), len(access.addresses), sink.data_ptr(), smem_bytes)
        if status != 0 or len(access.addresses) % WARP:
            raise SystemExit(f"{name}, {form}, {access.name}: replay() of {len(access.addresses)} addresses returned {status}")


def count() -> list[dict]:
    """Return a row for each access: the conflicts that banks.py counts and those that the GPU measures."""
    ncu = ["ncu", "--csv", "--metrics", ",".join(COUNTERS), "-k", "regex:replay_accesses"]
    output = subprocess.run([*ncu, sys.executable, "-m", "bench.conflicts", "--replay"], capture_output=True, text=True)
    lines = [line for line in output.stdout.splitlines() if line.startswith('"')]
    if output.returncode or not lines:
        raise SystemExit(output.stdout + output.stderr)
    measured = {}
    for row in csv.DictReader(lines):
        launch = int(row["ID"])
        measured[launch] = measured.get(launch, 0) + int(row["Metric Value"].replace(",", ""))
    return [
        {
            "layout": name,
            "form": form,
            "access": access.name,
            "degree": access.worst,
            "counted": access.conflicts,
            "measured": m,
        }
        for (name, form, access), m in zip(accesses(), (measured[i] for i in sorted(measured)), strict=True)
    ]


def table(result: dict) -> str:
    """Return a markdown table of a result, under the run's record."""
    lines = [f"{name}: {value}  " for name, value in result["record"].items()]
    lines += ["", "| layout | form | access | degree | conflicts counted | measured |", "|---|---|---|---|---|---|"]
    for r in result["rows"]:
        lines.append("| {layout} | {form} | {access} | {degree} | {counted} | {measured} |".format(**r))
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(prog="python -m bench.conflicts", description=__doc__.split("\n")[0])
    parser.add_argument("--json", type=Path, help="write the figures to this file and the table to the .md file beside it")
    parser.add_argument("--replay", action="store_true", help="only launch the kernels; ncu runs the command with it")
    options = parser.parse_args()
    if options.replay:
        return replay()
    result = {"record": record(), "rows": count()}
    print(table(result))
    if options.json:
        options.json.write_text(json.dumps(result, indent=1) + "\n")
        options.json.with_suffix(".md").write_text(table(result))


if __name__ == "__main__":
    main()
