"""The benchmark protocol: what every figure in bench/results/ was measured with.

Calls are replayed as CUDA graphs (torch_addmm_tc/timing.py), contenders interleaved in one run, each after a rest; medians
and spread are over rounds after a warm-up. Operands rotate through sets that together exceed three times the L2, so that no
call finds its inputs cached, and hold random normal data (a tensor core draws less power, and runs faster, on zeros). The
ceilings that rows are compared with are measured in the same run.
"""

import datetime
import hashlib
import math
import os
import subprocess
from pathlib import Path

import torch

ROOT = Path(__file__).parent.parent


def record() -> dict:
    """Where and when a result was measured, and with what. COMMIT names the commit where the tree is a copy without .git;
    the digest of the sources tells whether it is true."""

    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    uuid = torch.cuda.get_device_properties(torch.cuda.current_device()).uuid
    gpu = output(
        "nvidia-smi", f"--id=GPU-{uuid}", "--query-gpu=driver_version,clocks.max.sm,power.limit", "--format=csv,noheader"
    )
    sources = sorted((ROOT / "csrc").rglob("*.[ch]*"))
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sources)).hexdigest()
    return {
        "device": torch.cuda.get_device_name(),
        "driver, highest SM clock, power limit": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": os.environ.get("COMMIT") or output("git", "describe", "--always", "--dirty"),
        "sha256 of csrc": digest[:16],
        "date": datetime.date.today().isoformat(),
    }


def sets_to_rotate(bytes_per_call: int) -> int:
    """How many sets of operands make a full turn exceed three times the L2."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return math.ceil(3 * l2 / bytes_per_call) + 1
