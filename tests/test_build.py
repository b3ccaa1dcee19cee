"""The build: its objects hold the instructions they are about and do not spill; its errors say what to install."""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import torch_addmm_tc as tc
from torch_addmm_tc import _C

ROOT = Path(__file__).parent.parent
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_functions")
CONFIGURATIONS = SETUP["CONFIGURATIONS"]
NVIDIA = [Path(x) / "cu13" for x in getattr(importlib.util.find_spec("nvidia"), "submodule_search_locations", ())]  # pip's


# ---- the objects that the build has left ----


def built_kernels():
    """The kernel objects of the installed build, as its manifest lists them."""
    manifest = ROOT / SETUP["op_folder"](torch, _C.with_cuda) / "manifest.json"
    return json.loads(manifest.read_text())["kernels"] if manifest.exists() else []


BUILT = built_kernels()
if not _C.with_cuda:
    NO_OBJECTS = "the kernels' objects: this build of torch_addmm_tc is for the CPU only"
elif not BUILT:
    NO_OBJECTS = "the kernels' objects: torch_addmm_tc was not built in this checkout"
else:
    NO_OBJECTS = None

if NO_OBJECTS:

    @pytest.mark.skip(reason=f"needs {NO_OBJECTS}")
    def test_kernel_objects():
        """Stands for the tests of this section."""

