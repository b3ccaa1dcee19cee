// wgmma_interleaved: TMA and wgmma for an A whose rows begin anywhere.
//
// What changed from wgmma_tma: TMA needs rows that begin at multiples of 16 bytes, so that every other A is repacked by a launch of
// its own. In attention over a number of keys that is no multiple of 8, A is the largest matrix: the probabilities of all heads,
// which the product with the values reads once. Here TMA reads A in place. A tile has every second, fourth or eighth row, which all
// begin equally far behind a 16-byte boundary (tile/interleaved_operand.cuh). A's K tiles begin at those boundaries, and B's, whose
// rows TMA can load from any k on, as far before their own. Before the first product of a tile, its warpgroups put zeros in the place
// of what lies between boundary and row. To the epilogue a tile's rows of C and D are matrices of their own. They go through registers.
//
// If B is contiguous along K, its K tiles cannot begin anywhere. A is repacked then, and its rows are of one kind.
//
// Measured gain (H100, one run, row-major): 400 of 1257x72x1257 take 675 us, 1385 in wgmma_tma with a repack and 1245 in torch.bmm; 160
// of 828x80x828 take 108, 245 and 173; 112 of 1018x64x1018 take 103, 179 in mma_short and 141.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/19_wgmma_interleaved.cu
// Run:   python -m bench.batches --gpu-busy --only "attention, prompt"
#include "19_wgmma_interleaved.h"

#include "../epilogue/tma.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/interleaved_operand.cuh"
#include "../tile/main_loop.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

// Rows `first`, first + step, first + 2 * step and so on of C and D.
__device__ __forceinline__ GemmDesc every(GemmDesc p, int first, int step) {
  const auto rows_of = [&](MatrixView& x) {
    x.data = static_cast<char*>(x.data) + (x.data ? first * x.row * size_of(x.dtype) : 0);
    x.row *= step;
  };
  rows_of(p.c), rows_of(p.d);
  p.m = (p.m - first + step - 1) / step;
  return p;
}

// Puts zeros in the place of the first `count` elements of each row of 64 that TMA has written. A vector has more elements.
__device__ __forceinline__ void clear_first(uint32_t tile, int count, int thread, int barrier) {
  if (thread < 64)
    for (int i = 0; i < count; ++i) st_shared_2(tile + box_offset(thread, 0) + i * 2, 0);
  fence_proxy_async();  // wgmma reads what these threads have stored
  named_barrier<128>(barrier);
}

template <int I, Math MATH, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kWgmmaInterleaved[I].threads, 1) void wgmma_interleaved(
    const GemmDesc p, const Schedule schedule, const __grid_constant__ InterleavedDescriptors a_maps,
    const __grid_constant__ TmaDescriptors b_map, const __grid_constant__ TmaPaths paths) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWgmmaInterleaved[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, BOXES = CONFIG.boxes;
  constexpr int BLK_K = kBoxBytes / int(sizeof(T)), STEPS = 4, GROUPS = CONFIG.threads / 128 - 1;
  constexpr bool REALLOCATES = GROUPS > 1;  // moves registers from the producer to the consumers (setmaxnreg)
  constexpr int A_BYTES = BLK_M * 128, STAGE_BYTES = A_BYTES + BLK_N * 128;
  constexpr int BLOCK = 64 * 128;  // bytes of 64 rows of A or 64 columns of B in a stage, whichever direction is contiguous
  static_assert(BLK_M == GROUPS * 64 && BLK_N % 64 == 0);
  static_assert(STAGES * (STAGE_BYTES + 16) + GROUPS * (BOXES * BLOCK + BLK_N * 4) == CONFIG.smem_bytes);

  // ---- prologue ----
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = warp_uniform(smem_address(smem));  // (STAGES, A tile then B tile)
  char* const boxes = smem + STAGES * STAGE_BYTES;           // (GROUPS, BOXES, 64, 128 bytes) of C and D
  char* const rows = boxes + GROUPS * BOXES * BLOCK;         // (GROUPS, BLK_N) of a C that is one row, up to 4 bytes each
  const uint32_t full = stages + uint32_t(rows + GROUPS * BLK_N * 4 - smem);  // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                    // (STAGES) barriers: the stage has been multiplied
  const int group = warp_uniform(int(threadIdx.x) / 128) - 1;  // consumer warpgroup; -1 is the producer
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, GROUPS);
    }
    fence_proxy_async();
    for (int i = 0; p.k > 0 && i < min(a_maps.kinds(), a_maps.outer); ++i) prefetch_tensor_map(a_maps.tile[i]);
    if (p.k > 0) prefetch_tensor_map(b_map.tile);
  }
  __syncthreads();
  wait_on_dependencies();

  // ---- main loop ----
  if (group < 0) {  // producer warpgroup
    if (REALLOCATES) warpgroup_reg_dealloc<40>();
    if (warp_uniform(int(threadIdx.x) / 32) != 0) return;
    const bool issues = elect_one();
    RingPosition<STAGES> at;
    for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
      const WorkTile work_tile = schedule[work];
      const InterleavedTile a{a_maps, work_tile.product, work_tile.tile.m};
      const TmaOperandTile<B_K_CONTIGUOUS> b{b_map, work_tile.tile.n * BLK_N, work_tile.product};
      const int skipped = a.skipped();
      for (int t = 0; t < work_tile.count; ++t, at.advance()) {
        const int k0 = (work_tile.first + t) * BLK_K;
        const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
        mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
        if (!issues) continue;
        mbarrier_arrive_expect(barrier, (a.lines + b.lines) * kBoxBytes);
        a.load(stage, barrier, k0);
        b.load(stage + A_BYTES, barrier, k0 - skipped);
      }
    }
    return;
  }

  // consumer warpgroups
  if (REALLOCATES) warpgroup_reg_alloc<232>();
  const int thread = threadIdx.x % 128;
  RingPosition<STAGES> at;
