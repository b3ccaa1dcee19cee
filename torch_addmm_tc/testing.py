"""What correct means, in one place for the tests, the benchmarks and `python -m torch_addmm_tc`.

The reference is float64 on the same inputs. An element is right when it is within the error that fp32 accumulation of K
products, the alpha/beta arithmetic in fp32 and one rounding to the result's dtype can make (see `reference`).
"""

import math
import random
from dataclasses import dataclass, fields, replace
from functools import partial

import torch
import torch.nn.functional as F

from torch_addmm_tc import _C
from torch_addmm_tc.tools.planning import plan

UNIT_ROUNDOFF = {torch.float16: 2.0**-11, torch.bfloat16: 2.0**-8, torch.float32: 2.0**-24}
TF32_ROUNDOFF = 2.0**-11
SMALLEST_SUBNORMAL = {torch.float16: 2.0**-24, torch.bfloat16: 2.0**-133, torch.float32: 2.0**-149}


@dataclass(frozen=True)
class Reference:
    """Float64 values of the result and, for each, the largest error that a correct result may have; both (M, N)."""

    value: torch.Tensor
    bound: torch.Tensor
    dtype: torch.dtype

    def error(self, result: torch.Tensor) -> float:
        """The worst element's error as a fraction of its bound: at most 1 when right, inf for a wrong NaN or infinity."""
        if result.shape != self.value.shape or result.dtype != self.dtype:
            return math.inf
        if result.numel() == 0:
            return 0.0
        got, ref = result.double(), self.value
        same = (got == ref) | (got.isnan() & ref.isnan())
        overflow = got.isinf() & (got.sign() == ref.sign()) & (ref.abs() + self.bound > torch.finfo(self.dtype).max)
        fraction = ((got - ref).abs() / self.bound).nan_to_num(nan=math.inf, posinf=math.inf)
        return torch.where(same | overflow, 0.0, fraction).max().item()


ACTIVATIONS = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu_tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
}


def reference(self, mat1, mat2, *, beta=1.0, alpha=1.0, activation=None, out_dtype=None, tf32=False) -> Reference:
    """(K + 2) u32 |alpha| |A||B|  +  u_out |D|  +  u32 (|alpha A B| + |beta C|), where u is a dtype's unit roundoff.

    The first term is the classic bound on an fp32 dot product of length K in any order (Higham, Accuracy and Stability of
    Numerical Algorithms, section 3.1), the second the result's rounding, the third the fp32 arithmetic on alpha and beta.
    Half the smallest subnormal covers gradual underflow. `tf32` adds ((1 + 2^-11)^2 - 1) |alpha| |A||B|, what rounding each
    operand to TF32's 11 bits makes of a product. alpha and beta are rounded to fp32 first, as the op does. An
    activation, whose slope is 1.13 at most, magnifies all but the result's rounding by that, and has 16 u32 |its argument| for
    its own arithmetic.
    """
    dtype = out_dtype or mat1.dtype
    alpha, beta = (torch.tensor(x, dtype=torch.float32).item() for x in (alpha, beta))
    m, k, n = mat1.shape[0], mat1.shape[1], mat2.shape[1]
    a, b, u32 = mat1.double(), mat2.double(), UNIT_ROUNDOFF[torch.float32]
    zeros = a.new_zeros(m, n)
    product = alpha * (a @ b) if alpha != 0 and k > 0 else zeros
    addend = beta * self.double().expand(m, n) if beta != 0 else zeros
    magnitude = abs(alpha) * (a.abs() @ b.abs()) if alpha != 0 and k > 0 else zeros
    value = product + addend
    bound = (k + 2) * u32 * magnitude + u32 * (product.abs() + addend.abs())
    if tf32:
        bound += ((1 + TF32_ROUNDOFF) ** 2 - 1) * magnitude
    if activation is not None:
        bound = 1.13 * bound + 16 * u32 * value.abs()
        value = ACTIVATIONS[activation](value)
    return Reference(value, bound + UNIT_ROUNDOFF[dtype] * value.abs() + SMALLEST_SUBNORMAL[dtype] / 2, dtype)


# ---- inputs ----

LAYOUTS = ("row", "col", "row_pitched", "col_pitched", "row_odd", "col_odd", "misaligned", "strided", "expanded")


