// wgmma_shifted: wgmma with a B whose rows begin anywhere.
//
// What changed from wgmma_tma: TMA needs rows that begin at multiples of 16 bytes, so that every other B is repacked by a launch
// of its own, which reads and writes all weights before the product reads them again. Here two producer warpgroups bring B. cp.async
// copies the aligned 16-byte words that hold a row, three K tiles ahead. The warps then shift the row's vectors and store them where TMA
// would have put them (tile/shifted_copy.cuh). K tiles that lie inside B take no checks. A comes by TMA. Consumer and epilogue are those
// of wgmma_tma.
//
// Measured gain (H200): 64x6144x6144 row-major with rows 6215 apart takes 36.1 us, 51.3 in another run while the words went
// through registers, and 99.8 in torch.addmm; 48x8192x6144 with weights 6343 apart 42.9, 44.9 and 157.1. A K tile takes 0.6 us.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/14_wgmma_shifted.cu
// Run:   python -m bench.sweep --kernel wgmma_shifted
#include "14_wgmma_shifted.h"

#include "../epilogue/tma.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/main_loop.cuh"
#include "../tile/scheduler.cuh"
#include "../tile/shifted_copy.cuh"

namespace tc {
namespace {

template <int I, Math MATH, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kWgmmaShifted[I].threads, 1) void wgmma_shifted(
    const GemmDesc p, const Schedule schedule, const __grid_constant__ TmaDescriptors a_map,
    const __grid_constant__ TmaPaths paths) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWgmmaShifted[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, BOXES = CONFIG.boxes;
  constexpr int BLK_K = kBoxBytes / int(sizeof(T)), STEPS = 4, WARPS = kShiftingThreads / 32;
  using BCopy = ShiftedCopy<T, BLK_N, B_K_CONTIGUOUS, WARPS>;
  constexpr int BLOCKS_M = BLK_M / 64;
  constexpr bool REALLOCATES = BLOCKS_M > 1;  // moves registers from the producers to the consumer (setmaxnreg)
  constexpr int A_BYTES = BLK_M * 128, STAGE_BYTES = A_BYTES + BLK_N * 128;
  constexpr int BLOCK = 64 * 128;  // bytes of 64 rows of A or 64 columns of B in a stage, whichever direction is contiguous
  static_assert(STAGES * (STAGE_BYTES + 16) + BOXES * (BLOCK + 8) + BLK_N * 4 + WARPS * BCopy::BYTES <= CONFIG.smem_bytes);

  // ---- prologue ----
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = warp_uniform(smem_address(smem));          // (STAGES, A tile then B tile)
  char* const boxes = smem + STAGES * STAGE_BYTES;                   // (BOXES, 64, 128 bytes) of C and D
  char* const rows = boxes + BOXES * BLOCK;                          // (BLK_N) of a C that is one row, up to 4 bytes each
  const uint32_t full = stages + uint32_t(rows + BLK_N * 4 - smem);  // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                          // (STAGES) barriers: the stage has been multiplied
  const uint32_t c_full = empty + STAGES * 8;                        // (BOXES) barriers: the box holds C
  const uint32_t words = (c_full + BOXES * 8 + 15) / 16 * 16;        // (WARPS, ShiftedCopy::BYTES)
  const int warp = warp_uniform(int(threadIdx.x) / 32);              // WARPS or more: the consumer
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1 + WARPS);  // the thread that starts TMA, and each producer warp
      mbarrier_init(empty + s * 8, 1);
    }
    for (int i = 0; i < BOXES; ++i) mbarrier_init(c_full + i * 8, 1);
    fence_proxy_async();
    if (p.k > 0) prefetch_tensor_map(a_map.tile);
    if (paths.c_path == CPath::tma) prefetch_tensor_map(paths.c);
    if (paths.d_path == DPath::tma) prefetch_tensor_map(paths.d);
  }
  __syncthreads();
  wait_on_dependencies();
  if (schedule.size <= int(gridDim.x)) launch_dependents();  // wgmma_tma's rule for several tiles was not timed here

  // ---- main loop ----
  if (warp < WARPS) {  // producer warpgroups
    if (REALLOCATES) warpgroup_reg_dealloc<144>();
    const int lane = threadIdx.x % 32;
    RingPosition<STAGES> at;
#pragma unroll 1
    for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
      const WorkTile work_tile = schedule[work];
      const int m0 = work_tile.tile.m * BLK_M, n0 = work_tile.tile.n * BLK_N, count = work_tile.count;
      const int64_t k0 = int64_t(work_tile.first) * BLK_K;
      const TmaOperandTile<true> a{a_map, m0, work_tile.product};
      BCopy b(matrix_of(p.b, work_tile.product), n0, p.n, k0, p.k, words + warp * BCopy::BYTES, warp, lane);
#pragma unroll 1
      for (int t = 0; t < BCopy::AHEAD; ++t) b.copy(t, count);
#pragma unroll 1
      for (int t = 0; t < count; ++t, at.advance()) {
        const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
        b.copy(t + BCopy::AHEAD, count);
        mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
        if (threadIdx.x == 0) {
          mbarrier_arrive_expect(barrier, a.lines * kBoxBytes);
          a.load(stage, barrier, int(k0) + t * BLK_K);
        }
        b.store(t, stage + A_BYTES);
        fence_proxy_async();  // wgmma reads what this thread has stored
        __syncwarp();
        mbarrier_arrive_if(lane == 0, barrier);
      }
    }
    return;
  }

  // consumer warpgroup
  if (REALLOCATES) warpgroup_reg_alloc<216>();
  const int thread = threadIdx.x % 128;
  RingPosition<STAGES> at;
  uint32_t use = 0;  // tiles that this warpgroup has finished
