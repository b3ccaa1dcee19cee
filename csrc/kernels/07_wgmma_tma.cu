// wgmma_tma: Hopper's own instructions, TMA and wgmma. One thread copies; one to three consumer warpgroups multiply.
//
// What changed from mma_swizzle: one thread's TMA instruction copies a whole tile and swizzles it on the way, and an mbarrier
// counts its bytes. Copying therefore takes one producer warpgroup with very few registers. wgmma multiplies straight from
// shared memory, asynchronously, 64 rows by up to 256 columns at a time, so that no fragment passes through registers.
//
// C arrives by TMA during the main loop, and D leaves by TMA (epilogue/tma.cuh). TMA also rounds fp32 operands to TF32; wgmma
// would truncate them, which doubles the error.
//
// Consumer warpgroups divide the work in one of two ways. In cooperative configurations they share a tile. In pingpong
// configurations each has a tile of its own, so that the epilogue of one hides behind the main loop of the other. Small M, N or
// K get smaller tiles and split-K.
//
// Tiles of 32, 80, 112, 176 or 224 columns serve matrices with few columns, and waves that others fill badly: 1000000x32x32
// with a bias took 60.7 us in tiles of 128x128 and takes 44.0 in 256x32, torch.addmm 43.4 to 44.4 (H200, two runs).
//
// Clusters of two blocks that share B by multicast are left out: L2 already merges the reads of neighbouring blocks. Such
// clusters took 183 us at 4096 cubed with a bias, single blocks 182 us; odd sizes gained 2 %. An arrival at the other block's
// barrier must not be .release.cluster: this compiles to a MEMBAR.ALL.GPU for each K tile and costs half the speed. The default
// scope does not. The times are in bench/results/h200-tried.md, "Clusters of two blocks that share B by multicast".
//
// Measured gain (H200): 1.5x mma_swizzle at 4096 cubed (727 TFLOP/s, h200-ladder.json), 1.09x torch.addmm (726 TFLOP/s,
// h200-sweep.json).
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o wgmma_tma.cubin csrc/kernels/07_wgmma_tma.cu
// Run:   python -m bench.sweep --kernel wgmma_tma
#include "07_wgmma_tma.h"

#include "../epilogue/tma.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/main_loop.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

