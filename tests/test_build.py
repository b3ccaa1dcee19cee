"""The build: kernels compile to their instructions without spills; a machine that lacks something is told what to install."""

import functools
import importlib.util
import os
import re
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from setuptools import Distribution

import torch_addmm_tc as tc

ROOT = Path(__file__).parent.parent
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_functions")
KERNELS = sorted((ROOT / "csrc/kernels").glob("*.cu"))
NVIDIA = [Path(x) / "cu13" for x in getattr(importlib.util.find_spec("nvidia"), "submodule_search_locations", ())]  # pip's
ARCHITECTURES = ("arch=compute_80,code=sm_80", "arch=compute_90a,code=sm_90a")


@pytest.fixture(scope="module")
def nvcc():
    toolkit = SETUP["find_toolkit"]("13")
    if toolkit is None:
        pytest.skip("needs nvcc")
    return toolkit / "bin" / "nvcc"


@pytest.fixture(scope="module")
def cubin(nvcc, tmp_path_factory):
    """cubin(kernel, architecture): the compiled file and what the compiler said, each compiled once."""
    folder = tmp_path_factory.mktemp("cubins")

    @functools.cache
    def compiled(kernel, architecture):
        target = folder / f"{kernel.stem}-{architecture.split('sm_')[1]}.cubin"
        options = ["-std=c++17", "-O3", f"-gencode={architecture}", "-Xptxas=-v", "-cubin"]
        done = subprocess.run([nvcc, *options, "-o", target, kernel], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return target, done.stdout + done.stderr

    return compiled


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("kernel", KERNELS, ids=lambda path: path.stem)
def test_kernels_compile_without_torch_local_memory_or_serialised_wgmma(cubin, kernel, architecture):
    _, report = cubin(kernel, architecture)
    local = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report)
    assert local and set(local) == {("0", "0", "0")}, report
    assert not re.search(r"C75\d\d", report), report


@pytest.mark.parametrize(
    "name, architecture, instructions",
    [
        ("06_mma_swizzle", architecture, ("LDGSTS", "LDSM", r"HMMA\.(16816\.F32|1688\.F32\.TF32)"))
        for architecture in ARCHITECTURES
    ]
    + [("07_wgmma_tma", ARCHITECTURES[1], ("HGMMA", "UTMALDG", "UTMASTG"))]
    + [("09_wgmma_cluster", ARCHITECTURES[1], ("HGMMA", "UTMALDG", r"UCGABAR_\w+", r"LD\.E\.128"))]
    + [("08_mma_skinny", architecture, (r"LDG[\w.]*", r"HMMA\.16816\.F32")) for architecture in ARCHITECTURES],
)
def test_every_function_uses_the_instructions_it_is_about(cubin, name, architecture, instructions):
    nvdisasm = shutil.which("nvdisasm", path=os.pathsep.join([os.environ["PATH"], *(f"{home}/bin" for home in NVIDIA)]))
    assert nvdisasm, "pip install nvidia-cuda-nvdisasm, which the extra 'test' asks for"
    kernel = next(path for path in KERNELS if path.stem == name)
    sass = subprocess.run([nvdisasm, "-c", cubin(kernel, architecture)[0]], capture_output=True, text=True, check=True).stdout
    functions = re.split(r"^\t\.section\t\.text\.", sass, flags=re.MULTILINE)[1:]
    assert len(functions) >= len(next(k["instances"] for k in tc.kernels() if k["name"] == name[3:]))
    for function in functions:
        for instruction in instructions:
            assert re.search(rf"\b({instruction})\b", function), f"no {instruction} in {function.splitlines()[0]}"
        assert not re.search(r"\b(LDL|STL)\b", function)


@pytest.mark.parametrize("source", sorted((ROOT / "bench").glob("*.cu")), ids=lambda path: path.stem)
def test_the_benchmarks_own_kernels_compile(nvcc, source, tmp_path):
    if source.stem == "cublaslt" and torch.version.cuda is None:
        pytest.skip("needs a CUDA build of torch, which brings cublasLt.h")
    include = [f"-I{home}/include" for home in NVIDIA] if source.stem == "cublaslt" else []
    for gpu in ("80", "90a"):
        arch = f"-gencode=arch=compute_{gpu},code=sm_{gpu}"
        command = [nvcc, "-std=c++17", "-O3", arch, "-c", "-o", tmp_path / "out.o", source, *include]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and not re.search(r"C75\d\d", done.stderr), done.stderr


