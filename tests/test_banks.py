"""The bank rule on cases worked out by hand, and the degree of every access of every layout."""

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
        ([64] * 32, 4, 1),  # one word, broadcast
        ([128 * t for t in range(32)], 4, 32),  # a column of rows of 32 words
        ([132 * t for t in range(32)], 4, 1),  # the same, padded by a word
        ([4 * t for t in range(32)], 4, 1),
        ([8 * t for t in range(32)], 4, 2),
        ([2 * t for t in range(32)], 2, 1),  # two 16-bit elements share a word
        ([0, 2, 128], 2, 2),
        ([8 * t for t in range(16)], 8, 1),
        ([16 * t for t in range(8)], 16, 1),
        ([32 * t for t in range(8)], 16, 2),
        ([128 * t for t in range(8)], 16, 8),
        ([2], 4, 1),  # spans two words, in two banks
    ],
)
def test_the_rule(addresses, width, expected):
    assert degree(addresses, width) == expected


@pytest.mark.parametrize("width, phases", [(2, 1), (4, 1), (8, 2), (16, 4)])
def test_a_warp_is_served_in_phases(width, phases):
    warp = Access("", width, tuple(width * t for t in range(32)))
    assert warp.degrees == (1,) * phases
    assert warp.worst == warp.average == 1 and warp.conflicts == 0


