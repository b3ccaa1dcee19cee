"""Which kernel would run, and why the others would not. Pure: nothing is launched, and no GPU is needed."""

import functools
from dataclasses import dataclass, field

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.ops import tf32_allowed
from torch_addmm_tc.registration.fake import checked_shape
from torch_addmm_tc.registration.table import OPS


@dataclass(frozen=True)
class Gpu:
    """What the planner and `explain` know of a GPU.

    Args:
        sm: 10 times the compute capability.
        num_sms: streaming multiprocessors.
        smem_per_block: shared memory that a block may have, in bytes.
        name: what the driver calls the GPU. It finds the peaks in csrc/gemm/device.cpp's table.
        smem_per_sm, threads_per_sm: how many blocks run at once follows from them. The defaults are sm_90's.
        peaks: fp32_tflops, mma_sync_tflops, wgmma_tflops (dense, 16-bit operands on tensor cores) and dram_gb_per_s, as a data
            sheet states them. Default: the table's, or what a GPU of this generation and size would have.
    """

    sm: int
    num_sms: int
    smem_per_block: int
    name: str = ""
    smem_per_sm: int = 228 * 1024
    threads_per_sm: int = 2048
    peaks: dict | None = field(default=None, hash=False)

    def __post_init__(self):
        if self.peaks is None:
            object.__setattr__(self, "peaks", _C.gpu_peaks(self.name, self.sm, self.num_sms))

    @staticmethod
    @functools.cache
    def of(device) -> "Gpu":
        """The facts of a CUDA device, as the compiled op reads them."""
        properties = torch.cuda.get_device_properties(device)
        with torch.cuda.device(device):
            peaks = _C.device_peaks(torch.cuda.current_device()) if _C.with_cuda else None
        return Gpu(
            10 * properties.major + properties.minor,
            properties.multi_processor_count,
            properties.shared_memory_per_block_optin,
            properties.name,
            properties.shared_memory_per_multiprocessor,
            properties.max_threads_per_multi_processor,
            peaks,
        )


ADDMM = OPS[0]
H200 = Gpu(sm=90, num_sms=132, smem_per_block=227 * 1024, name="H200")

ALIGNED = 256  # the address that a meta tensor is planned for; at address 0 there would be no matrix


@dataclass(frozen=True)
class Candidate:
    """One way to run a problem: a kernel's configuration and its modes, with the predicted time or the reason against it."""

    kernel: str
    index: int  # of the configuration among its kernel's
    config: dict
    math: str
    microseconds: float
    reason: str | None  # why it cannot run
    k_slices: int  # of a split K, summed in a fixed order
    repack_a: bool  # copied into workspace first, because the kernel cannot read it as it lies
    repack_b: bool
    exchanged: bool  # computed as D^T = B^T A^T, because D is column-major
    workspace_bytes: int

    @property
    def name(self) -> str:
        """What torch.ops.tc.addmm_out takes as kernel_name."""
        return f"{self.kernel}/{self.index}"

    def __str__(self):
        tile = "x".join(str(self.config[f"tile_{x}"]) for x in "mnk")
        said = self.reason or f"predicted {self.microseconds:.1f} us"
        if not self.reason:
            said += f", {self.k_slices} K slices" if self.k_slices > 1 else ""
            said += ", A repacked" if self.repack_a else ""
            said += ", B repacked" if self.repack_b else ""
        return f"{self.kernel:<18} {tile:<12} {said}"


@dataclass(frozen=True)
class Plan:
    """Every candidate, the planner's pick first, if any can run. print() shows them."""

    candidates: tuple[Candidate, ...]

    @property
    def pick(self) -> Candidate | None:
        """The candidate that the op would run, or None where none can run."""
        return None if self.candidates[0].reason else self.candidates[0]

    @property
    def kernel(self) -> str | None:
        """The pick's kernel."""
        return self.pick and self.pick.kernel

    @property
    def exchanged(self) -> bool:
        return self.candidates[0].exchanged

    def __str__(self):
        marks = ["->"] + ["  "] * (len(self.candidates) - 1) if self.kernel else ["  "] * len(self.candidates)
        return "\n".join(f"{mark} {candidate}" for mark, candidate in zip(marks, self.candidates))


def plan(input, mat1, mat2, *, beta=1, alpha=1, out_dtype=None, out=None, precision=None, gpu=None) -> Plan:
    """The plan for torch_addmm_tc.addmm with these arguments. Only shapes, strides, dtypes and addresses are read.

    Args:
        input: as in torch_addmm_tc.addmm, or None for the plain product.
        mat1, mat2, beta, alpha, out_dtype, out: as in torch_addmm_tc.addmm.
        precision: "ieee" or "tf32". Default: what torch's settings allow.
        gpu: a Gpu. Default: the tensors' own; for tensors elsewhere the current CUDA device or, without one, an H200.

    Returns:
        A Plan.

    Raises:
        RuntimeError: torch_addmm_tc.addmm's errors about shapes and dtypes.
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
    if input is None:
        input, beta = mat1.new_empty((), device="meta"), 0
    found = _C.candidates(
        m=m, n=n, k=k,
        a=matrix(mat1), b=matrix(mat2), c=matrix(input.expand(m, n)), d=matrix(out),
        alpha=alpha, beta=beta,
        tf32=tf32_allowed() if precision is None else precision == "tf32",
        sm=gpu.sm, num_sms=gpu.num_sms, smem_per_block=gpu.smem_per_block, **gpu.peaks,
    )  # fmt: skip
    return Plan(tuple(Candidate(**candidate) for candidate in found))
