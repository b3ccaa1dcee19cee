// wgmma_bf16x6: products of fp32 on tensor cores, as accurate as fp32 arithmetic.
//
// What changed from wgmma_tma: fp32 operands arrive as three bf16 parts each (00_parts.cu), and the kernel forms six products of them
// (tile/parts.cuh). Tensor cores round towards zero when they add. The products of first parts, which are the largest, therefore have
// sums of their own, and those of 32 elements of K at a time are added to the tile's sums by fp32 additions, which round to nearest.
// While one warpgroup adds, the other's products go on. Over SGEMM's, the RMS error of operands spread over 2^-60 to 2^60 is 1.33 with
// K = 64, 1.69 with sums of 64 elements, and 1.20 with 16, which take 1.2 times as long (4096 cubed on an H200).
//
// Where sums are not as good as fp32's, for infinities, NaNs and magnitudes below 2^-110, a warpgroup forms its part of the tile again by
// fp32 arithmetic, in the order of simt. Nobody else waits for that, and without such elements it costs a comparison for each sum.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o bf16x6.cubin csrc/kernels/15_wgmma_bf16x6.cu
// Run:   python -m bench.sweep --kernel wgmma_bf16x6
#include "15_wgmma_bf16x6.h"

#include "../epilogue/tma.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/parts.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

constexpr int PARTS = PartsLayout::kParts;

struct Marks {
  const float *a, *b;
  int64_t a_batch, b_batch;  // marks from a product's to the next one's
  int strips;
};

// Each lane reads the mark of one strip of 64 rows or columns.
__device__ __forceinline__ void read_marks(MarkedBlock& of, const float* marks, int64_t block, int strips, int lane) {
  of.note(lane < strips ? marks[block * PartsLayout::kMostStrips + lane] : 0.f);
}

