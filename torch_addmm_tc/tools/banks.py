"""Shared-memory bank conflicts of the kernels' layouts and access patterns.

Shared memory has 32 banks. Each bank serves one 4-byte word per cycle, and threads that ask for the same word share it (CUDA
C++ Programming Guide, "Shared Memory"). A warp's access is served in phases of 128 bytes: 32 threads of 4 bytes, 16 threads of
8 or 8 threads of 16. Only accesses of one phase conflict (NVIDIA, "Volta: Architecture and Performance Optimization", GTC
2018). ldmatrix takes one phase for each 8x8 matrix: eight rows of 16 bytes.

A row of a tile is contiguous in memory. A vector is 16 bytes.

Offsets and paddings come from csrc/layout/swizzle.h through _C. Each access pattern names the code whose addresses it repeats.
The module leaves out wgmma and TMA, because the hardware swizzles their accesses itself. It also leaves out the epilogue's
store to a D that is not 16-byte aligned.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch_addmm_tc import _C

BANKS = 32
WORD = 4  # bytes that a bank serves per cycle
VECTOR = 16  # bytes that one cp.async, one row of ldmatrix or one vector access moves
WARP = 32  # threads


def degree(addresses: Iterable[int], width: int) -> int:
    """Return the cycles that one phase takes: the most distinct words that one bank must serve.

    Args:
        addresses: the byte address of each thread's access.
        width: bytes that each access reads or writes.

    Returns:
        1 if the phase is free of conflicts, more if it is not, 0 if there are no accesses.
    """
    words = {word for first in addresses for word in range(first // WORD, (first + width - 1) // WORD + 1)}
    return max(Counter(word % BANKS for word in words).values(), default=0)


@dataclass(frozen=True)
class Access:
    """The shared-memory addresses of one access pattern.

    Args:
        name: what the pattern is called in tables.
        width: bytes that each thread reads or writes. For ldmatrix: bytes of a matrix row.
        addresses: byte addresses, ordered by instruction and then by thread. For ldmatrix: by instruction and then by row.
    """

    name: str
    width: int
    addresses: tuple[int, ...]

    @property
    def degrees(self) -> tuple[int, ...]:
        """The cycles of every phase."""
        threads = min(WARP, BANKS * WORD // self.width)
        phases = (self.addresses[i : i + threads] for i in range(0, len(self.addresses), threads))
        return tuple(degree(phase, self.width) for phase in phases)

    @property
    def worst(self) -> int:
        """The cycles of the slowest phase."""
        return max(self.degrees)

    @property
    def average(self) -> float:
        """The mean cycles of a phase."""
        return sum(self.degrees) / len(self.degrees)

    @property
    def conflicts(self) -> int:
        """The cycles above one per phase, summed over all phases."""
        return sum(d - 1 for d in self.degrees)


@dataclass(frozen=True)
class Layout:
    """A tile in shared memory and the kernels' accesses to it. The tile starts at a multiple of 128 bytes.

    Args:
        name: what the layout is called in tables.
        rows: rows of the tile.
        extent: elements of a row.
        bytes: bytes of an element.
        offset: offset(row, col) is the position of an element, in elements from the start of the tile.
        patterns: functions that return one Access each for this layout.
    """

    name: str
    rows: int
    extent: int
    bytes: int
    offset: Callable[[int, int], int]
    patterns: "tuple[Callable[[Layout], Access], ...]"

    def address(self, row: int, col: int) -> int:
        """Return the byte address of an element, from the start of the tile."""
        return self.bytes * self.offset(row, col)

    @property
    def vectors(self) -> int:
        """The number of 16-byte vectors in a row."""
        return self.extent * self.bytes // VECTOR

    def group(self, row: int, vector: int) -> int:
        """Return the bank group, 0 to 7, of a vector. Group g is banks 4g to 4g + 3."""
        return self.address(row, vector * VECTOR // self.bytes) // VECTOR % (BANKS * WORD // VECTOR)

    @property
    def accesses(self) -> tuple[Access, ...]:
        """The accesses of all patterns."""
        return tuple(pattern(self) for pattern in self.patterns)


# ---- access patterns ----


def tile_store(layout: Layout) -> Access:
    """Repeat copy_tile (csrc/tile/copy.cuh) and its cp.async form: consecutive threads move consecutive vectors of a row."""
    width = VECTOR // layout.bytes
    cells = ((row, vector * width) for row in range(layout.rows) for vector in range(layout.vectors))
    return Access("tile store", VECTOR, tuple(layout.address(*cell) for cell in cells))


def matrix_read(name: str, layout: Layout) -> Access:
    """Repeat ldmatrix.x4 on every 16x16 block of 16-bit elements. A block is four 8x8 matrices of eight vectors each.

    ldmatrix.x4.trans serves MN-major tiles and reads the same addresses. wmma.load compiles to one of the two instructions
    (LDSM.M88.4 or LDSM.MT88.4 in sm_90 code).
    """
    blocks = ((row, col) for row in range(0, layout.rows, 16) for col in range(0, layout.extent, 16))
    matrices = ((row + down, col + right) for row, col in blocks for right in (0, 8) for down in (0, 8))
    return Access(name, VECTOR, tuple(layout.address(row + i, col) for row, col in matrices for i in range(8)))


SIMT_THREADS, SIMT_WIDTH = 64, 4  # THREADS of tiles of 64x64, and W, of csrc/kernels/01_simt.cu


def simt_store(along_k: bool, layout: Layout) -> Access:
    """Repeat Slab::store (csrc/kernels/01_simt.cu): a thread stores its four elements one by one.

    Args:
        along_k: whether K is the operand's contiguous dimension in global memory.
        layout: the slab's layout.
    """
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
    """Repeat the main loop of csrc/kernels/01_simt.cu: each thread reads two vectors of an operand at each k.

    Args:
        operand: "A" or "B".
        layout: the slab's layout.
    """
    position = {"A": lambda thread: thread // 8, "B": lambda thread: thread % 8}[operand]
    cells = (
        (k, position(thread) * SIMT_WIDTH + offset)
        for k in range(layout.rows)
        for offset in (0, 32)
        for thread in range(SIMT_THREADS)
    )
    return Access(f"read of {operand}", VECTOR, tuple(layout.address(*c) for c in cells))


def accumulator_store(layout: Layout) -> Access:
    """Repeat the store of mma accumulators: lane 4g + t holds elements 2t and 2t + 1 of rows g and g + 8 (PTX, m16n8)."""
    blocks = ((row, col) for row in range(0, layout.rows, 8) for col in range(0, layout.extent, 8))
    cells = ((row + lane // 4, col + lane % 4 * 2) for row, col in blocks for lane in range(WARP))
    return Access("accumulator store", 8, tuple(layout.address(*c) for c in cells))


def row_read(layout: Layout) -> Access:
    """Repeat the epilogue's reads: a thread reads eight consecutive floats of a row as two vectors."""
    per_row = layout.extent // 8
    vectors = range(layout.rows * per_row)
    warps = (vectors[i : i + WARP] for i in range(0, len(vectors), WARP))
    cells = ((p // per_row, p % per_row * 8 + offset) for warp in warps for offset in (0, 4) for p in warp)
    return Access("row read", VECTOR, tuple(layout.address(*c) for c in cells))


# ---- the kernels' layouts ----

SKEW, PAD = _C.paddings["skew"], _C.paddings["pad_bytes"] // 2  # 16-bit elements
SLAB_PAD, ROW_PAD = _C.paddings["slab_pad"], _C.paddings["row_pad"]  # floats
WMMA_READ = partial(matrix_read, "wmma.load (ldmatrix.x4)")
WMMA_READ_TRANS = partial(matrix_read, "wmma.load (ldmatrix.x4.trans)")
LDMATRIX, LDMATRIX_TRANS = partial(matrix_read, "ldmatrix"), partial(matrix_read, "ldmatrix.trans")


def padded(order, rows, extent, pad, patterns, bytes=2) -> Layout:
    """Return the layout of rows with `pad` elements of padding each. `order` begins its name."""
    name = f"{order}, ({rows}, {extent}{f' + {pad}' if pad else ''}) {'16-bit elements' if bytes == 2 else 'floats'}"
    return Layout(name, rows, extent, bytes, partial(_C.padded_offset, pitch=extent + pad), patterns)


def swizzled(order, rows, extent, patterns, bytes=2) -> Layout:
    """Return the layout of rows whose vectors are permuted by XOR. `order` begins its name."""
    offset = partial(_C.swizzled_offset, extent=extent, bytes=bytes)
    return Layout(f"{order}, ({rows}, {extent}) 16-bit elements", rows, extent, bytes, offset, patterns)


K_MAJOR, MN_MAJOR = (tile_store, WMMA_READ), (tile_store, WMMA_READ_TRANS)
SIMT = (partial(simt_store, True), partial(simt_store, False), partial(simt_read, "A"), partial(simt_read, "B"))
EPILOGUE = (accumulator_store, row_read)

# Name -> (description, layouts of that kind).
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
