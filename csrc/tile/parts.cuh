// fp32 as three bf16 parts, and the products of parts. x = x0 + x1 + x2 exactly: each part is the rest rounded to bf16's 8 significant
// bits, and fp32 has 24. Of the nine products of two elements' parts, kernels form the six of at least 2^-16 of the largest; the others
// are at most 2^-24 of it (Ootomo and Yokota 2022, with bf16, which keeps fp32's range; cuBLAS calls nine such products BF16x9).
//
// Two things make the sum of such products another than fp32's. An infinity or a NaN makes it infinite or NaN, and so does a magnitude
// whose first part rounds to infinity. An element below 2^-110 may lose bits of its third part, because bf16 ends at 2^-133.
#pragma once

#include <cfloat>
#include <cstdint>

#include "../gemm/parts.h"
#include "../ptx/mma.cuh"
#include "../ptx/types.cuh"

namespace tc {

// The parts of two elements side by side, two bf16 to a word.
struct PairParts {
  uint32_t x[PartsLayout::kParts];

  PairParts() = default;
  __device__ __forceinline__ PairParts(float a, float b) {
#pragma unroll
    for (uint32_t& part : x) {
      const __nv_bfloat162 rounded = __floats2bfloat162_rn(a, b);
      part = reinterpret_cast<const uint32_t&>(rounded);
      // By bits: __bfloat1622float2 takes twice the instructions.
      a -= __uint_as_float(part << 16), b -= __uint_as_float(part & 0xffff0000);
    }
  }
  __device__ __forceinline__ __nv_bfloat162 first() const { return reinterpret_cast<const __nv_bfloat162&>(x[0]); }
};

// The parts of x and y of the five lesser products, the smallest first: (0, 2), (1, 1), (2, 0), (0, 1), (1, 0). The sixth is (0, 0).
constexpr int kLesserProducts = 5;
__device__ constexpr int lesser_part_of_x(int product) { return product < 3 ? product : product - 3; }
__device__ constexpr int lesser_part_of_y(int product) { return product < 3 ? 2 - product : 4 - product; }

// acc (16, 8) += A (16, 16) B (16, 8) in fp32. a holds pairs of k of rows g and g + 8, and b pairs of k, in mma.sync's order. Tensor
// cores round towards zero when they add, so that the products of first parts have sums of their own, and fp32 additions, which round
// to nearest, finish.
__device__ __forceinline__ void multiply_parts(float (&acc)[4], const PairParts (&a)[2][2], const PairParts (&b)[2]) {
  float lesser[4] = {}, first[4] = {};
  const auto multiply = [&](float (&sum)[4], int x, int y) {
    const uint32_t fragment[4] = {a[0][0].x[x], a[1][0].x[x], a[0][1].x[x], a[1][1].x[x]};
    mma_m16n8<__nv_bfloat16>(sum, fragment, b[0].x[y], b[1].x[y]);
  };
#pragma unroll
  for (int i = 0; i < kLesserProducts; ++i) multiply(lesser, lesser_part_of_x(i), lesser_part_of_y(i));
  multiply(first, 0, 0);
#pragma unroll
  for (int e = 0; e < 4; ++e) acc[e] += first[e] + lesser[e];
}

// The largest of the warp's x, which are not negative: such floats are in the order of their bits.
__device__ __forceinline__ float warp_max(float x) {
  return __uint_as_float(__reduce_max_sync(0xffffffff, __float_as_uint(x)));
}

// What an operand's elements say about their parts.
struct Magnitudes {
  static constexpr uint32_t kExactBits = 0x08800000;         // 2^-110: magnitudes from there on have exact parts
  __nv_bfloat162 largest_first = __float2bfloat162_rn(0.f);  // magnitude of first parts, in either half
  uint32_t smallest = UINT32_MAX;  // of nonzero elements: the bits without the sign, doubled, minus one

  __device__ __forceinline__ void note_smallest(float x) { smallest = min(smallest, __float_as_uint(x) * 2 - 1); }
  __device__ __forceinline__ void note(float x) {
    largest_first = __hmax2(largest_first, __habs2(__float2bfloat162_rn(x)));
    note_smallest(x);
  }

