// wmma_naive: tensor cores through the WMMA API; each warp computes one 16x16 tile of D, and warps share nothing.
//
// What changed from simt: a warp multiplies 16x16x16 fragments on tensor cores instead of scalars on CUDA cores. It loads
// fragments straight from global memory, 1 KB for 8192 flops at every 16 of K. Only the caches make that bearable, and this is
// why the next rung shares tiles.
//
// WMMA reads a fragment in place only if three conditions hold: the fragment begins at a 32-byte boundary, the leading
// dimension is a multiple of 16 bytes, and the leading dimension is at least a fragment's width. Fragments that are cut off or
// misaligned are copied to 1 KB of shared memory of the warp's own and filled up with zeros.
//
// A block has eight warps, 4 along M by 2 along N: L1 then serves each fragment of A twice and each fragment of B four times.
// The block needs no barrier.
//
// Measured gain (H200, 4096 cubed, python -m bench.ladder at 04bea51): 27 TFLOP/s, simt 25.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o wmma_naive.cubin csrc/kernels/02_wmma_naive.cu
// Run:   python -m bench.sweep --kernel wmma_naive
#include "02_wmma_naive.h"

#include "../epilogue/wmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/operand.cuh"

namespace tc {
namespace {

constexpr int BLK_M = 64, BLK_N = 32, THREADS = 256, WARPS_N = BLK_N / kFrag;

// Whether WMMA may read whole fragments of x in place. load_matrix_sync takes the leading dimension as a 32-bit number.
bool readable_in_place(const MatrixView& x) {
  const int64_t leading = order_of(x) == Order::row_major ? x.row : x.col;
  return reinterpret_cast<uintptr_t>(x.data) % 32 == 0 && x.batch % 16 == 0 && leading % 8 == 0 && leading >= kFrag &&
         leading < 1 << 26;
}

// Loads the fragment of X at (outer0, k0). A fragment that WMMA cannot read in place goes through smem.
template <Math MATH, typename Tile, typename Fragment>
__device__ __forceinline__ void load_or_stage(Fragment& fragment, Operand<MATH>* smem, const GmemOperand& x, int64_t outer0,
                                              int64_t k0, bool in_place) {
  if (in_place && outer0 + kFrag <= x.outer && k0 + kFrag <= x.k) {
    load_fragment<MATH>(fragment, Tile::at(x, outer0, k0), unsigned(x.leading));
  } else {
    __syncwarp();  // every lane has read the fragment that was staged here before
    Tile::fill(smem, x, outer0, k0, threadIdx.x % 32);
    __syncwarp();
    load_fragment<MATH>(fragment, smem, Tile::PITCH);
  }
}

template <Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(THREADS, kWmmaNaive[0].blocks_per_sm) void wmma_naive(
    const GemmDesc batch, const VectorAccess access, const bool a_in_place, const bool b_in_place) {
  using T = Operand<MATH>;
  using ATile = PaddedTile<T, kFrag, kFrag, A_K_CONTIGUOUS, 0, 32>;
  using BTile = PaddedTile<T, kFrag, kFrag, B_K_CONTIGUOUS, 0, 32>;
  using Warp = WarpTile<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS, 1, 1>;
  static_assert(THREADS / 32 * Warp::STAGING * int(sizeof(float)) == kWmmaNaive[0].smem_bytes);
  static_assert((ATile::SIZE + BTile::SIZE) * sizeof(T) <= Warp::STAGING * sizeof(float));

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];
  const int warp = threadIdx.x / 32, warp_m = warp / WARPS_N * kFrag, warp_n = warp % WARPS_N * kFrag;
  float* const staging = reinterpret_cast<float*>(smem) + warp * Warp::STAGING;  // (16, 24)
  T* const smem_a = reinterpret_cast<T*>(staging);                               // (16, 16), in the memory of staging
  T* const smem_b = smem_a + ATile::SIZE;                                        // (16, 16)

  const GmemOperand a = ATile::a_of(p, access.a);  // (M, K)
  const GmemOperand b = BTile::b_of(p, access.b);  // (N, K)
  const int64_t tiles_n = (p.n + BLK_N - 1) / BLK_N, tiles = (p.m + BLK_M - 1) / BLK_M * tiles_n;

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t m0 = tile / tiles_n * BLK_M + warp_m, n0 = tile % tiles_n * BLK_N + warp_n;
    if (m0 >= p.m || n0 >= p.n) continue;
    Warp product;  // (16, 16)
    product.clear();

    // ---- main loop ----
    for (int64_t k0 = 0; k0 < p.k; k0 += kFrag) {
      typename Warp::F::A a_fragment;  // (16, 16)
      typename Warp::F::B b_fragment;  // (16, 16)
      load_or_stage<MATH, ATile>(a_fragment, smem_a, a, m0, k0, a_in_place);
      load_or_stage<MATH, BTile>(b_fragment, smem_b, b, n0, k0, b_in_place);
      wmma::mma_sync(product.acc[0][0], a_fragment, b_fragment, product.acc[0][0]);
    }

    // ---- epilogue ----
    __syncwarp();  // every lane has read the staged fragments, whose memory the accumulator takes
    finish_wmma<1>(p, access, product, staging, m0, n0);
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(WmmaNaiveMaths(), call.math, [&](auto math) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<wmma_naive<math, a_k, b_k>>(call, p, vector_access_of(p), readable_in_place(p.a), readable_in_place(p.b));
    });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWmmaNaive>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