def test_wide_accesses_collide_within_a_phase_only():
    apart = Access("", 16, tuple(16 * t + 1024 * (t // 8) for t in range(32)))  # the phases start at the same bank
    assert apart.degrees == (1, 1, 1, 1)
    mixed = Access("", 16, tuple(16 * (t % 8) for t in range(8)) + tuple(128 * t for t in range(8)))
    assert mixed.degrees == (1, 8) and mixed.worst == 8 and mixed.average == 4.5 and mixed.conflicts == 7


STORE, LOAD, LOAD_TRANS = "tile store", "wmma.load (ldmatrix.x4)", "wmma.load (ldmatrix.x4.trans)"
SIMT = "store, transposing (K contiguous)", "store, in order (K not contiguous)", "read of A", "read of B"
EXPECTED = {
    # rows of 128 bytes: every row of a matrix starts at the same bank
    ("naive", "K-major, (128, 64) 16-bit elements"): {STORE: 1, LOAD: 8},
    # pitches of 160 and 288 bytes: 10 and 18 chunks, both 2 modulo the 8 bank groups, so that rows meet four apart
    ("skew16", "K-major, (128, 64 + 16) 16-bit elements"): {STORE: 1, LOAD: 2},
    ("skew16", "K-major, (128, 128 + 16) 16-bit elements"): {STORE: 1, LOAD: 2},
    ("skew16", "MN-major, (64, 128 + 16) 16-bit elements"): {STORE: 1, LOAD_TRANS: 2},
    ("skew16", "MN-major, (128, 128 + 16) 16-bit elements"): {STORE: 1, LOAD_TRANS: 2},
    # pitches of 80, 272 and 528 bytes: an odd number of chunks; two rows of 4 chunks, 5 apart, share one bank group
    ("pad8", "K-major, (128, 32 + 8) 16-bit elements"): {STORE: 2, LOAD: 1},
    ("pad8", "MN-major, (32, 128 + 8) 16-bit elements"): {STORE: 1, LOAD_TRANS: 1},
    ("pad8", "MN-major, (32, 256 + 8) 16-bit elements"): {STORE: 1, LOAD_TRANS: 1},
    ("xor", "K-major, (128, 64) 16-bit elements"): {STORE: 1, "ldmatrix": 1},
    ("xor", "K-major, (128, 32) 16-bit elements"): {STORE: 1, "ldmatrix": 1},
    ("xor", "MN-major, (32, 64) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    ("xor", "MN-major, (32, 128) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    ("xor", "MN-major, (32, 256) 16-bit elements"): {STORE: 1, "ldmatrix.trans": 1},
    # a warp stores 8 columns of 4 lines 16 banks apart, or every fourth bank of two lines, each twice
    ("simt", "K-major, (16, 64 + 4) floats"): dict(zip(SIMT, (2, 4, 1, 1))),
    # 16 lanes store 4 lines 8 banks apart; 8 lanes read 16 of every 32 bytes
    ("epilogue", "mma_swizzle, per warp, (16, 64 + 8) floats"): {"accumulator store": 1, "row read": 2},
}
MEASURED = Path(__file__).parent.parent / "bench/results/h200-bank-conflicts.json"
ALL = {(name, layout.name): layout for name, (_, layouts) in LAYOUTS.items() for layout in layouts}


def test_every_layout_has_its_degrees_written_down():
    assert ALL.keys() == EXPECTED.keys()


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_degrees(key):
    accesses = ALL[key].accesses
    assert {x.name: x.worst for x in accesses} == EXPECTED[key]
    for x in accesses:
        assert x.average == x.worst  # every phase is alike
        assert x.conflicts == (x.worst - 1) * len(x.degrees)


def test_every_access_was_counted_on_a_gpu_and_is_the_same_still():
    """In bench/results/, where bench/conflicts.py put what Nsight Compute counted of each access."""
    measured = {(r["layout"], r["form"], r["access"]): r["measured"] for r in json.loads(MEASURED.read_text())["rows"]}
    counted = {(*key, x.name): x.conflicts for key, layout in ALL.items() for x in layout.accesses}
    assert counted.items() <= measured.items() and sum(counted.values()) > 0


@pytest.mark.parametrize("key", EXPECTED, ids=" ".join)
def test_accesses_cover_the_tile_and_stay_inside(key):
    layout = ALL[key]
    tile = {
        layout.address(line, col) + b
        for line in range(layout.rows)
        for col in range(layout.extent)
        for b in range(layout.bytes)
    }
    for x in layout.accesses:
        assert {address + b for address in x.addresses for b in range(x.width)} == tile, x.name
        assert all(address % x.width == 0 for address in x.addresses), x.name


CHUNKS, BYTES = st.sampled_from((1, 2, 4, 8, 16, 32)), st.sampled_from((1, 2, 4))


@given(chunks=CHUNKS, bytes=BYTES, lines=st.integers(1, 24))
def test_the_swizzle_is_a_bijection_that_keeps_chunks_whole(chunks, bytes, lines):
    extent, w = chunks * 16 // bytes, 16 // bytes
    offsets = [_C.swizzled_offset(line, col, extent, bytes) for line in range(lines) for col in range(extent)]
    assert sorted(offsets) == list(range(lines * extent))
    assert all(offsets[i + j] == offsets[i] + j for i in range(0, len(offsets), w) for j in range(w))
    assert all(offsets[i] // extent == i // extent for i in range(len(offsets)))


@given(chunks=CHUNKS, line=st.integers(0, 1000), chunk=st.integers(0, 31))
def test_swizzled_columns_and_lines_are_conflict_free(chunks, line, chunk):
    line, chunk = line // 8 * 8, chunk % chunks

    def address(line, chunk):
        return 16 * (line * chunks + _C.swizzled_chunk(line, chunk, chunks))

    assert degree((address(line + i, chunk) for i in range(8)), 16) == 1
    along = [(line + i // chunks, chunk // 8 * 8 % chunks + i % chunks) for i in range(8)]
    assert degree((address(*cell) for cell in along), 16) == 1


@pytest.mark.parametrize(
    "extent, swizzle, expected",
    [
        (64, lambda line, chunk: chunk, 8),
        (64, lambda line, chunk: chunk ^ (line & 3), 2),  # too few bits
        (32, lambda line, chunk: chunk, 4),
        (32, lambda line, chunk: chunk ^ (line & 3), 2),  # the line's bits not shifted
        (256, lambda line, chunk: chunk ^ (line >> 1 & 7), 2),  # shifted though lines are long
    ],
)
def test_a_wrong_swizzle_is_caught(extent, swizzle, expected):
    layout = Layout("", 32, extent, 2, lambda line, col: line * extent + swizzle(line, col // 8) * 8 + col % 8, ())
    assert tile_store(layout).worst == 1
    assert matrix_read("", layout).worst == expected
