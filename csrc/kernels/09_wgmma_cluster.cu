// wgmma_cluster: few tiles, each of which the blocks of a cluster compute together, one K slice per block.
//
// What changed from wgmma_tma: a problem of a few rows has fewer tiles than the GPU has SMs. wgmma_tma then splits K: its
// blocks leave fp32 sums in workspace, and a second kernel adds them. Here the blocks that multiply the K slices of one tile
// are a cluster. Each block leaves its sums in its own shared memory. Each then finishes its part of the tile's vectors: it
// reads the sums of all blocks through distributed shared memory and adds them in the order of K. A block has one work tile, so
// there is nothing to overlap: one producer warp copies, consumer warpgroups multiply, and then all warps finish D, whatever
// its strides.
//
// Measured gain (H200, at d7481ce): 32x768x3072 in 5.9 us, wgmma_tma 7.7; 64x4096x4096 in 13.5 us, wgmma_tma 15.0;
// 128x4096x14336 in 38.4 us, wgmma_tma 40.5. bench/results/h200-tried.md has more sizes ("Few rows once more").
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o cluster.cubin csrc/kernels/09_wgmma_cluster.cu
// Run:   python -m bench.sweep --kernel wgmma_cluster --only 128,4096,14336
#include "09_wgmma_cluster.h"

#include "../epilogue/vectors.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/main_loop.cuh"
#include "../tile/scheduler.cuh"
#include "../tile/tma_operand.cuh"

