import pytest
import torch

from torch_addmm_tc import _C

if not torch.cuda.is_available():
    NO_GPU = "needs an NVIDIA GPU"
elif not _C.with_cuda:
    NO_GPU = "needs a CUDA build of torch_addmm_tc (this one was built without nvcc)"
else:
    NO_GPU = None

CUDA = pytest.param("cuda", marks=pytest.mark.gpu)


def pytest_collection_modifyitems(items):
    for item in items:
        if NO_GPU and item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason=NO_GPU))


@pytest.fixture(params=["cpu", CUDA])
def device(request):
    return request.param


@pytest.fixture(autouse=True)
def _reproducible():
    torch.manual_seed(0)