// D is the result's type if the epilogue uses nothing but TMA (TmaPaths::tma_only). Otherwise D is void, and the kernel chooses
// an epilogue at run time. The code of all epilogues is 310 KB. The parts that run lie scattered in it, and the instruction
// cache fetches them anew for each tile: 16384x4096x128 with a bias took 52.4 us on an H200, and 46.3 us with a kernel of its
// own (bench/results/h200-tried.md, "Where a tile's time goes"). The operands say at run time which layouts they have
// (with_tma_layouts).
template <int I, Math MATH, typename D>
__global__ __launch_bounds__(kWgmmaTma[I].threads, kWgmmaTma[I].blocks_per_sm) void wgmma_tma(
    const GemmDesc p, const Schedule schedule, const __grid_constant__ TmaOperands operands,
    const __grid_constant__ TmaPaths paths) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWgmmaTma[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, BOXES = CONFIG.boxes;
  constexpr int BLK_K = kBoxBytes / int(sizeof(T)), STEPS = 4, GROUPS = CONFIG.threads / 128 - 1;
  constexpr bool PINGPONG = CONFIG.pingpong, kTmaOnly = !std::is_void_v<D>;
  constexpr bool ANY_LAYOUT = sizeof(T) == 2;  // of A and B; in fp32 both have K contiguous
  constexpr bool REALLOCATES = GROUPS > 1;     // moves registers from the producer to the consumers (setmaxnreg)
  constexpr int ROWS = PINGPONG ? BLK_M : BLK_M / GROUPS, BLOCKS_M = ROWS / 64;  // of a consumer warpgroup's tile
  constexpr int A_BYTES = BLK_M * 128, B_BYTES = wgmma_tma_b_lines(BLK_N) * 128, STAGE_BYTES = A_BYTES + B_BYTES;
  constexpr int BLOCK = 64 * 128;  // bytes of 64 rows of A or 64 columns of B in a stage, whichever direction is contiguous
  static_assert(STAGES * (STAGE_BYTES + 16) + GROUPS * (BOXES * (BLOCK + 8) + BLK_N * 4) + 16 == CONFIG.smem_bytes);

  // ---- prologue ----
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = warp_uniform(smem_address(smem));  // (STAGES, A tile then B tile)
  char* const boxes = smem + STAGES * STAGE_BYTES;           // (GROUPS, BOXES, 64, 128 bytes) of C and D
  char* const rows = boxes + GROUPS * BOXES * BLOCK;         // (GROUPS, BLK_N) of a C that is one row, up to 4 bytes each
  const uint32_t full = stages + uint32_t(rows + GROUPS * BLK_N * 4 - smem);  // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                    // (STAGES) barriers: the stage has been multiplied
  const uint32_t c_full = empty + STAGES * 8;                  // (GROUPS, BOXES) barriers: the box holds C
  const uint32_t order = c_full + GROUPS * BOXES * 8;          // (GROUPS) barriers: the warpgroup may multiply (pingpong)
  const int group = warp_uniform(int(threadIdx.x) / 128) - 1;  // consumer warpgroup; -1 is the producer
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, PINGPONG ? 1 : GROUPS);
    }
    for (int i = 0; i < GROUPS * BOXES; ++i) mbarrier_init(c_full + i * 8, 1);
    for (int i = 0; PINGPONG && i < GROUPS; ++i) mbarrier_init(order + i * 8, 1);
    fence_proxy_async();
    if (p.k > 0) prefetch_tensor_map(operands.a.tile), prefetch_tensor_map(operands.b.tile);
    if (paths.c_path == CPath::tma) prefetch_tensor_map(paths.c);
    if (paths.d_path == DPath::tma) prefetch_tensor_map(paths.d);
  }
  __syncthreads();
  if (schedule.prefetched > 0 && threadIdx.x == 0) {  // see prefetches_k_tiles
    const WorkTile first = schedule[blockIdx.x];
    with_tma_layouts<ANY_LAYOUT, ANY_LAYOUT>(operands, [&](auto a_k, auto b_k) {
      const TmaOperandTile<decltype(a_k)::value> a{operands.a, first.tile.m * BLK_M, first.product};
      const TmaOperandTile<decltype(b_k)::value> b{operands.b, first.tile.n * BLK_N, first.product};
      for (int t = 0; t < min(first.count, schedule.prefetched); ++t) {
        a.prefetch((first.first + t) * BLK_K);
        b.prefetch((first.first + t) * BLK_K);
      }
    });
  }
  wait_on_dependencies();

  // ---- main loop ----
  if (group < 0) {  // producer warpgroup
    if (REALLOCATES) warpgroup_reg_dealloc<40>();
    if (warp_uniform(int(threadIdx.x) / 32) != 0) return;
    const bool issues = elect_one();
    with_tma_layouts<ANY_LAYOUT, ANY_LAYOUT>(operands, [&](auto a_k, auto b_k) {
      RingPosition<STAGES> at;
      for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
        const WorkTile work_tile = schedule[work];
        const TmaOperandTile<decltype(a_k)::value> a{operands.a, work_tile.tile.m * BLK_M, work_tile.product};
        const TmaOperandTile<decltype(b_k)::value> b{operands.b, work_tile.tile.n * BLK_N, work_tile.product};
        for (int t = 0; t < work_tile.count; ++t, at.advance()) {
          const int k0 = (work_tile.first + t) * BLK_K;
          const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
          mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
          if (!issues) continue;
          mbarrier_arrive_expect(barrier, (a.lines + b.lines) * kBoxBytes);
          a.load(stage, barrier, k0);
          b.load(stage + A_BYTES, barrier, k0);
        }
      }
    });
    return;
  }

  // consumer warpgroups
  if (REALLOCATES) warpgroup_reg_alloc<GROUPS == 2 ? 232 : 152>();
  const int thread = threadIdx.x % 128;
  RingPosition<STAGES> at;
  uint32_t use = 0;  // tiles that this warpgroup has finished
  for (int i = 0, work = blockIdx.x; work < schedule.size; ++i, work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    if (PINGPONG && i % GROUPS != group) {
      at.advance(work_tile.count);
      continue;
    }
    // The next kernel may start once every block has begun its last work tile. In a trial on an H200, two waves of wgmma_multicast,
    // 5147x1216x896, took 20.1 us with this rule, and 20.8 if the next kernel started at their end. An earlier start costs more than it
    // saves: GPT-2's second feed-forward product took 71 us if it might start with the first tiles of the product before, and 58 if
    // it started at that product's end (h200-tried.md, "When the next kernel may start" and "Where two waves spend their time").
    if (work + int(gridDim.x) >= schedule.size) launch_dependents();
    const TilePlace place{work_tile.tile.m * BLK_M + (PINGPONG ? 0 : group * ROWS), work_tile.tile.n * BLK_N, work_tile.layer};
    const auto epilogue = [&](auto d_type, auto&& act) {
      using Epilogue = TmaEpilogue<T, decltype(d_type), ROWS, BLK_N, BOXES, kTmaOnly>;
      act(Epilogue{
          p, paths, boxes + group * BOXES * BLOCK, rows + group * BLK_N * 4, c_full + group * BOXES * 8, 1 + group, thread});
    };
    const auto with_epilogue = [&](auto&& act) {
      if constexpr (kTmaOnly) epilogue(D(), act);
      else if (sizeof(T) == 4 || is_f32(p.d.dtype)) epilogue(float(), act);
      else epilogue(T(), act);
    };

    // Pingpong warpgroups multiply in turns. A warpgroup that ran ahead could mistake the phase of a full barrier for that of a
    // later lap of the ring.
    if (PINGPONG) mbarrier_wait(order + group * 8, (use & 1) ^ (group == 0));
    float acc[BLOCKS_M][BLK_N / 2];                                   // (ROWS, BLK_N) over the warpgroup
    const auto multiply = [&](auto a_k, auto b_k, bool accumulate) {  // the K tile in stage `at`
      constexpr bool A_K = decltype(a_k)::value, B_K = decltype(b_k)::value;
      const uint32_t stage = warp_uniform(stages + at.stage * STAGE_BYTES);
      const uint64_t a = tile_descriptor<A_K>(stage + (PINGPONG ? 0 : group * ROWS * 128), BLOCK);
      const uint64_t b = tile_descriptor<B_K>(stage + A_BYTES, BLOCK);
      mbarrier_wait(full + at.stage * 8, at.parity);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
#pragma unroll
        for (int m = 0; m < BLOCKS_M; ++m)
          wgmma<MmaType<MATH>, BLK_N, A_K, B_K>(
              acc[m], a + k * kNextK<A_K> + m * (BLOCK >> 4), b + k * kNextK<B_K>, accumulate || k > 0);
      wgmma_commit();
    };
    const auto prefetch = [&] { with_epilogue([&](const auto& e) { e.prefetch(place); }); };
    const auto leave = [&](int stage) { mbarrier_arrive_if(thread == 0, empty + stage * 8); };
    const auto end_turn = [&] {
      if (PINGPONG && thread == 0) mbarrier_arrive(order + (1 - group) * 8);
    };
    if (work_tile.count > 0) {
      with_tma_layouts<ANY_LAYOUT, ANY_LAYOUT>(operands, [&](auto a_k, auto b_k) {
        const auto multiply_in = [&](bool accumulate) { multiply(a_k, b_k, accumulate); };
        multiply_k_tiles(at, work_tile.count, multiply_in, prefetch, leave);
        end_turn();
        wgmma_wait<0>();
      });
      leave(at.stage);
      at.advance();
    } else {
      end_turn();
#pragma unroll
      for (int m = 0; m < BLOCKS_M; ++m)
#pragma unroll
        for (float& x : acc[m]) x = 0.f;
      prefetch();
    }

    // ---- epilogue ----
    with_epilogue([&](const auto& e) { e.finish(acc, place, use); });
    ++use;
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
  const Status status = make_tma_paths(paths, p, call.modes.k_slices, call.config.tile_n);
  if (!status.ok()) return status;
  const Schedule schedule(call, kBoxBytes / size_of(p.a.dtype), p.batch);
  const bool along_k = is_f32(p.a.dtype);  // if need be in a copy
  TmaOperands operands = {};
  const Status made = make_tma_operands(
      operands, call, along_k || order_of(p.a) == Order::row_major, along_k || order_of(p.b) == Order::col_major);
  if (!made.ok()) return made;
  return with_math(ConfigMaths<WgmmaTmaMaths, kWgmmaTma[I].fp32>(), call.math, [&](auto math) {
    const auto launch = [&](auto d) {
      return launch_walk<wgmma_tma<I, math, typename decltype(d)::type>, true>(call, p, schedule, operands, paths);
    };
    if constexpr (!kWgmmaTma[I].tma_only)
      if (!paths.tma_only) return launch(Type<void>());
    return with_result<Operand<math>, kWgmmaTma[I].fp32_d>(p, launch);
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaTma>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
