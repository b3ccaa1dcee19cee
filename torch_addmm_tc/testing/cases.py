"""Calls of the op as data: their inputs, and the grid of cases that every kernel must pass."""

import itertools
import math
import random
from dataclasses import dataclass, fields, replace
from functools import cache, partial

import torch

from torch_addmm_tc import _C
from torch_addmm_tc.testing.inputs import BATCHES, LAYOUTS, matrices, matrix
from torch_addmm_tc.testing.reference import ACTIVATIONS, UNIT_ROUNDOFF, Reference, reference
from torch_addmm_tc.tools.planning import H200, Plan, cluster_name, plan, problem_key

BROADCASTS = ("()", "(1)", "(N)", "(1,1)", "(1,N)", "(M,1)", "(M,N)")


def self_shape(broadcast: str, m: int, n: int, batch: int = 1) -> tuple[int, ...]:
    """Return the shape of `self` for a name in BROADCASTS, or one with a leading B or 1."""
    sizes = {"B": batch, "M": m, "N": n, "1": 1}
    return tuple(sizes[x] for x in broadcast.strip("()").split(",") if x)


@dataclass(frozen=True)
class Case:
    """The arguments of one call of the op.

    Args:
        m, n, k: the sizes of D (M, N) = A (M, K) B (K, N).
        dtype: A's and B's dtype.
        self_dtype: C's dtype. None means `dtype`.
        out_dtype: D's dtype. None means `dtype`.
        a, b, c: the layouts of A, B and C, names in LAYOUTS. `c` counts only where C is two-dimensional.
        broadcast: C's shape, a name in BROADCASTS.
        beta, alpha: numbers, finite or not.
        tf32: whether fp32 operands may be rounded to TF32.
        activation: a name in ACTIVATIONS, or None.
        batch: how many products, or None for the op of one product.
        batches: how the matrices of A, B and C lie in a batch, three names in BATCHES. C's counts only where C has one of the
            result's own matrices for each product.
    """

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
    tf32: bool = False
    activation: str | None = None
    batch: int | None = None
    batches: tuple[str, str, str] = ("stacked", "stacked", "stacked")

    def __str__(self):
        name = {torch.float16: "f16", torch.bfloat16: "bf16", torch.float32: "f32", None: "same"}
        operands = "tf32" if self.tf32 else name[self.dtype]
        c = f"{name[self.self_dtype]}{self.broadcast}" + (f"-{self.c}" if self.c != "row" else "")
        return (
            f"{self.m}x{self.n}x{self.k}-{operands}-A:{self.a}-B:{self.b}-C:{c}-D:{name[self.out_dtype]}"
            f"-{self.beta:g}-{self.alpha:g}"
            + (f"-{self.activation}" if self.activation else "")
            + (f"-{self.batch} of {','.join(self.batches)}" if self.batch is not None else "")
        )

    def inputs(self, device, seed=0):
        """Return random (self, mat1, mat2) on `device`, or (self, batch1, batch2). The same seed gives the same values."""
        generator = torch.Generator(device).manual_seed(seed)
        make = lambda layout, rows, cols, dtype: matrix(layout, rows, cols, dtype, device, generator)  # noqa: E731
        self_dtype = self.self_dtype or self.dtype
        shape = self_shape(self.broadcast, self.m, self.n, self.batch or 1)
        if self.batch is not None:
            of_a, of_b, of_c = self.batches
            many = partial(matrices, size=self.batch, device=device, generator=generator)
            a = many(of_a, layout=self.a, rows=self.m, cols=self.k, dtype=self.dtype)
            b = many(of_b, layout=self.b, rows=self.k, cols=self.n, dtype=self.dtype)
            if shape == (self.batch, self.m, self.n):
                return many(of_c, layout=self.c, rows=self.m, cols=self.n, dtype=self_dtype), a, b
            return make("row", 1, math.prod(shape), self_dtype).reshape(shape), a, b
        two_dimensional = len(shape) == 2
        c = make(self.c, *shape, self_dtype) if two_dimensional else make("row", 1, math.prod(shape), self_dtype).reshape(shape)
        return c, make(self.a, self.m, self.k, self.dtype), make(self.b, self.k, self.n, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        """The result's shape."""
        return (self.m, self.n) if self.batch is None else (self.batch, self.m, self.n)

    @property
    def scalars(self) -> dict:
        """The keywords beta and alpha."""
        return {"beta": self.beta, "alpha": self.alpha}

    def reference(self, args) -> Reference:
        """Compute the reference for `args`, which inputs() returned."""
        options = {"activation": self.activation, "out_dtype": self.out_dtype, "tf32": self.tf32}
        return reference(*args, **self.scalars, **options)

    def problem(self, args, out) -> str:
        """Return all that the planner knows of run() with these arguments, as problem_key() does."""
        precision = "tf32" if self.tf32 else "ieee"
        return problem_key(*args, **self.scalars, activation=self.activation, out=out, precision=precision)

    def run(self, kernel, args, out) -> torch.Tensor:
        """Run a kernel by name and return `out`.

        Args:
            kernel: a kernel's name, or "NAME/INDEX" for one of its configurations.
            args: (self, mat1, mat2).
            out: (M, N) or (B, M, N), in the result's dtype, any strides.
        """
        options = {"precision": "tf32" if self.tf32 else "ieee", "activation": self.activation or "none"}
        op = torch.ops.tc.addmm_out if self.batch is None else torch.ops.tc.baddbmm_out
        op(*args, **self.scalars, **options, kernel_name=kernel, out=out)
        return out


def case_grid(dtypes=(torch.float16, torch.bfloat16), contiguous_operands=False) -> list[Case]:
    """Return the cases that every kernel must pass.

    Each concern is swept by itself around one base case. No size of the base case is a multiple of a tile's.

    Args:
        dtypes: the operands' dtypes.
        contiguous_operands: whether A and B need a dimension of stride 1. True leaves out the layout "strided".
    """
    grid = []
    for dtype in dtypes:
        base = Case(131, 141, 151, dtype)
        # Sizes around the tile sizes 16, 64 and 128, and degenerate sizes.
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
        # Aligned sizes pair every layout of A with every layout of B. Odd sizes pair each layout with itself and with "row".
        layouts = [x for x in LAYOUTS if not (contiguous_operands and x == "strided")]
        grid += [replace(base, m=136, n=264, k=200, a=a, b=b) for a in layouts for b in layouts]
        grid += [replace(base, a=a, b=b) for x in layouts for a, b in ((x, x), (x, "row"), ("row", x))]
        # Kernels may repack operands of these layouts. Sizes of 1 and 3 make rows and columns shorter than one vector.
        repacked = [x for x in ("row_odd", "col", "col_odd", "misaligned", "strided") if x in layouts]
        grid += [replace(base, **{size: s}, a=x, b=x) for x in repacked for size in "mnk" for s in (1, 3)]
        grid += [replace(base, m=300, n=520, k=1100, a=x, b=x) for x in repacked]
        # C has every broadcast, layout and dtype, with both result dtypes.
        for out in (None, torch.float32):
            self_dtypes = (None,) if out is None or dtype == torch.float32 else (None, torch.float32)
            for c in self_dtypes:
                grid += [replace(base, out_dtype=out, self_dtype=c, broadcast=x) for x in BROADCASTS]
                grid += [replace(base, m=136, n=264, out_dtype=out, self_dtype=c, broadcast=x) for x in BROADCASTS]
                grid += [replace(base, out_dtype=out, self_dtype=c, c=x) for x in LAYOUTS]
        # alpha and beta are ordinary, special and non-finite numbers.
        nan, inf = math.nan, math.inf
        for beta, alpha in ((1, 1), (0, 1), (1, 0), (0, 0), (-2.5, 3), (nan, 1), (1, nan), (inf, 1), (1, inf), (1e-3, -1e3)):
            grid.append(replace(base, beta=beta, alpha=alpha))
        # Activations meet every store path of D, and a K that split-K may divide.
        fp32_out = {"out_dtype": torch.float32, "self_dtype": None if dtype == torch.float32 else torch.float32}
        for name in ACTIVATIONS:
            active = replace(base, beta=1, alpha=0.3, activation=name)
            grid += [active, replace(active, m=136, n=264), replace(active, k=0), replace(active, m=40, n=136, k=4100)]
            grid += [replace(active, n=264, broadcast="(N)"), replace(active, m=136, n=264, **fp32_out)]
            grid += [replace(active, **fp32_out)]
        grid += [replace(base, k=0), replace(base, k=0, beta=0), replace(base, k=0, alpha=nan), replace(base, k=0, beta=nan)]
        grid.append(replace(base, m=1011, k=0, a="row_pitched"))  # no row of A may be read ahead
        grid += batch_grid(base, layouts)
    return list(dict.fromkeys(grid))


def batch_grid(base: Case, layouts) -> list[Case]:
    """Return a base case's batches: how the matrices lie, how many there are, and how C broadcasts to them.

    Args:
        base: the case.
        layouts: names in LAYOUTS, for A and B.
    """
    batched, aligned = replace(base, batch=3), replace(base, batch=3, m=136, n=264, k=200)
    kinds = [(x, x, x) for x in BATCHES] + [("shared", "stacked", "odd"), ("stacked", "shared", "between")]
    broadcasts = ("(B,M,N)", "(B,1,N)", "(B,M,1)", "(1,M,N)", "(N)")
    grid = [replace(x, batches=kind, broadcast=y) for x in (batched, aligned) for kind in kinds for y in broadcasts]
    grid += [replace(batched, a=x, b=x, broadcast="(B,M,N)", c=x, batches=kind) for x in layouts for kind in kinds[:3]]
    grid += [replace(batched, batch=x, broadcast="(B,M,N)") for x in (0, 1, 2)]
    grid += [replace(batched, batch=300, m=17, n=40, k=24, broadcast=x, batches=kind) for x in broadcasts[:2] for kind in kinds]
    fp32_out = {"out_dtype": torch.float32, "self_dtype": None if base.dtype == torch.float32 else torch.float32}
    for kind in kinds:  # K is divided
        grid += [replace(batched, m=m, n=136, k=4100, batches=kind, broadcast="(B,M,N)") for m in (1, 40)]
        grid += [replace(x, batches=kind, broadcast="(B,M,N)", **fp32_out) for x in (batched, aligned)]
        grid += [replace(x, batches=kind, broadcast="(B,1,N)", activation="gelu") for x in (batched, aligned)]
    return [*grid, replace(batched, k=0), replace(batched, beta=0), replace(aligned, beta=0)]


def _maths(case: Case) -> set[str]:
    """Return the maths that a case allows, as torch_addmm_tc.kernels() names them."""
    if case.tf32:
        return {"tf32"}
    return {"float32", "bf16x6"} if case.dtype == torch.float32 else {str(case.dtype).removeprefix("torch.")}


def _base(name: str) -> str:
    """Return "NAME/INDEX" of a name that may have modes, too."""
    return "/".join(name.split("/")[:2])


@cache
def _config(name: str) -> dict:
    """Return the configuration that "NAME/INDEX", with or without modes, names, as torch_addmm_tc.kernels() lists it."""
    kernel, index = _base(name).split("/")
    return next(x for x in _C.kernels() if x["name"] == kernel)["configs"][int(index)]


# Some configurations keep all of K in shared memory, for 64 columns of B at least, or in registers. They take at most so many
# bytes of K: 43, 38 and 36 steps of 64 bytes, and what mma_direct's registers hold. wgmma_bf16x6_streamed has room for a little
# more where rows of A lie as far apart as is still dense; these are multiples of 16 bytes.
LONGEST_K = {"mma_stationary/0": 2752, "mma_stationary/1": 2432, "mma_streamed/0": 2304}
LONGEST_K |= {"mma_direct/0": 128, "mma_direct/1": 256, "mma_direct/2": 512, "mma_direct/3": 1024}
LONGEST_K |= {"wgmma_bf16x6_streamed/0": 624, "wgmma_bf16x6_streamed/1": 800, "wgmma_bf16x6_streamed/2": 576}
SHORT_K = ("mma_direct", "wgmma_bf16x6_streamed")  # kernels to whose LONGEST_K adapted() cuts a case


def adapted(case: Case, name: str) -> Case:
    """Return the case with sizes that a configuration takes.

    Without an fp32 D it needs a D that TMA reaches: N becomes a multiple of 8. mma_direct takes rows of whole 32-bit words: N
    and K of 16-bit elements become even. K becomes no longer than mma_direct's registers and wgmma_bf16x6_streamed's shared
    memory hold.

    Args:
        case: the case.
        name: a name of a configuration, "NAME/INDEX" and modes.
    """
    if name.split("/")[0] in SHORT_K:
        in_word = 4 // case.dtype.itemsize
        n, k = (-(-size // in_word) * in_word for size in (case.n, case.k))
        return replace(case, n=n, k=min(k, LONGEST_K[_base(name)] // case.dtype.itemsize))
    return case if _config(name)["fp32_d"] else replace(case, n=-(-case.n // 8) * 8)


def suited(case: Case, name: str) -> Case:
    """Return a case in a dtype that a kernel or a configuration multiplies: its own if possible, and otherwise float32.

    It is adapted(), too: to a configuration, or to a kernel whose configurations all need it.

    Args:
        case: the case.
        name: a name of the kernel or of one of its configurations.
    """
    kernel = next(x for x in _C.kernels() if x["name"] == name.split("/")[0])
    maths = set((_config(name) if "/" in name else kernel)["maths"])
    case = case if _maths(case) & maths else replace(case, dtype=torch.float32)
    if "/" in name:
        return adapted(case, name)
    return adapted(case, f"{name}/0") if name in SHORT_K else case


def refusal(name: str, case: Case, args=None, out: torch.Tensor | None = None) -> str | None:
    """Return why a configuration without an fp32 D refuses a case that needs one, or None if it does not.

    Args:
        name: a name of a configuration that multiplies the case's dtype, "NAME/INDEX" and modes.
        case: the case.
        args, out: as in Case.run(). Default: inputs() and a contiguous D, on the CPU.
    """
    if _config(name)["fp32_d"]:
        return None
    problem = _problem(case) if out is None else case.problem(args or case.inputs("cpu"), out)
    return Plan.of(problem, H200, name).candidates[0].reason


@cache
def _problem(case: Case) -> str:
    """Return the problem of a case's inputs and a contiguous D."""
    return case.problem(case.inputs("cpu"), torch.empty(case.shape, dtype=case.out_dtype or case.dtype))


def kernel_grid(kernel: dict) -> list[Case]:
    """Return the cases that a kernel must pass: case_grid() for each of its maths.

    Args:
        kernel: an entry of torch_addmm_tc.kernels().
    """
    contiguous = kernel["contiguous_operands"]
    dtypes = [x for x in UNIT_ROUNDOFF if _maths(Case(1, 1, 1, x)) & set(kernel["maths"])]
    grid = case_grid(dtypes, contiguous)
    if "tf32" in kernel["maths"]:
        # TF32's rounding can flip the sign of an element near 0. An infinite alpha would make it the wrong infinity.
        grid += [replace(case, tf32=True) for case in case_grid([torch.float32], contiguous) if not math.isinf(case.alpha)]
    return grid


def takes_k(name: str, case: Case) -> bool:
    """Return whether a configuration takes a case's K.

    Args:
        name: a name of the configuration, "NAME/INDEX" and modes, as runnable_configs() returns it.
        case: the case.
    """
    longest = LONGEST_K.get(_base(name))
    return longest is None or case.k * case.dtype.itemsize <= longest


def multiplies(kernel: dict, name: str, case: Case, out: torch.Tensor | None = None) -> bool:
    """Return whether a configuration is compiled for a case's dtypes and math, and takes its K, C and D.

    Args:
        kernel: an entry of torch_addmm_tc.kernels().
        name: a name of one of the kernel's configurations, "NAME/INDEX" and modes, as runnable_configs() returns it.
        case: the case.
        out: a CPU tensor with the strides of D. Default: a contiguous one.
    """
    compiled = bool(_maths(case) & set(_config(name)["maths"]))
    return takes_k(name, case) and compiled and refusal(name, case, out=out) is None


def sample(cases: list[Case], seed: int | str) -> list[Case]:
    """Return a random sample of `cases` that has every size, layout, scalar and combination of dtypes of `cases`.

    Each case of the sample has a value that no case before it has.

    Args:
        cases: the cases to choose from.
        seed: decides the sample. The same seed gives the same sample.
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
    """Return the configurations that this build can run on the current GPU.

    Returns:
        {kernel name: ["NAME/INDEX" of a configuration, ...]}, in ladder order. A kernel that has a choice of clusters appears
        with several names for each configuration: single blocks, clusters that share operands and clusters that share K, whose
        shapes the index decides. A kernel whose tiles may be narrower appears with one more, of narrower tiles in any cluster.
    """
    runnable = set()
    for dtype, k in itertools.product((torch.float16, torch.float32), (64, 256)):  # some take a short K alone
        a, b = (torch.empty(shape, dtype=dtype, device="meta") for shape in ((256, k), (k, 256)))
        runnable |= {(x.kernel, x.index) for x in plan(None, a, b).candidates if x.reason is None}

    def names(kernel, i):
        every = kernel["clusters"]
        kinds = [
            [x for x in every if math.prod(x) == 1],
            [x for x in every if math.prod(x) > 1 and x[2] == 1],
            [x for x in every if x[2] > 1],
        ]
        modes = [f"/{cluster_name(kind[i % len(kind)])}" for kind in kinds if kind] if len(every) > 1 else [""]
        if narrower := kernel["narrower"]:
            columns = kernel["configs"][i]["tile_n"] - narrower[i % len(narrower)]
            modes.append(f"/{cluster_name(every[i % len(every)])}/n{columns}")
        return [f"{kernel['name']}/{i}{x}" for x in modes]

    found = {}
    for kernel in _C.kernels():
        indices = (i for i in range(len(kernel["configs"])) if (kernel["name"], i) in runnable)
        found[kernel["name"]] = [name for i in indices for name in names(kernel, i)]
    return found


def checked_kernels(asked: list[str]) -> list[str]:
    """Return `asked`, each a kernel's name or NAME/INDEX.

    Raises:
        ValueError: this build has no such kernel or configuration, or the current GPU runs none of it.
    """
    counts = {kernel["name"]: len(kernel["configs"]) for kernel in _C.kernels()}
    for one in asked:
        name, slash, index = one.partition("/")
        if name not in counts:
            raise ValueError(f"--kernel={one}: there is no such kernel; there are {', '.join(counts)}")
        if slash and index not in map(str, range(counts[name])):
            raise ValueError(f"--kernel={one}: {name} has the configurations 0 to {counts[name] - 1}")
        if not asked_configs(name, [one]):
            raise ValueError(f"--kernel={one}: this GPU runs no such configuration")
    return asked


def asked_configs(kernel: str, asked: list[str]) -> list[str]:
    """Return those of a kernel's runnable_configs() that `asked` names, by the kernel or by NAME/INDEX; all if it is empty."""
    return [x for x in runnable_configs()[kernel] if not asked or any(f"{x}/".startswith(f"{one}/") for one in asked)]
