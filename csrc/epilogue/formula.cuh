// The formula of every epilogue: D = activation(alpha * product + beta * C) in fp32, rounded once. The other files of this
// folder bring products and C to the formula and write its results to D.
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
__device__ __forceinline__ float from_float(float x) {
  return x;
}
template <>
__device__ __forceinline__ __half from_float(float x) {
  return __float2half_rn(x);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float x) {
  return __float2bfloat16_rn(x);
}

// Two 16-bit elements in a register.
__device__ __forceinline__ uint32_t pack(float x, float y, __half) {
  const __half2 r = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(r);
}
__device__ __forceinline__ uint32_t pack(float x, float y, __nv_bfloat16) {
  const __nv_bfloat162 r = __floats2bfloat162_rn(x, y);
  return reinterpret_cast<const uint32_t&>(r);
}
__device__ __forceinline__ float2 unpack(uint32_t x, __half) { return __half22float2(reinterpret_cast<const __half2&>(x)); }
__device__ __forceinline__ float2 unpack(uint32_t x, __nv_bfloat16) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x));
}

// beta * c is a product of its own, so that the compiler computes it once for a bias that several rows share. Without a C every
// epilogue adds a c of 0: a product of 0 gives 0 whatever the sign of alpha, and has the same bits in all kernels.
__device__ __forceinline__ float combine(float product, float alpha, float c, float beta) {
  return fmaf(alpha, product, beta * c);
}

// x * sigmoid(x * g), see Activation. The degree of g is at most DEGREE. ex2 and rcp run on the special function units, which
// take 16 instructions per cycle and SM. Both flush denormal results to 0. A flushed power does not show in 1 + power, and a
// flushed sigmoid shows only below 1e-36.
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

// Works in place, with one branch for all elements. There are two lengths of g, because the instruction count bounds an
// activation. gelu_tanh after 8192x3072x768 on an H200: 80.5 microseconds with six steps for every g, 72 with one step for a g
// of degree one, 62 without an activation.
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
