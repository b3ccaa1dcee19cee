// Rules for how a matrix can be read and written, given its strides, alignment and extents. Planner, launchers and kernels
// share them. X is a MatrixView or a MatrixKey, and P is a GemmDesc or a PlanKey.
#pragma once

#include "ceil_div.h"
#include "desc.h"

namespace tc {

// The order of a matrix in memory: which of rows and columns are contiguous, if any.
enum class Order : uint8_t { row_major, col_major, strided };

template <typename X>
Order order_of(const X& x) {
  return x.col == 1 ? Order::row_major : x.row == 1 ? Order::col_major : Order::strided;
}

TC_HOST_DEVICE inline bool present(const MatrixView& x) { return x.data != nullptr; }

// The address modulo 16. Callers use only its lowest set bit.
inline uint64_t address_bits(const MatrixView& x) { return reinterpret_cast<uintptr_t>(x.data) % 16; }

// The largest of 16, 8, 4 and 2 bytes that divides the start address of every contiguous row (or column) of x, in every product.
template <typename X>
int alignment(const X& x, int64_t rows, int64_t cols) {
  const Order order = order_of(x);
  if (order == Order::strided) return size_of(x.dtype);
  const int64_t count = order == Order::row_major ? rows : cols;
  const int64_t leading = order == Order::row_major ? x.row : x.col;
  const uint64_t bits =
      address_bits(x) | (count > 1 ? uint64_t(leading) * size_of(x.dtype) : 0) | uint64_t(x.batch) * size_of(x.dtype);
  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

// Whether operand x, (outer, K), must be repacked before an aligned kernel can read it. Aligned kernels read vectors along a
// contiguous direction, whose rows begin at multiples of `bytes`. `along_k`: the kernel does not take x without K contiguous.
template <typename X>
bool needs_repack(const X& x, int64_t outer, int64_t k, bool along_k = false, int bytes = 16) {
  const Order order = order_of(x);
  const bool k_contiguous = order == Order::row_major;
  const int64_t leading = k_contiguous ? x.row : x.col, count = k_contiguous ? outer : k, extent = k_contiguous ? k : outer;
  const bool overlapping = count > 1 && leading < extent;  // an expanded tensor: a tensor map cannot have stride 0
  return k > 0 && (order == Order::strided || alignment(x, outer, k) < bytes || overlapping || (along_k && !k_contiguous));
}

// Rows of a 16-bit row-major x, (outer, K), from one to the next that begins equally far behind a 16-byte boundary: 1, 2, 4 or 8. The
// distance also holds a row from the boundary on, because rows of a tensor map do not overlap.
template <typename X>
int rows_of_a_kind(const X& x, int64_t k) {
  const auto fits = [&](int kinds) {
    const int64_t skipped = kinds > 1 || address_bits(x) % 16 != 0 ? 7 : 0;  // at most
    return kinds * x.row % 8 == 0 && kinds * x.row >= k + skipped;
  };
  return fits(1) ? 1 : fits(2) ? 2 : fits(4) ? 4 : 8;
}

// How many tiles of `tile` rows of one kind cover a matrix of `rows`.
inline int64_t interleaved_tiles(int64_t rows, int kinds, int tile) { return kinds * ceil_div(ceil_div(rows, kinds), tile); }

// Whether the products of a row-major x begin whole rows apart, so that one number finds a row of any product.
template <typename X>
bool numbers_rows(const X& x) {
  return x.row > 0 && x.batch % x.row == 0;
}

// The strides of operand x, (outer, K), after repacking. Rows start at 16-byte boundaries. Rows of 1024 bytes or more start at
// 128-byte cache lines, because TMA and cp.async fetch 128 bytes of a row at a time. 16-bit operands keep their contiguous
// direction. K becomes contiguous for fp32, for operands without a direction of stride 1, and for a single row, whose columns
// would hold one element and padding.
template <typename X>
X repacked(X x, int64_t outer, int64_t k, bool along_k = false) {
  const bool along_outer = !is_f32(x.dtype) && !along_k && order_of(x) == Order::col_major && outer > 1;
  const int64_t extent = along_outer ? outer : k, unit = (extent * size_of(x.dtype) < 1024 ? 16 : 128) / size_of(x.dtype);
  const int64_t leading = (extent + unit - 1) / unit * unit;
  x.row = along_outer ? 1 : leading;
  x.col = along_outer ? leading : 1;
  if (x.batch != 0) x.batch = (along_outer ? k : outer) * leading;
  return x;
}

template <typename X>
int64_t repacked_bytes(const X& x, int64_t batch, int64_t outer, int64_t k, bool along_k = false) {
  const X r = repacked(x, outer, k, along_k);
  return matrices_of(x, batch) * (order_of(r) == Order::row_major ? outer * r.row : k * r.col) * size_of(r.dtype);
}

// Whether contiguous rows (or columns) of x begin inside units of `bytes`, such as L2's lines of 128 bytes and sectors of 32. The
// first is taken to begin with a unit, because a key holds no more of the address than its last four bits.
template <typename X>
bool straddles(int bytes, const X& x, int64_t rows, int64_t cols) {
  const bool row_major = order_of(x) == Order::row_major;
  return (row_major ? rows : cols) > 1 && (row_major ? x.row : x.col) * size_of(x.dtype) % bytes != 0;
}

// Whether TMA can read x in place: contiguous rows that start at 16-byte boundaries.
template <typename X>
bool tma_loads(const X& x, int64_t rows, int64_t cols) {
  return order_of(x) == Order::row_major && alignment(x, rows, cols) == 16 && (rows == 1 || x.row >= cols);
}

// Whether TMA can write x. TMA writes whole 16-byte vectors: test_result_layouts[row_pitched] failed on an H200 with rows that
// end elsewhere.
template <typename X>
bool tma_stores(const X& x, int64_t rows, int64_t cols) {
  return tma_loads(x, rows, cols) && cols * size_of(x.dtype) % 16 == 0;
}

// Whether D is larger than what L2 keeps of it for the next kernel. Its lines then leave L2 before those of A and B, which other
// tiles read again: 192 of 1024x1024x64 take 177.6 us on an H100, and 195 if all lines leave in turn. The size is by hand, of the
// 50 MB that L2 has there. Rows of D that begin within sectors are an exception: two tiles write the halves of a sector, and L2 should
// keep the first half until the second arrives. 200 of 776x776x80 take 131 us in wgmma_tma on an H200 by this exception, and 138 without.
inline bool d_exceeds_l2(const GemmDesc& p) {
  constexpr int64_t kKept = 32 << 20;
  return !p.d_is_partial && !straddles(32, p.d, p.m, p.n) && p.batch * p.m * p.n * size_of(p.d.dtype) > kKept;
}

// How an epilogue with TMA reads C and writes D. It prefers TMA. `row` reads one row of C for all rows, such as a 1-D bias, by
// cp.async. `vectors` takes 16-byte vectors of rows of 16-bit elements that are contiguous but begin anywhere. `elements` takes
// everything else, element by element.
enum class CPath : uint8_t { none, tma, row, vectors, elements };
enum class DPath : uint8_t { tma, vectors, elements };

// The columns of D that a kernel may write. Rows of partial products end with padding.
template <typename P>
int64_t writable_columns(const P& p) {
  return p.d_is_partial ? p.d.row : p.n;
}

// Elements of D from a K slice's partial products to those of the next slice.
TC_HOST_DEVICE inline int64_t slice_stride(const GemmDesc& p) { return p.batch * p.d.batch; }

template <typename P>
CPath c_path_of(const P& p) {
  const bool rows_of_d = order_of(p.c) == Order::row_major && p.c.dtype == p.d.dtype;
  if (!present(p.c)) return CPath::none;
  if (rows_of_d && tma_loads(p.c, p.m, p.n)) return CPath::tma;
  if (p.c.row == 0 && tma_loads(p.c, 1, p.n)) return CPath::row;  // cp.async needs the same alignment
  return rows_of_d && !is_f32(p.c.dtype) ? CPath::vectors : CPath::elements;
}
template <typename P>
DPath d_path_of(const P& p) {
  if (tma_stores(p.d, p.m, writable_columns(p))) return DPath::tma;
  return order_of(p.d) == Order::row_major && !is_f32(p.d.dtype) ? DPath::vectors : DPath::elements;
}

// Whether D takes aligned vectors of rows that begin anywhere (epilogue/rows.cuh).
template <typename P>
TC_HOST_DEVICE bool takes_rows(const P& p) {
  return p.d.col == 1 && !is_f32(p.d.dtype);
}
// Whether C has one row for all rows of D, such as a bias, in 16 bits.
template <typename P>
TC_HOST_DEVICE bool has_bias(const P& p) {
  return present(p.c) && p.c.row == 0 && !is_f32(p.c.dtype);
}
// Whether D, and C unless it is such a row, have 16-bit rows of aligned vectors.
template <typename P>
bool takes_vectors(const P& p) {
  const auto aligned = [&](const auto& x) {
    return order_of(x) == Order::row_major && !is_f32(x.dtype) && alignment(x, p.m, p.n) == 16;
  };
  return aligned(p.d) && (!present(p.c) || has_bias(p) || aligned(p.c));
}

// Whether TMA alone, and a row of C in whole 16-byte vectors, bring C and D. A 16-bit D takes a 16-bit C.
template <typename P>
bool tma_reaches_c_and_d(const P& p) {
  const CPath c = c_path_of(p);
  if (d_path_of(p) != DPath::tma || c >= CPath::vectors) return false;
  if (c == CPath::row && p.n * size_of(p.c.dtype) % 16 != 0) return false;
  return c == CPath::none || is_f32(p.d.dtype) || !is_f32(p.c.dtype);
}

}  // namespace tc
