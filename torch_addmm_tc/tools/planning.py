"""Which kernel would run, and why the others would not. Nothing is launched, and no GPU is needed."""

import functools
from dataclasses import dataclass

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.ops import tf32_allowed
from torch_addmm_tc.registration.fake import checked_shape
from torch_addmm_tc.registration.table import OPS


@dataclass(frozen=True)
class Gpu:
    """What the planner knows of a GPU, and what occupancy depends on.

    Attributes:
        sm: 10 * compute capability: 90 for an H200.
        num_sms: streaming multiprocessors.
        smem_per_block: bytes of shared memory that one block may use, after opting in.
        smem_per_sm: bytes of shared memory per SM; by default sm_90's. The planner does not read it.
        threads_per_sm: resident threads per SM; by default sm_90's. The planner does not read it.
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


H200 = Gpu(sm=90, num_sms=132, smem_per_block=227 * 1024)

ADDMM = OPS[0]
ALIGNED = 256  # the address at which a meta tensor is taken to lie; 0 would mean that there is no matrix


@dataclass(frozen=True)
class Candidate:
    """One configuration of one kernel: what the planner predicts for it, or why it may not run.

    Attributes:
        kernel: the kernel's name.
        index: of the configuration among its kernel's.
        config: tile sizes, stages, threads and shared memory of the configuration.
        microseconds: the predicted time; meaningless where `reason` is given.
        reason: why the configuration may not run, or None.
        k_slices: into how many slices split-K divides K; 1 without it.
        repack_a: whether A is copied into workspace first, because the kernel cannot read it as it lies.
        repack_b: the same for B.
        exchanged: whether the product is computed as D^T = B^T A^T.
        workspace_bytes: bytes of workspace that the launch needs.
    """

    kernel: str
    index: int
    config: dict
    microseconds: float
    reason: str | None
    k_slices: int
    repack_a: bool
    repack_b: bool
    exchanged: bool
    workspace_bytes: int

    @property
    def name(self) -> str:
        """What addmm_out's kernel_name calls this configuration."""
        return f"{self.kernel}/{self.index}"

    def __str__(self):
        tile = "x".join(str(self.config[f"tile_{x}"]) for x in "mnk")
        outcome = self.reason or f"predicted {self.microseconds:.1f} us"
        if not self.reason:
            outcome += f", {self.k_slices} K slices" if self.k_slices > 1 else ""
            outcome += ", A repacked" if self.repack_a else ""
            outcome += ", B repacked" if self.repack_b else ""
        return f"{self.kernel:<18} {tile:<12} {outcome}"


@dataclass(frozen=True)
class Plan:
    """Every candidate, the planner's pick first, if any may run. print() shows them."""

    candidates: tuple[Candidate, ...]

    @property
    def pick(self) -> Candidate | None:
        """The candidate that would run, or None where none may."""
        return None if self.candidates[0].reason else self.candidates[0]

    @property
    def kernel(self) -> str | None:
        """The picked kernel's name, or None."""
        return self.pick.kernel if self.pick else None

    @property
    def exchanged(self) -> bool:
        """Whether the pick computes D^T = B^T A^T."""
        return self.candidates[0].exchanged

    def __str__(self):
        return "\n".join(f"{'->' if candidate is self.pick else '  '} {candidate}" for candidate in self.candidates)


def _candidates(**problem) -> tuple[Candidate, ...]:
    """Ask the compiled planner."""
    return tuple(
        Candidate(
            kernel=x["kernel"], index=x["index"], config=x["instance"], microseconds=x["microseconds"], reason=x["rejection"],
            k_slices=x["splits"], repack_a=x["repack_a"], repack_b=x["repack_b"], exchanged=x["transposed"],
            workspace_bytes=x["workspace_bytes"],
        )
        for x in _C.judge(**problem)
    )  # fmt: skip


def plan(input, mat1, mat2, *, beta=1, alpha=1, out_dtype=None, out=None, precision=None, gpu=None) -> Plan:
    """Plan torch_addmm_tc.addmm with these arguments.

    Only shapes, strides, dtypes and addresses are read.

    Args:
        input, mat1, mat2, beta, alpha, out_dtype, out: as torch_addmm_tc.addmm takes them. Meta tensors count as aligned.
        precision: "ieee" or "tf32"; by default what torch's setting says.
        gpu: the Gpu to plan for. By default mat1's device, or else the current CUDA device, or else an H200.

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
    no_addend = 0, 0, 0, str(mat1.dtype).removeprefix("torch.")
    candidates = _candidates(
        m=m, n=n, k=k,
        a=matrix(mat1), b=matrix(mat2), c=no_addend if input is None else matrix(input.expand(m, n)), d=matrix(out),
        alpha=alpha, beta=0 if input is None else beta,
        allow_tf32=tf32_allowed() if precision is None else precision == "tf32",
        sm=gpu.sm, num_sms=gpu.num_sms, smem_per_block=gpu.smem_per_block,
    )  # fmt: skip
    return Plan(candidates)