template <int I, bool kTmaOnly>
__global__ __launch_bounds__(kWgmmaBf16x6[I].threads, 1) void wgmma_bf16x6(
    const GemmDesc p, const Schedule schedule, const Marks marks, const __grid_constant__ TmaOperands operands,
    const __grid_constant__ TmaPaths paths) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Config CONFIG = kWgmmaBf16x6[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, BOXES = CONFIG.boxes;
  constexpr int BLK_K = 64, K_STEPS = 4, STEPS_OF_SUM = 2, GROUPS = CONFIG.threads / 128 - 1, ROWS = BLK_M / GROUPS;
  constexpr bool REALLOCATES = GROUPS > 1;  // moves registers from the producer to the consumers (setmaxnreg)
  constexpr int A_BYTES = BLK_M * 128, B_BYTES = BLK_N * 128, STAGE_BYTES = PARTS * (A_BYTES + B_BYTES);
  constexpr int BLOCK = 64 * 128;  // bytes of 64 rows of A or 64 columns of B
  static_assert(ROWS == kBoxRows && BLK_N % 64 == 0);
  static_assert(STAGES * (STAGE_BYTES + 16) + GROUPS * (BOXES * (BLOCK + 8) + BLK_N * 4) == CONFIG.smem_bytes);
  using Epilogue = TmaEpilogue<float, float, ROWS, BLK_N, BOXES, kTmaOnly>;

  // ---- prologue ----
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = smem_address(smem);                     // (STAGES, the parts of A's tile, then those of B's)
  char* const boxes = smem + STAGES * STAGE_BYTES;                // (GROUPS, BOXES, 64, 128 bytes) of C and D
  char* const rows = boxes + GROUPS * BOXES * BLOCK;              // (GROUPS, BLK_N) of a C that is one row
  const uint32_t full = smem_address(rows + GROUPS * BLK_N * 4);  // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                       // (STAGES) barriers: the stage has been multiplied
  const uint32_t c_full = empty + STAGES * 8;                     // (GROUPS, BOXES) barriers: the box holds C
  const int group = warp_uniform(int(threadIdx.x) / 128) - 1;     // consumer warpgroup; -1 is the producer
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, GROUPS);
    }
    for (int i = 0; i < GROUPS * BOXES; ++i) mbarrier_init(c_full + i * 8, 1);
    fence_proxy_async();
    if (p.k > 0) prefetch_tensor_map(operands.a.tile), prefetch_tensor_map(operands.b.tile);
    if (paths.c_path == CPath::tma) prefetch_tensor_map(paths.c);
    if (paths.d_path == DPath::tma) prefetch_tensor_map(paths.d);
  }
  __syncthreads();
  wait_on_dependencies();

  // ---- main loop ----
  if (group < 0) {  // producer warpgroup
    if (REALLOCATES) warpgroup_reg_dealloc<40>();
    if (warp_uniform(int(threadIdx.x) / 32) != 0) return;
    const bool issues = elect_one();
    const int padded = schedule.k_tiles * BLK_K;  // columns of a part
    RingPosition<STAGES> at;
    for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
      const WorkTile work_tile = schedule[work];
      const TmaOperandTile<true> a{operands.a, work_tile.tile.m * BLK_M, work_tile.product},
          b{operands.b, work_tile.tile.n * BLK_N, work_tile.product};
      for (int t = 0; t < work_tile.count; ++t, at.advance()) {
        const int k0 = (work_tile.first + t) * BLK_K;
        const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
        mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
        if (!issues) continue;
        mbarrier_arrive_expect(barrier, PARTS * (a.lines + b.lines) * kBoxBytes);
#pragma unroll
        for (int part = 0; part < PARTS; ++part) {
          a.load(stage + part * A_BYTES, barrier, k0 + part * padded);
          b.load(stage + PARTS * A_BYTES + part * B_BYTES, barrier, k0 + part * padded);
        }
      }
    }
    return;
  }

  // consumer warpgroups
  if (REALLOCATES) warpgroup_reg_alloc<232>();
  const int thread = threadIdx.x % 128, lane = thread % 32;
  const int row = thread / 32 * 16 + lane / 4, col = lane % 4 * 2;  // of the thread's first element in the warpgroup's tile
  RingPosition<STAGES> at;
  uint32_t use = 0;  // tiles that this warpgroup has finished
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    if (work + int(gridDim.x) >= schedule.size) launch_dependents();  // see wgmma_tma
    const WorkTile work_tile = schedule[work];
    const int m0 = work_tile.tile.m * BLK_M + group * ROWS, n0 = work_tile.tile.n * BLK_N;
    const TilePlace place{m0, n0, work_tile.layer};
    const Epilogue epilogue{
        p, paths, boxes + group * BOXES * BLOCK, rows + group * BLK_N * 4, c_full + group * BOXES * 8, 1 + group, thread};
    MarkedBlock of_a, of_b;
    float acc[1][BLK_N / 2];                    // (ROWS, BLK_N) over the warpgroup: sums of the tile
    float first[BLK_N / 2], lesser[BLK_N / 2];  // of half a K tile: of first parts, and of the other five products
