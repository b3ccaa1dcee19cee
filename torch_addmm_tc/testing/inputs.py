"""Random matrices in every layout, alone and in batches, and integers whose sums are exact."""

from functools import partial

import torch

LAYOUTS = ("row", "col", "row_pitched", "col_pitched", "row_odd", "col_odd", "misaligned", "strided", "expanded")


def matrix(layout: str, rows: int, cols: int, dtype, device, generator=None) -> torch.Tensor:
    """Return a random normal (rows, cols) matrix with a given layout in memory.

    Args:
        layout: a name in LAYOUTS.
            "row", "col": contiguous, row-major or column-major.
            "row_pitched", "col_pitched": a view of a wider matrix. The leading dimension is a multiple of 16 bytes.
            "row_odd", "col_odd": a view whose base and leading dimension are aligned to one element only.
            "misaligned": row-major and contiguous. The base is one element off a 16-byte boundary.
            "strided": every second column of every second row.
            "expanded": one row, repeated by a stride of 0.
        rows, cols: the matrix's sizes.
        dtype: the elements' dtype. They are drawn in float32 and then rounded to it.
        device: where the matrix lies.
        generator: the random generator. Default: the device's own.

    Raises:
        ValueError: if there is no such layout.
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


BATCHES = ("stacked", "between", "odd", "shared")


def matrices(kind: str, size: int, layout: str, rows: int, cols: int, dtype, device, generator=None) -> torch.Tensor:
    """Return random normal matrices as one (size, rows, cols) tensor, each with a layout of LAYOUTS.

    Args:
        kind: a name in BATCHES.
            "stacked": one matrix after the other.
            "between": each row (or column) of a matrix follows the same row of the matrix before, as heads of attention lie.
                This is for the layouts "row", "col" and the pitched ones. Others are "stacked".
            "odd": the matrices begin at odd multiples of an element.
            "shared": one matrix, repeated by a stride of 0.
        size: how many matrices. The other arguments are those of matrix().

    Raises:
        ValueError: if there is no such kind.
    """
    one = partial(matrix, layout, dtype=dtype, device=device, generator=generator)
    if kind == "shared" or size == 0:
        return one(rows, cols).expand(max(size, 1), rows, cols)[:size]
    if kind not in BATCHES:
        raise ValueError(f"kind must be one of {BATCHES}, but got {kind!r}")
    if kind == "between" and layout in ("row", "row_pitched"):
        return one(rows, size * cols).unflatten(1, (size, cols)).movedim(1, 0)
    if kind == "between" and layout in ("col", "col_pitched"):
        return one(size * rows, cols).unflatten(0, (size, rows))
    all_of_them = [one(rows, cols) for _ in range(size)]
    if layout == "expanded":
        return torch.stack([x[0] for x in all_of_them])[:, None].expand(size, rows, cols) if rows else torch.stack(all_of_them)
    first = all_of_them[0]
    span = 1 + (rows - 1) * first.stride(0) + (cols - 1) * first.stride(1) if rows and cols else 0
    pitch = span // 2 * 2 + 1 if kind == "odd" else -(-span // 8) * 8
    pool = torch.empty(size * pitch + 8, dtype=dtype, device=device)
    result = pool.as_strided((size, rows, cols), (pitch, *first.stride()), first.storage_offset() % 8)
    for target, x in zip(result, all_of_them):
        target.copy_(x)
    return result


def integers(m: int, n: int, k: int, device) -> tuple[list[torch.Tensor], torch.Tensor]:
    """Return integer operands and their exact product.

    A kernel must reproduce the product bit by bit in any order of summation: every partial sum of integers below 2^24 is exact
    in fp32. A kernel that rounds a partial sum to a 16-bit type fails.

    Args:
        m, n: the sizes of D.
        k: the length of the sums. It must be below 2^24 / 32^2 = 16384.
        device: where the tensors lie.

    Returns:
        ([self, mat1, mat2], expected). The operands are float16 integers from -32 to 32. `expected` is self + mat1 @ mat2 in
        float32.
    """
    generator = torch.Generator(device).manual_seed(0)
    shapes = ((m, n), (m, k), (k, n))
    args = [torch.randint(-32, 33, shape, generator=generator, device=device).half() for shape in shapes]
    c, a, b = (x.double() for x in args)
    return args, (c + a @ b).float()
