// Reads C and writes D in vectors of a row, 16 bytes at a time where strides and alignment allow.
#pragma once

#include "../gemm/access.h"
#include "../tile/copy.cuh"
#include "formula.cuh"

namespace tc {

// Loads elements (i, j) to (i, j + count - 1) of x, a matrix of T, and zeros after them. `aligned`: x allows 16-byte accesses
// along its rows.
template <typename T, int W>
__device__ __forceinline__ void load_vector_of(const MatrixView& x, int64_t i, int64_t j, int count, bool aligned,
                                               float (&vector)[W]) {
  const T* source = static_cast<const T*>(x.data) + i * x.row + j * x.col;
  if (aligned && count == W) {
    const Vec<T, W> v = *reinterpret_cast<const Vec<T, W>*>(source);
#pragma unroll
    for (int e = 0; e < W; ++e) vector[e] = to_float(v.x[e]);
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e) vector[e] = e < count ? to_float(source[e * x.col]) : 0.f;
  }
}

template <typename T, int W>
__device__ __forceinline__ void store_vector_to(const MatrixView& x, int64_t i, int64_t j, int count, bool aligned,
                                                const float (&vector)[W], int64_t offset) {
  T* target = static_cast<T*>(x.data) + offset + i * x.row + j * x.col;
  if (aligned && count == W) {
    Vec<T, W> v;
#pragma unroll
    for (int e = 0; e < W; ++e) v.x[e] = from_float<T>(vector[e]);
    store_whole(target, v);
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e)
      if (e < count) target[e * x.col] = from_float<T>(vector[e]);
  }
}

// Which accesses may use 16-byte vectors. The host decides once per launch.
struct VectorAccess {
  bool a, b, c, d;  // every contiguous row or column starts at a 16-byte boundary; c and d: row-major only
  bool d_shifted;   // D's rows, 16-bit like C's, begin anywhere: aligned vectors start at a different column in each row
  bool c_shifted;   // C's aligned vectors start at the same columns as D's
};

inline VectorAccess vector_access_of(const GemmDesc& p) {
  const auto elements = [](const MatrixView& x) { return int64_t(reinterpret_cast<uintptr_t>(x.data) / size_of(x.dtype)); };
  const bool rows = order_of(p.d) == Order::row_major, c_rows = order_of(p.c) == Order::row_major;
  const bool d_aligned = rows && alignment(p.d, p.m, p.n) == 16;
  return {
      alignment(p.a, p.m, p.k) == 16,
      alignment(p.b, p.k, p.n) == 16,
      c_rows && alignment(p.c, p.m, p.n) == 16,
      d_aligned,
      rows && !d_aligned && p.c.dtype == p.d.dtype && !is_f32(p.d.dtype),
      c_rows && (elements(p.c) - elements(p.d)) % 8 == 0 && (p.c.row - p.d.row) % 8 == 0 && (p.c.batch - p.d.batch) % 8 == 0};
}

// How many of the W elements from (i, j) on lie in D.
template <int W>
__device__ __forceinline__ int count_in(const GemmDesc& p, int64_t i, int64_t j) {
  return i < p.m && j < p.n ? int(min(int64_t(W), p.n - j)) : 0;
}

// Reads C for finish_vector, as fp32. C and D hold T, the operands' dtype, or fp32.
template <typename T, int W>
__device__ __forceinline__ void read_c(const GemmDesc& p, const VectorAccess& access, int64_t i, int64_t j, float (&c)[W]) {
  const int count = count_in<W>(p, i, j);
#pragma unroll
  for (int e = 0; e < W; ++e) c[e] = 0.f;
  if (!count || !p.c.data) return;
  if (is_f32(p.c.dtype)) load_vector_of<float>(p.c, i, j, count, access.c, c);
  else load_vector_of<T>(p.c, i, j, count, access.c, c);
}

// Reads C for COUNT vectors, at rows row_of(i) and from columns col_of(i) on. All loads are issued before the first use.
template <typename T, int W, int COUNT, typename Rows, typename Cols>
__device__ __forceinline__ void read_c(const GemmDesc& p, const VectorAccess& access, Rows&& row_of, Cols&& col_of,
                                       float (&c)[COUNT][W]) {
  const auto read_vectors = [&](auto type) {
    using C = decltype(type);
    Vec<C, W> vectors[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const C* const from = static_cast<const C*>(p.c.data) + row_of(i) * p.c.row + col_of(i);
      vectors[i] = count_in<W>(p, row_of(i), col_of(i)) == W ? *reinterpret_cast<const Vec<C, W>*>(from) : Vec<C, W>{};
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int e = 0; e < W; ++e) c[i][e] = to_float(vectors[i].x[e]);
  };
  if (p.c.data && access.c && p.n % W == 0) {
    if (is_f32(p.c.dtype)) read_vectors(float());
    else read_vectors(T());
    return;
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) read_c<T>(p, access, row_of(i), col_of(i), c[i]);
}

// Writes D = activation(alpha * product + beta * C) for the W elements of row i from column j on, cut off at the matrix's edge.
// D begins `d_offset` elements into p.d, where the layer of a K slice begins.
template <typename T, int W>
__device__ __forceinline__ void finish_vector(const GemmDesc& p, const VectorAccess& access, int64_t i, int64_t j,
                                              float (&product)[W], const float (&c)[W], int64_t d_offset) {
  const int count = count_in<W>(p, i, j);
  if (!count) return;
#pragma unroll
  for (int e = 0; e < W; ++e) product[e] = combine(product[e], p.epilogue.alpha, c[e], p.epilogue.beta);
  activate<W>(product, p.epilogue.activation);
  if (is_f32(p.d.dtype)) store_vector_to<float>(p.d, i, j, count, access.d, product, d_offset);
  else store_vector_to<T>(p.d, i, j, count, access.d, product, d_offset);
}

// Reads C, then writes D: D may be C itself.
template <typename T, int W>
__device__ __forceinline__ void finish_vector(const GemmDesc& p, const VectorAccess& access, int64_t i, int64_t j,
                                              float (&product)[W]) {
  float c[W];
  read_c<T>(p, access, i, j, c);
  finish_vector<T>(p, access, i, j, product, c, 0);
}

// Prefetches into L2 the (BLK_M, BLK_N) tile of C at (i0, j0) if C is full and row-major, for the epilogue to read.
template <int BLK_M, int BLK_N, int THREADS>
__device__ __forceinline__ void prefetch_c(const GemmDesc& p, int64_t i0, int64_t j0) {
  if (!p.c.data || p.c.col != 1 || p.c.row == 0) return;
  const int bytes = is_f32(p.c.dtype) ? 4 : 2;
  prefetch_lines(static_cast<const char*>(p.c.data) + (i0 * p.c.row + j0) * bytes, p.c.row * bytes,
                 int(min(int64_t(BLK_M), p.m - i0)), min(int64_t(BLK_N), p.n - j0) * bytes, threadIdx.x, THREADS);
}

}  // namespace tc
