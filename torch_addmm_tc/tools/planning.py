"""The planner's Python interface: it tells which kernel the op would run, and why it would not run the other kernels.

Planning launches nothing and needs no GPU.
"""

import functools
from dataclasses import dataclass, field

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.ops import tf32_allowed
from torch_addmm_tc.registration.fake import check_names, checked_shape
from torch_addmm_tc.registration.table import OPS


@dataclass(frozen=True)
class Gpu:
    """The facts about a GPU that the planner and `explain` use.

    Args:
        sm: 10 times the compute capability.
        num_sms: the number of streaming multiprocessors.
        smem_per_block: bytes of shared memory that a block may have.
        name: the driver's name of the GPU. The planner looks up its peaks in the table of csrc/gemm/device.cpp.
        smem_per_sm: bytes of shared memory of an SM. Default: sm_90's.
        threads_per_sm: threads that an SM can hold. Default: sm_90's.
        peaks: {"fp32_tflops", "mma_sync_tflops", "wgmma_tflops", "dram_gb_per_s"}, a data sheet's figures. The two of tensor
            cores are for dense 16-bit operands. Default: the table's entry, or an estimate from `sm` and `num_sms`.
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

    @property
    def facts(self) -> dict:
        """What the compiled planner knows of the GPU."""
        names = ("name", "sm", "num_sms", "smem_per_block")
        return {name: getattr(self, name) for name in names} | self.peaks

    @staticmethod
    def of(device) -> "Gpu":
        """Return the facts about a CUDA device. The compiled op reads the same facts.

        Args:
            device: a CUDA device, or its index. Without an index it is the current one.
        """
        index = device if isinstance(device, int) else torch.device(device).index
        return _gpu_number(torch.cuda.current_device() if index is None else index)


@functools.cache
def _gpu_number(index: int) -> Gpu:
    properties = torch.cuda.get_device_properties(index)
    with torch.cuda.device(index):
        peaks = _C.device_peaks(index) if _C.with_cuda else None
    return Gpu(
        10 * properties.major + properties.minor,
        properties.multi_processor_count,
        properties.shared_memory_per_block_optin,
        properties.name,
        properties.shared_memory_per_multiprocessor,
        properties.max_threads_per_multi_processor,
        peaks,
    )


BY_RANK = {op.rank: op for op in OPS if op.out is None}
H200 = Gpu(sm=90, num_sms=132, smem_per_block=227 * 1024, name="NVIDIA H200")
SPLITS_K = {kernel["name"]: kernel["split_k"] for kernel in _C.kernels()}

# The address that the planner assumes for a meta tensor: torch's CUDA allocator aligns to 512 bytes, and 0 means no matrix.
ALIGNED = 256


def cluster_name(cluster) -> str:
    """Return a cluster (m, n, k) as kernel names spell it: "4x1", and "1x1x2" where blocks share K."""
    m, n, k = cluster
    return f"{m}x{n}" + (f"x{k}" if k > 1 else "")


@dataclass(frozen=True)
class Candidate:
    """A kernel's configuration and its modes for a problem, with the predicted time or the reason why it cannot run.

    Args:
        kernel: the kernel's name.
        index: the configuration's index among the kernel's "configs".
        config: the configuration, an entry of "configs".
        math: "float16", "bfloat16", "float32", "tf32", or "bf16x6" for float32 from bf16 parts.
        microseconds: the predicted time.
        reason: why the configuration cannot run the problem, or None if it can.
        k_slices: the number of K slices. More than 1 means split-K, whose slices are summed in a fixed order.
        k_slices_forced: whether the planner would choose another number of K slices under the same name.
        cluster: (m, n, k). m x n blocks of a cluster share operands by multicast, and k blocks share the K of a tile. None for
            kernels without clusters.
        columns: columns of D that a tile covers: the configuration's "tile_n", or fewer.
        repack_a, repack_b: whether the operand is copied into the workspace first, because the kernel cannot read its layout,
            or its parts are written there.
        exchanged: whether the kernel computes D^T = B^T A^T: because D is column-major, or because it has fewer columns than
            rows, if the kernel writes columns as fast.
        workspace_bytes: the size of the workspace.
        from_table: whether a loaded table of measured plans picks the candidate (load_plans).
    """

    kernel: str
    index: int
    config: dict
    math: str
    microseconds: float
    reason: str | None
    k_slices: int
    k_slices_forced: bool
    cluster: tuple[int, int, int] | None
    columns: int
    repack_a: bool
    repack_b: bool
    exchanged: bool
    workspace_bytes: int
    from_table: bool

    @property
    def name(self) -> str:
        """The kernel_name that makes torch.ops.tc.addmm_out run this configuration in these modes."""
        return self._named(self.k_slices_forced)

    @property
    def exact_name(self) -> str:
        """The name with its K slices, even where the planner would choose the same number."""
        return self._named(SPLITS_K[self.kernel] and (self.cluster is None or self.cluster[2] == 1))

    def _named(self, with_k_slices) -> str:
        cluster = f"/{cluster_name(self.cluster)}" if self.cluster else ""
        columns = f"/n{self.columns}" if self.columns < self.config["tile_n"] else ""
        return f"{self.kernel}/{self.index}{cluster}{columns}" + (f"/k{self.k_slices}" if with_k_slices else "")

    def __str__(self):
        tile = "x".join(str(self.config[f"tile_{x}"]) for x in "mnk")
        outcome = self.reason or f"predicted {self.microseconds:.1f} us"
        if not self.reason:
            outcome += f", {self.k_slices} K slices" if self.k_slices > 1 else ""
            outcome += f", clusters of {cluster_name(self.cluster)}" if self.cluster not in (None, (1, 1, 1)) else ""
            outcome += f", {self.columns} columns of a tile" if self.columns < self.config["tile_n"] else ""
            outcome += ", A repacked" if self.repack_a else ""
            outcome += ", B repacked" if self.repack_b else ""
            outcome += ", from the loaded table" if self.from_table else ""
        return f"{self.kernel:<18} {tile:<12} {outcome}"


@dataclass(frozen=True)
class Plan:
    """The planner's candidates for a problem. print() shows them.

    Args:
        candidates: every candidate. The pick comes first, if any candidate can run.
    """

    candidates: tuple[Candidate, ...]

    @staticmethod
    def of(problem: str, gpu: Gpu, name: str = "") -> "Plan":
        """Plan a problem that problem_key returned, with the candidates that a kernel_name allows, or with every one.

        Raises:
            ValueError: if `problem` is no problem's text or `name` no kernel_name.
        """
        return Plan(tuple(Candidate(**candidate) for candidate in _C.candidates(problem, gpu.facts, name)))

    @property
    def pick(self) -> Candidate | None:
        """The candidate that the op would run, or None if no candidate can run."""
        return None if self.candidates[0].reason else self.candidates[0]

    @property
    def kernel(self) -> str | None:
        """The name of the pick's kernel, or None if no candidate can run."""
        return self.pick and self.pick.kernel

    @property
    def exchanged(self) -> bool:
        """Whether the pick, or the first candidate if none can run, computes D^T = B^T A^T."""
        return self.candidates[0].exchanged

    @property
    def shortlist(self) -> tuple[Candidate, ...]:
        """The pick, if any candidate can run, and then each kernel's best other candidate in ladder order."""
        chosen, best = (self.pick,) if self.pick else (), {}
        for candidate in self.candidates[len(chosen) :]:
            rival = best.setdefault(candidate.kernel, candidate)
            if (candidate.reason is not None, candidate.microseconds) < (rival.reason is not None, rival.microseconds):
                best[candidate.kernel] = candidate
        order = {kernel["name"]: i for i, kernel in enumerate(_C.kernels())}
        return chosen + tuple(sorted(best.values(), key=lambda candidate: order[candidate.kernel]))

    def __str__(self):
        lines = [f"{'->' if candidate is self.pick else '  '} {candidate}" for candidate in self.shortlist]
        return "\n".join([*lines, f"   and {len(self.candidates) - len(lines)} slower or unsupported candidates"])


