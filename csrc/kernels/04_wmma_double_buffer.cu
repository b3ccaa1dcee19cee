// wmma_double_buffer: 128x256 block tiles; the next K tile loads while the current one is multiplied.
//
// What changed from wmma_block, whose tensor cores wait for every K tile to arrive: shared memory holds two K tiles. The loads
// of the next tile are issued into registers before the product of the current tile and stored to shared memory after it. The
// product thus covers their latency, and one barrier per K tile is enough.
//
// Eight warps, 2 along M by 4 along N, each hold 4x4 fragments: a warp tile is 64x64. It takes 128 accumulator registers, but
// gives 32 flops per byte read from shared memory where 32x64 gives 21. That leaves one block per SM.
//
// Rows are padded by 16 bytes instead of 32: eight rows then start in eight different bank groups, and ldmatrix reads them
// without conflicts. Blocks walk the tiles in groups of eight tile rows, which keeps operands in L2.
//
// Measured gain (H200, python -m bench.ladder at 04bea51): 271 TFLOP/s at 4096 cubed and 286 at 8192, 1.3x wmma_block.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o dbuf.cubin csrc/kernels/04_wmma_double_buffer.cu
// Run:   python -m bench.sweep --kernel wmma_double_buffer
#include "04_wmma_double_buffer.h"

#include "../epilogue/wmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/operand.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

constexpr int BLK_M = 128, BLK_N = 256, BLK_K = 32, THREADS = 256;
constexpr int WARPS_N = 4, FRAGS_M = 4, FRAGS_N = 4;
constexpr int WARP_M = FRAGS_M * kFrag, WARP_N = FRAGS_N * kFrag;

template <Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(THREADS, kWmmaDoubleBuffer[0].blocks_per_sm) void wmma_double_buffer(
    const GemmDesc batch, const VectorAccess access, const Raster raster) {
  using T = Operand<MATH>;
  constexpr int PAD = kPadBytes / int(sizeof(T));
  using ATile = PaddedTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, PAD, THREADS>;
  using BTile = PaddedTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, PAD, THREADS>;
  using Warp = WarpTile<MATH, A_K_CONTIGUOUS, B_K_CONTIGUOUS, FRAGS_M, FRAGS_N>;
  constexpr int BUFFER = ATile::SIZE + BTile::SIZE;  // elements
  static_assert(2 * BUFFER * int(sizeof(T)) <= kWmmaDoubleBuffer[0].smem_bytes);
  static_assert(THREADS / 32 * Warp::STAGING * int(sizeof(float)) <= kWmmaDoubleBuffer[0].smem_bytes);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];
  T* const smem_a = reinterpret_cast<T*>(smem);  // (BLK_M, BLK_K + pad) or (BLK_K, BLK_M + pad) of each (2, BUFFER)
  T* const smem_b = smem_a + ATile::SIZE;        // (BLK_N, BLK_K + pad) or (BLK_K, BLK_N + pad) of each (2, BUFFER)
  const int warp = threadIdx.x / 32, warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  float* const staging = reinterpret_cast<float*>(smem) + warp * Warp::STAGING;  // (16, WARP_N + 8), in the memory of A and B

  const GmemOperand a = ATile::a_of(p, access.a);  // (M, K)
  const GmemOperand b = BTile::b_of(p, access.b);  // (N, K)

  for (int tile = blockIdx.x; tile < raster.size; tile += gridDim.x) {
    const TileIndex index = raster[tile];
    const int64_t m0 = int64_t(index.m) * BLK_M, n0 = int64_t(index.n) * BLK_N;
    Warp product;  // (WARP_M, WARP_N)
    product.clear();
    typename ATile::Registers a_next;  // this thread's 16-byte vectors of the next A tile
    typename BTile::Registers b_next;  // this thread's 16-byte vectors of the next B tile
    ATile::fetch(a_next, a, m0, 0);
    BTile::fetch(b_next, b, n0, 0);
    a_next.store(smem_a);
    b_next.store(smem_b);
    __syncthreads();

    // ---- main loop ----
    int current = 0;
    for (int64_t k0 = 0; k0 < p.k; k0 += BLK_K) {
      const bool more = k0 + BLK_K < p.k;
      if (more) {
        ATile::fetch(a_next, a, m0, k0 + BLK_K);
        BTile::fetch(b_next, b, n0, k0 + BLK_K);
      }
      product.template multiply<ATile, BTile, BLK_K, 2>(smem_a + current, smem_b + current, warp_m, warp_n);
      current = BUFFER - current;
      if (more) {  // every warp finished reading this buffer before the last barrier
        a_next.store(smem_a + current);
        b_next.store(smem_b + current);
      }
      __syncthreads();
    }

    // ---- epilogue ----
    finish_wmma<4>(p, access, product, staging, m0 + warp_m, n0 + warp_n);
    __syncthreads();  // the next tile's operands take the memory where other warps still stage this tile
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(WmmaDoubleBufferMaths(), call.math, [&](auto math) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<wmma_double_buffer<math, a_k, b_k>>(call, p, vector_access_of(p), Raster(call, 8));
    });
  });
}

const bool registered =
    register_configs<TC_CONFIG, TC_COUNT>(kCode<kWmmaDoubleBuffer>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