#pragma unroll
    for (float& x : acc[0]) x = 0.f;
    for (int t = 0; t < work_tile.count; ++t, at.advance()) {
      const uint32_t stage = warp_uniform(stages + at.stage * STAGE_BYTES);
      const uint64_t a = tile_descriptor<true>(stage + group * ROWS * 128, BLOCK);
      const uint64_t b = tile_descriptor<true>(stage + PARTS * A_BYTES, BLOCK);
      mbarrier_wait(full + at.stage * 8, at.parity);
#pragma unroll
      for (int k0 = 0; k0 < K_STEPS; k0 += STEPS_OF_SUM) {
        wgmma_fence();
#pragma unroll
        for (int product = 0; product < kLesserProducts; ++product)
#pragma unroll
          for (int k = k0; k < k0 + STEPS_OF_SUM; ++k)
            wgmma<__nv_bfloat16, BLK_N, true, true>(
                lesser, a + (lesser_part_of_x(product) * A_BYTES >> 4) + k * kNextK<true>,
                b + (lesser_part_of_y(product) * B_BYTES >> 4) + k * kNextK<true>, product > 0 || k > k0);
#pragma unroll
        for (int k = k0; k < k0 + STEPS_OF_SUM; ++k)
          wgmma<__nv_bfloat16, BLK_N, true, true>(first, a + k * kNextK<true>, b + k * kNextK<true>, k > k0);
        wgmma_commit();
        if (t == 0 && k0 == 0) {
          epilogue.prefetch(place);
          int lane = thread % 32;  // hidden from the compiler, which would compute addresses before the K tiles and spill them
          asm volatile("" : "+r"(lane));
          read_marks(of_a, marks.a + work_tile.product * marks.a_batch, m0 / kBoxRows, m0 < p.m ? marks.strips : 0, lane);
#pragma unroll
          for (int n = 0; n < BLK_N; n += 64)
            read_marks(of_b, marks.b + work_tile.product * marks.b_batch, (n0 + n) / 64, n0 + n < p.n ? marks.strips : 0, lane);
        }
        wgmma_wait<0>();
        if (k0 + STEPS_OF_SUM == K_STEPS) mbarrier_arrive_if(thread == 0, empty + at.stage * 8);
#pragma unroll
        for (int i = 0; i < BLK_N / 2; ++i) acc[0][i] += first[i] + lesser[i];
      }
    }
    if (work_tile.count == 0) epilogue.prefetch(place);

    // ---- products that the parts do not hold ----
    of_a.combine_lanes(), of_b.combine_lanes();
    const float least = least_sum(p.k, of_a, of_b);
    bool differs = false;
#pragma unroll
    for (int i = 0; i < BLK_N / 2; ++i) {
      const bool inside = m0 + row + i / 2 % 2 * 8 < p.m && n0 + i / 4 * 8 + col + i % 2 < p.n;
      differs |= inside && !is_as_good(acc[0][i], least);
    }
    if (work_tile.count > 0 && named_barrier_or<128>(1 + group, differs)) {
      const int64_t k0 = int64_t(work_tile.first) * BLK_K;
      const float* const a = static_cast<const float*>(matrix_of(p.a, work_tile.product).data) + k0 * p.a.col;
      const float* const b =
          static_cast<const float*>(matrix_of(p.b, work_tile.product).data) + k0 * p.b.row + (n0 + col) * p.b.col;
      const float* const rows[2] = {
          a + min(int64_t(m0 + row), p.m - 1) * p.a.row, a + min(int64_t(m0 + row + 8), p.m - 1) * p.a.row};
      form_exact_sums(
          acc[0], rows, p.a.col, b, p.b.col, p.b.row, p.n - n0 - col, min(p.k - k0, int64_t(work_tile.count) * BLK_K), p.k);
    }

    // ---- epilogue ----
    epilogue.finish(acc, place, use);
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
  TmaOperands operands = {};
  const PartsLayout of_a{p.m, p.k}, of_b{p.n, p.k};
  const Status a = make_tma_descriptors(operands.a, call.parts.a.parts, p.batch, p.m, of_a.pitch(), true, call.config.tile_m);
  if (!a.ok()) return a;
  const Status b = make_tma_descriptors(operands.b, call.parts.b.parts, p.batch, p.n, of_b.pitch(), true, call.config.tile_n);
  if (!b.ok()) return b;
  const Schedule schedule(call, call.config.tile_k, p.batch);
  const Marks marks{call.parts.a.marks, call.parts.b.marks, call.parts.a.marks_batch, call.parts.b.marks_batch,
                    p.k > 0 ? int(of_a.strips()) : 0};
  return paths.tma_only ? launch_walk<wgmma_bf16x6<I, true>, true>(call, p, schedule, marks, operands, paths)
                        : launch_walk<wgmma_bf16x6<I, false>, true>(call, p, schedule, marks, operands, paths);
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaBf16x6>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
