"""The shared-memory bank rule on hand-computed cases, and the conflict degree of every access of every layout."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torch_addmm_tc import _C
from torch_addmm_tc.tools.banks import LAYOUTS, Access, Layout, degree, matrix_read, tile_store


@pytest.mark.parametrize(
    "addresses, width, expected",
    [
        ([], 4, 0),
        ([64] * 32, 4, 1),  # all threads read one word, which is broadcast
        ([128 * t for t in range(32)], 4, 32),  # a column of a matrix with rows of 32 words
        ([132 * t for t in range(32)], 4, 1),  # the same column with rows padded by one word
        ([4 * t for t in range(32)], 4, 1),
        ([8 * t for t in range(32)], 4, 2),
        ([2 * t for t in range(32)], 2, 1),  # two 16-bit elements share a word
        ([0, 2, 128], 2, 2),
        ([8 * t for t in range(16)], 8, 1),
        ([16 * t for t in range(8)], 16, 1),
        ([32 * t for t in range(8)], 16, 2),
        ([128 * t for t in range(8)], 16, 8),
        ([2], 4, 1),  # the access spans two words, which lie in two banks
    ],
)
def test_degree(addresses, width, expected):
    assert degree(addresses, width) == expected


@pytest.mark.parametrize("width, phases", [(2, 1), (4, 1), (8, 2), (16, 4)])
def test_warp_access_takes_one_phase_per_128_bytes(width, phases):
    warp = Access("", width, tuple(width * t for t in range(32)))
    assert warp.degrees == (1,) * phases
    assert warp.worst == warp.average == 1 and warp.conflicts == 0


def test_accesses_conflict_only_within_a_phase():
    apart = Access("", 16, tuple(16 * t + 1024 * (t // 8) for t in range(32)))  # all phases start at the same bank
    assert apart.degrees == (1, 1, 1, 1)
    mixed = Access("", 16, tuple(16 * (t % 8) for t in range(8)) + tuple(128 * t for t in range(8)))
    assert mixed.degrees == (1, 8) and mixed.worst == 8 and mixed.average == 4.5 and mixed.conflicts == 7


STORE, LOAD, LOAD_TRANS = "tile store", "wmma.load (ldmatrix.x4)", "wmma.load (ldmatrix.x4.trans)"
SIMT = "store, transposing (K contiguous)", "store, in order (K not contiguous)", "read of A", "read of B"
EXPECTED = {
    # A row has 128 bytes, so every row starts at the same bank.
    ("naive", "K-major, (128, 64) 16-bit elements"): {STORE: 1, LOAD: 8},
    # The leading dimensions are 160 and 288 bytes: 10 and 18 vectors, both 2 modulo the 8 bank groups. Rows that are four apart
    # share a bank group.
    ("skew16", "K-major, (128, 64 + 16) 16-bit elements"): {STORE: 1, LOAD: 2},
    ("skew16", "K-major, (128, 128 + 16) 16-bit elements"): {STORE: 1, LOAD: 2},
    ("skew16", "MN-major, (64, 128 + 16) 16-bit elements"): {STORE: 1, LOAD_TRANS: 2},
    ("skew16", "MN-major, (128, 128 + 16) 16-bit elements"): {STORE: 1, LOAD_TRANS: 2},
    # The leading dimensions are 80, 272 and 528 bytes: 5, 17 and 33 vectors. These numbers are odd, so eight rows lie in eight
    # bank groups. In the first form, a phase of the store writes two rows of 4 vectors, and the rows start 5 vectors apart: the
    # first vector of one row and the last vector of the other share a bank group.
    ("pad8", "K-major, (128, 32 + 8) 16-bit elements"): {STORE: 2, LOAD: 1},
    ("pad8", "MN-major, (32, 128 + 8) 16-bit elements"): {STORE: 1, LOAD_TRANS: 1},
    ("pad8", "MN-major, (32, 256 + 8) 16-bit elements"): {STORE: 1, LOAD_TRANS: 1},
    ("xor", "K-major, (128, 64) 16-bit elements"): {STORE: 1, "ldmatrix": 1},
    ("xor", "K-major, (128, 32) 16-bit elements"): {STORE: 1, "ldmatrix": 1},
    ("xor", "MN-major, (32, 64) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    ("xor", "MN-major, (32, 128) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    ("xor", "MN-major, (32, 256) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    # The transposing store of a warp writes 8 columns of 4 rows, and the rows start at two banks, 16 apart. The store in order
    # writes every fourth column of two rows, so its 32 words lie in 8 banks.
    ("simt", "K-major, (16, 64 + 4) floats"): dict(zip(SIMT, (2, 4, 1, 1))),
    # A phase of the store has 16 lanes. They write 4 rows of 8 floats, and the rows start 8 banks apart. A phase of the read
    # has 8 lanes. Each lane reads 16 of 32 bytes, so two lanes share a bank group.
    ("epilogue", "mma_swizzle, per warp, (16, 64 + 8) floats"): {"accumulator store": 1, "row read": 2},
}
MEASURED = Path(__file__).parent.parent / "bench/results/h200-bank-conflicts.json"
ALL = {(name, layout.name): layout for name, (_, layouts) in LAYOUTS.items() for layout in layouts}


def test_expected_degrees_cover_every_layout():
    assert ALL.keys() == EXPECTED.keys()


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_conflict_degrees(key):
    accesses = ALL[key].accesses
    assert {x.name: x.worst for x in accesses} == EXPECTED[key]
    for x in accesses:
        assert x.average == x.worst  # all phases have the same degree
        assert x.conflicts == (x.worst - 1) * len(x.degrees)


def test_computed_conflicts_match_nsight_compute():
    """bench/conflicts.py wrote Nsight Compute's counts of every access to bench/results/."""
    measured = {(r["layout"], r["form"], r["access"]): r["measured"] for r in json.loads(MEASURED.read_text())["rows"]}
    counted = {(*key, x.name): x.conflicts for key, layout in ALL.items() for x in layout.accesses}
    assert counted.items() <= measured.items() and sum(counted.values()) > 0


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_accesses_cover_exactly_the_tile(key):
    layout = ALL[key]
    tile = {
        layout.address(row, col) + b for row in range(layout.rows) for col in range(layout.extent) for b in range(layout.bytes)
    }
    for x in layout.accesses:
        assert {address + b for address in x.addresses for b in range(x.width)} == tile, x.name
        assert all(address % x.width == 0 for address in x.addresses), x.name


