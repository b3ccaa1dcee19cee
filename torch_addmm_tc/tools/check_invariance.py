"""`python -m torch_addmm_tc check-invariance` compares the bits of batch-invariant results over batches and kernels."""

import ctypes
import hashlib
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.testing.inputs import LAYOUTS, matrix
from torch_addmm_tc.testing.reference import reference
from torch_addmm_tc.tools.planning import Gpu, Plan, problem_key

ADDMM = torch.ops.tc.addmm
MATHS = ("float16", "bfloat16", "tf32", "float32")
ROWS = 1100  # of the largest batch, more than the rows of every tile
CHECKED_ROWS = 50  # of the largest batch, which are compared with float64
PREFIXES, SINGLE_ROWS = 20, 20  # batches of the first M rows, and batches of one row, of each problem
# Sizes of layers, and sizes that fill no tile.
SIZES = (1, 3, 8, 24, 64, 100, 128, 256, 300, 512, 576, 768, 1000, 1024, 2048, 2112, 3072, 4096, 7168, 11008)
MOST_PRODUCTS = 2**35  # of the largest batch
C_SHAPES = {"bias": (-1,), "row": (1, -1), "scalar": (), "column": (ROWS, 1), "full": (ROWS, -1)}  # -1 stands for N
ACTIVATIONS = ("none", "relu", "gelu", "gelu_tanh", "silu")


@dataclass(frozen=True)
class Problem:
    """All of a call but its batch.

    Args:
        n, k: sizes.
        math: an element of MATHS.
        b: B's layout, a name in torch_addmm_tc.testing.inputs.LAYOUTS.
        c: a name in C_SHAPES, or "none".
        activation: the op's argument.
        out_float32: whether D is float32.
        special: whether some elements are infinite, NaN, subnormal or huge.
        seed: draws the elements.
    """

    n: int
    k: int
    math: str
    b: str
    c: str
    activation: str
    out_float32: bool
    special: bool
    seed: int

    @staticmethod
    def draw(rng: random.Random, math: str | None = None) -> "Problem":
        """Draw a problem whose largest batch is small enough, of one math or of any."""
        while True:
            n, k = (rng.choice(SIZES) if rng.random() < 0.6 else round(2 ** rng.uniform(0, 13.5)) for _ in range(2))
            if n * k * ROWS <= MOST_PRODUCTS:
                break
        layout, c = rng.choice(("row", "col", "col", *LAYOUTS)), rng.choice((*C_SHAPES, "none"))
        return Problem(n, k, math or rng.choice(MATHS), layout, c, rng.choice(ACTIVATIONS), rng.random() < 0.5,
                       rng.random() < 0.25, rng.randrange(2**31))  # fmt: skip

    @property
    def dtype(self) -> torch.dtype:
        """A's and B's dtype."""
        return getattr(torch, "float32" if self.math == "tf32" else self.math)

    @property
    def out_dtype(self) -> torch.dtype:
        """D's dtype."""
        return torch.float32 if self.out_float32 else self.dtype

    @property
    def options(self) -> dict:
        """The keywords of the op that all batches share."""
        alpha = {"alpha": -0.5, "beta": 0.75} if self.seed % 2 else {}
        precision = "tf32" if self.math == "tf32" else "ieee"
        return {"activation": self.activation, "precision": precision, "batch_invariant": True, **alpha}

    def reference(self, c, a, b):
        """Return the Reference of some rows."""
        options = {name: x for name, x in self.options.items() if name in ("alpha", "beta")}
        options["activation"] = None if self.activation == "none" else self.activation
        if c is None:
            c, options["beta"] = a.new_zeros(()), 0
        return reference(c, a, b, out_dtype=self.out_dtype, tf32=self.math == "tf32", **options)

    def __str__(self):
        out = ", D float32" if self.out_float32 and self.dtype != torch.float32 else ""
        special = ", special values" if self.special else ""
        return f"N {self.n}, K {self.k}, {self.math}, B {self.b}, C {self.c}, {self.activation}{out}{special}"


@dataclass
class Tally:
    """What the comparisons of a problem found.

    Args:
        batches: how many batches were compared.
        misses: a description of each batch whose bits differ.
        plans: the names of the candidates that ran.
        digests: a digest of each problem's largest batch, which other GPUs and versions may have too.
    """

    batches: int = 0
    misses: list[str] = field(default_factory=list)
    plans: set[str] = field(default_factory=set)
    digests: list[str] = field(default_factory=list)


