"""The build. Every kernel object has its rung's instructions and no spills. Every error of setup.py says what to install."""

import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import torch_addmm_tc as tc
from torch_addmm_tc import _C

ROOT = Path(__file__).parent.parent
SETUP = runpy.run_path(str(ROOT / "setup.py"), run_name="setup_functions")
CONFIGURATIONS = SETUP["CONFIGURATIONS"]
# The toolkits that pip installed.
NVIDIA = [Path(x) / "cu13" for x in getattr(importlib.util.find_spec("nvidia"), "submodule_search_locations", ())]


# ---- kernel objects ----


def loops_on_wgmma(function):
    """Return the innermost loops with wgmma in a function's disassembly, each as the list of its opcodes without modifiers.

    A loop ends with a conditional branch back. An unconditional one comes from a barrier's wait elsewhere in the code.
    """
    label_or_instruction = r"^(?:(\.L_x_\d+):|\s+/\*[0-9a-f]+\*/\s+(@!?\w+ )?([A-Z]\w*)(?:.*`\((\.L_x_\d+)\))?)"
    lines = re.findall(label_or_instruction, function, re.MULTILINE)
    begins = {label: i for i, (label, _, _, _) in enumerate(lines) if label}
    back = [(begins[to], i) for i, (_, condition, _, to) in enumerate(lines) if condition and begins.get(to, i) < i]
    loops = [(i, j) for i, j in back if any(opcode == "HGMMA" for _, _, opcode, _ in lines[i:j])]
    innermost = [(i, j) for i, j in loops if not any((x, y) != (i, j) and i <= x and y <= j for x, y in loops)]
    return [[opcode for _, _, opcode, _ in lines[i : j + 1] if opcode] for i, j in innermost]


def test_innermost_loops_on_wgmma_are_found():
    function = """
.L_x_1:
        /*0010*/                   UIADD3 UR4, UR9, 0x1, URZ ;
.L_x_2:
        /*0020*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R6+UR22+0x36100], R5 ;
        /*0030*/              @!P0 BRA `(.L_x_2) ;
        /*0040*/                   BSSY.RECONVERGENT B0, `(.L_x_3) ;
        /*0050*/               @P1 BRA `(.L_x_3) ;
        /*0060*/                   HGMMA.64x64x16.F32 R24, gdesc[UR24], R24, gsb0 ;
.L_x_3:
        /*0070*/                   BSYNC.RECONVERGENT B0 ;
        /*0080*/              @!P2 BRA `(.L_x_1) ;
        /*0090*/                   EXIT ;
.L_x_4:
        /*00a0*/                   BRA `(.L_x_1) ;
"""
    body = ["UIADD3", "SYNCS", "BRA", "BSSY", "BRA", "HGMMA", "BSYNC", "BRA"]
    assert loops_on_wgmma(function) == [body]
    assert loops_on_wgmma(function.replace("HGMMA", "HMMA")) == []


def built_kernels():
    """Return the manifest's entries for the kernel objects of the installed build, or [] where the build has no manifest."""
    manifest = ROOT / SETUP["op_folder"](torch, _C.with_cuda) / "manifest.json"
    return json.loads(manifest.read_text())["kernels"] if manifest.exists() else []


BUILT = built_kernels()
if not _C.with_cuda:
    NO_OBJECTS = "the kernels' objects, but this build of torch_addmm_tc is for the CPU only"
elif not BUILT:
    NO_OBJECTS = "the kernels' objects, but torch_addmm_tc was not built in this checkout"
else:
    NO_OBJECTS = None

if NO_OBJECTS:

    @pytest.mark.skip(reason=f"needs {NO_OBJECTS}")
    def test_kernel_objects():
        """Report why the tests of this section cannot run."""

