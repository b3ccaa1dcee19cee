"""addmm on tensor cores: torch.ops.tc.addmm, D = beta * C + alpha * (A @ B) in one fused kernel, forward only."""

from torch_addmm_tc import autocast, fake, vmap  # noqa: F401  (they register with torch)
from torch_addmm_tc.ops import addmm, kernels
from torch_addmm_tc.planning import Gpu, Plan, plan

__all__ = ["Gpu", "Plan", "addmm", "kernels", "plan"]
