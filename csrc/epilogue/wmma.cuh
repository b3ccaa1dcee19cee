// Writes WMMA accumulators to D.
#pragma once

#include "../tile/wmma.cuh"
#include "vectors.cuh"

namespace tc {

// Writes a warp's product to D at (m0, n0). WMMA does not specify an accumulator's layout, so each row of fragments passes
// through `staging`, (16, PITCH) floats of this warp alone, and comes back as vectors of eight elements along D's rows. C is
// read for AT_ONCE vectors before the first of them is written: D may be C, so the compiler cannot move those reads forward.
template <int AT_ONCE, typename Warp>
__device__ __forceinline__ void finish_wmma(const GemmDesc& p, const VectorAccess& access, const Warp& product, float* staging,
                                            int64_t m0, int64_t n0) {
  using T = typename Warp::T;
  constexpr int FRAGS_M = Warp::FRAGS_M, FRAGS_N = Warp::FRAGS_N, N = Warp::N, PITCH = Warp::PITCH;
  constexpr int W = 8, PER_ROW = N / W, ROWS = 32 / PER_ROW, VECTORS = kFrag / ROWS;
  static_assert(VECTORS % AT_ONCE == 0);
  const int row = threadIdx.x % 32 / PER_ROW, col = threadIdx.x % 32 % PER_ROW * W;
#pragma unroll 1  // not unrolled: the code below exists once, not FRAGS_M times
  for (int i = 0; i < FRAGS_M; ++i) {
#pragma unroll
    for (int f = 0; f < FRAGS_M; ++f)  // registers cannot be indexed at run time
      if (f == i) {
#pragma unroll
        for (int j = 0; j < FRAGS_N; ++j)
          wmma::store_matrix_sync(staging + j * kFrag, product.acc[f][j], PITCH, wmma::mem_row_major);
      }
    __syncwarp();
#pragma unroll 1
    for (int r = 0; r < kFrag; r += ROWS * AT_ONCE) {
      const int64_t m = m0 + i * kFrag + r + row;
      float c[AT_ONCE][W];
#pragma unroll
      for (int s = 0; s < AT_ONCE; ++s) read_c<T>(p, access, m + s * ROWS, n0 + col, c[s]);
#pragma unroll
      for (int s = 0; s < AT_ONCE; ++s) {
        Vec<float, W> sums = *reinterpret_cast<const Vec<float, W>*>(staging + (r + row + s * ROWS) * PITCH + col);
        finish_vector<T>(p, access, m + s * ROWS, n0 + col, sums.x, c[s], 0);
      }
    }
    __syncwarp();
  }
}

}  // namespace tc
