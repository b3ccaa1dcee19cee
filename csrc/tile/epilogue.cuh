// From accumulators to D: the one place where alpha, beta and C act.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../gemm/problem.h"
#include "copy.cuh"

namespace tc {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float x) { return __float2bfloat16_rn(x); }

// In fp32, before the one rounding to D's dtype.
__device__ __forceinline__ float combine(float product, float alpha, float c, float beta) {
  return fmaf(beta, c, alpha * product);
}

// Elements (i, j) .. (i, j + count - 1) of x, a matrix of T. `wide`: x allows 16-byte accesses along its rows.
template <typename T, int W>
__device__ __forceinline__ void load_run(const Matrix& x, int64_t i, int64_t j, int count, bool wide, float (&run)[W]) {
  const T* source = static_cast<const T*>(x.data) + i * x.row + j * x.col;
  if (wide && count == W) {
    const Vec<T, W> v = *reinterpret_cast<const Vec<T, W>*>(source);
#pragma unroll
    for (int e = 0; e < W; ++e) run[e] = to_float(v.x[e]);
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e) run[e] = e < count ? to_float(source[e * x.col]) : 0.f;
  }
}

template <typename T, int W>
__device__ __forceinline__ void store_run(const Matrix& x, int64_t i, int64_t j, int count, bool wide,
                                          const float (&run)[W], int64_t offset) {
  T* target = static_cast<T*>(x.data) + offset + i * x.row + j * x.col;
  if (wide && count == W) {
    Vec<T, W> v;
#pragma unroll
    for (int e = 0; e < W; ++e) v.x[e] = from_float<T>(run[e]);
    *reinterpret_cast<Vec<T, W>*>(target) = v;
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e)
      if (e < count) target[e * x.col] = from_float<T>(run[e]);
  }
}

// Which accesses may be 16 bytes wide, decided once per launch.
struct Wide {
  bool a, b, c, d;
};

inline Wide wide_accesses(const Problem& p) {
  return {alignment(p.a, p.m, p.k) == 16, alignment(p.b, p.k, p.n) == 16,
          order_of(p.c) == Order::row_major && alignment(p.c, p.m, p.n) == 16,
          order_of(p.d) == Order::row_major && alignment(p.d, p.m, p.n) == 16};
}

// How many of the W elements from (i, j) on lie in D.
template <int W>
__device__ __forceinline__ int count_in(const Problem& p, int64_t i, int64_t j) {
  return i < p.m && j < p.n ? int(min(int64_t(W), p.n - j)) : 0;
}

// C for finish_run, as fp32. C and D hold T, the operands' dtype, or fp32.
template <typename T, int W>
__device__ __forceinline__ void read_c(const Problem& p, const Wide& wide, int64_t i, int64_t j, float (&c)[W]) {
  const int count = count_in<W>(p, i, j);
#pragma unroll
  for (int e = 0; e < W; ++e) c[e] = 0.f;
  if (!count || !p.c.data) return;
  if (p.c.dtype == DType::f32) load_run<float>(p.c, i, j, count, wide.c, c);
  else load_run<T>(p.c, i, j, count, wide.c, c);
}

// D = alpha * product + beta * C for the W elements of row i from column j on, cut off at the matrix's edge.
// D begins `d_offset` elements into p.d: the part of a split K.
template <typename T, int W>
__device__ __forceinline__ void finish_run(const Problem& p, const Wide& wide, int64_t i, int64_t j,
                                           float (&product)[W], const float (&c)[W], int64_t d_offset) {
  const int count = count_in<W>(p, i, j);
  if (!count) return;
#pragma unroll
  for (int e = 0; e < W; ++e) product[e] = combine(product[e], p.alpha, c[e], p.beta);
  if (p.d.dtype == DType::f32) store_run<float>(p.d, i, j, count, wide.d, product, d_offset);
  else store_run<T>(p.d, i, j, count, wide.d, product, d_offset);
}

// Both: C is read before D is written, so that D may be C itself.
template <typename T, int W>
__device__ __forceinline__ void finish_run(const Problem& p, const Wide& wide, int64_t i, int64_t j,
                                           float (&product)[W]) {
  float c[W];
  read_c<T>(p, wide, i, j, c);
  finish_run<T>(p, wide, i, j, product, c, 0);
}