#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    if (work + int(gridDim.x) >= schedule.size) launch_dependents();  // see wgmma_tma
    const WorkTile work_tile = schedule[work];
    const InterleavedTile tile{a_maps, work_tile.product, work_tile.tile.m};
    const GemmDesc of_kind = every(p, tile.of_product, a_maps.kinds());
    const TilePlace place{tile.first + group * 64, work_tile.tile.n * BLK_N, work_tile.layer};
    const auto with_epilogue = [&](auto&& act) {
      if (of_kind.m == 0) return;  // fewer rows than kinds: the epilogue's last row would lie before C
      const auto epilogue = [&](auto d_type) {
        using Epilogue = TmaEpilogue<T, decltype(d_type), 64, BLK_N, BOXES, false>;
        // No C by TMA, so no barriers for it.
        act(Epilogue{of_kind, paths, boxes + group * BOXES * BLOCK, rows + group * BLK_N * 4, 0, 1 + group, thread});
      };
      if (is_f32(p.d.dtype)) epilogue(float());
      else epilogue(T());
    };
    float acc[1][BLK_N / 2];                      // (64, BLK_N) over the warpgroup
    const auto multiply = [&](bool accumulate) {  // the K tile in stage `at`
      const uint32_t stage = warp_uniform(stages + at.stage * STAGE_BYTES);
      const uint64_t a = tile_descriptor<true>(stage + group * BLOCK, BLOCK);
      const uint64_t b = tile_descriptor<B_K_CONTIGUOUS>(stage + A_BYTES, BLOCK);
      mbarrier_wait(full + at.stage * 8, at.parity);
      if (!accumulate && work_tile.first == 0 && tile.skipped() > 0)
        clear_first(stage + group * BLOCK, tile.skipped(), thread, 1 + group);
      wgmma_fence();
#pragma unroll
      for (int k = 0; k < STEPS; ++k)
        wgmma<MmaType<MATH>, BLK_N, true, B_K_CONTIGUOUS>(
            acc[0], a + k * kNextK<true>, b + k * kNextK<B_K_CONTIGUOUS>, accumulate || k > 0);
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
      for (float& x : acc[0]) x = 0.f;
      prefetch();
    }

    // ---- epilogue ----
    with_epilogue([&](const auto& e) { e.finish(acc, place, 0); });
  }
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

// How C and D go without tensor maps.
TmaPaths paths_via_registers(const GemmDesc& p) {
  TmaPaths paths = {};
  const CPath c = c_path_of(p);
  paths.c_path = c != CPath::tma ? c : is_f32(p.c.dtype) ? CPath::elements : CPath::vectors;
  paths.d_path = order_of(p.d) == Order::row_major && !is_f32(p.d.dtype) ? DPath::vectors : DPath::elements;
  return paths;
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  InterleavedDescriptors a = {};
  TmaDescriptors b = {};
  const bool b_k_contiguous = order_of(p.b) == Order::col_major;
  Status status = make_interleaved_descriptors(a, p.a, p.batch, p.m, p.k, call.config.tile_m);
  if (status.ok()) status = make_tma_descriptors(b, transpose(p.b), p.batch, p.n, p.k, b_k_contiguous, call.config.tile_n);
  if (!status.ok()) return status;
  // Tiles and K tiles as if whole tiles had the rows of each kind, and K began with the first that is skipped.
  GemmDesc tiled = p;
  tiled.m = interleaved_tiles(p.m, a.kinds(), call.config.tile_m) * call.config.tile_m;
  tiled.k += *std::max_element(a.skipped, a.skipped + kMostKinds);
  const Launch of_tiles{tiled, call.config, call.math, call.modes, call.device, call.stream};
  const Schedule schedule(of_tiles, call.config.tile_k, p.batch);
  return with_math(WgmmaInterleavedMaths(), call.math, [&](auto math) {
    return with_b_layout(p, [&](auto b_k) {
      return launch_walk<wgmma_interleaved<I, math, b_k>, true>(of_tiles, p, schedule, a, b, paths_via_registers(p));
    });
  });
}

const bool registered =
    register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaInterleaved>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