def bits(x: torch.Tensor) -> torch.Tensor:
    """Return the bits of a tensor's elements. A NaN's payload says which instruction made it, so that all NaNs count as one."""
    x = torch.where(x.isnan(), torch.full_like(x, math.nan), x)
    return x.contiguous().view(torch.int16 if x.dtype.itemsize == 2 else torch.int32)


def digest_of(x: torch.Tensor) -> str:
    """Return a digest of a contiguous tensor on the CPU. torch itself needs NumPy to give a tensor's bytes."""
    return hashlib.sha256(ctypes.string_at(x.data_ptr(), x.nbytes)).hexdigest()[:8]


def tensors_of(problem: Problem):
    """Return (C or None, A, B) of the largest batch."""
    generator = torch.Generator("cuda").manual_seed(problem.seed)
    a = matrix("row", ROWS, problem.k, problem.dtype, "cuda", generator)
    a[::97] = 0  # the sign of a result of 0 counts
    b = matrix(problem.b, problem.k, problem.n, problem.dtype, "cuda", generator)
    c = None
    if problem.c != "none":
        shape = tuple(problem.n if x == -1 else x for x in C_SHAPES[problem.c])
        c = torch.randn(shape, generator=generator, device="cuda").to(problem.dtype)
    if problem.special:
        rng, most = random.Random(problem.seed), torch.finfo(problem.dtype)
        for value in (math.inf, math.nan, most.max, most.tiny, most.tiny / 8, -most.max):
            a[rng.randrange(ROWS), rng.randrange(problem.k)] = value
        if problem.b != "expanded":
            b[rng.randrange(problem.k), rng.randrange(problem.n)] = most.tiny / 8
    return c, a, b


def batches_of(problem: Problem, c, a, b, rng: random.Random) -> Iterator[tuple]:
    """Yield (description, C, A, rows of the largest batch): prefixes, single rows, permutations, paddings and layouts."""

    def addend(rows):
        return c[rows] if c is not None and c.dim() == 2 and c.shape[0] > 1 else c

    def batch(what, rows, of_a=None):
        return what, addend(rows), a[rows] if of_a is None else of_a, rows

    every = torch.arange(ROWS, device="cuda")
    for m in sorted(rng.sample(range(1, ROWS), PREFIXES)):
        yield batch(f"the first {m} rows", every[:m], a[:m])
    for row in rng.sample(range(ROWS), SINGLE_ROWS):
        yield batch(f"row {row} alone", every[row : row + 1], a[row : row + 1])
    order = torch.randperm(ROWS, generator=torch.Generator().manual_seed(problem.seed)).cuda()
    yield batch("a permutation", order)
    yield batch("17 rows, permuted", order[:17])
    yield batch("one row 200 times", every[7:8].expand(200))
    for layout in ("col", "row_odd", "misaligned", "strided"):
        rows = every[: rng.randrange(1, 400)]
        other = matrix(layout, len(rows), problem.k, problem.dtype, "cuda")
        yield batch(f"{len(rows)} rows, A {layout}", rows, other.copy_(a[rows]))
    rows = every[:40]
    padded = torch.full((64, problem.k), math.nan, dtype=problem.dtype, device="cuda")
    padded[:40] = a[rows]
    c_padded = addend(rows)
    if c_padded is not None and c_padded.dim() == 2 and c_padded.shape[0] > 1:
        c_padded = torch.cat([c_padded, c_padded.new_zeros(24, c_padded.shape[1])])
    yield "40 rows and 24 of NaN", c_padded, padded, rows