  // Splits the elements x(0) to x(2 PAIRS - 1), and notes their first parts, two at a time. look_closer() with the same `least`, which
  // begins as FLT_MAX (rounded, infinity) in both halves, must follow.
  template <int PAIRS, typename F>
  __device__ __forceinline__ void split(PairParts (&pairs)[PAIRS], __nv_bfloat162& least, F&& x) {
#pragma unroll
    for (int i = 0; i < PAIRS; ++i) {
      pairs[i] = PairParts(x(i * 2), x(i * 2 + 1));
      const __nv_bfloat162 magnitude = __habs2(pairs[i].first());
      largest_first = __hmax2(largest_first, magnitude);
      least = __hmin2(least, magnitude);
    }
  }
  // Notes the elements x(0) to x(COUNT - 1) if one of their first parts is small. A part of 0 may be that of an element which is not.
  template <int COUNT, typename F>
  __device__ __forceinline__ void look_closer(const __nv_bfloat162& least, F&& x) {
    if (__hbgt2(least, __float2bfloat162_rn(__uint_as_float(kExactBits)))) return;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) note_smallest(x(i));
  }
  template <int PAIRS, typename F>
  __device__ __forceinline__ void split(PairParts (&pairs)[PAIRS], F&& x) {
    __nv_bfloat162 least = __float2bfloat162_rn(FLT_MAX);
    split(pairs, least, x);
    look_closer<PAIRS * 2>(least, x);
  }

  // At least the largest magnitude, down to 2^-126: an element exceeds its first part by at most 2^-8 of that. Below it, first parts are
  // subnormal, and that of 2^-134 is 0.
  __device__ __forceinline__ float largest() const {
    return fmaxf(__low2float(largest_first), __high2float(largest_first)) * (1.f + 0x1p-8f);
  }
  __device__ __forceinline__ bool lossy() const { return smallest < kExactBits * 2 - 1; }
  // PartsLayout's mark for what the warp's lanes have noted.
  __device__ __forceinline__ float mark_of_warp() const {
    const float of_warp = warp_max(largest());
    return __any_sync(0xffffffff, lossy()) ? -of_warp : of_warp;
  }
};

// What the marks of an operand's part of a tile say.
struct MarkedBlock {
  float largest = 0.f;  // magnitude
  bool lossy = false;   // whether elements lost bits

  // A mark of -0 is of lossy elements whose first parts are 0.
  __device__ __forceinline__ void note(float mark) {
    largest = fmaxf(largest, fabsf(mark)), lossy |= __float_as_uint(mark) >> 31 != 0;
  }
  __device__ __forceinline__ void combine_lanes() { lossy = __any_sync(0xffffffff, lossy), largest = warp_max(largest); }
};

// The magnitude from which on a sum of k products is as good as fp32's, if an operand has lossy elements: one lacks at most 2^-134, so
// that the sum lacks at most k 2^-134 times the other operand's largest element, which may be 2^-24 of the sum.
__device__ __forceinline__ float least_sum(int64_t k, float largest_of_other) {
  return float(k) * 0x1p-110f * largest_of_other;
}
__device__ __forceinline__ float least_sum(int64_t k, const MarkedBlock& a, const MarkedBlock& b) {
  return least_sum(k, fmaxf(a.lossy ? b.largest : 0.f, b.lossy ? a.largest : 0.f));
}
__device__ __forceinline__ bool is_as_good(float sum, float least) { return fabsf(sum) >= least && fabsf(sum) <= FLT_MAX; }

// Forms a thread's sums of a wgmma tile again, by fp32 arithmetic in the order of simt, and replaces those that are not as good. acc[i]
// is the product of row x[i / 2 % 2] and column i / 4 * 8 + i % 2 of y, of which `columns` lie in the matrix. Elements of `count` k are
// x_step and y_step apart; the sums are of `all` k, in slices or not. Whether a sum is replaced depends on its row and its column alone,
// for batch invariance: the marks of a tile only tell whether to look.
template <int N>
__device__ __forceinline__ void form_exact_sums(float (&acc)[N], const float* const (&x)[2], int64_t x_step, const float* y,
                                                int64_t y_outer, int64_t y_step, int64_t columns, int64_t count, int64_t all) {
  constexpr int AT_ONCE = N < 16 ? N : 16;  // sums; more would not fit the registers
#pragma unroll
  for (int first = 0; first < N; first += AT_ONCE) {
    float exact[AT_ONCE] = {};
    Magnitudes of_x[2], of_y[AT_ONCE / 2];
#pragma unroll 1
    for (int64_t k = 0; k < count; ++k) {
      const float of_rows[2] = {x[0][k * x_step], x[1][k * x_step]};
      of_x[0].note(of_rows[0]), of_x[1].note(of_rows[1]);
#pragma unroll
      for (int i = 0; i < AT_ONCE; i += 4)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int column = (first + i) * 2 + e;
          const float of_column = column < columns ? y[column * y_outer + k * y_step] : 0.f;
          of_y[i / 2 + e].note(of_column);
#pragma unroll
          for (int h = 0; h < 2; ++h) exact[i + h * 2 + e] = fmaf(of_rows[h], of_column, exact[i + h * 2 + e]);
        }
    }
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i) {
      const Magnitudes &row = of_x[i / 2 % 2], &column = of_y[i / 4 * 2 + i % 2];
      const float least = least_sum(all, {row.largest(), row.lossy()}, {column.largest(), column.lossy()});
      if (!is_as_good(acc[first + i], least)) acc[first + i] = exact[i];
    }
  }
}

}  // namespace tc
