"""Overlap of strided matrices against brute force: exact where it promises to be, never a miss."""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torch_addmm_tc import _C

SIZES, STRIDES, OFFSETS = st.integers(1, 6), st.integers(1, 12), st.integers(0, 30)
BUFFER = torch.zeros(400, dtype=torch.float16)


def elements(rows, cols, row, col, offset):
    return {offset + i * row + j * col for i in range(rows) for j in range(cols)}


def address(rows, cols, row, col, offset):
    return (BUFFER.data_ptr() + 2 * offset, row, col, "float16"), rows, cols


matrices = st.tuples(SIZES, SIZES, STRIDES, STRIDES, OFFSETS)


@settings(max_examples=500)
@given(x=matrices, y=matrices)
def test_never_misses_a_shared_element(x, y):
    if elements(*x) & elements(*y):
        assert _C.overlap(*address(*x), *address(*y))


@settings(max_examples=500)
@given(
    pitch=st.integers(6, 12), x=st.tuples(SIZES, SIZES, OFFSETS), y=st.tuples(SIZES, SIZES, OFFSETS), transposed=st.booleans()
)
@example(pitch=12, x=(4, 6, 0), y=(4, 6, 6), transposed=False)
def test_exact_for_slices_of_one_buffer(pitch, x, y, transposed):
    def matrix(rows, cols, offset):
        return (cols, rows, 1, pitch, offset) if transposed else (rows, cols, pitch, 1, offset)

    x, y = matrix(*x), matrix(*y)
    shares, says = bool(elements(*x) & elements(*y)), _C.overlap(*address(*x), *address(*y))
    past_line_end = any(z[-1] % pitch + (z[0] if transposed else z[1]) > pitch for z in (x, y))
    assert says or not shares
    assert says == shares or past_line_end  # a slice of a buffer never runs past the end of its line


@settings(max_examples=500)
@given(x=matrices)
def test_self_overlap_is_exact(x):
    rows, cols, *_ = x
    assert _C.overlaps_itself(*address(*x)) == (len(elements(*x)) < rows * cols)