def check(problem: Problem, gpu: Gpu) -> Tally:
    """Compare every batch of a problem, and every candidate of the mode, with the rows of the largest batch.

    Some rows of the largest batch are compared with float64.
    """
    rng, tally = random.Random(problem.seed), Tally()
    c, a, b = tensors_of(problem)
    out_dtype = problem.out_dtype
    largest = ADDMM(c, a, b, out_dtype=out_dtype, **problem.options)
    expected = bits(largest)
    tally.digests.append(digest_of(expected.cpu()))
    if not problem.special:  # special values make results infinite or NaN, for which there is no bound
        rows = torch.arange(0, ROWS, ROWS // CHECKED_ROWS, device="cuda")
        of_c = c[rows] if c is not None and c.dim() == 2 and c.shape[0] > 1 else c
        error = problem.reference(of_c, a[rows], b).error(largest[rows])
        if not error <= 1:
            tally.misses.append(f"{len(rows)} rows of the largest batch: an element's error is {error:.3g} times its bound")

    def compare(what, result, rows):
        tally.batches += 1
        if wrong := int((bits(result[: len(rows)]) != expected[rows]).any(1).sum()):
            tally.misses.append(f"{what}: {wrong} of {len(rows)} rows")

    def plan_of(c, a, out=None) -> Plan:
        return Plan.of(problem_key(c, a, b, out_dtype=out_dtype, out=out, **problem.options), gpu)

    for what, c_batch, a_batch, rows in batches_of(problem, c, a, b, rng):
        if pick := plan_of(c_batch, a_batch).pick:
            tally.plans.add(pick.exact_name)
        compare(what, ADDMM(c_batch, a_batch, b, out_dtype=out_dtype, **problem.options), rows)
    rows = torch.arange(ROWS, device="cuda")
    for m in (5, 77, ROWS):  # the candidates that other strides, GPUs and versions may choose
        batch = (c[:m] if c is not None and c.dim() == 2 and c.shape[0] > 1 else c), a[:m]
        layout = rng.choice(("row", "col", "row_odd", "strided"))
        out = matrix(layout, m, problem.n, out_dtype, "cuda")
        for candidate in plan_of(*batch, out).candidates:
            if candidate.reason is None:
                name = candidate.exact_name
                torch.ops.tc.addmm_out(*batch, b, **problem.options, kernel_name=name, out=out.fill_(math.nan))
                tally.plans.add(name)
                compare(f"the first {m} rows, {name}, D {layout}", out, rows[:m])
    return tally


# ---- the command ----


def add_command(commands):
    """Add `check-invariance` to the command line's subparsers."""
    about = "compare the bits of batch-invariant results over batches, layouts and kernels on this GPU"
    parser = commands.add_parser("check-invariance", help=about, description=about[0].upper() + about[1:] + ".")
    parser.add_argument("--count", type=int, default=40, help="problems to draw (default: %(default)s)")
    parser.add_argument("--seed", type=int, default=0, help="draws the problems (default: %(default)s)")
    parser.set_defaults(run=lambda options: run(options, parser))


def with_progress(problems):
    """Yield the problems. A progress bar shows on stderr if rich is installed."""
    try:
        from rich.console import Console
        from rich.progress import track
    except ImportError:
        yield from problems
        return
    yield from track(problems, "comparing", console=Console(stderr=True), transient=True)


def run(options, parser) -> int:
    """Check problems and print a table. Return the exit code: 1 if bits differ."""
    if options.count < 1:
        parser.error(f"--count must be 1 or more, but got {options.count}")
    if not (_C.with_cuda and torch.cuda.is_available()):
        parser.error(
            "check-invariance runs kernels, and needs a GPU that torch finds and a build of torch_addmm_tc with CUDA kernels"
        )
    rng, gpu = random.Random(options.seed), Gpu.of(torch.cuda.current_device())
    problems = [Problem.draw(rng) for _ in range(options.count)]
    total = Tally()
    print(f"{'batches':>8} {'misses':>7} {'plans':>6}  {'digest':<8}  problem")
    with torch.inference_mode():
        for problem in with_progress(problems):
            tally = check(problem, gpu)
            figures = f"{tally.batches:>8} {len(tally.misses):>7} {len(tally.plans):>6}  {tally.digests[0]}"
            print(f"{figures}  {problem}", flush=True)
            for miss in tally.misses:
                print(f"{'':>23}  {miss}")
            total.batches += tally.batches
            total.misses += tally.misses
            total.plans |= tally.plans
            total.digests += tally.digests
    print(f"\ndigest of all largest batches: {hashlib.sha256(''.join(total.digests).encode()).hexdigest()[:16]}")
    print(
        f"{len(total.misses)} misses in {total.batches} batches of {len(problems)} problems, which "
        f"{len(total.plans)} plans of {len({x.split('/')[0] for x in total.plans})} kernels computed"
    )
    return 1 if total.misses else 0
