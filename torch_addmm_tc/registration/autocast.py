"""Under torch.autocast the ops cast like torch.addmm: every floating-point tensor to the context's dtype.

torch.library.register_autocast fixes one dtype at registration; these kernels ask the context instead. Like torch's, ops that
write to `out` are not cast.
"""

import torch

from torch_addmm_tc.registration.table import OPS

_library = torch.library.Library("tc", "IMPL")


def _casting(op, device_type, key):
    """`op` on its tensors cast. An addend that has the result's own dtype, given as out_dtype, keeps it."""
    excluded = torch._C.DispatchKeySet(key)

    def kernel(*args, **kwargs):
        call = op.bind(args, kwargs)
        dtype, out_dtype = torch.get_autocast_dtype(device_type), call.role("out_dtype")
        cast = {}
        for name in op.tensors:
            x = call.values[name]
            if x is None or not x.is_floating_point() or x.dtype == torch.float64 or x.device.type != device_type:
                continue
            if name != op.addend or x.dtype != out_dtype:
                cast[name] = x.to(dtype)
        with torch._C._ExcludeDispatchKeyGuard(excluded):
            return call.run(cast)

    return kernel


def register(op):
    for device_type, key in (("cpu", torch._C.DispatchKey.AutocastCPU), ("cuda", torch._C.DispatchKey.AutocastCUDA)):
        _library.impl(op.overload, _casting(op, device_type, key), key.name)


for _op in OPS:
    if _op.out is None:
        register(_op)
