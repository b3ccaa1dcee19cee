"""addmm on tensor cores: torch.ops.tc.addmm, D = beta * C + alpha * (A @ B) in one fused kernel, forward only."""

from torch_addmm_tc.integrations.enabled import enabled
from torch_addmm_tc.integrations.inductor import compile_options
from torch_addmm_tc.integrations.linear import Linear, swap_linears
from torch_addmm_tc.ops import addmm, kernels, linear, mm
from torch_addmm_tc.registration import autocast, fake, flops, vmap  # noqa: F401  (they register with torch)
from torch_addmm_tc.tools.planning import Gpu, Plan, plan

__all__ = ["Gpu", "Linear", "Plan", "addmm", "compile_options", "enabled", "kernels", "linear", "mm", "plan", "swap_linears"]
