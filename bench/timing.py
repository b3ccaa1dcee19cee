"""The benchmark protocol: what every figure in bench/results/ was measured with.

Calls are replayed as CUDA graphs (torch_addmm_tc/timing.py), contenders interleaved in one run, each after a rest; medians
and spread are over rounds after a warm-up. Operands rotate through sets that together exceed three times the L2, so that no
call finds its inputs cached, and hold random normal data (a tensor core draws less power, and runs faster, on zeros). The
ceilings that rows are compared with are measured in the same run.
"""

import datetime
import math
import os
import subprocess

import torch

from torch_addmm_tc import timing


def record() -> dict:
    """Where and when a result was measured, and with what. COMMIT names the commit where the tree is a copy without .git."""

    def output(*command):
        try:
            return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        except (OSError, subprocess.CalledProcessError):
            return "unknown"

    gpu = output("nvidia-smi", "--query-gpu=driver_version,clocks.sm,clocks.max.sm,power.limit", "--format=csv,noheader")
    return {
        "device": torch.cuda.get_device_name(),
        "driver, SM clock, highest SM clock, power limit": gpu,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "commit": os.environ.get("COMMIT") or output("git", "describe", "--always", "--dirty"),
        "date": datetime.date.today().isoformat(),
    }


def sets_to_rotate(bytes_per_call: int) -> int:
    """How many sets of operands make a full turn exceed three times the L2."""
    l2 = torch.cuda.get_device_properties(torch.cuda.current_device()).L2_cache_size
    return math.ceil(3 * l2 / bytes_per_call) + 1


def ceilings() -> dict:
    """This run's FLOP/s per dtype, by cuBLAS at 8192 cubed (fp32: 4096, without TF32), and bytes/s, by a kernel that reads and
    writes 2 GiB."""
    result = {}
    for dtype, size in ((torch.float16, 8192), (torch.bfloat16, 8192), (torch.float32, 4096)):
        a, b = torch.randn(2, size, size, device="cuda").to(dtype)
        time = timing.interleaved({"mm": [lambda a=a, b=b: a @ b]}, cuda=True, rounds=5)["mm"]
        result[str(dtype).removeprefix("torch.")] = 2 * size**3 / time.fastest
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    time = timing.interleaved({"copy": [lambda: torch.mul(source, 1, out=target)]}, cuda=True, rounds=5)["copy"]
    result["bytes"] = 2 * source.nbytes / time.fastest
    return result
