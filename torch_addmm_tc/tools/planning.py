"""Which kernel would run, and why the others would not. Pure: nothing is launched, and no GPU is needed."""

import functools
from dataclasses import dataclass, fields

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.registration.fake import checked_shape
from torch_addmm_tc.registration.table import OPS
from torch_addmm_tc.ops import tf32_allowed


@dataclass(frozen=True)
class Gpu:
    """A GPU: 10 * compute capability, SMs, shared memory per block in bytes. The planner knows no more.

    The rest, per SM (the defaults are sm_90's), tells how many blocks run at once.
    """

    sm: int
    num_sms: int
    smem_per_block: int
    smem_per_sm: int = 228 * 1024
    threads_per_sm: int = 2048

    @staticmethod
    @functools.cache
    def of(device) -> "Gpu":
        """The facts of a CUDA device, as the compiled op reads them."""
        properties = torch.cuda.get_device_properties(device)
        sm = 10 * properties.major + properties.minor
        return Gpu(
            sm,
            properties.multi_processor_count,
            properties.shared_memory_per_block_optin,
            properties.shared_memory_per_multiprocessor,
            properties.max_threads_per_multi_processor,
        )


ADDMM = OPS[0]
H200 = Gpu(sm=90, num_sms=132, smem_per_block=227 * 1024)

ALIGNED = 256  # where a meta tensor is taken to lie; 0 would mean that there is no such matrix


@dataclass(frozen=True)
class Candidate:
    """One kernel instance: what the planner predicts for it, or why it may not run."""

    kernel: str
    index: int  # of the instance among its kernel's
    instance: dict
    microseconds: float
    rejection: str | None
    splits: int  # parts of K, summed in a fixed order
    repack_a: bool  # copied into workspace first, because the kernel cannot read it as it lies
    repack_b: bool
    workspace_bytes: int

    @property
    def name(self) -> str:
        """What torch.ops.tc.addmm_by_kernel_out calls it."""
        return f"{self.kernel}/{self.index}"

    def __str__(self):
        tile = "x".join(str(self.instance[f"tile_{x}"]) for x in "mnk")
        verdict = self.rejection or f"predicted {self.microseconds:.1f} us"
        if not self.rejection:
            verdict += f", K split in {self.splits}" if self.splits > 1 else ""
            verdict += ", A repacked" if self.repack_a else ""
            verdict += ", B repacked" if self.repack_b else ""
        return f"{self.kernel:<18} {tile:<12} {verdict}"


@dataclass(frozen=True)
class Plan:
    """Every candidate, the planner's pick first (if any may run). print() shows them."""

    candidates: tuple[Candidate, ...]
    transposed: bool  # computed as D^T = B^T A^T, because D is column-major

    @property
    def kernel(self) -> str | None:
        return None if self.candidates[0].rejection else self.candidates[0].kernel

    def __str__(self):
        marks = ["->"] + ["  "] * (len(self.candidates) - 1) if self.kernel else ["  "] * len(self.candidates)
        return "\n".join(f"{mark} {candidate}" for mark, candidate in zip(marks, self.candidates))


def plan(input, mat1, mat2, *, beta=1, alpha=1, out_dtype=None, out=None, allow_tf32=None, gpu=None) -> Plan:
    """The plan for torch_addmm_tc.addmm with these arguments.

    Only shapes, strides, dtypes and addresses are read. Tensors on the CPU or the meta device are planned for `gpu`, by
    default the current CUDA device or, where there is none, an H200. Raises torch_addmm_tc.addmm's errors about shapes and
    dtypes.
    """
    dtype = out_dtype or (mat1 if out is None else out).dtype
    (m, n), k = checked_shape(ADDMM.bind((input, mat1, mat2), {"out_dtype": dtype})), mat1.shape[1]
    if gpu is None:
        device = mat1.device if mat1.is_cuda else torch.cuda.current_device() if torch.cuda.is_available() else None
        gpu = H200 if device is None else Gpu.of(device)

    def matrix(x):
        address = ALIGNED if x.is_meta else x.data_ptr()
        return address, *x.stride(), str(x.dtype).removeprefix("torch.")

    if out is None:
        out = torch.empty(m, n, dtype=dtype, device="meta")
    verdicts = _C.judge(
        m=m, n=n, k=k,
        a=matrix(mat1), b=matrix(mat2), c=matrix(input.expand(m, n)), d=matrix(out),
        alpha=alpha, beta=beta,
        allow_tf32=tf32_allowed() if allow_tf32 is None else allow_tf32,
        sm=gpu.sm, num_sms=gpu.num_sms, smem_per_block=gpu.smem_per_block,
    )  # fmt: skip
    transposed = verdicts[0]["transposed"]
    names = [field.name for field in fields(Candidate)]
    return Plan(tuple(Candidate(**{name: v[name] for name in names}) for v in verdicts), transposed)