else:

    def stem(entry):
        return Path(entry["object"]).stem

    INSTRUCTIONS = {  # regular expressions of the instructions that every function has; F32 is the accumulator's type
        "01_simt": ["FFMA"],
        "02_wmma_naive": [r"HMMA\.16816\.F32"],
        "03_wmma_block": [r"HMMA\.16816\.F32"],
        "04_wmma_double_buffer": [r"HMMA\.16816\.F32"],
        "05_wmma_kstage": ["LDGSTS", r"HMMA\.(16816\.F32|1684\.F32\.TF32)"],
        "06_mma_swizzle": ["LDGSTS", "LDSM", r"HMMA\.(16816\.F32|1688\.F32\.TF32)"],
        "07_wgmma_tma": ["HGMMA", "UTMALDG", "UTMASTG"],
        "08_mma_skinny": [r"LDG[\w.]*", r"HMMA\.(16816\.F32|1688\.F32\.TF32)"],
        "11_wgmma_multicast": ["HGMMA", r"UTMALDG\.3D\.MULTICAST", "UTMASTG", r"UCGABAR_\w+", r"STAS\.128"],
        "09_wgmma_cluster": ["HGMMA", "UTMALDG", r"UCGABAR_\w+", r"LD\.E\.128"],
        "10_mma_guarded": ["LDGSTS", r"LDG[\w.]*\.128", "LDSM", r"HMMA\.16816\.F32"],
        "13_mma_stationary": [r"LDG[\w.]*\.128", r"LDS\.128", r"HMMA\.16816\.F32", r"STG[\w.]*\.128"],
        "14_wgmma_shifted": ["HGMMA", "UTMALDG", r"LDGSTS[\w.]*\.128", r"LDS\.128", r"STS[\w.]*\.128", "UTMASTG"],
        "15_wgmma_bf16x6": ["HGMMA", "UTMALDG", "UTMASTG", "FFMA"],  # FFMA: sums that are formed again in fp32
        "16_simt_skinny": [r"LDG[\w.]*", "FFMA"],
        "17_wgmma_bf16x6_rs": ["HGMMA", r"LDG[\w.]*\.128", r"STS[\w.]*\.128", "FFMA"],
        "18_simt_kstage": ["LDGSTS", r"LDS\.128", "FFMA"],
        "19_wgmma_interleaved": ["HGMMA", "UTMALDG", r"STS\.U16", r"STG[\w.]*\.128"],
        "22_simt_columns": [r"LDG[\w.]*", "FFMA", r"SHFL[\w.]*"],
        "23_simt_short": [r"LDG[\w.]*", r"LDS\.128", "FFMA", r"STG[\w.]*\.128"],
        "24_simt_rows": [r"LDG[\w.]*", "FFMA"],
        "25_wgmma_bf16x6_streamed": ["UBLKCP", "HGMMA", r"LDS\.128", r"STG[\w.]*\.64", "FFMA"],
        "21_mma_direct": [r"LDG[\w.]*\.128", r"LDS\.128", r"HMMA\.16816\.F32", r"STG[\w.]*\.(64|128)"],
        "20_mma_streamed": ["UBLKCP", r"LDS\.128", r"HMMA\.(16816\.F32|1688\.F32\.TF32)", r"STG[\w.]*"],
        "12_mma_short": [r"LDG[\w.]*\.128", "LDSM", r"HMMA\.16816\.F32", r"STG[\w.]*\.128"],
    }

    def run_tool(name, *arguments, **options):
        path = os.pathsep.join([os.environ["PATH"], *(f"{home}/bin" for home in NVIDIA), "/usr/local/cuda/bin"])
        program = shutil.which(name, path=path)
        assert program, f"no {name}; run 'pip install nvidia-cuda-{name}', which the extra 'test' asks for"
        return subprocess.run([program, *arguments], capture_output=True, text=True, check=True, **options).stdout

    def disassemble(entry):
        """Return {(architecture, function): (the set of its instructions, its loops on wgmma)} for an object."""
        found = {}
        with tempfile.TemporaryDirectory() as folder:
            run_tool("cuobjdump", "-xelf", "all", ROOT / entry["object"], cwd=folder)
            for cubin in Path(folder).iterdir():
                for function in re.split(r"^\t\.section\t\.text\.", run_tool("nvdisasm", "-c", cubin), flags=re.MULTILINE)[1:]:
                    instructions = re.findall(r"^\s+/\*[0-9a-f]+\*/\s+(?:@!?\w+ )?([A-Z][\w.]*)", function, re.MULTILINE)
                    found[cubin.name.split(".")[-2], function.split(",")[0]] = set(instructions), loops_on_wgmma(function)
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
        for function, (instructions, _) in functions.items():
            for wanted in INSTRUCTIONS.get(Path(entry["source"]).stem, []):
                assert any(re.match(rf"{wanted}\b", x) for x in instructions), f"no {wanted} in {function}"
            assert not any(re.match(r"(LDL|STL)\b", x) for x in instructions), f"local memory in {function}"

    ON_WGMMA = ("07_wgmma_tma", "09_wgmma_cluster", "11_wgmma_multicast", "14_wgmma_shifted", "19_wgmma_interleaved")

    @pytest.mark.parametrize("entry", [x for x in BUILT if Path(x["source"]).stem in ON_WGMMA], ids=stem)
    def test_main_loops_on_wgmma_branch_at_their_barrier_and_their_end_only(disassembled, entry):
        """Tiles of one warpgroup take up to 28 % longer with a branch (h200-tried.md, "A main loop without branches").

        S2UR reads a special register, from which the compiler would compute the address of shared memory for each K tile.
        """
        for (_, function), (_, loops) in disassembled[stem(entry)].items():
            assert loops, f"no loop on wgmma in {function}"
            for loop in loops:
                assert Counter(loop)["BRA"] == 2, (function, loop)
                assert not {"BRX", "BSSY", "BSYNC", "CALL", "S2UR"} & set(loop), (function, loop)

    def test_every_rung_lists_its_instructions():
        assert INSTRUCTIONS.keys() == CONFIGURATIONS.keys()


