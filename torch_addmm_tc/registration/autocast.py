"""Under torch.autocast the op casts like torch.addmm: every floating-point argument to the context's dtype.

torch.library.register_autocast fixes one dtype at registration; these kernels ask the context instead.
"""

import torch

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)

TC = torch.ops.tc
_library = torch.library.Library("tc", "IMPL")


def _casting(op, device_type, key):
    """`op` on its arguments cast. A self that has the result's own dtype, given as out_dtype, keeps it."""
    has_self = op._schema.arguments[0].name == "self"

    def kernel(*args, **kwargs):
        dtype = torch.get_autocast_dtype(device_type)
        out_dtype = next((x for x in (*args, *kwargs.values()) if isinstance(x, torch.dtype)), None)

        def cast(i, x):
            if not isinstance(x, torch.Tensor) or not x.is_floating_point() or x.dtype == torch.float64:
                return x
            keeps = x.device.type != device_type or (i == 0 and has_self and x.dtype == out_dtype)
            return x if keeps else x.to(dtype)

        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return op(*(cast(i, x) for i, x in enumerate(args)), **kwargs)

    return kernel


OPS = (TC.addmm, TC.mm, TC.addmm_activation, TC.mm_activation)
for _op in (getattr(op, overload) for op in OPS for overload in op.overloads()):
    for _device_type, _key in (("cpu", torch._C.DispatchKey.AutocastCPU), ("cuda", torch._C.DispatchKey.AutocastCUDA)):
        _library.impl(_op, _casting(_op, _device_type, _key), _key.name)
