"""Which shared-memory accesses collide: the GPU's bank rule, applied to the kernels' layouts and access patterns.

The rule: 32 banks, each serving one 4-byte word per cycle; threads that ask for the same word share it (CUDA C++ Programming
Guide, "Shared Memory"). A warp's access is served in phases of 128 bytes, 32 threads of 4 bytes, 16 of 8 or 8 of 16, and only
accesses of one phase collide (NVIDIA, "Volta: Architecture and Performance Optimization", GTC 2018). ldmatrix takes a phase for
each 8x8 matrix, whose eight rows of 16 bytes it reads.

Offsets and paddings come from csrc/layout/swizzle.h itself, through _C; each access pattern names the code whose addresses it
repeats. Left out: wgmma's and TMA's accesses, which the hardware swizzles itself, and an epilogue's rows for a D that is not
16-byte aligned.
"""

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from torch_addmm_tc import _C

BANKS, WORD, CHUNK = 32, 4, 16  # CHUNK: bytes moved by one cp.async, one ldmatrix row, one vector access
WARP = 32


def degree(addresses: Iterable[int], width: int) -> int:
    """Cycles that one phase takes: the most distinct words asked of one bank, when each access reads or writes `width` bytes.

    1 is conflict-free, 0 an empty phase. Addresses are in bytes.
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
    """A tile in shared memory: `lines` of `extent` elements of `bytes` bytes, and how a kernel reads and writes it.

    offset(line, col) is where an element lies, in elements; the tile starts at a multiple of 128 bytes.
    """

    name: str
    lines: int
    extent: int
    bytes: int
    offset: Callable[[int, int], int]
    patterns: "tuple[Callable[[Layout], Access], ...]"

    def address(self, line: int, col: int) -> int:
        return self.bytes * self.offset(line, col)

    @property
    def chunks(self) -> int:
        """16-byte chunks in a line."""
        return self.extent * self.bytes // CHUNK

    def group(self, line: int, chunk: int) -> int:
        """The bank group, 0 to 7, that a chunk lies in: group g is banks 4g to 4g + 3."""
        return self.address(line, chunk * CHUNK // self.bytes) // CHUNK % (BANKS * WORD // CHUNK)

    @property
    def accesses(self) -> tuple[Access, ...]:
        return tuple(pattern(self) for pattern in self.patterns)


# ---- access patterns ----


def tile_store(layout: Layout) -> Access:
    """copy_tile (csrc/tile/copy.cuh), cp.async too: consecutive threads move consecutive chunks, line after line."""
    width = CHUNK // layout.bytes
    cells = ((line, chunk * width) for line in range(layout.lines) for chunk in range(layout.chunks))
    return Access("tile store", CHUNK, tuple(layout.address(*cell) for cell in cells))


def matrix_read(name: str, layout: Layout) -> Access:
    """ldmatrix.x4 on every 16x16 block of halves: four 8x8 matrices, each eight lines at one chunk.

    The form with .trans, for tiles that lie MN-major, reads the same addresses. wmma.load compiles to either (LDSM.M88.4 and
    LDSM.MT88.4 in sm_90 code).
    """
    blocks = ((line, col) for line in range(0, layout.lines, 16) for col in range(0, layout.extent, 16))
    matrices = ((line + i, col + j) for line, col in blocks for j in (0, 8) for i in (0, 8))
    return Access(name, CHUNK, tuple(layout.address(line + row, col) for line, col in matrices for row in range(8)))


SIMT_THREADS, SIMT_WIDTH = 64, 4  # THREADS and W of csrc/kernels/01_simt.cu


def simt_store(along_k: bool, layout: Layout) -> Access:
    """load_slab (csrc/kernels/01_simt.cu): four elements a thread, stored one by one; along_k: K is contiguous."""
    w, slab_k, outer = SIMT_WIDTH, layout.lines, layout.extent

    def cell(piece, e):
        if along_k:
            return piece % (slab_k // w) * w + e, piece // (slab_k // w)
        return piece // (outer // w), piece % (outer // w) * w + e

    rounds = range(0, slab_k * outer // w, SIMT_THREADS)
    cells = (cell(first + thread, e) for first in rounds for e in range(w) for thread in range(SIMT_THREADS))
    name = "store, transposing (K contiguous)" if along_k else "store, in order (K not contiguous)"
    return Access(name, layout.bytes, tuple(layout.address(*c) for c in cells))


def simt_read(operand: str, layout: Layout) -> Access:
    """The main loop of csrc/kernels/01_simt.cu: two 16-byte reads per operand and k."""
    position = {"A": lambda thread: thread // 8, "B": lambda thread: thread % 8}[operand]
    cells = (
        (k, position(thread) * SIMT_WIDTH + half)
        for k in range(layout.lines)
        for half in (0, 32)
        for thread in range(SIMT_THREADS)
    )
    return Access(f"read of {operand}", CHUNK, tuple(layout.address(*c) for c in cells))


def accumulator_store(layout: Layout) -> Access:
    """An mma accumulator's 8 columns of 16 rows at a time: lane 4g + t holds elements 2t, 2t + 1 of rows g and g + 8."""
    blocks = ((line, col) for line in range(0, layout.lines, 8) for col in range(0, layout.extent, 8))
    cells = ((line + lane // 4, col + lane % 4 * 2) for line, col in blocks for lane in range(WARP))
    return Access("accumulator store", 8, tuple(layout.address(*c) for c in cells))


def row_read(layout: Layout) -> Access:
    """The epilogue's way out: eight consecutive floats of a row per thread, as two 16-byte reads."""
    per_line = layout.extent // 8
    pieces = range(layout.lines * per_line)
    warps = (pieces[i : i + WARP] for i in range(0, len(pieces), WARP))
    cells = ((p // per_line, p % per_line * 8 + half) for warp in warps for half in (0, 4) for p in warp)
    return Access("row read", CHUNK, tuple(layout.address(*c) for c in cells))


# ---- the kernels' layouts ----

SKEW, PAD = _C.paddings["skew"], _C.paddings["pad_bytes"] // 2  # halves
SLAB_PAD, ROW_PAD = _C.paddings["slab_pad"], _C.paddings["row_pad"]  # floats
WMMA_READ = partial(matrix_read, "wmma.load (ldmatrix.x4)")
WMMA_READ_TRANS = partial(matrix_read, "wmma.load (ldmatrix.x4.trans)")
LDMATRIX, LDMATRIX_TRANS = partial(matrix_read, "ldmatrix"), partial(matrix_read, "ldmatrix.trans")


def padded(order, lines, extent, pad, patterns, bytes=2) -> Layout:
    name = f"{order}, ({lines}, {extent}{f' + {pad}' if pad else ''}) {'halves' if bytes == 2 else 'floats'}"
    return Layout(name, lines, extent, bytes, partial(_C.padded_offset, pitch=extent + pad), patterns)


def swizzled(order, lines, extent, patterns, bytes=2) -> Layout:
    offset = partial(_C.swizzled_offset, extent=extent, bytes=bytes)
    return Layout(f"{order}, ({lines}, {extent}) halves", lines, extent, bytes, offset, patterns)


K_MAJOR, MN_MAJOR = (tile_store, WMMA_READ), (tile_store, WMMA_READ_TRANS)
SIMT = (partial(simt_store, True), partial(simt_store, False), partial(simt_read, "A"), partial(simt_read, "B"))
EPILOGUE = (accumulator_store, row_read)

# Name -> (what it is, its forms).
LAYOUTS: dict[str, tuple[str, tuple[Layout, ...]]] = {
    "naive": ("rows without padding, which no kernel uses", (padded("K-major", 128, 64, 0, K_MAJOR),)),
    "skew16": (
        "wmma_block's operands: 16 halves of padding",
        (
            padded("K-major", 128, 64, SKEW, K_MAJOR),
            padded("K-major", 128, 128, SKEW, K_MAJOR),
            padded("MN-major", 64, 128, SKEW, MN_MAJOR),
            padded("MN-major", 128, 128, SKEW, MN_MAJOR),
        ),
    ),
    "pad8": (
        "operands of wmma_double_buffer and wmma_kstage: 8 halves of padding",
        (
            padded("K-major", 128, 32, PAD, K_MAJOR),
            padded("MN-major", 32, 128, PAD, MN_MAJOR),
            padded("MN-major", 32, 256, PAD, MN_MAJOR),
        ),
    ),
    "xor": (
        "mma_swizzle's operands: chunks permuted by XOR, no padding",
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
