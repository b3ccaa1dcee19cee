"""What the GPU at hand can do at most, by bench/ceilings.cu: the loops that kernels are set beside."""

import ctypes

import torch

from bench.compile import library
from torch_addmm_tc import timing


class Ceilings:
    """bench/ceilings.cu, compiled here for this GPU. Its loops hold random data: a tensor core clocks higher on zeros."""

    def __init__(self):
        self._functions = library("ceilings")
        for function in (self._functions.launch_mma_sync, self._functions.launch_wgmma, self._functions.copy_tbytes):
            function.restype = ctypes.c_double
        self._functions.launch_mma_sync.argtypes = [ctypes.c_void_p, ctypes.c_void_p]
        self._functions.launch_wgmma.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int]
        self._sink = torch.zeros(1, device="cuda")

    def mma_sync(self) -> float:
        """Launches mma.sync m16n8k16 on registers alone; the FLOPs of that launch."""
        return self._checked(self._functions.launch_mma_sync(self._sink.data_ptr(), self._stream))

    def wgmma(self, dtype=torch.float16) -> float:
        """Launches wgmma m64n256k16 on shared memory alone (sm_90); the FLOPs of that launch."""
        return self._checked(self._functions.launch_wgmma(self._sink.data_ptr(), self._stream, dtype == torch.bfloat16))

    def copy_tbytes(self) -> float:
        """TB/s, read + written, of a copy of 2 GiB."""
        return self._checked(self._functions.copy_tbytes())

    @property
    def _stream(self):
        return torch.cuda.current_stream().cuda_stream

    def _checked(self, value):
        if value <= 0:
            raise RuntimeError("a ceiling kernel failed")
        return value


def has_wgmma() -> bool:
    return torch.cuda.get_device_capability() == (9, 0)


def ceilings() -> dict:
    """This run's FLOP/s per dtype and bytes/s. 16-bit: wgmma or, before sm_90, mma.sync; fp32 and
    TF32: cuBLAS at 4096 cubed; bytes: a kernel that reads and writes 2 GiB."""
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
