"""Compiles a .cu file of this folder for the GPU at hand, as a library for ctypes."""

import ctypes
import subprocess
import tempfile
from pathlib import Path

import torch


def library(name: str) -> ctypes.CDLL:
    """bench/NAME.cu, compiled by the nvcc on PATH."""
    major, minor = torch.cuda.get_device_capability()
    arch = f"-gencode=arch=compute_{major}{minor},code=sm_{major}{minor}"
    with tempfile.TemporaryDirectory() as folder:
        path, source = Path(folder) / f"{name}.so", Path(__file__).parent / f"{name}.cu"
        subprocess.run(["nvcc", "-std=c++17", "-O3", arch, "-shared", "-Xcompiler=-fPIC", "-o", path, source], check=True)
        return ctypes.CDLL(str(path))