def matrix(layout: str, rows: int, cols: int, dtype, device, generator=None) -> torch.Tensor:
    """A random normal (rows, cols) matrix that lies in memory as `layout` says.

    row, col: contiguous along a row or a column. _pitched: cut from a wider one, still 16-byte aligned. _odd: cut so that
    base and leading dimension are aligned to one element only. misaligned: contiguous, base off by one element. strided:
    every second column of every second row. expanded: one row, repeated by a stride of 0.
    """

    def draw(*shape):
        return torch.randn(shape, device=device, dtype=torch.float32, generator=generator).to(dtype)

    if layout.startswith("col"):
        return matrix(layout.replace("col", "row"), cols, rows, dtype, device, generator).t()
    if layout == "row":
        return draw(rows, cols)
    if layout == "row_pitched":
        return draw(rows, (cols + 15) // 8 * 8)[:, :cols]
    if layout == "row_odd":
        return draw(rows, cols // 2 * 2 + 3)[:, 1 : cols + 1]
    if layout == "misaligned":
        return draw(rows * cols + 1)[1:].view(rows, cols)
    if layout == "strided":
        return draw(2 * rows, 2 * cols)[::2, ::2]
    if layout == "expanded":
        return draw(1, cols).expand(rows, cols)
    raise ValueError(f"layout must be one of {LAYOUTS}, but got {layout!r}")


BROADCASTS = ("()", "(1)", "(N)", "(1,1)", "(1,N)", "(M,1)", "(M,N)")


def self_shape(broadcast: str, m: int, n: int) -> tuple[int, ...]:
    """The shape that a name in BROADCASTS stands for."""
    sizes = {"M": m, "N": n, "1": 1}
    return tuple(sizes[x] for x in broadcast.strip("()").split(",") if x)


# ---- cases ----


@dataclass(frozen=True)
class Case:
    """One call of the op: sizes, dtypes, how each matrix lies in memory, and alpha and beta."""

    m: int
    n: int
    k: int
    dtype: torch.dtype = torch.float16
    self_dtype: torch.dtype | None = None
    out_dtype: torch.dtype | None = None
    a: str = "row"
    b: str = "row"
    c: str = "row"
    broadcast: str = "(M,N)"
    beta: float = 0.5
    alpha: float = 0.5
    tf32: bool = False  # fp32 operands may be rounded to TF32
    activation: str | None = None

    def __str__(self):
        name = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", None: "same"}
        operands = "tf32" if self.tf32 else name[self.dtype]
        c = f"{name[self.self_dtype]}{self.broadcast}" + (f"-{self.c}" if self.c != "row" else "")
        return (
            f"{self.m}x{self.n}x{self.k}-{operands}-A:{self.a}-B:{self.b}-C:{c}-D:{name[self.out_dtype]}"
            f"-{self.beta:g}-{self.alpha:g}" + (f"-{self.activation}" if self.activation else "")
        )

    def inputs(self, device, seed=0):
        """(self, mat1, mat2), random and reproducible."""
        generator = torch.Generator(device).manual_seed(seed)
        make = lambda layout, rows, cols, dtype: matrix(layout, rows, cols, dtype, device, generator)  # noqa: E731
        self_dtype = self.self_dtype or self.dtype
        shape = self_shape(self.broadcast, self.m, self.n)
        whole = len(shape) == 2
        c = make(self.c, *shape, self_dtype) if whole else make("row", 1, math.prod(shape), self_dtype).reshape(shape)
        return c, make(self.a, self.m, self.k, self.dtype), make(self.b, self.k, self.n, self.dtype)

    @property
    def scalars(self):
        return {"beta": self.beta, "alpha": self.alpha}

    def reference(self, args) -> Reference:
        wanted = {"activation": self.activation, "out_dtype": self.out_dtype, "tf32": self.tf32}
        return reference(*args, **self.scalars, **wanted)

    def run(self, kernel, args, out) -> torch.Tensor:
        """`out`, after the kernel of that name has written it."""
        options = {"precision": "tf32" if self.tf32 else "ieee", "activation": self.activation or "none"}
        torch.ops.tc.addmm_out(*args, **self.scalars, **options, kernel_name=kernel, out=out)
        return out


def case_grid(dtypes=(torch.float16, torch.bfloat16), contiguous_operands=False) -> list[Case]:
    """The cases that every kernel passes: each concern swept by itself around a size with tails in all directions.

    `contiguous_operands` leaves out the layouts that have no direction of stride 1.
    """
    grid = []
    for dtype in dtypes:
        base = Case(131, 141, 151, dtype)
        # tile edges: below, at and above the 16, 64 and 128 of the kernels, and degenerate sizes
        sizes = (1, 2, 7, 16, 63, 64, 65, 127, 128, 129, 257)
        grid += [replace(base, m=s) for s in sizes] + [replace(base, n=s) for s in sizes] + [replace(base, k=s) for s in sizes]
        grid += [replace(base, m=s, n=s, k=s) for s in (1, 2, 128, 256)]
        grid += [
            replace(base, m=300, n=520, k=1100),
            replace(base, m=1, n=1, k=5000),
            replace(base, m=1, n=1001, k=4096, b="col"),
            replace(base, m=1001, n=1, k=4096),
            replace(base, m=1024, n=1024, k=64),
        ]
        # every layout of A with every layout of B at aligned sizes; at odd ones each with itself and with plain rows
        layouts = [x for x in LAYOUTS if not (contiguous_operands and x == "strided")]
        grid += [replace(base, m=136, n=264, k=200, a=a, b=b) for a in layouts for b in layouts]
        grid += [replace(base, a=a, b=b) for x in layouts for a, b in ((x, x), (x, "row"), ("row", x))]
        # operands to be copied first: lines shorter than 16 bytes and of one element, and several tiles of each
        repacked = [x for x in ("row_odd", "col", "col_odd", "misaligned", "strided") if x in layouts]
        grid += [replace(base, **{size: s}, a=x, b=x) for x in repacked for size in "mnk" for s in (1, 3)]
        grid += [replace(base, m=300, n=520, k=1100, a=x, b=x) for x in repacked]
        # self: every broadcast, layout and dtype, with both result dtypes
        for out in (None, torch.float32):
            self_dtypes = (None,) if out is None or dtype == torch.float32 else (None, torch.float32)
            for c in self_dtypes:
                grid += [replace(base, out_dtype=out, self_dtype=c, broadcast=x) for x in BROADCASTS]
                grid += [replace(base, m=136, n=264, out_dtype=out, self_dtype=c, broadcast=x) for x in BROADCASTS]
                grid += [replace(base, out_dtype=out, self_dtype=c, c=x) for x in LAYOUTS]
        # alpha and beta
        nan, inf = math.nan, math.inf
        for beta, alpha in ((1, 1), (0, 1), (1, 0), (0, 0), (-2.5, 3), (nan, 1), (1, nan), (inf, 1), (1, inf), (1e-3, -1e3)):
            grid.append(replace(base, beta=beta, alpha=alpha))
        # activations: each way to D, and a K that may be split
        wide = {"out_dtype": torch.float32, "self_dtype": None if dtype == torch.float32 else torch.float32}
        for name in ACTIVATIONS:
            active = replace(base, beta=1, alpha=0.3, activation=name)
            grid += [active, replace(active, m=136, n=264), replace(active, k=0), replace(active, m=40, n=136, k=4100)]
            grid += [replace(active, n=264, broadcast="(N)"), replace(active, m=136, n=264, **wide), replace(active, **wide)]
        grid += [replace(base, k=0), replace(base, k=0, beta=0), replace(base, k=0, alpha=nan), replace(base, k=0, beta=nan)]
    return list(dict.fromkeys(grid))


def kernel_grid(kernel: dict) -> list[Case]:
    """The cases that one kernel, an entry of torch_addmm_tc.kernels(), passes: case_grid for its maths."""
    contiguous = kernel["contiguous_operands"]
    grid = case_grid([getattr(torch, name) for name in kernel["maths"] if name != "tf32"], contiguous)
    if "tf32" in kernel["maths"]:
        # an infinite alpha turns an element near 0, whose sign TF32's rounding decides, into either infinity
        grid += [replace(case, tf32=True) for case in case_grid([torch.float32], contiguous) if not math.isinf(case.alpha)]
    return grid


def sample(cases: list[Case], seed: int | str) -> list[Case]:
    """Some of `cases`, in random order, that together have every size, layout, scalar and combination of dtypes of them all.

    `seed` alone decides which they are: each brings something that those before it lack.
    """
    shuffled = list(cases)
    random.Random(seed).shuffle(shuffled)
    chosen, seen = [], set()
    for case in shuffled:
        values = {x.name: getattr(case, x.name) for x in fields(case)}
        dtypes = tuple(values.pop(name) for name in ("dtype", "self_dtype", "out_dtype", "tf32"))
        concerns = {*values.items(), ("scalars", case.beta, case.alpha), ("dtypes", dtypes)}
        if not concerns <= seen:
            chosen.append(case)
            seen |= concerns
    return chosen


def runnable_configs() -> dict[str, list[str]]:
    """{a kernel's name: "NAME/INDEX" of each configuration that this build runs on the current GPU}, in ladder order."""
    x = torch.empty(256, 256, dtype=torch.float16, device="meta")
    runnable = {candidate.name for candidate in plan(x, x, x).candidates if candidate.reason is None}
    names = {kernel["name"]: range(len(kernel["configs"])) for kernel in _C.kernels()}
    return {name: [f"{name}/{i}" for i in indices if f"{name}/{i}" in runnable] for name, indices in names.items()}


def integers(m: int, n: int, k: int, device) -> tuple[list[torch.Tensor], torch.Tensor]:
    """float16 (self, mat1, mat2) of integers up to 32, and self + mat1 @ mat2 in float32: exact, whatever the order of the sum,
    as long as nothing on the way is rounded to less than fp32 and K is below 2^24 / 32^2."""
    generator = torch.Generator(device).manual_seed(0)
    shapes = ((m, n), (m, k), (k, n))
    args = [torch.randint(-32, 33, shape, generator=generator, device=device).half() for shape in shapes]
    c, a, b = (x.double() for x in args)
    return args, (c + a @ b).float()


# ---- shapes of real layers ----


@dataclass(frozen=True)
class Layer:
    """A named product as a model runs it; `b` is 'row' for a (K, N) weight and 'col' for a transposed (N, K) one."""

    name: str
    m: int
    n: int
    k: int
    b: str = "row"


def gpt2_layers(tokens: int) -> list[Layer]:
    """GPT-2 small's four projections (its Conv1D keeps weights as (K, N))."""
    return [
        Layer("gpt2 attention in", tokens, 2304, 768),
        Layer("gpt2 attention out", tokens, 768, 768),
        Layer("gpt2 mlp in", tokens, 3072, 768),
        Layer("gpt2 mlp out", tokens, 768, 3072),
    ]
