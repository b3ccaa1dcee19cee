"""The benchmark protocol of bench/results/.

torch_addmm_tc/timing.py replays calls as CUDA graphs and interleaves contenders in one run. Each contender starts after a rest.
Medians and spreads are over the rounds after a warm-up.

Operands rotate through sets that together exceed three times the L2: no call finds its inputs cached. Operands are random
normal, because a tensor core draws less power, and clocks higher, on zeros. Ceilings are measured in the same run as the rows
that are compared with them.
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
    """Return the device, the versions, the commit and the date of a measurement.

    The environment variable COMMIT names the commit of a tree without .git. The digest of csrc/ identifies the sources.
    """

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
    """Return how many sets of operands together exceed three times the L2.

    Args:
        bytes_per_call: the bytes of one set.
    """
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return math.ceil(3 * l2 / bytes_per_call) + 1
