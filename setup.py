"""Builds torch_addmm_tc._C: CPU-only where torch is CPU-only or no nvcc is found, with CUDA kernels otherwise.

Environment: CUDA_HOME (toolkit to use), TORCH_CUDA_ARCH_LIST (GPU generations), MAX_JOBS (parallel compilations), CXX.
"""

import importlib.util
import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup

CPP_SOURCES = [
    "csrc/op/op.cpp",
    "csrc/op/checks.cpp",
    "csrc/op/tensor.cpp",
    "csrc/op/cpu.cpp",
    "csrc/op/introspect.cpp",
    "csrc/gemm/planner.cpp",
    "csrc/gemm/feasibility.cpp",
    "csrc/gemm/cost_model.cpp",
    "csrc/gemm/device.cpp",
    "csrc/kernels/registry.cpp",
]
CUDA_SOURCES = [
    "csrc/op/cuda.cpp",
    "csrc/op/device_spec.cpp",
    "csrc/gemm/run.cpp",
    "csrc/kernels/00_workspace.cu",
    "csrc/kernels/01_simt.cu",
    "csrc/kernels/02_wmma_naive.cu",
    "csrc/kernels/03_wmma_block.cu",
    "csrc/kernels/04_wmma_double_buffer.cu",
    "csrc/kernels/05_wmma_kstage.cu",
    "csrc/kernels/06_mma_swizzle.cu",
    "csrc/kernels/07_wgmma_tma.cu",
    "csrc/kernels/08_mma_skinny.cu",
    "csrc/kernels/09_wgmma_cluster.cu",
]

# Ampere machine code, PTX from which the driver compiles for every later GPU, and Hopper with its own instructions.
ARCH_LIST = "8.0+PTX;9.0a"

OLDEST_TORCH = (2, 11)  # also the stable ABI that csrc/op.h asks for


def import_torch():
    try:
        import torch
    except ImportError:
        sys.exit("torch_addmm_tc: torch is missing; run 'pip install torch' first, then install with --no-build-isolation.")
    if tuple(int(x) for x in re.findall(r"\d+", torch.__version__)[:2]) < OLDEST_TORCH:
        sys.exit(f"torch_addmm_tc: torch {torch.__version__} is too old; run 'pip install \"torch>=2.11\"'.")
    return torch


def require_cxx():
    compiler = os.environ.get("CXX", "c++")
    if shutil.which(compiler.split()[0]) is None:
        sys.exit(f"torch_addmm_tc: no C++ compiler '{compiler}'; install g++ (on Debian: apt install g++) or set CXX.")


def toolkit_behind(nvcc):
    """The toolkit folder of an nvcc that may be a link or a wrapper script: nvcc itself says where it lives."""
    dryrun = subprocess.run([nvcc, "--dryrun", "-E", "-x", "cu", os.devnull], capture_output=True, text=True)
    top = re.search(r"TOP=(\S+)", dryrun.stderr)
    return Path(top[1]).resolve() if top else Path(os.path.realpath(nvcc)).parent.parent


def find_toolkit(cuda_major):
    """A folder with bin/nvcc: CUDA_HOME, then pip's cuda-toolkit[nvcc,cccl], then the nvcc on PATH."""
    if home := os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH"):
        if not (Path(home) / "bin" / "nvcc").exists():
            sys.exit(f"torch_addmm_tc: CUDA_HOME is {home}, which has no bin/nvcc; unset it or point it at a CUDA toolkit.")
        return Path(home)
    spec = importlib.util.find_spec("nvidia")
    for folder in spec.submodule_search_locations if spec else ():
        if (Path(folder) / f"cu{cuda_major}" / "bin" / "nvcc").exists():
            return Path(folder) / f"cu{cuda_major}"
    nvcc = shutil.which("nvcc")
    return toolkit_behind(nvcc) if nvcc else None


def check_major(toolkit, torch_cuda):
    report = subprocess.run([toolkit / "bin" / "nvcc", "--version"], capture_output=True, text=True).stdout
    release = re.search(r"release (\d+)\.(\d+)", report)
    if release and release[1] != torch_cuda.split(".")[0]:
        sys.exit(
            f"torch_addmm_tc: nvcc in {toolkit} is CUDA {release[1]}.{release[2]} but torch was built with CUDA {torch_cuda}; "
            f"run 'pip install \"cuda-toolkit[nvcc,cccl]=={torch_cuda}.*\"' and unset CUDA_HOME."
        )


def cudart_folder(toolkit, major):
    """pip's toolkit has no libcudart.so, only the library under its full name."""
    for folder in ("lib64", "lib", "targets/x86_64-linux/lib", "targets/sbsa-linux/lib"):
        if (toolkit / folder / f"libcudart.so.{major}").exists():
            return toolkit / folder
    sys.exit(f"torch_addmm_tc: no libcudart.so.{major} in {toolkit}; run 'pip install nvidia-cuda-runtime' or repair CUDA.")


def extension():
    torch = import_torch()
    require_cxx()
    major = torch.version.cuda.split(".")[0] if torch.version.cuda else None
    toolkit = find_toolkit(major) if major else None
    if toolkit:
        check_major(toolkit, torch.version.cuda)
        os.environ["CUDA_HOME"] = str(toolkit)
        os.environ.setdefault("TORCH_CUDA_ARCH_LIST", ARCH_LIST)
    elif major:
        print(
            f"torch_addmm_tc: no nvcc found, so this build runs on the CPU only; for GPU kernels run "
            f"'pip install \"cuda-toolkit[nvcc,cccl]=={torch.version.cuda}.*\"' and install again.",
            file=sys.stderr,
        )
    from torch.utils import cpp_extension  # reads CUDA_HOME when imported

    macros = [("PYBIND11_DETAILED_ERROR_MESSAGES", None)]
    flags = {"cxx": ["-O2", "-std=c++17", "-fvisibility=hidden", "-Wall"]}
    link = dict(libraries=["torch", "torch_cpu"], library_dirs=cpp_extension.library_paths())
    if toolkit:
        macros += [("TC_WITH_CUDA", None), ("USE_CUDA", None)]
        if "9.0a" not in os.environ["TORCH_CUDA_ARCH_LIST"]:
            macros += [("TC_WITHOUT_HOPPER", None)]
            print("torch_addmm_tc: TORCH_CUDA_ARCH_LIST has no 9.0a, so this build has no kernels for wgmma.", file=sys.stderr)
        flags["nvcc"] = ["-O3", "-std=c++17"]
        link["libraries"] += ["torch_cuda"]
        link["library_dirs"] += [str(cudart_folder(toolkit, major))]
        link["extra_link_args"] = [f"-l:libcudart.so.{major}"]
    module = Extension(
        "torch_addmm_tc._C",
        CPP_SOURCES + (CUDA_SOURCES if toolkit else []),
        include_dirs=cpp_extension.include_paths("cuda" if toolkit else "cpu"),
        define_macros=macros,
        extra_compile_args=flags,
        language="c++",
        **link,
    )

    class BuildExtension(cpp_extension.BuildExtension):
        """Keeps its objects in build/: editable installs compile in a folder that pip deletes, each time every kernel anew."""

        def finalize_options(self):
            super().finalize_options()
            self.build_temp = os.path.join("build", f"objects-{sysconfig.get_platform()}-{sys.implementation.cache_tag}")

    return module, BuildExtension


if __name__ == "__main__":
    module, build_ext = extension()
    setup(ext_modules=[module], cmdclass={"build_ext": build_ext})
