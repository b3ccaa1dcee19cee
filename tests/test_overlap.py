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
    return (BUFFER.data_ptr() + 2 * offset, 0, row, col, "float16"), rows, cols


matrices = st.tuples(SIZES, SIZES, STRIDES, STRIDES, OFFSETS)


@settings(max_examples=500)
@given(x=matrices, y=matrices)
def test_overlap_finds_every_shared_element(x, y):
    if elements(*x) & elements(*y):
        assert _C.overlap(*view(*x), *view(*y), 1)


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
    shared, reported = bool(elements(*x) & elements(*y)), _C.overlap(*view(*x), *view(*y), 1)
    past_row_end = any(z[-1] % leading_dim + (z[0] if transposed else z[1]) > leading_dim for z in (x, y))
    assert reported or not shared
    assert reported == shared or past_row_end  # a real slice of a buffer never runs past the end of its row


@settings(max_examples=500)
@given(x=matrices)
def test_self_overlap_is_exact(x):
    rows, cols, *_ = x
    assert _C.overlaps_itself(*view(*x), 1) == (len(elements(*x)) < rows * cols)


BATCHES = st.tuples(SIZES, STRIDES | st.just(0))


def batch_elements(batch, stride, rows, cols, row, col, offset):
    return [offset + i * stride + x for i in range(batch) for x in sorted(elements(rows, cols, row, col, 0))]


@settings(max_examples=500)
@given(x=matrices, y=matrices, of_x=BATCHES, of_y=BATCHES)
def test_overlap_of_batches_finds_every_shared_element(x, y, of_x, of_y):
    batch = of_x[0]
    x_elements, y_elements = batch_elements(*of_x, *x), batch_elements(batch, of_y[1], *y)

    def batch_view(matrix, stride):
        (address, _, *rest), rows, cols = view(*matrix)
        return (address, stride, *rest), rows, cols

    if set(x_elements) & set(y_elements):
        assert _C.overlap(*batch_view(x, of_x[1]), *batch_view(y, of_y[1]), batch)
    if len(set(x_elements)) < batch * x[0] * x[1]:
        assert _C.overlaps_itself(*batch_view(x, of_x[1]), batch)
