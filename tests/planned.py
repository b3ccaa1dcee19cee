"""The problems, GPUs and plans that the tests of the planner share."""

import torch_addmm_tc as tc
from torch_addmm_tc.tools.planning import H200

AMPERE = tc.Gpu(sm=80, num_sms=108, smem_per_block=163 * 1024, name="NVIDIA A100-SXM4-80GB")
ADA = tc.Gpu(sm=89, num_sms=128, smem_per_block=99 * 1024, name="NVIDIA GeForce RTX 4090")
BLACKWELL = tc.Gpu(sm=100, num_sms=148, smem_per_block=227 * 1024)
TURING = tc.Gpu(sm=75, num_sms=40, smem_per_block=64 * 1024)
TENSOR_CORES = {kernel["name"] for kernel in tc.kernels() if kernel["unit"] != "fp32"}


def plan(case, gpu=H200, **kwargs):
    return tc.plan(*case.inputs("cpu"), **case.scalars, out_dtype=case.out_dtype, gpu=gpu, **kwargs)
