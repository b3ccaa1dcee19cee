// A warp's part of a block tile, multiplied through the WMMA API.
#pragma once

#include <mma.h>

#include <type_traits>

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "dispatch.h"

namespace tc {

namespace wmma = nvcuda::wmma;

constexpr int kFrag = 16;  // rows and columns of an accumulator fragment

// Fragments are 16x16x16 for 16-bit types and 16x16x8 for TF32.
template <Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
struct Fragments {
  static constexpr int K = 32 / int(sizeof(Operand<MATH>));
  using Element = std::conditional_t<MATH == Math::tf32, wmma::precision::tf32, Operand<MATH>>;
  using ALayout = std::conditional_t<A_K_CONTIGUOUS, wmma::row_major, wmma::col_major>;
  using BLayout = std::conditional_t<B_K_CONTIGUOUS, wmma::col_major, wmma::row_major>;
  using A = wmma::fragment<wmma::matrix_a, kFrag, kFrag, K, Element, ALayout>;
  using B = wmma::fragment<wmma::matrix_b, kFrag, kFrag, K, Element, BLayout>;
  using Accumulator = wmma::fragment<wmma::accumulator, kFrag, kFrag, K, float>;
};

// Loads a fragment with a leading dimension of `leading` elements. fp32 is rounded to TF32: tensor cores would drop the 13 bits
// that TF32 does not have, and rounding halves that error.
template <Math MATH, typename Fragment>
__device__ __forceinline__ void load_fragment(Fragment& fragment, const Operand<MATH>* source, unsigned leading) {
  wmma::load_matrix_sync(fragment, source, leading);
  if constexpr (MATH == Math::tf32) {
#pragma unroll
    for (int e = 0; e < fragment.num_elements; ++e) fragment.x[e] = wmma::__float_to_tf32(fragment.x[e]);
  }
}

// A warp's FRAGS_M x FRAGS_N accumulator fragments.
template <Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, int FRAGS_M_, int FRAGS_N_>
struct WarpTile {
  using F = Fragments<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;
  using T = Operand<MATH>;
  static constexpr int FRAGS_M = FRAGS_M_, FRAGS_N = FRAGS_N_, N = FRAGS_N * kFrag;
  static constexpr int PITCH = N + kRowPad;       // floats
  static constexpr int STAGING = kFrag * PITCH;   // floats of shared memory that finish_wmma (epilogue/wmma.cuh) needs
  typename F::Accumulator acc[FRAGS_M][FRAGS_N];  // (FRAGS_M * 16, FRAGS_N * 16) over the warp

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i)
#pragma unroll
      for (int j = 0; j < FRAGS_N; ++j) wmma::fill_fragment(acc[i][j], 0.f);
  }

  // Adds the product of A's tile from row warp_m on and B's tile from column warp_n on. Registers hold all fragments of A and
  // one of B: more of B would save no reads of shared memory. UNROLL steps of K share a loop body, so that the next step's
  // fragments can load during this step's products if registers allow.
  template <typename ATile, typename BTile, int BLK_K, int UNROLL>
  __device__ __forceinline__ void multiply(const T* smem_a, const T* smem_b, int warp_m, int warp_n) {
#pragma unroll UNROLL
    for (int k = 0; k < BLK_K; k += F::K) {
      typename F::A a[FRAGS_M];
#pragma unroll
      for (int i = 0; i < FRAGS_M; ++i) load_fragment<MATH>(a[i], ATile::fragment(smem_a, warp_m + i * kFrag, k), ATile::PITCH);
#pragma unroll
      for (int j = 0; j < FRAGS_N; ++j) {
        typename F::B b;
        load_fragment<MATH>(b, BTile::fragment(smem_b, warp_n + j * kFrag, k), BTile::PITCH);
#pragma unroll
        for (int i = 0; i < FRAGS_M; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
      }
    }
  }
};

}  // namespace tc