def problem_key(
    input, mat1, mat2, *,
    beta=1, alpha=1, activation=None, out_dtype=None, out=None, precision=None, batch_invariant=False,
) -> str:  # fmt: skip
    """Return all that the planner knows of a call, as log_problems and tables of plans write it. The arguments are plan's.

    Of more than 65535 products, which the op launches in parts, it is what the planner knows of the first part.
    """
    dtype, op = out_dtype or (mat1 if out is None else out).dtype, BY_RANK[3 if mat1.dim() == mat2.dim() == 3 else 2]
    options = {"out_dtype": dtype, "activation": activation or "none", "precision": precision}
    call = op.bind((input, mat1, mat2), options)
    check_names(call)
    shape = checked_shape(call)
    (*batch, m, n), k = shape, mat1.shape[-1]

    def matrix(x):
        address, of_batch = ALIGNED if x.is_meta else x.data_ptr(), () if batch else (0,)
        return address, *of_batch, *x.stride(), str(x.dtype).removeprefix("torch.")

    if out is None or out.shape != shape:  # the op resizes it
        out = torch.empty(shape, dtype=dtype, device="meta")
    if input is None:
        input, beta = mat1.new_empty((), device="meta"), 0
    return _C.problem(
        batch=batch[0] if batch else 1, m=m, n=n, k=k,
        a=matrix(mat1), b=matrix(mat2), c=matrix(input.expand(shape)), d=matrix(out),
        alpha=alpha, beta=beta, activation=activation or "none",
        tf32=tf32_allowed() if precision is None else precision == "tf32",
        batch_invariant=batch_invariant or _C.in_batch_invariant_block(),
    )  # fmt: skip


def plan(
    input, mat1, mat2, *,
    beta=1, alpha=1, activation=None, out_dtype=None, out=None, precision=None, batch_invariant=False, gpu=None,
) -> Plan:  # fmt: skip
    """Plan torch_addmm_tc.addmm with these arguments, or baddbmm if the operands have three dimensions.

    The planner reads shapes, strides, dtypes and addresses, never elements.

    Args:
        input: as in torch_addmm_tc.addmm. None plans the plain product.
        mat1, mat2, beta, alpha, activation, out_dtype, out: as in torch_addmm_tc.addmm. Tensors may be meta tensors.
        precision: "ieee" or "tf32". Default: what torch's settings allow.
        batch_invariant: as in torch_addmm_tc.addmm.
        gpu: a Gpu. Default: the tensors' GPU. For tensors that lie on no GPU: the current CUDA device or, without one, an H200.

    Returns:
        A Plan.

    Raises:
        RuntimeError: if shapes or dtypes do not match, or if there is no such activation or precision, with the op's message.
    """
    options = {"activation": activation, "out_dtype": out_dtype, "out": out, "precision": precision}
    options["batch_invariant"] = batch_invariant
    problem = problem_key(input, mat1, mat2, beta=beta, alpha=alpha, **options)
    if gpu is None:
        device = mat1.device if mat1.is_cuda else torch.cuda.current_device() if torch.cuda.is_available() else None
        gpu = H200 if device is None else Gpu.of(device)
    return Plan.of(problem, gpu)