def families_of(kernel):
    """Return the architecture families of each of a kernel's configurations, as setup.py has them."""
    return next(value for key, value in CONFIGURATIONS.items() if key[3:] == kernel["name"])


@pytest.mark.parametrize("kernel", tc.kernels(), ids=lambda kernel: kernel["name"])
def test_build_and_registry_name_the_same_families(kernel):
    assert [tuple(config["archs"]) for config in kernel["configs"]] == families_of(kernel)


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_every_configuration_is_in_one_object(name):
    objects = list(SETUP["groups"](name))
    assert [(families, i) for families, group in objects for i in group] == [(x, i) for i, x in enumerate(CONFIGURATIONS[name])]
    assert all(1 <= len(group) <= SETUP["TOGETHER"].get(name, 1) for _, group in objects)


@pytest.mark.skipif(_C.with_cuda and not BUILT, reason=f"needs {NO_OBJECTS}")
@pytest.mark.parametrize("kernel", tc.kernels(), ids=lambda kernel: kernel["name"])
def test_compiled_for_lists_the_manifests_targets(kernel):
    numbers = {f"{kernel['name']}.{i}": [] for i in range(len(kernel["configs"]))}
    for entry in BUILT:
        targets = {10 * int(re.search(r"\d+", target)[0]) for target in entry["targets"]}
        for i in entry["configurations"]:
            numbers[f"{Path(entry['source']).stem[3:]}.{i}"] = sorted(targets)
    expected = [numbers[f"{kernel['name']}.{i}"] for i in range(len(kernel["configs"]))]
    assert [config["compiled_for"] for config in kernel["configs"]] == expected


def test_setup_lists_every_cu_file():
    present = {path.stem for path in (ROOT / "csrc").rglob("*.cu")}
    assert present == set(CONFIGURATIONS) | set(SETUP["HELPERS"])


# ---- kernels of the benchmarks ----


@pytest.fixture(scope="module")
def nvcc():
    toolkit = SETUP["find_toolkit"]("13")
    if toolkit is None:
        pytest.skip("needs nvcc")
    return toolkit / "bin" / "nvcc"


@pytest.mark.parametrize("source", sorted((ROOT / "bench").glob("*.cu")), ids=lambda path: path.stem)
def test_benchmark_kernels_compile(nvcc, source, tmp_path):
    if source.stem == "cublaslt" and torch.version.cuda is None:
        pytest.skip("needs a CUDA build of torch, which brings cublasLt.h")
    include = [f"-I{home}/include" for home in NVIDIA] if source.stem == "cublaslt" else []
    for gpu in ("80", "90a"):
        arch = f"-gencode=arch=compute_{gpu},code=sm_{gpu}"
        command = [nvcc, "-std=c++17", "-O3", arch, "-c", "-o", tmp_path / "out.o", source, *include]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0 and not re.search(r"C75\d\d", done.stderr), done.stderr


# ---- setup.py: errors, toolkits and architectures ----


@pytest.fixture
def build_error(monkeypatch, capsys):
    """Return a function that starts the build and returns the sentence that it fails with."""

    def run():
        with pytest.raises(SystemExit) as ended:
            SETUP["Builder"]()
        sentence = str(ended.value)
        assert sentence.startswith("torch_addmm_tc: ") and "\n" not in sentence and capsys.readouterr().err == ""
        return sentence

    return run


