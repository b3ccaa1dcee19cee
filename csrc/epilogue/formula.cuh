// The epilogue's one formula, D = activation(alpha * product + beta * C) in fp32, rounded once. The other files of this folder bring
// products and C to it, and its results to D.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../gemm/desc.h"

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

// In fp32, before the one rounding to D's dtype. This way round, so that a bias times beta is computed once for several rows.
__device__ __forceinline__ float combine(float product, float alpha, float c, float beta) {
  return fmaf(alpha, product, beta * c);
}

// x * sigmoid(x * g), as Activation says, with a g of at most DEGREE. Two of its instructions go to the unit for special functions,
// which takes 16 a cycle of an SM. Denormal results become 0: the power's does not show in the sum, the sigmoid's only below 1e-36.
template <int DEGREE>
__device__ __forceinline__ float gated(float x, const Activation& activation) {
  const float t = fminf(x * x, 36.f);
  float g = activation.gate[DEGREE], power, sigmoid;
#pragma unroll
  for (int i = DEGREE - 1; i >= 0; --i) g = fmaf(g, t, activation.gate[i]);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * g));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.f + power));
  return x * sigmoid;
}

__device__ __forceinline__ float relu(float x) {
  asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));  // NaN stays NaN
  return x;
}

// In place: one branch for all elements, not one for each. Two lengths of g, because instructions are what a tile waits for (gelu_tanh
// after 8192x3072x768 on an H200: 80.5 microseconds with six steps for all, 72 with one for those that have no more, 62 without).
template <int W>
__device__ __forceinline__ void activate(float* x, const Activation& activation) {
  const auto each = [&](auto&& act) {
#pragma unroll
    for (int e = 0; e < W; ++e) x[e] = act(x[e]);
  };
  if (activation.kind == Activation::Kind::none) return;
  if (activation.kind == Activation::Kind::relu) each([](float v) { return relu(v); });
  else if (activation.degree <= 1) each([&](float v) { return gated<1>(v, activation); });
  else each([&](float v) { return gated<Activation::kMostDegree>(v, activation); });
}

}  // namespace tc
