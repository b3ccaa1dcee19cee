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

}  // namespace tc
