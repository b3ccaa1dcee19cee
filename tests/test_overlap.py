"""The overlap check of strided matrices against brute force. It misses no overlap, and it is exact for slices of one buffer."""

import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from torch_addmm_tc import _C

SIZES, STRIDES, OFFSETS = st.integers(1, 6), st.integers(1, 12), st.integers(0, 30)
BUFFER = torch.zeros(400, dtype=torch.float16)


def elements(rows, cols, row, col, offset):
    return {offset + i * row + j * col for i in range(rows) for j in range(cols)}


def view(rows, cols, row, col, offset):
    return (BUFFER.data_ptr() + 2 * offset, row, col, "float16"), rows, cols


matrices = st.tuples(SIZES, SIZES, STRIDES, STRIDES, OFFSETS)


@settings(max_examples=500)
@given(x=matrices, y=matrices)
def test_overlap_finds_every_shared_element(x, y):
    if elements(*x) & elements(*y):
        assert _C.overlap(*view(*x), *view(*y))


@settings(max_examples=500)
@given(
    leading_dim=st.integers(6, 12),
    x=st.tuples(SIZES, SIZES, OFFSETS),
    y=st.tuples(SIZES, SIZES, OFFSETS),
    transposed=st.booleans(),
)
@example(leading_dim=12, x=(4, 6, 0), y=(4, 6, 6), transposed=False)
def test_overlap_is_exact_for_slices_of_one_buffer(leading_dim, x, y, transposed):
    def matrix(rows, cols, offset):
        return (cols, rows, 1, leading_dim, offset) if transposed else (rows, cols, leading_dim, 1, offset)

    x, y = matrix(*x), matrix(*y)
    shared, reported = bool(elements(*x) & elements(*y)), _C.overlap(*view(*x), *view(*y))
    past_row_end = any(z[-1] % leading_dim + (z[0] if transposed else z[1]) > leading_dim for z in (x, y))
    assert reported or not shared
    assert reported == shared or past_row_end  # a real slice of a buffer never runs past the end of its row


@settings(max_examples=500)
@given(x=matrices)
def test_self_overlap_is_exact(x):
    rows, cols, *_ = x
    assert _C.overlaps_itself(*view(*x)) == (len(elements(*x)) < rows * cols)
