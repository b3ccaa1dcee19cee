"""`python -m torch_addmm_tc explain` shows the planner's pick for a problem, its reasons, and what bounds the pick's speed."""

import argparse
from dataclasses import dataclass

import torch

from torch_addmm_tc.ops import kernels
from torch_addmm_tc.tools.planning import H200, Candidate, Gpu, Plan, problem_key

# {math: (how many times as long it takes as 16-bit products at the peak of tensor cores, words for it)}
SLOWER_MATHS = {"tf32": (2, " in TF32"), "bf16x6": (6, " in six products of bf16 parts")}
PEAKS = {"fp32": "fp32_tflops", "mma.sync": "mma_sync_tflops", "wgmma": "wgmma_tflops"}  # unit -> its key in Gpu.peaks
UNITS = {kernel["name"]: kernel["unit"] for kernel in kernels()}  # kernel -> the unit that multiplies

REGISTERS_PER_SM = 65536  # 32-bit registers (CUDA C++ Programming Guide, technical specifications, sm_80 and later)
RESERVED_SMEM = 1024  # bytes that CUDA reserves for each block (CUDA C++ Programming Guide, sm_80 and later)
LARGEST = 2**30  # the largest M, N or K: byte counts stay within 64 bits


@dataclass(frozen=True)
class Occupancy:
    """The blocks of a configuration that one SM can hold. Static shared memory is not counted.

    Args:
        registers: the most registers per thread that the launch bounds allow.
        limits: resource -> the blocks that it allows.
    """

    registers: int
    limits: dict[str, int]

    @staticmethod
    def of(config: dict, gpu: Gpu) -> "Occupancy":
        """Return the occupancy of a configuration, an entry of a kernel's "configs"."""
        threads = config["threads"]
        registers = min(255, REGISTERS_PER_SM // (threads * config["blocks_per_sm"]) // 8 * 8)
        limits = {
            "threads": gpu.threads_per_sm // threads,
            "registers": REGISTERS_PER_SM // (threads * registers),
            "shared memory": gpu.smem_per_sm // (config["smem_bytes"] + RESERVED_SMEM),
        }
        return Occupancy(registers, limits)

    @property
    def blocks(self) -> int:
        """The blocks that all resources allow."""
        return min(self.limits.values())

    @property
    def limiting(self) -> str:
        """The names of the scarcest resources."""
        return " and ".join(name for name, blocks in self.limits.items() if blocks == self.blocks)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


@dataclass(frozen=True)
class Waves:
    """The waves of a persistent grid (csrc/tile/launch.h).

    Args:
        work_tiles: how many work tiles there are. A work tile is an output tile or, with split-K, one K slice of it.
        blocks: blocks of the grid.
        slots: blocks that the GPU can hold at once.
    """

    work_tiles: int
    blocks: int
    slots: int

    @staticmethod
    def of(m: int, n: int, config: dict, gpu: Gpu, k_slices: int = 1, columns: int | None = None) -> "Waves":
        """Return the waves of an (m, n) result.

        Args:
            m, n: the result's sizes.
            config: an entry of a kernel's "configs".
            gpu: the GPU.
            k_slices: the number of K slices.
            columns: columns of a tile. Default: the configuration's.
        """
        work_tiles = ceil_div(m, config["tile_m"]) * ceil_div(n, columns or config["tile_n"]) * k_slices
        per_sm = config["blocks_per_sm"]
        resident = min(per_sm, Occupancy.of(config, gpu).blocks)
        return Waves(work_tiles, min(work_tiles, gpu.num_sms * per_sm), gpu.num_sms * resident)

    @property
    def count(self) -> int:
        """The number of waves."""
        return ceil_div(self.work_tiles, self.slots)

    @property
    def last(self) -> int:
        """The work tiles of the last wave."""
        return self.work_tiles - (self.count - 1) * self.slots


@dataclass(frozen=True)
class Work:
    """The FLOPs of a problem, and the bytes of A, B, C and D, each moved once."""

    flops: int
    bytes: int


@dataclass(frozen=True)
class Problem:
    """The command's arguments.

    Args:
        m, n, k: the sizes of D (M, N) = A (M, K) B (K, N).
        dtype: A's and B's dtype.
        a, b: "row" for row-major, "col" for column-major.
        c: "full" for an (M, N) C in A's dtype, "fp32" for an (M, N) C and D in fp32, "bias" for an (N,) C, "none" for beta = 0.
        batch_invariant: as in torch_addmm_tc.addmm.
    """

    m: int
    n: int
    k: int
    dtype: torch.dtype
    a: str
    b: str
    c: str
    batch_invariant: bool = False

    @property
    def out_dtype(self) -> torch.dtype:
        """The dtype of C and D."""
        return torch.float32 if self.c == "fp32" else self.dtype

    def plan(self, gpu: Gpu) -> Plan:
        """Return the planner's candidates for contiguous, aligned tensors."""
        return Plan.of(self.key(), gpu)

    def key(self, precision=None) -> str:
        """Return the problem_key for contiguous, aligned tensors. `precision` is that of plan()."""

        def operand(order, rows, cols):
            x = torch.empty((rows, cols) if order == "row" else (cols, rows), dtype=self.dtype, device="meta")
            return x if order == "row" else x.t()

        shape = {"bias": (self.n,), "none": ()}.get(self.c, (self.m, self.n))
        c = torch.empty(shape, dtype=self.out_dtype, device="meta")
        a, b = operand(self.a, self.m, self.k), operand(self.b, self.k, self.n)
        beta = 0 if self.c == "none" else 1
        options = {"precision": precision, "batch_invariant": self.batch_invariant}
        return problem_key(c, a, b, beta=beta, out_dtype=self.out_dtype, **options)

    @property
    def work(self) -> Work:
        """The problem's FLOPs and bytes."""
        c = {"bias": self.n, "none": 0}.get(self.c, self.m * self.n)
        nbytes = self.dtype.itemsize * self.k * (self.m + self.n) + self.out_dtype.itemsize * (c + self.m * self.n)
        return Work(2 * self.m * self.n * self.k, nbytes)

    def __str__(self):
        dtype = str(self.dtype).removeprefix("torch.")
        mode = ", batch-invariant" if self.batch_invariant else ""
        return f"{self.m} x {self.n} x {self.k}, {dtype}, A {self.a}, B {self.b}, C {self.c}{mode}"


def size(text: str) -> int:
    """Return the size that an argument of the command line gives."""
    if not text.isdecimal() or int(text) > LARGEST:
        raise argparse.ArgumentTypeError(f"a size must be an integer from 0 to 2^30, but got {text!r}")
    return int(text)


def add_command(commands):
    """Add `explain` to the command line's subparsers."""
    about = "show the planner's pick for a problem, its reasons, and what bounds its speed"
    parser = commands.add_parser(
        "explain",
        help=about,
        description=f"{about.capitalize()}. The command runs no kernel. Without a GPU it explains for an H200.",
    )
    for name, meaning in (("M", "rows of A and D"), ("N", "columns of B and D"), ("K", "columns of A and rows of B")):
        parser.add_argument(name, type=size, help=meaning)
    parser.add_argument("--dtype", choices=("float16", "bfloat16", "float32"), default="float16", help="dtype of A and B")
    parser.add_argument("--a", choices=("row", "col"), default="row", help="A row-major or column-major")
    parser.add_argument("--b", choices=("row", "col"), default="row", help="B row-major or column-major; col is weight.t()")
    parser.add_argument(
        "--c",
        choices=("full", "fp32", "bias", "none"),
        default="full",
        help="C of shape (M, N); C (M, N) and D in fp32; C of shape (N,); or beta = 0",
    )
    parser.add_argument("--batch-invariant", action="store_true", help="a row's bits must not depend on the other rows")
    parser.add_argument("--all", action="store_true", help="list every candidate, not only each kernel's best")
    parser.set_defaults(run=run)


def run(options) -> int:
    """Explain the problem that `options` describe. Return the exit code: 1 if no kernel can run it."""
    dtype = getattr(torch, options.dtype)
    problem = Problem(options.M, options.N, options.K, dtype, options.a, options.b, options.c, options.batch_invariant)
    has_gpu = torch.cuda.is_available()
    gpu = Gpu.of(torch.cuda.current_device()) if has_gpu else H200
    name = torch.cuda.get_device_name() if has_gpu else "an H200"
    print(f"{problem}, on {name} (sm_{gpu.sm}, {gpu.num_sms} SMs)\n")
    if problem.m == 0 or problem.n == 0:
        print("nothing to compute: the result is empty")
        return 0
    if problem.k == 0:
        print("nothing to compute: K = 0, so the result is " + ("zeros" if problem.c == "none" else "beta * C"))
        return 0
    chosen = problem.plan(gpu)
    shown = chosen.candidates if options.all else chosen.shortlist
    print("\n".join(comparison(chosen, shown)))
    if len(shown) < len(chosen.candidates):
        print(f"   and {len(chosen.candidates) - len(shown)} slower or unsupported candidates, which --all lists")
    if chosen.kernel is None:
        print("\nno kernel runs this on this GPU")
        return 1
    print()
    for name, fact in facts(problem, chosen.candidates[0], gpu):
        print(f"{name:<12}{fact}")
    return 0


def comparison(chosen: Plan, shown):
    """Yield a line for each candidate in `shown`: the pick, and why each other candidate lost."""
    best = chosen.candidates[0]
    for candidate in shown:
        lost = chosen.kernel and candidate is not best and not candidate.reason
        slower = f", {candidate.microseconds / best.microseconds:.2f}x the pick's time" if lost else ""
        yield f"{'->' if chosen.kernel and candidate is best else '  '} {candidate}{slower}"


def facts(problem: Problem, best: Candidate, gpu: Gpu):
    """Yield (name, text) of each fact about the pick: tiles, waves, occupancy, work, limits and predicted time."""
    config, work = best.config, problem.work
    waves = Waves.of(problem.m, problem.n, config, gpu, best.k_slices, best.columns)
    occupancy = Occupancy.of(config, gpu)
    tiles = f"{waves.work_tiles // best.k_slices} of {config['tile_m']}x{best.columns}"
    tiles += f", each in {best.k_slices} K slices" if best.k_slices > 1 else ""
    allowed = ", ".join(f"{what} {blocks}" for what, blocks in occupancy.limits.items())
    yield "tiles", f"{tiles}, on a grid of {waves.blocks} x {config['threads']} threads"
    yield "waves", f"{waves.count} of {waves.slots}; the last has {waves.last}, {waves.last / waves.slots:.1%}"
    yield "per SM", f"{occupancy.blocks} blocks, limited by {occupancy.limiting} (each allows: {allowed})"
    registers = f"at most {occupancy.registers} registers per thread"
    yield "per block", f"{registers}, {config['smem_bytes']} bytes of dynamic shared memory"
    gigaflops, megabytes, intensity = work.flops / 1e9, work.bytes / 1e6, work.flops / work.bytes
    yield "work", f"{gigaflops:.4g} GFLOP, {megabytes:.4g} MB if each matrix moves once: {intensity:.4g} FLOP/byte"
    unit = UNITS[best.kernel]
    slower, how = SLOWER_MATHS.get(best.math, (1, ""))
    tflops, gb_per_s = gpu.peaks[PEAKS[unit]] / slower, gpu.peaks["dram_gb_per_s"]
    arithmetic_us, memory_us = work.flops / tflops / 1e6, work.bytes / gb_per_s / 1e3
    yield "arithmetic", f"{arithmetic_us:.4g} us at the GPU's peak, {tflops:.4g} TFLOP/s of {unit}{how}"
    yield "memory", f"{memory_us:.4g} us at the GPU's peak, {gb_per_s:.4g} GB/s"
    limit, bound = max((arithmetic_us, "arithmetic"), (memory_us, "memory"))
    yield "predicted", f"{best.microseconds:.4g} us; the higher limit, {bound}, is {limit / best.microseconds:.1%} of it"
