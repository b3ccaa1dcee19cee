"""Which shared-memory accesses collide: the GPU's bank rule, applied to the kernels' layouts and access patterns.

The rule: shared memory has 32 banks, and each serves one 4-byte word per cycle. Threads that ask for the same word share it
(CUDA C++ Programming Guide, "Shared Memory"). A warp's access is served in phases of 128 bytes: 32 threads of 4 bytes, 16 of 8
or 8 of 16. Only accesses of one phase collide (NVIDIA, "Volta: Architecture and Performance Optimization", GTC 2018). ldmatrix
takes a phase for each 8x8 matrix, of which it reads eight rows of 16 bytes.

Words used here: a row of a tile is contiguous in memory, a vector is 16 bytes.

Offsets and paddings come from csrc/layout/swizzle.h itself, through _C. Each access pattern names the code whose addresses it
repeats. The accesses of wgmma and TMA are left out, because the hardware swizzles them itself. So is an epilogue's way to a D
that is not 16-byte aligned.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch_addmm_tc import _C

BANKS, WORD, VECTOR = 32, 4, 16  # VECTOR: bytes that one cp.async, one row of ldmatrix or one vector access moves
WARP = 32


def degree(addresses: Iterable[int], width: int) -> int:
    """Return the cycles that one phase takes: the most distinct words asked of one bank. 1 is conflict-free, 0 an empty phase.

    Args:
        addresses: in bytes, one per access.
        width: bytes that each access reads or writes.
    """
    words = {word for first in addresses for word in range(first // WORD, (first + width - 1) // WORD + 1)}
    return max(Counter(word % BANKS for word in words).values(), default=0)


@dataclass(frozen=True)
class Access:
    """Byte addresses in the order of threads (of rows, for ldmatrix), instruction after instruction; `width` bytes each."""

    name: str
    width: int
    addresses: tuple[int, ...]

    @property
    def degrees(self) -> tuple[int, ...]:
        """The degree of every phase."""
        threads = min(WARP, BANKS * WORD // self.width)
        phases = (self.addresses[i : i + threads] for i in range(0, len(self.addresses), threads))
        return tuple(degree(phase, self.width) for phase in phases)

    @property
    def worst(self) -> int:
        return max(self.degrees)

    @property
    def average(self) -> float:
        return sum(self.degrees) / len(self.degrees)

    @property
    def conflicts(self) -> int:
        """Cycles lost over all phases."""
        return sum(d - 1 for d in self.degrees)


@dataclass(frozen=True)
class Layout:
    """A tile in shared memory: `rows` of `extent` elements of `bytes` bytes, and how a kernel reads and writes it.

    offset(row, col) is where an element lies, in elements; the tile starts at a multiple of 128 bytes.
    """

    name: str
    rows: int
    extent: int
    bytes: int
    offset: Callable[[int, int], int]
    patterns: "tuple[Callable[[Layout], Access], ...]"

    def address(self, row: int, col: int) -> int:
        return self.bytes * self.offset(row, col)

    @property
    def vectors(self) -> int:
        """16-byte vectors in a row."""
        return self.extent * self.bytes // VECTOR

    def group(self, row: int, vector: int) -> int:
        """The bank group, 0 to 7, that a vector lies in: group g is banks 4g to 4g + 3."""
        return self.address(row, vector * VECTOR // self.bytes) // VECTOR % (BANKS * WORD // VECTOR)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return tuple(pattern(self) for pattern in self.patterns)


# ---- access patterns ----


def tile_store(layout: Layout) -> Access:
    """copy_tile (csrc/tile/copy.cuh), cp.async too: consecutive threads move consecutive vectors, row after row."""
    width = VECTOR // layout.bytes
    cells = ((row, vector * width) for row in range(layout.rows) for vector in range(layout.vectors))
    return Access("tile store", VECTOR, tuple(layout.address(*cell) for cell in cells))


def matrix_read(name: str, layout: Layout) -> Access:
    """ldmatrix.x4 on every 16x16 block of 16-bit elements: four 8x8 matrices, each eight rows of one vector.

    The form with .trans, for tiles that lie MN-major, reads the same addresses. wmma.load compiles to either (LDSM.M88.4 and
    LDSM.MT88.4 in sm_90 code).
    """
    blocks = ((row, col) for row in range(0, layout.rows, 16) for col in range(0, layout.extent, 16))
    matrices = ((row + down, col + right) for row, col in blocks for right in (0, 8) for down in (0, 8))
    return Access(name, VECTOR, tuple(layout.address(row + i, col) for row, col in matrices for i in range(8)))


SIMT_THREADS, SIMT_WIDTH = 64, 4  # THREADS and W of csrc/kernels/01_simt.cu


def simt_store(along_k: bool, layout: Layout) -> Access:
    """load_slab (csrc/kernels/01_simt.cu): four elements a thread, stored one by one; along_k: K is contiguous."""
    w, slab_k, outer = SIMT_WIDTH, layout.rows, layout.extent

    def cell(vector, e):
        if along_k:
            return vector % (slab_k // w) * w + e, vector // (slab_k // w)
        return vector // (outer // w), vector % (outer // w) * w + e

    rounds = range(0, slab_k * outer // w, SIMT_THREADS)
    cells = (cell(first + thread, e) for first in rounds for e in range(w) for thread in range(SIMT_THREADS))
    name = "store, transposing (K contiguous)" if along_k else "store, in order (K not contiguous)"
    return Access(name, layout.bytes, tuple(layout.address(*c) for c in cells))


def simt_read(operand: str, layout: Layout) -> Access:
    """The main loop of csrc/kernels/01_simt.cu: two 16-byte reads per operand and k."""
    position = {"A": lambda thread: thread // 8, "B": lambda thread: thread % 8}[operand]
    cells = (
        (k, position(thread) * SIMT_WIDTH + half)
        for k in range(layout.rows)
        for half in (0, 32)
        for thread in range(SIMT_THREADS)
    )
    return Access(f"read of {operand}", VECTOR, tuple(layout.address(*c) for c in cells))


def accumulator_store(layout: Layout) -> Access:
    """An mma accumulator's 8 columns of 16 rows at a time: lane 4g + t holds elements 2t, 2t + 1 of rows g and g + 8."""
    blocks = ((row, col) for row in range(0, layout.rows, 8) for col in range(0, layout.extent, 8))
    cells = ((row + lane // 4, col + lane % 4 * 2) for row, col in blocks for lane in range(WARP))
    return Access("accumulator store", 8, tuple(layout.address(*c) for c in cells))


def row_read(layout: Layout) -> Access:
    """The epilogue's way out: eight consecutive floats of a row per thread, as two 16-byte reads."""
    per_row = layout.extent // 8
    vectors = range(layout.rows * per_row)
    warps = (vectors[i : i + WARP] for i in range(0, len(vectors), WARP))
    cells = ((p // per_row, p % per_row * 8 + half) for warp in warps for half in (0, 4) for p in warp)
    return Access("row read", VECTOR, tuple(layout.address(*c) for c in cells))


# ---- the kernels' layouts ----

SKEW, PAD = _C.paddings["skew"], _C.paddings["pad_bytes"] // 2  # 16-bit elements
SLAB_PAD, ROW_PAD = _C.paddings["slab_pad"], _C.paddings["row_pad"]  # floats
WMMA_READ = partial(matrix_read, "wmma.load (ldmatrix.x4)")
WMMA_READ_TRANS = partial(matrix_read, "wmma.load (ldmatrix.x4.trans)")
LDMATRIX, LDMATRIX_TRANS = partial(matrix_read, "ldmatrix"), partial(matrix_read, "ldmatrix.trans")


def padded(order, rows, extent, pad, patterns, bytes=2) -> Layout:
    name = f"{order}, ({rows}, {extent}{f' + {pad}' if pad else ''}) {'16-bit elements' if bytes == 2 else 'floats'}"
    return Layout(name, rows, extent, bytes, partial(_C.padded_offset, pitch=extent + pad), patterns)


def swizzled(order, rows, extent, patterns, bytes=2) -> Layout:
    offset = partial(_C.swizzled_offset, extent=extent, bytes=bytes)
    return Layout(f"{order}, ({rows}, {extent}) 16-bit elements", rows, extent, bytes, offset, patterns)


K_MAJOR, MN_MAJOR = (tile_store, WMMA_READ), (tile_store, WMMA_READ_TRANS)
SIMT = (partial(simt_store, True), partial(simt_store, False), partial(simt_read, "A"), partial(simt_read, "B"))
EPILOGUE = (accumulator_store, row_read)

# Name -> (what it is, its forms).
LAYOUTS: dict[str, tuple[str, tuple[Layout, ...]]] = {
    "naive": ("rows without padding, which no kernel uses", (padded("K-major", 128, 64, 0, K_MAJOR),)),
    "skew16": (
        "wmma_block's operands: 16 elements of padding",
        (
            padded("K-major", 128, 64, SKEW, K_MAJOR),
            padded("K-major", 128, 128, SKEW, K_MAJOR),
            padded("MN-major", 64, 128, SKEW, MN_MAJOR),
            padded("MN-major", 128, 128, SKEW, MN_MAJOR),
        ),
    ),
    "pad8": (
        "operands of wmma_double_buffer and wmma_kstage: 8 elements of padding",
        (
            padded("K-major", 128, 32, PAD, K_MAJOR),
            padded("MN-major", 32, 128, PAD, MN_MAJOR),
            padded("MN-major", 32, 256, PAD, MN_MAJOR),
        ),
    ),
    "xor": (
        "mma_swizzle's operands: vectors permuted by XOR, no padding",
        (
            swizzled("K-major", 128, 64, (tile_store, LDMATRIX)),
            swizzled("K-major", 128, 32, (tile_store, LDMATRIX)),
            swizzled("MN-major", 32, 64, (tile_store, LDMATRIX_TRANS)),
            swizzled("MN-major", 32, 128, (tile_store, LDMATRIX_TRANS)),
            swizzled("MN-major", 32, 256, (tile_store, LDMATRIX_TRANS)),
        ),
    ),
    "simt": (
        "simt's slabs of fp32",
        (padded("K-major", 16, 64, SLAB_PAD, SIMT, bytes=4),),
    ),
    "epilogue": (
        "accumulators on their way to D, through rows of fp32",
        (padded("mma_swizzle, per warp", 16, 64, ROW_PAD, EPILOGUE, bytes=4),),
    ),
}