#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x, ++use) {
    const WorkTile work_tile = schedule[work];
    const TilePlace place{work_tile.tile.m * BLK_M, work_tile.tile.n * BLK_N, work_tile.layer};
    const auto with_epilogue = [&](auto&& act) {
      const auto epilogue = [&](auto d_type) {
        using Epilogue = TmaEpilogue<T, decltype(d_type), BLK_M, BLK_N, BOXES, false>;
        act(Epilogue{p, paths, boxes, rows, c_full, 1, thread});
      };
      if (is_f32(p.d.dtype)) epilogue(float());
      else epilogue(T());
    };
    float acc[BLOCKS_M][BLK_N / 2];               // (BLK_M, BLK_N) over the warpgroup
    const auto multiply = [&](bool accumulate) {  // the K tile in stage `at`
      const uint32_t stage = warp_uniform(stages + at.stage * STAGE_BYTES);
      const uint64_t a = tile_descriptor<true>(stage, BLOCK);
      const uint64_t b = tile_descriptor<B_K_CONTIGUOUS>(stage + A_BYTES, BLOCK);
      mbarrier_wait(full + at.stage * 8, at.parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
#pragma unroll
        for (int m = 0; m < BLOCKS_M; ++m)
          wgmma<MmaType<MATH>, BLK_N, true, B_K_CONTIGUOUS>(
              acc[m], a + k * kNextK<true> + m * (BLOCK >> 4), b + k * kNextK<B_K_CONTIGUOUS>, accumulate || k > 0);
      wgmma_commit();
    };
    const auto prefetch = [&] { with_epilogue([&](const auto& e) { e.prefetch(place); }); };
    const auto leave = [&](int stage) { mbarrier_arrive_if(thread == 0, empty + stage * 8); };
    if (work_tile.count > 0) {
      multiply_k_tiles(at, work_tile.count, multiply, prefetch, leave);
      wgmma_wait<0>();
      leave(at.stage);
      at.advance();
    } else {
#pragma unroll
      for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
        for (float& x : acc[m]) x = 0.f;
      prefetch();
    }

    // ---- epilogue ----
    with_epilogue([&](const auto& e) { e.finish(acc, place, use); });
  }
  tma_store_wait_read<0>();  // TMA still reads the block's shared memory; the kernel's end completes its writes
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  TmaPaths paths = {};
  TmaDescriptors a = {};
  Status status = make_tma_paths(paths, p, call.modes.k_slices, call.config.tile_n);
  if (status.ok()) status = make_tma_descriptors(a, p.a, p.batch, p.m, p.k, true, call.config.tile_m);
  if (!status.ok()) return status;
  const Schedule schedule(call, call.config.tile_k, p.batch);
  return with_math(WgmmaShiftedMaths(), call.math, [&](auto math) {
    return with_b_layout(
        p, [&](auto b_k) { return launch_walk<wgmma_shifted<I, math, b_k>, true>(call, p, schedule, a, paths); });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaShifted>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
