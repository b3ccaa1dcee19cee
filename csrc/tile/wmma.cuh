// A warp's part of a block tile through the WMMA API: its fragments, its product, and its way to D.
#pragma once

#include <mma.h>

#include <type_traits>

#include "../epilogue/epilogue.cuh"
#include "../layout/swizzle.h"

namespace tc {

namespace wmma = nvcuda::wmma;

constexpr int kFrag = 16;  // rows and columns of an accumulator fragment

// 16x16x16 fragments of halves; 16x16x8 of fp32, which WMMA multiplies as TF32.
template <typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
struct Fragments {
  static constexpr int K = sizeof(T) == 4 ? 8 : 16;
  using Element = std::conditional_t<sizeof(T) == 4, wmma::precision::tf32, T>;
  using ALayout = std::conditional_t<A_K_CONTIGUOUS, wmma::row_major, wmma::col_major>;
  using BLayout = std::conditional_t<B_K_CONTIGUOUS, wmma::col_major, wmma::row_major>;
  using A = wmma::fragment<wmma::matrix_a, kFrag, kFrag, K, Element, ALayout>;
  using B = wmma::fragment<wmma::matrix_b, kFrag, kFrag, K, Element, BLayout>;
  using Accumulator = wmma::fragment<wmma::accumulator, kFrag, kFrag, K, float>;
};

// Loads a fragment whose lines are `leading` elements apart. Tensor cores drop the 13 bits that TF32 does not have;
// rounding here halves the error of that.
template <typename Fragment, typename T>
__device__ __forceinline__ void load_fragment(Fragment& fragment, const T* source, unsigned leading) {
  wmma::load_matrix_sync(fragment, source, leading);
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int e = 0; e < fragment.num_elements; ++e) fragment.x[e] = wmma::__float_to_tf32(fragment.x[e]);
  }
}

// FRAGS_M x FRAGS_N accumulators.
template <typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, int FRAGS_M, int FRAGS_N>
struct WarpTile {
  using F = Fragments<T, A_K_CONTIGUOUS, B_K_CONTIGUOUS>;
  static constexpr int N = FRAGS_N * kFrag;
  static constexpr int PITCH = N + kRowPad;       // floats
  static constexpr int STAGING = kFrag * PITCH;   // floats of shared memory that finish() asks for
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
        load_fragment(a[i], ATile::fragment(smem_a, warp_m + i * kFrag, k), ATile::PITCH);
#pragma unroll
      for (int j = 0; j < FRAGS_N; ++j) {
        typename F::B b;
        load_fragment(b, BTile::fragment(smem_b, warp_n + j * kFrag, k), BTile::PITCH);
#pragma unroll
        for (int i = 0; i < FRAGS_M; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
      }
    }
  }

  // Writes D at (m0, n0). An accumulator's layout is WMMA's own affair, so each row of fragments passes through
  // `staging`, (16, PITCH) floats of this warp alone, and comes back as runs of eight along D's rows. C is read for
  // AT_ONCE runs before the first of them is written: D may be C, so the compiler cannot bring those reads forward.
  template <int AT_ONCE>
  __device__ __forceinline__ void finish(const Problem& p, const Wide& wide, float* staging, int64_t m0, int64_t n0) {
    constexpr int W = 8, PER_ROW = N / W, ROWS = 32 / PER_ROW, RUNS = kFrag / ROWS;
    static_assert(RUNS % AT_ONCE == 0);
    const int row = threadIdx.x % 32 / PER_ROW, col = threadIdx.x % 32 % PER_ROW * W;
#pragma unroll 1  // one copy of the code below, not FRAGS_M
    for (int i = 0; i < FRAGS_M; ++i) {
#pragma unroll
      for (int f = 0; f < FRAGS_M; ++f)  // registers have no index at run time
        if (f == i) {
#pragma unroll
          for (int j = 0; j < FRAGS_N; ++j)
            wmma::store_matrix_sync(staging + j * kFrag, acc[f][j], PITCH, wmma::mem_row_major);
        }
      __syncwarp();
#pragma unroll 1
      for (int r = 0; r < kFrag; r += ROWS * AT_ONCE) {
        const int64_t m = m0 + i * kFrag + r + row;
        float c[AT_ONCE][W];
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) read_c<T>(p, wide, m + s * ROWS, n0 + col, c[s]);
#pragma unroll
        for (int s = 0; s < AT_ONCE; ++s) {
          Vec<float, W> product = *reinterpret_cast<const Vec<float, W>*>(staging + (r + row + s * ROWS) * PITCH + col);
          finish_run<T>(p, wide, m + s * ROWS, n0 + col, product.x, c[s], 0);
        }
      }
      __syncwarp();
    }
  }
};

}  // namespace tc
