"""Compilation of this folder's .cu files into libraries for ctypes."""

import ctypes
import runpy
import subprocess
import tempfile
from pathlib import Path

import torch

from bench.timing import ROOT


def library(name: str, *options: str) -> ctypes.CDLL:
    """Compile bench/NAME.cu for the current GPU and load it.

    Args:
        name: the file's name without its extension.
        options: further options of nvcc.

    Returns:
        The loaded library. The nvcc is the one that setup.py would use.

    Raises:
        SystemExit: if there is no nvcc.
        subprocess.CalledProcessError: if the compilation fails.
    """
    setup, cuda = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_functions"), torch.version.cuda
    toolkit = setup["find_toolkit"](cuda.split(".")[0])
    if toolkit is None:
        raise SystemExit(f'nvcc was not found; run: pip install "cuda-toolkit[nvcc,cccl]=={cuda}.*"')
    major, minor = torch.cuda.get_device_capability()
    gpu = f"{major}{minor}" + ("a" if major == 9 else "")
    arch = f"-gencode=arch=compute_{gpu},code=sm_{gpu}"
    with tempfile.TemporaryDirectory() as folder:
        path, source = Path(folder) / f"{name}.so", ROOT / "bench" / f"{name}.cu"
        nvcc = [toolkit / "bin" / "nvcc", "-std=c++17", "-O3", arch, "-shared", "-Xcompiler=-fPIC"]
        subprocess.run([*nvcc, "-o", path, source, *options], check=True)
        return ctypes.CDLL(str(path))