namespace tc {
namespace {

template <int I, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kWgmmaCluster[I].threads, kWgmmaCluster[I].blocks_per_sm) void wgmma_cluster(
    const GemmDesc batch, const VectorAccess access, const Schedule schedule, const __grid_constant__ TmaOperands operands) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWgmmaCluster[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, THREADS = CONFIG.threads;
  constexpr int BLK_K = kBoxBytes / int(sizeof(T)), STEPS = 4, GROUPS = BLK_M / 64;
  constexpr int A_BYTES = BLK_M * 128, B_BYTES = BLK_N * 128, STAGE_BYTES = A_BYTES + B_BYTES;
  constexpr int BLOCK = 64 * 128;  // bytes of 64 rows of A or 64 columns of B in a stage, whichever direction is contiguous
  constexpr int W = 8;             // elements of D in a vector: 16 bytes of a 16-bit type
  constexpr int VECTORS = BLK_M * BLK_N / W, LEAST_THREADS = kWgmmaClusters[0].k * THREADS;
  constexpr int VECTORS_PER_THREAD = (VECTORS + LEAST_THREADS - 1) / LEAST_THREADS;  // at most
  constexpr int PITCH = BLK_N + 8;  // floats: the float2 stores of a half-warp, to four rows, then take different banks
  static_assert(BLK_M * PITCH * 4 <= STAGES * STAGE_BYTES && STAGES * (STAGE_BYTES + 16) == CONFIG.smem_bytes);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = warp_uniform(smem_address(smem));  // (STAGES, A tile then B tile)
  const uint32_t full = stages + STAGES * STAGE_BYTES;       // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                  // (STAGES) barriers: the stage has been multiplied
  float* const sums = reinterpret_cast<float*>(smem);        // (BLK_M, PITCH), in the memory of the stages
  const int warp = warp_uniform(int(threadIdx.x) / 32), lane = threadIdx.x % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, GROUPS);
    }
    fence_proxy_async();
  }
  __syncthreads();
  const int k_slices = cluster_size(), slice = cluster_rank();
  const TileIndex tile = schedule.raster[int(blockIdx.x) / k_slices];
  const int m0 = tile.m * BLK_M, n0 = tile.n * BLK_N, first = slice * schedule.per_slice;
  const int count = max(0, min(schedule.per_slice, schedule.k_tiles - first));
  const TmaOperandTile<A_K_CONTIGUOUS> a{operands.a, m0, int(blockIdx.y)};
  const TmaOperandTile<B_K_CONTIGUOUS> b{operands.b, n0, int(blockIdx.y)};
  if (threadIdx.x == 0)
    for (int t = 0; t < min(count, schedule.prefetched); ++t) a.prefetch((first + t) * BLK_K), b.prefetch((first + t) * BLK_K);
  wait_on_dependencies(), launch_dependents();

  // ---- main loop ----
  float acc[BLK_N / 2];  // (64, BLK_N) over the warpgroup
  RingPosition<STAGES> at;
  if (warp == GROUPS * 4) {  // producer warp
    const bool issues = elect_one();
    for (int t = 0; t < count; ++t, at.advance()) {
      const int k0 = (first + t) * BLK_K;
      const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
      mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
      if (!issues) continue;
      mbarrier_arrive_expect(barrier, (a.lines + b.lines) * kBoxBytes);
      a.load(stage, barrier, k0);
      b.load(stage + A_BYTES, barrier, k0);
    }
  } else {  // consumer warpgroups
    const int group = warp / 4, thread = threadIdx.x % 128;
    const auto multiply = [&](bool accumulate) {  // the K tile in stage `at`
      const uint32_t stage = warp_uniform(stages + at.stage * STAGE_BYTES);
      const uint64_t a_stage = tile_descriptor<A_K_CONTIGUOUS>(stage + group * BLOCK, BLOCK);
      const uint64_t b_stage = tile_descriptor<B_K_CONTIGUOUS>(stage + A_BYTES, BLOCK);
      mbarrier_wait(full + at.stage * 8, at.parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        wgmma<MmaType<MATH>, BLK_N, A_K_CONTIGUOUS, B_K_CONTIGUOUS>(
            acc, a_stage + k * kNextK<A_K_CONTIGUOUS>, b_stage + k * kNextK<B_K_CONTIGUOUS>, accumulate || k > 0);
      wgmma_commit();
    };
    const auto leave = [&](int stage) { mbarrier_arrive_if(thread == 0, empty + stage * 8); };
    multiply_k_tiles(at, count, multiply, [] {}, leave);
    wgmma_wait<0>();
    if (count == 0)
#pragma unroll
      for (float& x : acc) x = 0.f;
  }
  __syncthreads();  // the sums take the memory of the stages

  // ---- epilogue ----
  if (warp < GROUPS * 4)
#pragma unroll
    for (int j = 0; j < BLK_N / 8; ++j)
#pragma unroll
      for (int h = 0; h < 2; ++h)
        *reinterpret_cast<float2*>(&sums[(warp * 16 + lane / 4 + h * 8) * PITCH + j * 8 + lane % 4 * 2]) =
            make_float2(acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1]);
  cluster_arrive();
  const auto vector = [&](int i) { return (i * k_slices + slice) * THREADS + int(threadIdx.x); };
  const auto row_of = [&](int i) { return vector(i) / (BLK_N / W); };
  const auto col_of = [&](int i) { return vector(i) % (BLK_N / W) * W; };
  const auto m_of = [&](int i) { return row_of(i) < BLK_M ? m0 + row_of(i) : p.m; };
  float c[VECTORS_PER_THREAD][W];  // (BLK_M, BLK_N) over the cluster
  read_c<T>(p, access, m_of, [&](int i) { return int64_t(n0) + col_of(i); }, c);
  cluster_wait();
  float sum[VECTORS_PER_THREAD][W] = {};  // (BLK_M, BLK_N) over the cluster
#pragma unroll 4                          // the most blocks of a cluster: the loads from all blocks are in flight at once
  for (int x = 0; x < k_slices; ++x)
#pragma unroll
    for (int i = 0; i < VECTORS_PER_THREAD; ++i)
#pragma unroll
      for (int e = 0; e < W; e += 4) {
        if (m_of(i) >= p.m) continue;
        const float4 y = load_from_cluster(smem_address(&sums[row_of(i) * PITCH + col_of(i) + e]), x);
        sum[i][e] += y.x, sum[i][e + 1] += y.y, sum[i][e + 2] += y.z, sum[i][e + 3] += y.w;
      }
  cluster_arrive();
#pragma unroll
  for (int i = 0; i < VECTORS_PER_THREAD; ++i) finish_vector<T>(p, access, m_of(i), int64_t(n0) + col_of(i), sum[i], c[i], 0);
  cluster_wait();  // a block keeps its shared memory until all blocks have read it
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, kBoxBytes / size_of(p.a.dtype));
  return with_tma_operands(call, WgmmaClusterMaths(), [&](auto math, auto a_k, auto b_k, const TmaOperands& operands) {
    return launch_clusters<wgmma_cluster<I, math, a_k, b_k>, true>(
        call, schedule.size, p.batch, p, vector_access_of(p), schedule, operands);
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaCluster>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
