// wmma_block: tensor cores through the WMMA API, one 128x128 block tile at a time.
//
// What changed from wmma_naive: the warps of a block share what they load. An element of A or B comes from global memory once
// per block tile instead of once per fragment, and a fragment in registers serves several products.
//
// Eight warps, 4 along M by 2 along N, each hold 2x4 accumulator fragments: a warp tile is 32x64.
//
// A and B pass through shared memory in K tiles of tile_k, in the order in which they lie in global memory. A skew of 16
// elements per row spreads the rows of a fragment over the banks. Accumulators also pass through shared memory, so that the
// epilogue reads C and writes D in 16-byte vectors.
//
// Two blocks share an SM and hide each other's latencies. Each thread then has 128 registers. All are in use, and unrolling the
// loop over a K tile would spill. Blocks are persistent: each walks over the tiles with a grid stride.
//
// Measured gain (H200, 4096 cubed, python -m bench.ladder at 04bea51): 210 TFLOP/s, 7.8x wmma_naive.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o wmma_block.cubin csrc/kernels/03_wmma_block.cu
// Run:   python -m bench.sweep --kernel wmma_block
#include "03_wmma_block.h"

#include "../epilogue/wmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/operand.cuh"

namespace tc {
namespace {

constexpr int BLK_M = 128, BLK_N = 128, THREADS = 256;
constexpr int WARPS_N = 2, FRAGS_M = 2, FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * kFrag, WARP_N = FRAGS_N * kFrag;

template <int I, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(THREADS,
                             kWmmaBlock[I].blocks_per_sm) void wmma_block(const GemmDesc p, const VectorAccess access) {
  constexpr int BLK_K = kWmmaBlock[I].tile_k;
  using T = Operand<MATH>;
  using ATile = PaddedTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, kSkew, THREADS>;
  using BTile = PaddedTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, kSkew, THREADS>;
  using Warp = WarpTile<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS, FRAGS_M, FRAGS_N>;
  static_assert(THREADS / 32 * Warp::STAGING * int(sizeof(float)) <= kWmmaBlock[I].smem_bytes);

  // ---- prologue ----
  extern __shared__ __align__(128) char smem[];
  T* const smem_a = reinterpret_cast<T*>(smem);  // (BLK_M, BLK_K + skew) or (BLK_K, BLK_M + skew)
  T* const smem_b = smem_a + ATile::SIZE;        // (BLK_N, BLK_K + skew) or (BLK_K, BLK_N + skew)
  const int warp = threadIdx.x / 32, warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  float* const staging = reinterpret_cast<float*>(smem) + warp * Warp::STAGING;  // (16, WARP_N + 8), in the memory of A and B

  const int64_t tiles_n = (p.n + BLK_N - 1) / BLK_N, tiles = (p.m + BLK_M - 1) / BLK_M * tiles_n;

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t m0 = tile / tiles_n * BLK_M, n0 = tile % tiles_n * BLK_N;
    // a and b are made for each tile, and the addresses anew for the epilogue: ptxas spilled what lived through the other.
    const GemmDesc operands = product_of(p, opaque_product());
    const GmemOperand a = ATile::a_of(operands, access.a);  // (M, K)
    const GmemOperand b = BTile::b_of(operands, access.b);  // (N, K)
    Warp product;                                           // (WARP_M, WARP_N)
    product.clear();

    // ---- main loop ----
    for (int64_t k0 = 0; k0 < p.k; k0 += BLK_K) {
      ATile::fill(smem_a, a, m0, k0);
      BTile::fill(smem_b, b, n0, k0);
      __syncthreads();
      product.template multiply<ATile, BTile, BLK_K, 1>(smem_a, smem_b, warp_m, warp_n);
      __syncthreads();
    }

    // ---- epilogue ----
    finish_wmma<1>(product_of(p, opaque_product()), access, product, staging, m0 + warp_m, n0 + warp_n);
    __syncthreads();  // the next tile's operands take the memory where other warps still stage this tile
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(WmmaBlockMaths(), call.math, [&](auto math) {
    return with_layouts(
        p, [&](auto a_k, auto b_k) { return launch<wmma_block<I, math, a_k, b_k>>(call, p, vector_access_of(p)); });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWmmaBlock>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
