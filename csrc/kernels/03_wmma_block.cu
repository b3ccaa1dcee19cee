// wmma_block: tensor cores through the WMMA API, one 128x128 block tile at a time.
//
// What changed from simt: warps multiply 16x16x16 fragments on tensor cores instead of scalars on CUDA cores.
// Eight warps, 4 along M by 2 along N, each hold 2x4 accumulator fragments, a 32x64 warp tile. A and B pass through
// shared memory in chunks of tile_k, in the order in which they lie in memory; a skew of 16 halves per row spreads the
// rows of a fragment over the banks. Accumulators pass through shared memory too, so that C is read and D is
// written in whole 16-byte pieces of a row. Blocks are persistent: each walks over the tiles with a grid stride.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o wmma_block.cubin csrc/kernels/03_wmma_block.cu
// Run:   python -m bench.sweep --kernel wmma_block
#include <mma.h>

#include "../gemm/instances.h"
#include "../tile/epilogue.cuh"
#include "../tile/launch.h"
#include "../tile/operand.cuh"

namespace tc {
namespace {

namespace wmma = nvcuda::wmma;

constexpr int BLK_M = 128, BLK_N = 128, THREADS = 256;
constexpr int WARPS_N = 2, FRAGS_M = 2, FRAGS_N = 4, FRAG = 16;
constexpr int WARP_M = FRAGS_M * FRAG, WARP_N = FRAGS_N * FRAG;
constexpr int D_PITCH = BLK_N + 8;  // floats; 8 more than a row spread the rows of an accumulator over the banks

template <int I, typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(THREADS, kWmmaBlock[I].blocks_per_sm) void wmma_block(const Problem p, const Wide wide) {
  constexpr int BLK_K = kWmmaBlock[I].tile_k;
  using ATile = PaddedTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, kSkew, THREADS>;
  using BTile = PaddedTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, kSkew, THREADS>;
  using AFragment = wmma::fragment<wmma::matrix_a, FRAG, FRAG, FRAG, T,
                                   std::conditional_t<A_K_CONTIGUOUS, wmma::row_major, wmma::col_major>>;
  using BFragment = wmma::fragment<wmma::matrix_b, FRAG, FRAG, FRAG, T,
                                   std::conditional_t<B_K_CONTIGUOUS, wmma::col_major, wmma::row_major>>;

  // ---- prologue ----
  extern __shared__ __align__(128) char smem[];
  T* const smem_a = reinterpret_cast<T*>(smem);                      // (BLK_M, BLK_K + skew) or (BLK_K, BLK_M + skew)
  T* const smem_b = smem_a + ATile::SIZE;            // (BLK_N, BLK_K + skew) or (BLK_K, BLK_N + skew)
  float* const smem_d = reinterpret_cast<float*>(smem);              // (PASS_M, D_PITCH), once the operands are used up
  constexpr int PASS_M = kWmmaBlock[I].smem_bytes / int(sizeof(float)) / D_PITCH >= BLK_M ? BLK_M : BLK_M / 2;
  static_assert(PASS_M * D_PITCH * int(sizeof(float)) <= kWmmaBlock[I].smem_bytes);

  const int warp_m = threadIdx.x / 32 / WARPS_N * WARP_M, warp_n = threadIdx.x / 32 % WARPS_N * WARP_N;
  const int64_t lda = A_K_CONTIGUOUS ? p.a.row : p.a.col, ldb = B_K_CONTIGUOUS ? p.b.col : p.b.row;
  const int64_t tiles_n = (p.n + BLK_N - 1) / BLK_N, tiles = (p.m + BLK_M - 1) / BLK_M * tiles_n;

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t m0 = tile / tiles_n * BLK_M, n0 = tile % tiles_n * BLK_N;
    wmma::fragment<wmma::accumulator, FRAG, FRAG, FRAG, float> acc[FRAGS_M][FRAGS_N];
#pragma unroll
    for (int i = 0; i < FRAGS_M; ++i)
#pragma unroll
      for (int j = 0; j < FRAGS_N; ++j) wmma::fill_fragment(acc[i][j], 0.f);

    // ---- main loop ----
    for (int64_t k0 = 0; k0 < p.k; k0 += BLK_K) {
      ATile::fill(smem_a, p.a, lda, m0, k0, p.m, p.k, wide.a);
      BTile::fill(smem_b, p.b, ldb, n0, k0, p.n, p.k, wide.b);
      __syncthreads();
#pragma unroll 2
      for (int k = 0; k < BLK_K; k += FRAG) {
        AFragment a[FRAGS_M];
#pragma unroll
        for (int i = 0; i < FRAGS_M; ++i)
          wmma::load_matrix_sync(a[i], ATile::fragment(smem_a, warp_m + i * FRAG, k), ATile::PITCH);
#pragma unroll
        for (int j = 0; j < FRAGS_N; ++j) {
          BFragment b;
          wmma::load_matrix_sync(b, BTile::fragment(smem_b, warp_n + j * FRAG, k), BTile::PITCH);
#pragma unroll
          for (int i = 0; i < FRAGS_M; ++i) wmma::mma_sync(acc[i][j], a[i], b, acc[i][j]);
        }
      }
      __syncthreads();
    }

    // ---- epilogue ----
    for (int pass = 0; pass < BLK_M; pass += PASS_M) {
      if (warp_m >= pass && warp_m < pass + PASS_M) {
#pragma unroll
        for (int i = 0; i < FRAGS_M; ++i)
#pragma unroll
          for (int j = 0; j < FRAGS_N; ++j)
            wmma::store_matrix_sync(smem_d + (warp_m - pass + i * FRAG) * D_PITCH + warp_n + j * FRAG, acc[i][j],
                                    D_PITCH, wmma::mem_row_major);
      }
      __syncthreads();
      constexpr int W = 8;
      for (int c = threadIdx.x; c < PASS_M * BLK_N / W; c += THREADS) {
        const int row = c / (BLK_N / W), col = c % (BLK_N / W) * W;
        Vec<float, W> staged = *reinterpret_cast<const Vec<float, W>*>(smem_d + row * D_PITCH + col);
        finish_run<T>(p, wide, m0 + pass + row, n0 + col, staged.x);
      }
      __syncthreads();
    }
  }
}

template <int I, typename T>
Status launch_instance(const Launch& call) {
  const Problem& p = call.problem;
  const Wide wide = wide_accesses(p);
  const bool a = order_of(p.a) == Order::row_major, b = order_of(p.b) == Order::col_major;
  if (a && b) return launch<wmma_block<I, T, true, true>>(call, p, wide);
  if (a) return launch<wmma_block<I, T, true, false>>(call, p, wide);
  if (b) return launch<wmma_block<I, T, false, true>>(call, p, wide);
  return launch<wmma_block<I, T, false, false>>(call, p, wide);
}

}  // namespace

Status launch_wmma_block(const Launch& call) {
  const bool f16 = call.problem.a.dtype == DType::f16;
  if (&call.tile == &kWmmaBlock[0])
    return f16 ? launch_instance<0, __half>(call) : launch_instance<0, __nv_bfloat16>(call);
  return f16 ? launch_instance<1, __half>(call) : launch_instance<1, __nv_bfloat16>(call);
}

}  // namespace tc
