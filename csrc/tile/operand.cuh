// An operand's tile in padded shared memory, for the WMMA rungs.
#pragma once

#include "../gemm/problem.h"
#include "copy.cuh"
#include "swizzle.h"

namespace tc {

// (MN, PITCH) when K is contiguous in memory, (BLK_K, PITCH) otherwise: the order in which the operand lies in memory.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int PAD, int THREADS>
struct PaddedTile {
  static constexpr int LINES = K_CONTIGUOUS ? MN : BLK_K, EXTENT = K_CONTIGUOUS ? BLK_K : MN, PITCH = EXTENT + PAD;
  static constexpr int SIZE = LINES * PITCH;  // elements

  // From X, (outer, K) with the given leading dimension, at (outer0, k0).
  static __device__ void fill(T* smem, const Matrix& x, int64_t leading, int64_t outer0, int64_t k0, int64_t outer,
                              int64_t k, bool wide) {
    const int outer_left = int(min(int64_t(MN), outer - outer0)), k_left = int(min(int64_t(BLK_K), k - k0));
    const T* source = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? outer0 * leading + k0 : k0 * leading + outer0);
    copy_tile<LINES, EXTENT, PITCH, THREADS>(smem, source, leading, K_CONTIGUOUS ? outer_left : k_left,
                                             K_CONTIGUOUS ? k_left : outer_left, wide);
  }

  // Where the fragment at (outer, k) begins; its rows are PITCH elements apart.
  static __device__ const T* fragment(const T* smem, int outer, int k) {
    return smem + padded_offset(K_CONTIGUOUS ? outer : k, K_CONTIGUOUS ? k : outer, PITCH);
  }
};

}  // namespace tc
