# make demo    runs real layer shapes, checked and timed
# make test    runs the tests
# make bench   measures the sweep into bench/results/ (needs a GPU)
#
# Each does its own set-up: in an environment that is active, or else in VENV, which it makes. TORCH says which torch to
# install where there is none.
TORCH ?= torch>=2.11
VENV ?= .venv
BASE_PYTHON ?= python3

ACTIVE := $(or $(VIRTUAL_ENV),$(CONDA_PREFIX))
PYTHON := $(if $(ACTIVE),python3,$(VENV)/bin/python)
PIP := $(PYTHON) -m pip install --quiet --disable-pip-version-check

.PHONY: demo test bench setup

demo: setup
	$(PYTHON) -m torch_addmm_tc

test: setup
	$(PYTHON) -m pytest

bench: setup
	$(PYTHON) -m bench.sweep --json bench/results/sweep.json

# nvcc comes from pip where there is an NVIDIA driver, a CUDA build of torch and no nvcc.
setup: $(if $(ACTIVE),,$(VENV)/bin/python)
	@$(PYTHON) -c "import torch" 2>/dev/null || { echo "installing $(TORCH)"; $(PIP) "$(TORCH)"; }
	@cuda=$$($(PYTHON) -c "import torch; print(torch.version.cuda or '')"); \
	if [ -n "$$cuda" ] && [ -e /dev/nvidiactl ] && [ -z "$$CUDA_HOME" ] && ! command -v nvcc >/dev/null; then \
		echo "installing nvcc $$cuda"; $(PIP) "cuda-toolkit[nvcc,cccl]==$$cuda.*"; fi
	@$(PYTHON) -c "import setuptools, ninja" 2>/dev/null || $(PIP) "setuptools>=77" ninja
	@echo "building torch_addmm_tc"
	@$(PIP) --no-build-isolation -e ".[demo,test,bench]"

$(VENV)/bin/python:
	$(BASE_PYTHON) -c "import sys; sys.exit(sys.version_info < (3, 10) and 'torch_addmm_tc needs Python 3.10 or later')"
	$(BASE_PYTHON) -m venv $(VENV)