@pytest.fixture
def cuda_torch(monkeypatch):
    """Make torch report CUDA 13.0, and request every architecture."""
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", SETUP["EVERY_ARCHITECTURE"])
    monkeypatch.delenv("CUDA_HOME", raising=False)
    monkeypatch.delenv("CUDA_PATH", raising=False)


def test_missing_torch_is_a_one_line_error():
    code = "import sys, runpy; sys.modules['torch'] = None; sys.argv = ['setup.py', '--version']; "
    code += "runpy.run_path('setup.py', run_name='__main__')"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    for part in ("torch_addmm_tc: torch is missing", "pip install torch", "--no-build-isolation"):
        assert part in done.stderr


def test_old_torch_is_an_error(build_error, monkeypatch):
    monkeypatch.setattr(torch, "__version__", "2.10.0")
    assert "2.10.0 is too old" in build_error() and 'pip install "torch>=2.11"' in build_error()


def test_missing_compiler_is_an_error(build_error, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler -O0")
    assert "no C++ compiler 'no-such-compiler'" in build_error() and "apt install g++" in build_error()


def test_missing_ninja_is_an_error(monkeypatch, tmp_path):
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


def test_mismatched_cuda_major_is_an_error(build_error, cuda_torch, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(fake_toolkit(tmp_path / "cuda", "12.4")))
    for part in ("nvcc in", "CUDA 12.4", "CUDA 13.0", 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"'):
        assert part in build_error()


def test_cuda_home_without_nvcc_is_an_error(build_error, cuda_torch, monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert f"CUDA_HOME is {tmp_path}" in build_error() and "no bin/nvcc" in build_error()


def test_toolkit_without_a_runtime_is_an_error(tmp_path):
    with pytest.raises(SystemExit, match="no libcudart_static.a in .*pip install nvidia-cuda-runtime"):
        SETUP["find_runtime"](tmp_path)


def only_compilers_on_path(monkeypatch, folder):
    for tool in ("c++", "g++", "gcc", "ninja"):
        if found := shutil.which(tool):
            (folder / tool).symlink_to(found)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)


def test_without_nvcc_the_build_is_for_the_cpu_and_says_how_to_install_nvcc(cuda_torch, monkeypatch, tmp_path, capsys):
    """CUDA_HOME is unset, pip has installed no toolkit, and PATH has no nvcc."""
    only_compilers_on_path(monkeypatch, tmp_path)
    assert not SETUP["Builder"]().cuda
    warning = capsys.readouterr().err
    assert (
        "no nvcc found" in warning and 'pip install "cuda-toolkit[nvcc,cccl]==13.0.*"' in warning and warning.count("\n") == 1
    )


def test_without_a_gpu_the_build_is_for_the_cpu_and_says_how_to_cross_compile(cuda_torch, monkeypatch, capsys):
    monkeypatch.delenv("TORCH_CUDA_ARCH_LIST")
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert not SETUP["Builder"]().cuda
    warning = capsys.readouterr().err
    assert "no GPU" in warning and 'set TORCH_CUDA_ARCH_LIST="8.0+PTX;9.0a"' in warning and warning.count("\n") == 1


def test_default_architectures_are_those_of_the_present_gpus(monkeypatch):
    present = [(9, 0), (8, 6), (9, 0)]
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: len(present))
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda i: present[i])
    assert SETUP["present_architectures"](torch) == "8.6;9.0a"


def test_parse_architectures(capsys):
    parse = SETUP["parse_architectures"]
    assert parse("8.0+PTX;9.0a") == {"ampere": ["sm_80", "compute_80"], "hopper": ["sm_90a"]}
    assert parse("8.6 9.0 12.0+PTX") == {"ampere": ["sm_86", "sm_90", "sm_120", "compute_120"], "hopper": []}
    assert parse("7.5;9.0a+PTX") == {"ampere": [], "hopper": ["sm_90a", "compute_90a"]}
    assert "leaves 7.5 out" in capsys.readouterr().err
    with pytest.raises(SystemExit, match="'Hopper', which is no architecture; write it like"):
        parse("Hopper")


def test_nvcc_is_found_in_a_pip_toolkit_and_behind_symlinks_and_wrappers(tmp_path, monkeypatch):
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
