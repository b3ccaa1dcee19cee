// fp32 operands that are split in bf16 parts on their way from global memory: into registers, as wgmma's first operand, or into shared
// memory, as its second (sm_90a). tile/parts.cuh says what the parts are.
//
// wgmma counts K in another order than the loads, as mma.sync does in mma_skinny. Both operands have the same order, and a sum may be
// taken in any.
#pragma once

#include "../ptx/wgmma.cuh"
#include "parts.cuh"
#include "tma_operand.cuh"
#include "words.cuh"

namespace tc {

constexpr int kLaneK = 4;                        // consecutive k that a lane multiplies in a step of 16
constexpr int kSplitTile = PartsLayout::kBlock;  // elements of K in a K tile: rows of 128 bytes of each part

// An operand, (outer, K).
struct SplitSource {
  const float* data;
  int64_t outer_stride, k_stride, batch, outer, k;
  bool along_k;  // false: contiguous along the other direction
  bool wide;     // whether loads along the contiguous direction are aligned: 16 bytes along K, and 8 bytes otherwise

  __device__ SplitSource of_product(int64_t product) const {
    SplitSource x = *this;
    x.data += product * batch;
    return x;
  }
};

inline SplitSource split_source_of(const MatrixView& x, int64_t outer, int64_t k) {
  const bool along_outer = order_of(x) == Order::col_major;
  const int by = order_of(x) == Order::strided ? 4 : alignment(x, outer, k);
  return {static_cast<const float*>(x.data),
          x.row,
          x.col,
          x.batch,
          outer,
          k,
          !along_outer,
          along_outer ? by >= 8 && outer % 2 == 0 : by == 16};
}

// Four k of two rows, which a lane multiplies in a step of 16 k. Loads of either order fill neighbouring registers.
template <bool ALONG_K>
struct LaneElements {
  float x[2 * kLaneK];

  __device__ __forceinline__ float& operator()(int h, int i) { return x[ALONG_K ? h * kLaneK + i : i * 2 + h]; }

  // Loads the four k that begin `step` k after `from`, by wide loads of the source. All of them lie in the matrix.
  __device__ __forceinline__ void load_wide(const SplitSource& source, const float* const (&from)[2], int step) {
    constexpr int WORDS = ALONG_K ? kLaneK : 2;
#pragma unroll
    for (int v = 0; v < 2 * kLaneK / WORDS; ++v)
      load_words(reinterpret_cast<uint32_t (&)[WORDS]>(x[v * WORDS]),
                 ALONG_K ? from[v % 2] + step : from[0] + (step + v) * source.k_stride);
  }
  // The same by element. `left`: how many of a row's k lie in the matrix from `from` on.
  __device__ __forceinline__ void load_elements(const SplitSource& source, const float* const (&from)[2], int step,
                                                int64_t left) {
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int i = 0; i < kLaneK; ++i) (*this)(h, i) = step + i < left ? from[h][(step + i) * source.k_stride] : 0.f;
  }
};

// STEPS steps of 16 k of 64 rows over a warpgroup, in parts.
template <int STEPS>
struct SplitFragments {
  Bf16Fragment of[STEPS][PartsLayout::kParts];

  template <bool ALONG_K>
  __device__ __forceinline__ void split(LaneElements<ALONG_K>* x, Magnitudes& seen) {
    PairParts pairs[STEPS * 4];  // pair (k, h, e) holds elements e * 2 and e * 2 + 1 of row h of step k
    seen.split(pairs, [&](int i) { return x[i / 8](i / 4 % 2, i % 4); });
#pragma unroll
    for (int k = 0; k < STEPS; ++k)
#pragma unroll
      for (int h = 0; h < 2; ++h)
#pragma unroll
        for (int e = 0; e < 2; ++e)
#pragma unroll
          for (int part = 0; part < PartsLayout::kParts; ++part) of[k][part].x[e * 2 + h] = pairs[k * 4 + h * 2 + e].x[part];
  }

  // first (64, N) = the products of first parts, and lesser (64, N) = the five others, or += if `adds`, with the N rows of the second
  // operand at `y`, whose parts lie part_bytes apart. `begin`: the first step, within the K tile at `y`. IS_A: whether the fragments are
  // of A, so that both orders add the same products in turn. The caller has fenced, and commits.
  template <int N, bool IS_A>
  __device__ __forceinline__ void multiply(float (&first)[N / 2], float (&lesser)[N / 2], bool adds, uint64_t y, int part_bytes,
                                           int begin) const {
    const auto step_of_y = [&](int part, int k) { return y + (part * part_bytes >> 4) + (begin + k) * kNextK<true>; };
#pragma unroll
    for (int i = 0; i < kLesserProducts; ++i) {
      const int of_a = lesser_part_of_x(i), of_b = lesser_part_of_y(i);
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        wgmma<__nv_bfloat16, N, true, true>(
            lesser, of[k][IS_A ? of_a : of_b], step_of_y(IS_A ? of_b : of_a, k), adds || i > 0 || k > 0);
    }
#pragma unroll
    for (int k = 0; k < STEPS; ++k) wgmma<__nv_bfloat16, N, true, true>(first, of[k][0], step_of_y(0, k), k > 0);
  }
};

// 16 consecutive k of a row, on their way to shared memory.
struct SplitUnit {
  static constexpr int K = 16, PER_TILE = kSplitTile / K;
  float x[K];

  __device__ __forceinline__ void load(const SplitSource& source, int64_t row, int64_t k) {
    const int64_t left = source.k - k;
    const float* const from = source.data + row * source.outer_stride + k * source.k_stride;
    if (source.wide && source.along_k && left >= K) {
#pragma unroll
      for (int i = 0; i < K; i += 4) *reinterpret_cast<float4*>(&x[i]) = *reinterpret_cast<const float4*>(from + i);
    } else {
#pragma unroll
      for (int i = 0; i < K; ++i) x[i] = i < left ? from[i * source.k_stride] : 0.f;
    }
  }

  // Stores the parts as unit `unit` of a row of the K tile at `smem`, in wgmma's order (see kLaneK).
  __device__ __forceinline__ void store(uint32_t smem, int part_bytes, int row, int unit, Magnitudes& seen) const {
    PairParts pairs[K / 2];  // four for either half, of every kLaneK elements the half's two
    seen.split(pairs, [&](int i) { return x[i / 2 % 4 * kLaneK + i / 8 * 2 + i % 2]; });
#pragma unroll
    for (int h = 0; h < 2; ++h)
#pragma unroll
      for (int part = 0; part < PartsLayout::kParts; ++part)
        st_shared_16(
            smem + part * part_bytes + box_offset(row, unit * 2 + h),
            make_uint4(pairs[h * 4].x[part], pairs[h * 4 + 1].x[part], pairs[h * 4 + 2].x[part], pairs[h * 4 + 3].x[part]));
  }
};

}  // namespace tc