else:

    def stem(entry):
        return Path(entry["object"]).stem

    INSTRUCTIONS = {  # every function of a rung has these; F32 is the accumulator's type
        "01_simt": ["FFMA"],
        "02_wmma_naive": [r"HMMA\.16816\.F32"],
        "03_wmma_block": [r"HMMA\.16816\.F32"],
        "04_wmma_double_buffer": [r"HMMA\.16816\.F32"],
        "05_wmma_kstage": ["LDGSTS", r"HMMA\.(16816\.F32|1684\.F32\.TF32)"],
        "06_mma_swizzle": ["LDGSTS", "LDSM", r"HMMA\.(16816\.F32|1688\.F32\.TF32)"],
        "07_wgmma_tma": ["HGMMA", "UTMALDG", "UTMASTG"],
        "08_mma_skinny": [r"LDG[\w.]*", r"HMMA\.16816\.F32"],
        "09_wgmma_cluster": ["HGMMA", "UTMALDG", r"UCGABAR_\w+", r"LD\.E\.128"],
    }

    def run_tool(name, *arguments, **options):
        path = os.pathsep.join([os.environ["PATH"], *(f"{home}/bin" for home in NVIDIA), "/usr/local/cuda/bin"])
        program = shutil.which(name, path=path)
        assert program, f"no {name}; run 'pip install nvidia-cuda-{name}', which the extra 'test' asks for"
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True, **options).stdout

    def disassemble(entry):
        """{(architecture, function): the instructions that it has} of an object."""
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            run_tool("cuobjdump", "-xelf", "all", ROOT / entry["object"], cwd=folder)
            for cubin in Path(folder).iterdir():
                for function in re.split(r"^\t\.section\t\.text\.", run_tool("nvdisasm", "-c", cubin), flags=re.MULTILINE)[1:]:
                    instructions = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)", function, re.MULTILINE)
                    found[cubin.name.split(".")[-2], function.split(",")[0]] = set(instructions)
        return found

    @pytest.fixture(scope="module")
    def disassembled():
        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            return dict(zip(map(stem, BUILT), pool.map(disassemble, BUILT), strict=True))

    @pytest.mark.parametrize("entry", BUILT, ids=stem)
    def test_no_spills_and_no_serialised_wgmma(entry):
        report = (ROOT / entry["log"]).read_text()
        local = re.findall(r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", report)
        assert local and set(local) == {("0", "0", "0")}, report
        assert not re.search(r"C75\d\d", report), report

    @pytest.mark.parametrize("entry", BUILT, ids=stem)
    def test_every_function_has_its_instructions_and_no_local_memory(disassembled, entry):
        functions = disassembled[stem(entry)]
        assert {architecture for architecture, _ in functions} == {x for x in entry["targets"] if x.startswith("sm_")}
        for function, instructions in functions.items():
            for wanted in INSTRUCTIONS.get(Path(entry["source"]).stem, []):
                assert any(re.match(rf"{wanted}\b", x) for x in instructions), f"no {wanted} in {function}"
            assert not any(re.match(r"(LDL|STL)\b", x) for x in instructions), f"local memory in {function}"

    def test_every_rung_names_its_instructions():
        assert INSTRUCTIONS.keys() == CONFIGURATIONS.keys()


@pytest.mark.parametrize("kernel", tc.kernels(), ids=lambda kernel: kernel["name"])
def test_the_build_and_the_registry_agree(kernel):
    """Each configuration is compiled for the families that it names, as far as the build was asked for them."""
    families = next(value for key, value in CONFIGURATIONS.items() if key[3:] == kernel["name"])
    assert [tuple(config["archs"]) for config in kernel["configs"]] == families
    numbers = {f"{kernel['name']}.{i}": [] for i in range(len(families))}
    for entry in BUILT:
        if entry["configuration"] is not None:
            targets = {10 * int(re.search(r"\d+", target)[0]) for target in entry["targets"]}
            numbers[f"{Path(entry['source']).stem[3:]}.{entry['configuration']}"] = sorted(targets)
    assert [config["compiled_for"] for config in kernel["configs"]] == [
        numbers[f"{kernel['name']}.{i}"] for i in range(len(families))
    ]


def test_every_kernel_is_known():
    present = {path.stem for path in (ROOT / "csrc").rglob("*.cu")}
    assert present == set(CONFIGURATIONS) | set(SETUP["HELPERS"])


# ---- the benchmarks' kernels ----


@pytest.fixture(scope="module")
def nvcc():
    toolkit = SETUP["find_toolkit"]("13")
    if toolkit is None:
        pytest.skip("needs nvcc")
    return toolkit / "bin" / "nvcc"


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


# ---- what setup.py says and finds ----


@pytest.fixture
def refusal(monkeypatch, capsys):
    """refusal(): the one sentence with which the set-up ends."""

    def run():
        with pytest.raises(SystemExit) as ended:
            SETUP["Builder"]()
        sentence = str(ended.value)
        assert sentence.startswith("torch_addmm_tc: ") and "\n" not in sentence and capsys.readouterr().err == ""
        return sentence

    return run


@pytest.fixture
def cuda_torch(monkeypatch):
    """A torch that says it is built with CUDA 13.0, and a request for all architectures."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", SETUP["EVERY_ARCHITECTURE"])
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)


def test_missing_torch_as_a_process():
    code = "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['setup.py', '--version']; "
    code += "runpy.run_path('setup.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    for part in ("torch_addmm_tc: torch is missing", "pip install torch", "--no-build-isolation"):
        assert part in done.stderr


def test_old_torch(refusal, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    assert "2.10.0 is too old" in refusal() and 'pip install "torch>=2.11"' in refusal()


def test_missing_compiler(refusal, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O0")
    assert "no C++ compiler 'no-such-compiler'" in refusal() and "apt install g++" in refusal()


def test_missing_ninja(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr("sysconfig.get_path", lambda name: str(tmp_path))
    with pytest.raises(SystemExit, match="no ninja; run 'pip install ninja'"):
        SETUP["find_ninja"]()


def fake_toolkit(folder, release):
    (folder / "bin").mkdir(parents=True)
    nvcc = folder / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    return folder


def test_mismatched_cuda_major(refusal, cuda_torch, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(fake_toolkit(tmp_path / "cuda", "12.4")))
    for part in ("nvcc in", "CUDA 12.4", "CUDA 13.0", 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"'):
        assert part in refusal()


def test_cuda_home_without_nvcc(refusal, cuda_torch, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert f"CUDA_HOME is {tmp_path}" in refusal() and "no bin/nvcc" in refusal()


def test_toolkit_without_a_runtime(tmp_path):
    with pytest.raises(SystemExit, match="no libcudart_static.a in .*pip install nvidia-cuda-runtime"):
        SETUP["find_runtime"](tmp_path)


def only_compilers_on_path(monkeypatch, folder):
    for tool in ("c++", "g++", "gcc", "ninja"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_no_nvcc_builds_for_the_cpu_and_says_how_to_get_more(cuda_torch, monkeypatch, tmp_path, capsys):
    """No CUDA_HOME, no pip toolkit and no nvcc on PATH."""
    only_compilers_on_path(monkeypatch, tmp_path)
    assert not SETUP["Builder"]().cuda
    said = capsys.readouterr().err
    assert "no nvcc found" in said and 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"' in said and said.count("\n") == 1


def test_no_gpu_builds_for_the_cpu_and_says_how_to_cross_compile(cuda_torch, monkeypatch, capsys):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not SETUP["Builder"]().cuda
    said = capsys.readouterr().err
    assert "no GPU" in said and 'set TORCH_CUDA_ARCH_LIST="8.0+PTX;9.0a"' in said and said.count("\n") == 1


def test_the_gpus_that_are_present_are_built_for(monkeypatch):
    present = [(9, 0), (8, 6), (9, 0)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(present))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: present[i])
    assert SETUP["present_architectures"](torch) == "8.6;9.0a"


def test_architectures(capsys):
    parse = SETUP["parse_architectures"]
    assert parse("8.0+PTX;9.0a") == {"ampere": ["sm_80", "compute_80"], "hopper": ["sm_90a"]}
    assert parse("8.6 9.0 12.0+PTX") == {"ampere": ["sm_86", "sm_90", "sm_120", "compute_120"], "hopper": []}
    assert parse("7.5;9.0a+PTX") == {"ampere": [], "hopper": ["sm_90a", "compute_90a"]}
    assert "leaves 7.5 out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="'Hopper', which is no architecture; write it like"):
        parse("Hopper")


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
