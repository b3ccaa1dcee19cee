"""The ceilings of the current GPU: the highest arithmetic rates and memory bandwidth that a kernel can reach.

bench/ceilings.cu has the loops that reach them.
"""

import ctypes

import torch

from bench.compile import library
from torch_addmm_tc import timing


class Ceilings:
    """The functions of bench/ceilings.cu, compiled for the current GPU.

    The loops multiply random data, because a tensor core draws less power, and clocks higher, on zeros.
    """

    def __init__(self):
        self._functions = library("ceilings")
        for function in (self._functions.launch_mma_sync, self._functions.launch_wgmma, self._functions.copy_tbytes):
            function.restype = ctypes.c_double
        self._functions.launch_mma_sync.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._functions.launch_wgmma.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self._sink = torch.zeros(1, device="cuda")

    def mma_sync(self) -> float:
        """Launch a loop of mma.sync m16n8k16 that reads registers only. Return the launch's FLOPs."""
        return self._checked(self._functions.launch_mma_sync(self._sink.data_ptr(), self._stream))

    def wgmma(self, dtype=torch.float16) -> float:
        """Launch a loop of wgmma m64n256k16 that reads shared memory only (sm_90). Return the launch's FLOPs.

        Args:
            dtype: torch.float16 or torch.bfloat16.
        """
        return self._checked(self._functions.launch_wgmma(self._sink.data_ptr(), self._stream, dtype == torch.bfloat16))

    def copy_tbytes(self) -> float:
        """Copy 2 GiB. Return TB/s: bytes read plus bytes written over the time."""
        return self._checked(self._functions.copy_tbytes())

    @property
    def _stream(self):
        return torch.cuda.current_stream().cuda_stream

    def _checked(self, value):
        if value <= 0:
            raise RuntimeError("a kernel of bench/ceilings.cu failed with a CUDA error")
        return value


def has_wgmma() -> bool:
    """Return whether the current GPU has wgmma."""
    return torch.cuda.get_device_capability() == (9, 0)


def ceilings() -> dict:
    """Measure the ceilings.

    Returns:
        "float16", "bfloat16": FLOP/s of the wgmma loop or, on a GPU without wgmma, of the mma.sync loop.
        "float32", "tf32": FLOP/s of cuBLAS at M = N = K = 4096.
        "bytes": bytes per second, read plus written, of a kernel that reads 2 GiB and writes 2 GiB.
    """
    loops, result = Ceilings(), {}
    for dtype in (torch.float16, torch.bfloat16):
        launch = (lambda dtype=dtype: loops.wgmma(dtype)) if has_wgmma() else loops.mma_sync
        time = timing.interleaved({"loop": [launch]}, cuda=True, rounds=5)["loop"]
        result[str(dtype).removeprefix("torch.")] = launch() / time.fastest
    a, b = torch.randn(2, 4096, 4096, device="cuda")
    for name, precision in (("float32", "highest"), ("tf32", "high")):
        torch.set_float32_matmul_precision(precision)
        result[name] = 2 * 4096**3 / timing.interleaved({"mm": [lambda: a @ b]}, cuda=True, rounds=5)["mm"].fastest
    source = torch.randn(2**29, device="cuda")
    target = torch.empty_like(source)
    time = timing.interleaved({"copy": [lambda: torch.mul(source, 1, out=target)]}, cuda=True, rounds=5)["copy"]
    result["bytes"] = 2 * source.nbytes / time.fastest
    return result
