"""cuBLASLt's fastest algorithm for a problem, with C and D in separate memory.

bench/cublaslt.cu asks cuBLASLt's heuristics for algorithms. This module times them.
"""

import ctypes
import importlib.util
from pathlib import Path

import torch

from bench.compile import library
from torch_addmm_tc import timing

CUDA_TYPES = {torch.float32: 0, torch.float16: 2, torch.bfloat16: 14}  # cudaDataType
WORKSPACE = 64 * 2**20  # bytes


def _functions() -> ctypes.CDLL:
    """Compile bench/cublaslt.cu against torch's cuBLASLt or, if torch has none, the CUDA toolkit's."""
    options = ["-lcublasLt"]
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        home = Path(folder) / f"cu{torch.version.cuda.split('.')[0]}"
        for path in sorted((home / "lib").glob("libcublasLt.so.*")):
            options = [f"-I{home}/include", f"-L{home}/lib", f"-l:{path.name}"]
    functions = library("cublaslt", *options)
    i64, u64, pointer, number, integer = ctypes.c_int64, ctypes.c_uint64, ctypes.c_void_p, ctypes.c_float, ctypes.c_int
    functions.create.restype = pointer
    functions.create.argtypes = [i64] * 3 + [integer] * 5 + [u64, integer, ctypes.POINTER(integer)]
    functions.destroy.argtypes = [pointer]
    functions.run.argtypes = [pointer, integer] + [pointer] * 4 + [number] * 2 + [integer, pointer, u64, pointer]
    return functions


class Matmul:
    """The owner of a pointer that create() returned. It frees the pointer once no call needs it."""

    def __init__(self, functions, pointer):
        self.pointer, self._destroy = pointer, functions.destroy

    def __del__(self):
        self._destroy(self.pointer)


class CublasLt:
    """cuBLASLt's matmul through bench/cublaslt.cu, which is compiled once."""

    def __init__(self):
        self._functions = _functions()
        self._workspace = torch.empty(WORKSPACE, dtype=torch.uint8, device="cuda")

    def fastest(self, sets, *, beta=1.0, alpha=1.0, out_dtype, tf32=False, wanted=16, seconds=0.001):
        """Find the fastest algorithm for a problem.

        Args:
            sets: list of (c, a, b). c is (M, N), or (N,) for the bias epilogue, in out_dtype. a is a row-major (M, K). b is
                (K, N), row-major or the transpose of a row-major (N, K).
            beta, alpha: numbers. The bias epilogue takes both as 1.
            out_dtype: the result's dtype.
            tf32: whether float32 operands may be rounded to TF32.
            wanted: how many algorithms to ask the heuristics for.
            seconds: how long to time each algorithm.

        Returns:
            Calls of the fastest algorithm, one for each of `sets`. None if cuBLASLt has no algorithm that runs.
        """
        c, a, b = sets[0]
        (m, k), n, bias = a.shape, b.shape[1], c.dim() == 1
        count = ctypes.c_int(0)
        weight_major = b.stride(0) == 1 and b.stride(1) == k
        kind, out_kind = CUDA_TYPES[a.dtype], CUDA_TYPES[out_dtype]
        pointer = self._functions.create(
            m, n, k, weight_major, kind, out_kind, tf32, bias, WORKSPACE, wanted, ctypes.byref(count)
        )
        if not pointer:
            return None
        matmul = Matmul(self._functions, pointer)

        def call(algorithm, c, a, b):
            out = torch.empty(m, n, dtype=out_dtype, device="cuda")
            pointers = (x.data_ptr() for x in (a, b, c, out))
            stream = torch.cuda.current_stream().cuda_stream
            status = self._functions.run(
                matmul.pointer, algorithm, *pointers, alpha, beta, bias, self._workspace.data_ptr(), WORKSPACE, stream
            )
            if status:
                raise RuntimeError(f"cublasLtMatmul returned {status}")
            return out

        contenders = {}
        for i in range(count.value):
            try:
                call(i, *sets[0])
                torch.cuda.synchronize()
            except RuntimeError:
                continue
            contenders[i] = [lambda args=args, i=i: call(i, *args) for args in sets]
        if not contenders:
            return None
        times = timing.interleaved(contenders, cuda=True, rounds=1, seconds=seconds)
        return contenders[min(times, key=lambda i: times[i].median)]
