// wmma_kstage: a ring of K_STAGE K tiles in shared memory, filled by cp.async; also TF32.
//
// What changed from wmma_double_buffer, whose loads had to arrive within one product and held 24 registers per thread until
// then: cp.async copies from global to shared memory through no register. K_STAGE - 1 tiles are therefore under way at once,
// each in a commit group of its own, and a tile has the time of K_STAGE - 1 products to arrive.
//
// One barrier per K tile serves two purposes. Behind it, every thread's copies of the current tile have arrived, and the stage
// that the last product read is free for the next load. Groups are committed even when they are empty: waiting for all but
// K_STAGE - 2 groups then always waits for the current tile.
//
// fp32 operands, if the caller allows TF32, take the same bytes with half as many elements of K. cp.async cannot read
// misaligned operands, so these go through registers.
//
// Measured gain (H200, python -m bench.ladder at 04bea51): 283 TFLOP/s at 4096 cubed and 301 at 8192, 1.05x wmma_double_buffer
// at both sizes. The gain comes from K tiles of 64 and thus half as many barriers: two buffers already hide global latency, and
// WMMA's fragment loads set the pace.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o wmma_kstage.cubin csrc/kernels/05_wmma_kstage.cu
// Run:   python -m bench.sweep --kernel wmma_kstage
#include "05_wmma_kstage.h"

#include "../epilogue/wmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/operand.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

constexpr int BLK_M = 128, BLK_N = 256, THREADS = 256;
constexpr int WARPS_N = 4, FRAGS_M = 4, FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * kFrag, WARP_N = FRAGS_N * kFrag;

template <int I, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(THREADS,
                             1) void wmma_kstage(const GemmDesc batch, const VectorAccess access, const Raster raster) {
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWmmaKstage[I];
  constexpr int K_STAGE = CONFIG.stages, BLK_K = CONFIG.tile_k * 2 / int(sizeof(T)), PAD = kPadBytes / int(sizeof(T));
  using ATile = PaddedTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, PAD, THREADS>;
  using BTile = PaddedTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, PAD, THREADS>;
  using Warp = WarpTile<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS, FRAGS_M, FRAGS_N>;
  constexpr int STAGE = ATile::SIZE + BTile::SIZE;  // elements
  static_assert(CONFIG.threads == THREADS && CONFIG.blocks_per_sm == 1);
  static_assert(K_STAGE * STAGE * int(sizeof(T)) <= CONFIG.smem_bytes);
  static_assert(THREADS / 32 * Warp::STAGING * int(sizeof(float)) <= CONFIG.smem_bytes);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];
  T* const smem_a = reinterpret_cast<T*>(smem);  // (BLK_M, BLK_K + pad) or (BLK_K, BLK_M + pad) of each (K_STAGE, STAGE)
  T* const smem_b = smem_a + ATile::SIZE;        // (BLK_N, BLK_K + pad) or (BLK_K, BLK_N + pad) of each (K_STAGE, STAGE)
  const int warp = threadIdx.x / 32, warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  float* const staging = reinterpret_cast<float*>(smem) + warp * Warp::STAGING;  // (16, WARP_N + 8), in the memory of A and B

  const GmemOperand a = ATile::a_of(p, access.a);  // (M, K)
  const GmemOperand b = BTile::b_of(p, access.b);  // (N, K)

  for (int tile = blockIdx.x; tile < raster.size; tile += gridDim.x) {
    const TileIndex index = raster[tile];
    const int64_t m0 = int64_t(index.m) * BLK_M, n0 = int64_t(index.n) * BLK_N;
    Warp product;  // (WARP_M, WARP_N)
    product.clear();
    const auto load = [&](int stage, int64_t k0) {
      if (k0 < p.k) {
        ATile::fill_async(smem_a + stage * STAGE, a, m0, k0);
        BTile::fill_async(smem_b + stage * STAGE, b, n0, k0);
      }
      cp_async_commit();
    };
#pragma unroll 1
    for (int stage = 0; stage < K_STAGE - 1; ++stage) load(stage, stage * BLK_K);

    // ---- main loop ----
    int stage = 0, last = K_STAGE - 1;  // last: the stage that the previous product read
    for (int64_t k0 = 0; k0 < p.k; k0 += BLK_K) {
      cp_async_wait<K_STAGE - 2>();
      __syncthreads();
      load(last, k0 + (K_STAGE - 1) * BLK_K);
      product.template multiply<ATile, BTile, BLK_K, 2>(smem_a + stage * STAGE, smem_b + stage * STAGE, warp_m, warp_n);
      last = stage;
      stage = stage + 1 == K_STAGE ? 0 : stage + 1;
    }

    // ---- epilogue ----
    cp_async_wait<0>();
    __syncthreads();  // the other warps stage in the memory that the slowest warp may still read operands from
    finish_wmma<4>(p, access, product, staging, m0 + warp_m, n0 + warp_n);
    __syncthreads();  // the next tile's operands take the memory where other warps still stage this tile
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(WmmaKstageMaths(), call.math, [&](auto math) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<wmma_kstage<I, math, a_k, b_k>>(call, p, vector_access_of(p), Raster(call, 8));
    });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWmmaKstage>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