def test_every_source_is_listed():
    listed = set(SETUP["CPP_SOURCES"] + SETUP["CUDA_SOURCES"])
    present = {str(p.relative_to(ROOT)) for suffix in ("cpp", "cu") for p in (ROOT / "csrc").rglob(f"*.{suffix}")}
    assert listed == present


def test_objects_outlive_an_editable_install():
    """Which builds in a temporary folder: a second `make test` compiled every kernel again, for ten minutes."""
    command = SETUP["extension"]()[1](Distribution())
    command.build_temp = "a/temporary/folder"
    command.ensure_finalized()
    assert Path(command.build_temp).parts[0] == "build"


def run_setup(prelude="", **environment):
    """Runs `setup.py --version` in a fresh interpreter after `prelude`."""
    code = (
        f"import sys, runpy; {prelude}\nsys.argv = ['setup.py', '--version']; runpy.run_path('setup.py', run_name='__main__')"
    )
    environment = {k: v for k, v in (os.environ | environment).items() if v is not None}
    return subprocess.run([sys.executable, "-c", code], cwd=ROOT, env=environment, capture_output=True, text=True)


def assert_one_sentence(done, *parts):
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    last = done.stderr.strip().splitlines()[-1]
    assert last.startswith("torch_addmm_tc: ") and all(part in last for part in parts), done.stderr


def test_missing_torch():
    done = run_setup("sys.modules['torch'] = None")
    assert_one_sentence(done, "torch is missing", "pip install torch", "--no-build-isolation")


def test_old_torch():
    assert_one_sentence(
        run_setup("import torch; torch.__version__ = '2.10.0'"), "2.10.0 is too old", 'pip install "torch>=2.11"'
    )


def test_missing_compiler():
    assert_one_sentence(run_setup(CXX="no-such-compiler"), "no C++ compiler 'no-such-compiler'", "apt install g++")


def fake_toolkit(folder, release):
    (folder / "bin").mkdir(parents=True)
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return folder


def test_mismatched_cuda_major(tmp_path):
    home = fake_toolkit(tmp_path / "cuda", "12.4")
    done = run_setup("import torch; torch.version.cuda = '13.0'", CUDA_HOME=str(home))
    assert_one_sentence(done, "nvcc in", "CUDA 12.4", "CUDA 13.0", 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"')


def test_cuda_home_without_nvcc(tmp_path):
    done = run_setup("import torch; torch.version.cuda = '13.0'", CUDA_HOME=str(tmp_path))
    assert_one_sentence(done, f"CUDA_HOME is {tmp_path}", "no bin/nvcc")


def test_no_nvcc_builds_for_the_cpu_and_says_how_to_get_more(tmp_path):
    """No CUDA_HOME, no pip toolkit and no nvcc on PATH."""
    for tool in ("c++", "g++", "gcc", "ninja"):
        if found := shutil.which(tool):
            (tmp_path / tool).symlink_to(found)
    hide = "import torch, importlib.util as u; torch.version.cuda = '13.0'; real = u.find_spec; "
    hide += "u.find_spec = lambda name, *a: None if name == 'nvidia' else real(name, *a)"
    done = run_setup(hide, PATH=str(tmp_path), CUDA_HOME=None, CUDA_PATH=None)
    assert done.returncode == 0, done.stderr
    assert "no nvcc found" in done.stderr and 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"' in done.stderr


def test_nvcc_is_found_in_pips_toolkit_and_behind_a_wrapper(tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)
    site = tmp_path / "site"
    fake_toolkit(site / "nvidia" / "cu13", "13.0")
    find = SETUP["find_toolkit"]

    class Spec:
        submodule_search_locations = [str(site / "nvidia")]

    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: Spec)
        assert find("13") == site / "nvidia" / "cu13"
    real = fake_toolkit(tmp_path / "real", "13.0")
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "nvcc").symlink_to(real / "bin" / "nvcc")
    with monkeypatch.context() as patch:
        patch.setattr("importlib.util.find_spec", lambda name: None)
        patch.setenv("PATH", str(tmp_path / "bin"))
        assert find("13") == real
        wrapper = tmp_path / "bin" / "nvcc"
        wrapper.unlink()
        wrapper.write_text(f"#!/bin/sh\necho '#$ TOP={real}/bin/..' >&2\n")
        wrapper.chmod(0o755)
        assert find("13") == real
