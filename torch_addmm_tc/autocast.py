"""Under torch.autocast the op casts like torch.addmm: every floating-point argument to the context's dtype.

torch.library.register_autocast fixes one dtype at registration; these kernels ask the context instead.
"""

import torch

from torch_addmm_tc import _C  # noqa: F401  (defines the ops)

_library = torch.library.Library("tc", "IMPL")


def _register(device_type, key):
    def cast(x, dtype):
        eligible = x.is_floating_point() and x.device.type == device_type and x.dtype != torch.float64
        return x.to(dtype) if eligible else x

    def addmm(self, mat1, mat2, *, beta=1, alpha=1, allow_tf32=False):
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.tc.addmm.default(
                cast(self, dtype), cast(mat1, dtype), cast(mat2, dtype), beta=beta, alpha=alpha, allow_tf32=allow_tf32
            )

    def addmm_dtype(self, mat1, mat2, out_dtype, *, beta=1, alpha=1, allow_tf32=False):
        dtype = torch.get_autocast_dtype(device_type)
        if self.dtype != out_dtype:
            self = cast(self, dtype)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.tc.addmm.dtype(
                self, cast(mat1, dtype), cast(mat2, dtype), out_dtype, beta=beta, alpha=alpha, allow_tf32=allow_tf32
            )

    def mm(mat1, mat2, *, allow_tf32=False):
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.tc.mm.default(cast(mat1, dtype), cast(mat2, dtype), allow_tf32=allow_tf32)

    def mm_dtype(mat1, mat2, out_dtype, *, allow_tf32=False):
        dtype = torch.get_autocast_dtype(device_type)
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(key)):
            return torch.ops.tc.mm.dtype(cast(mat1, dtype), cast(mat2, dtype), out_dtype, allow_tf32=allow_tf32)

    _library.impl("mm", mm, key.name)
    _library.impl("mm.dtype", mm_dtype, key.name)
    _library.impl("addmm", addmm, key.name)
    _library.impl("addmm.dtype", addmm_dtype, key.name)


_register("cpu", torch._C.DispatchKey.AutocastCPU)
_register("cuda", torch._C.DispatchKey.AutocastCUDA)
