"""addmm on tensor cores: D = beta * C + alpha * (A @ B) in one fused kernel, as torch.ops.tc.addmm.

The op is forward-only: it does not support autograd.
"""

from torch_addmm_tc.integrations.enabled import enabled
from torch_addmm_tc.integrations.inductor import compile_options
from torch_addmm_tc.integrations.linear import Linear, swap_linears
from torch_addmm_tc.ops import addmm, baddbmm, batch_invariant, bmm, kernels, linear, mm
from torch_addmm_tc.registration import autocast, fake, flops, vmap  # noqa: F401  (importing registers them with torch)
from torch_addmm_tc.tools.planning import Gpu, Plan, plan
from torch_addmm_tc.tools.plans import follow_environment, load_plans, log_problems, unload_plans

__all__ = [
    "Gpu", "Linear", "Plan", "addmm", "baddbmm", "batch_invariant", "bmm", "compile_options", "enabled", "kernels", "linear",
    "load_plans", "log_problems", "mm", "plan", "swap_linears", "unload_plans",
]  # fmt: skip

follow_environment()
