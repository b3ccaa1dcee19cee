"""A persistent Triton kernel of one tile size, as batch-invariant modes use: D = beta C + alpha A B, K in order.

The survey's --batch-invariant times it. Import needs Triton.
"""

import torch
import triton
import triton.language as tl

# dtype -> the tile's rows, columns and depth, stages, warps: sizes that suit large batches, since one size serves all.
TILES = {torch.float16: (128, 256, 64, 3, 8), torch.bfloat16: (128, 128, 64, 3, 8), torch.float32: (128, 128, 32, 3, 8)}
GROUP = 8  # rows of tiles that are walked together


@triton.jit
def _kernel(
    a, b, c, d, m, n, k, a_row, a_col, b_row, b_col, c_row, c_col, alpha, beta,
    HAS_C: tl.constexpr, TF32: tl.constexpr, BLOCKS: tl.constexpr, GROUP: tl.constexpr,
    BLK_M: tl.constexpr, BLK_N: tl.constexpr, BLK_K: tl.constexpr,
):  # fmt: skip
    tiles_m, tiles_n = tl.cdiv(m, BLK_M), tl.cdiv(n, BLK_N)
    of_group = GROUP * tiles_n
    for tile in tl.range(tl.program_id(0), tiles_m * tiles_n, BLOCKS, flatten=True):
        first = tile // of_group * GROUP
        rows_of_group = tl.minimum(tiles_m - first, GROUP)
        rows = (first + tile % of_group % rows_of_group) * BLK_M + tl.arange(0, BLK_M)
        columns = tile % of_group // rows_of_group * BLK_N + tl.arange(0, BLK_N)
        # Rows and columns outside wrap to the first ones, so that only K needs a mask.
        from_rows = tl.where(rows < m, rows, 0).to(tl.int64)
        from_columns = tl.where(columns < n, columns, 0).to(tl.int64)
        acc = tl.zeros((BLK_M, BLK_N), tl.float32)
        for t in range(tl.cdiv(k, BLK_K)):
            depth = t * BLK_K + tl.arange(0, BLK_K)
            x = tl.load(a + from_rows[:, None] * a_row + depth[None, :] * a_col, depth[None, :] < k, other=0.0)
            y = tl.load(b + depth[:, None] * b_row + from_columns[None, :] * b_col, depth[:, None] < k, other=0.0)
            acc = tl.dot(x, y, acc, input_precision="tf32" if TF32 else "ieee")
        inside = (rows < m)[:, None] & (columns < n)[None, :]
        acc *= alpha
        if HAS_C:
            addend = tl.load(c + rows.to(tl.int64)[:, None] * c_row + columns[None, :] * c_col, inside, other=0.0)
            acc += beta * addend.to(tl.float32)
        tl.store(d + rows.to(tl.int64)[:, None] * n + columns[None, :], acc.to(d.dtype.element_ty), inside)


def addmm(c, a, b, *, beta=1.0, alpha=1.0) -> torch.Tensor:
    """Return beta * C + alpha * (A @ B).

    Args:
        c: a tensor that broadcasts to (M, N), or None.
        a: (M, K), float16, bfloat16 or float32, which torch's setting may allow to be TF32.
        b: (K, N), in A's dtype.
        beta, alpha: numbers.
    """
    (m, k), n = a.shape, b.shape[1]
    d = torch.empty(m, n, dtype=a.dtype, device=a.device)
    blk_m, blk_n, blk_k, stages, warps = TILES[a.dtype]
    blocks = torch.cuda.get_device_properties(a.device).multi_processor_count
    grid = min(blocks, triton.cdiv(m, blk_m) * triton.cdiv(n, blk_n))
    of_c = (a, 0, 0) if c is None else (c, *c.expand(m, n).stride())
    _kernel[(grid,)](
        a, b, of_c[0], d, m, n, k, *a.stride(), *b.stride(), *of_c[1:], float(alpha), float(beta),
        HAS_C=c is not None, TF32=torch.backends.cuda.matmul.fp32_precision == "tf32", BLOCKS=blocks, GROUP=GROUP,
        BLK_M=blk_m, BLK_N=blk_n, BLK_K=blk_k, num_stages=stages, num_warps=warps,
    )  # fmt: skip
    return d
