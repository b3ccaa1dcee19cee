"""The device fixture, the options of the case grid, and one skip line per file where no GPU is present."""

import os
import tempfile
from itertools import groupby
from pathlib import Path

import hypothesis
import pytest
import torch
from filelock import FileLock  # which torch requires

from torch_addmm_tc import _C
from torch_addmm_tc.integrations import enabled
from torch_addmm_tc.testing.cases import asked_configs, checked_kernels, runnable_configs

if not torch.cuda.is_available():
    NO_GPU = "an NVIDIA GPU"
elif not _C.with_cuda:
    NO_GPU = "a build of torch_addmm_tc with CUDA kernels"
else:
    NO_GPU = None

# A busy machine may take any time for an example.
hypothesis.settings.register_profile("any machine", deadline=None)
hypothesis.settings.load_profile("any machine")

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


def pytest_addoption(parser):
    group = parser.getgroup("kernels' case grid")
    group.addoption("--full-grid", action="store_true", help="run every case of the grid; the default is a sample")
    group.addoption("--grid-seed", type=int, default=0, help="seed that draws the sample (default: %(default)s)")
    group.addoption(
        "--kernel", action="append", default=[], help="a kernel, or NAME/INDEX, for test_kernels.py and test_float32.py alone"
    )


def pytest_configure(config):
    global _asked
    try:
        _asked = checked_kernels(config.getoption("kernel"))
    except ValueError as error:
        raise pytest.UsageError(str(error)) from None


def chosen_configs(kernel: str) -> list[str]:
    """Return the names of a kernel's configurations that this GPU runs and that --kernel asks for."""
    return asked_configs(kernel, _asked)


def pytest_report_header(config):
    if NO_GPU:
        return f"GPU tests: skipped, because they need {NO_GPU}"
    runnable, kernels = sum(map(len, runnable_configs().values())), sum(len(kernel["configs"]) for kernel in _C.kernels())
    full, seed = config.getoption("full_grid"), config.getoption("grid_seed")
    grid = "every case" if full else f"the sample of --grid-seed={seed}; --full-grid runs every case"
    return [f"GPU: {torch.cuda.get_device_name()}, runs {runnable} of {kernels} configurations", f"case grid: {grid}"]


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items):
    """Keep one GPU test per file where no GPU is present. pytest skips it, and the reason counts the file's GPU tests."""
    if not NO_GPU:
        return
    kept = []
    for _, group in groupby(items, key=lambda item: item.path):
        file = list(group)
        gpu = [item for item in file if item.get_closest_marker("gpu")]
        if gpu:
            tests = "1 test needs" if len(gpu) == 1 else f"{len(gpu)} tests need"
            gpu[0].add_marker(pytest.mark.skip(reason=f"{tests} {NO_GPU}"))
        kept += [item for item in file if item not in gpu[1:]]
    items[:] = kept


@pytest.fixture(params=["cpu", CUDA])
def device(request):
    return request.param


@pytest.fixture(params=("key", "mode"))
def interception(request, monkeypatch):
    """The way in which enabled() sees calls: by dispatch key or, as under a torch without the key, by the fallback mode."""
    if request.param == "mode":
        monkeypatch.setattr(enabled, "_key_kernels", None)
        monkeypatch.setattr(enabled, "_warned", True)


@pytest.fixture
def much_gpu_memory():
    """For tests that hold several GB. One runs at a time, in whichever process pytest-xdist runs it, and leaves none behind."""
    with FileLock(Path(tempfile.gettempdir()) / f"torch_addmm_tc-tests-{os.getuid()}.lock"):
        yield
        torch.cuda.empty_cache()


@pytest.fixture(autouse=True)
def _fixed_seed():
    torch.manual_seed(0)
