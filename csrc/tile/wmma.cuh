// A warp's part of a block tile through the WMMA API: its fragments and its product.
#pragma once

#include <mma.h>

#include <type_traits>

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "dispatch.h"

namespace tc {

namespace wmma = nvcuda::wmma;

constexpr int kFrag = 16;  // rows and columns of an accumulator fragment

// 16x16x16 fragments of 16-bit elements; 16x16x8 of TF32.
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

// Loads a fragment whose lines are `leading` elements apart. Tensor cores drop the 13 bits that TF32 does not have;
// rounding here halves the error of that.
template <Math MATH, typename Fragment>
__device__ __forceinline__ void load_fragment(Fragment& fragment, const Operand<MATH>* source, unsigned leading) {
  wmma::load_matrix_sync(fragment, source, leading);
  if constexpr (MATH == Math::tf32) {
#pragma unroll
    for (int e = 0; e < fragment.num_elements; ++e) fragment.x[e] = wmma::__float_to_tf32(fragment.x[e]);
  }
}

// FRAGS_M x FRAGS_N accumulators.
template <Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, int FRAGS_M_, int FRAGS_N_>
struct WarpTile {
  using F = Fragments<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;
  using T = Operand<MATH>;
  static constexpr int FRAGS_M = FRAGS_M_, FRAGS_N = FRAGS_N_, N = FRAGS_N * kFrag;
  static constexpr int PITCH = N + kRowPad;       // floats
  static constexpr int STAGING = kFrag * PITCH;   // floats of shared memory that finish_wmma (epilogue/wmma.cuh) asks for
  typename F::Accumulator acc[FRAGS_M][FRAGS_N];  // (FRAGS_M * 16, FRAGS_N * 16) over the warp

  __device__ __forceinline__ void clear() {
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i)
#pragma unroll
      for (int j = 0; j < FRAGS_N; ++j) wmma::fill_fragment(acc[i][j], 0.f);
  }

  // Adds the product of rows warp_m.. of the tile of A and columns warp_n.. of the tile of B. All of A's fragments are
  // held, B's come one at a time: more in registers would save no shared-memory reads. UNROLL steps of K share a loop
  // body, so that one's fragments can load during the products of the one before, if there are registers for them.
  template <typename ATile, typename BTile, int BLK_K, int UNROLL>
  __device__ __forceinline__ void multiply(const T* smem_a, const T* smem_b, int warp_m, int warp_n) {
#pragma unroll UNROLL
    for (int k = 0; k < BLK_K; k += F::K) {
      typename F::A a[FRAGS_M];
#pragma unroll
      for (int i = 0; i < FRAGS_M; ++i)
        load_fragment<MATH>(a[i], ATile::fragment(smem_a, warp_m + i * kFrag, k), ATile::PITCH);
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