VECTORS, BYTES = st.sampled_from((1, 2, 4, 8, 16, 32)), st.sampled_from((1, 2, 4))


@given(vectors=VECTORS, bytes=BYTES, rows=st.integers(1, 24))
def test_swizzle_permutes_whole_vectors_within_a_row(vectors, bytes, rows):
    extent, w = vectors * 16 // bytes, 16 // bytes
    offsets = [_C.swizzled_offset(row, col, extent, bytes) for row in range(rows) for col in range(extent)]
    assert sorted(offsets) == list(range(rows * extent))
    assert all(offsets[i + j] == offsets[i] + j for i in range(0, len(offsets), w) for j in range(w))
    assert all(offsets[i] // extent == i // extent for i in range(len(offsets)))


@given(vectors=VECTORS, row=st.integers(0, 1000), vector=st.integers(0, 31))
def test_swizzled_columns_and_rows_are_conflict_free(vectors, row, vector):
    row, vector = row // 8 * 8, vector % vectors

    def address(row, vector):
        return 16 * (row * vectors + _C.swizzled_chunk(row, vector, vectors))

    assert degree((address(row + i, vector) for i in range(8)), 16) == 1
    along_row = [(row + i // vectors, vector // 8 * 8 % vectors + i % vectors) for i in range(8)]
    assert degree((address(*position) for position in along_row), 16) == 1


@pytest.mark.parametrize(
    "extent, swizzle, expected",
    [
        (64, lambda row, vector: vector, 8),
        (64, lambda row, vector: vector ^ (row & 3), 2),  # two bits of the row are too few
        (32, lambda row, vector: vector, 4),
        (32, lambda row, vector: vector ^ (row & 3), 2),  # short rows need the row's bits shifted
        (256, lambda row, vector: vector ^ (row >> 1 & 7), 2),  # long rows need no shift
    ],
)
def test_wrong_swizzles_have_conflicts(extent, swizzle, expected):
    layout = Layout("", 32, extent, 2, lambda row, col: row * extent + swizzle(row, col // 8) * 8 + col % 8, ())
    assert tile_store(layout).worst == 1
    assert matrix_read("", layout).worst == expected
