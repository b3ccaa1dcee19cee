# make demo    runs real layer shapes, checked and timed
# make test    runs the tests; ARGS has more of pytest's arguments, such as --full-grid
# make lint    checks how Python, C++ and CUDA files are written and formatted
# make wheel   builds a wheel in dist/ for all architectures (needs nvcc, no GPU)
# make bench   measures the sweep into bench/results/ (needs a GPU)
#
# Each does its own set-up: in an environment that is active, or else in VENV, which it makes. TORCH says which torch to
# install where there is none. Builds are for the GPUs that are present, unless TORCH_CUDA_ARCH_LIST names others.
TORCH ?= torch>=2.11
VENV ?= .venv
BASE_PYTHON ?= python3

ACTIVE := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
BIN := $(if $(ACTIVE),,$(abspath $(VENV))/bin/)
PYTHON := $(BIN)$(if $(ACTIVE),python3,python)
PIP := $(PYTHON) -m pip --quiet --disable-pip-version-check

.PHONY: demo test lint wheel bench install build tools

demo: EXTRAS = demo
demo: install
	$(PYTHON) -m torch_addmm_tc

test: EXTRAS = test,bench
test: install
	$(PYTHON) -m pytest $(ARGS)

lint: EXTRAS = lint
lint: install
	$(BIN)ruff check
	$(BIN)ruff format --check
	$(BIN)clang-format --dry-run -Werror $$(find csrc bench tests -name '*.cpp' -o -name '*.h' -o -name '*.cu' -o -name '*.cuh')

wheel: export TORCH_CUDA_ARCH_LIST = 8.0+PTX;9.0a
wheel: build
	@rm -rf dist build/wheel build/lib.* build/bdist.* # they may hold modules that have moved since
	@$(PIP) wheel --no-build-isolation --no-deps --wheel-dir dist .
	@$(PYTHON) -m zipfile -e dist/*.whl build/wheel
	@cd build/wheel && $(PYTHON) -c "from torch_addmm_tc import _C; \
	assert all(kernel['compiled'] for kernel in _C.kernels()), 'the wheel has no CUDA kernels'"
	@ls -sh dist/*.whl

bench: EXTRAS = bench
bench: install
	$(PYTHON) -m bench.sweep --json bench/results/sweep.json

install: build
	@$(PIP) install --no-build-isolation -e ".[$(EXTRAS)]"

# pip hides how far a build is, so that it runs first by itself; pip then finds everything up to date.
build: tools
	@$(PYTHON) setup.py --quiet build_ext

# nvcc comes from pip where kernels are to be built, for a CUDA build of torch, and there is no nvcc.
tools: $(if $(ACTIVE),,$(PYTHON))
	@$(PYTHON) -c "import torch" 2>/dev/null || { echo "installing $(TORCH)"; $(PIP) install "$(TORCH)"; }
	@cuda=$$($(PYTHON) -c "import torch; print(torch.version.cuda or '')" 2>/dev/null); \
	if [ -n "$$cuda" ] && { [ -e /dev/nvidiactl ] || [ -n "$$TORCH_CUDA_ARCH_LIST" ]; } \
	&& [ -z "$$CUDA_HOME" ] && ! command -v nvcc >/dev/null; then \
		echo "installing nvcc $$cuda"; $(PIP) install "cuda-toolkit[nvcc,cccl]==$$cuda.*"; fi
	@$(PYTHON) -c "import setuptools, ninja" 2>/dev/null || $(PIP) install "setuptools>=77" ninja

$(abspath $(VENV))/bin/python:
	$(BASE_PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'torch_addmm_tc needs Python 3.10 or later')"
	$(BASE_PYTHON) -m venv $(VENV)