// finish_staged for C of type CElement and D of DElement, each lane W elements of a row at a time. All of a batch's C
// is in flight before any of it is used: with a branch, or a store to D, which C may be, between two loads, each costs
// a latency of its own (16384x4096x128 on an H200: 216 microseconds a load at a time, 128 in batches of eight).
template <typename CElement, typename DElement, int W, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_staged_as(const Problem& p, const float* staged, int64_t i0, int64_t j0,
                                                 int64_t d_offset) {
  constexpr int PER_ROW = COLS / W, RUNS = ROWS * PER_ROW / 32;  // runs of W elements: in a row; of each lane
  constexpr int MOST = W == 1 ? 16 : 8, BATCH = RUNS < MOST ? RUNS : MOST;
  static_assert(RUNS % BATCH == 0);
  const CElement* const c = static_cast<const CElement*>(p.c.data) + i0 * p.c.row + j0 * p.c.col;
  DElement* const d = static_cast<DElement*>(p.d.data) + d_offset + i0 * p.d.row + j0 * p.d.col;
  const int rows = int(min(int64_t(ROWS), p.m - i0)), cols = int(min(int64_t(COLS), p.n - j0));
  const int lane = threadIdx.x % 32;
#pragma unroll 1
  for (int first = lane; first < ROWS * PER_ROW; first += BATCH * 32) {
    Vec<CElement, W> addend[BATCH] = {};
    if (p.c.data) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r) {
        const int i = (first + r * 32) / PER_ROW, j = (first + r * 32) % PER_ROW * W;
        // Beyond the matrix its last row or column again, and nothing is stored: a branch would wait for the load.
        const CElement* const source = c + min(i, rows - 1) * p.c.row + min(j, cols - W) * p.c.col;
        addend[r] = *reinterpret_cast<const Vec<CElement, W>*>(source);
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = (first + r * 32) / PER_ROW, j = (first + r * 32) % PER_ROW * W;
      const Vec<float, W> product = *reinterpret_cast<const Vec<float, W>*>(&staged[i * PITCH + j]);
      Vec<DElement, W> result;
#pragma unroll
      for (int e = 0; e < W; ++e)
        result.x[e] = from_float<DElement>(combine(product.x[e], p.alpha, to_float(addend[r].x[e]), p.beta));
      if (W > 1 || (i < rows && j < cols))
        *reinterpret_cast<Vec<DElement, W>*>(d + i * p.d.row + j * p.d.col) = result;
    }
  }
}

// A warp finishes (ROWS, COLS) products that it staged in shared memory, rows PITCH floats apart, at (i0, j0) of D:
// 16-byte pieces of rows where the tile is whole and C and D allow them, single elements side by side otherwise.
template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_staged(const Problem& p, const Wide& wide, const float* staged, int64_t i0,
                                              int64_t j0, int64_t d_offset) {
  if (i0 >= p.m || j0 >= p.n) return;
  const bool whole = wide.d && (wide.c || !p.c.data) && i0 + ROWS <= p.m && j0 + COLS <= p.n;
  const auto finish = [&](auto c_type, auto d_type) {
    using C = decltype(c_type);
    using D = decltype(d_type);
    if (whole) finish_staged_as<C, D, 8, ROWS, COLS, PITCH>(p, staged, i0, j0, d_offset);
    else finish_staged_as<C, D, 1, ROWS, COLS, PITCH>(p, staged, i0, j0, d_offset);
  };
  if (p.d.dtype != DType::f32) finish(T(), T());
  else if (p.c.dtype == DType::f32) finish(float(), float());
  else finish(T(), float());
}

// Asks L2 for the (BLK_M, BLK_N) tile of a full, row-major C at (i0, j0), so that the epilogue finds it there.
template <int BLK_M, int BLK_N, int THREADS>
__device__ __forceinline__ void prefetch_c(const Problem& p, int64_t i0, int64_t j0) {
  if (!p.c.data || p.c.col != 1 || p.c.row == 0) return;
  const int bytes = p.c.dtype == DType::f32 ? 4 : 2;
  prefetch_lines(static_cast<const char*>(p.c.data) + (i0 * p.c.row + j0) * bytes, p.c.row * bytes,
                 int(min(int64_t(BLK_M), p.m - i0)), min(int64_t(BLK_N), p.n - j0) * bytes, threadIdx.x, THREADS);
}

}  // namespace tc
