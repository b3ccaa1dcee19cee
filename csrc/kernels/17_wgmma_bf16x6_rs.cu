// wgmma_bf16x6_rs: fp32 on tensor cores in one launch, for operands of which one is long and the other has few rows or columns.
//
// What changed from wgmma_bf16x6: nobody writes parts to memory, which moves ten bytes for each element and takes a launch. The long
// operand goes from global memory into the registers that wgmma takes its M operand from (CUTLASS calls such a product RS), and is split
// there. A producer warpgroup splits the other operand, which is small, on its way into shared memory. The long operand is A if its rows
// are many, and B, whose columns are then on wgmma's M, if the rows of A are few.
//
// Measured gain (H200): 64x4608x16384, row-major, takes 175 us for 457, and torch.addmm 217; 128x4096x4096 takes 74 us for 97. Where rows
// are many the parts in memory are faster, because here every block of columns splits A again: 4096 cubed takes 2139 us for 1119. Splits
// take most of the time; with fewer instructions for them (tile/parts.cuh) 48x32000x4096 takes 247 us for 284.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o rs.cubin csrc/kernels/17_wgmma_bf16x6_rs.cu
// Run:   python -m bench.sweep --kernel wgmma_bf16x6_rs
#include "17_wgmma_bf16x6_rs.h"

#include "../epilogue/staged.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/parts.cuh"
#include "../tile/scheduler.cuh"
#include "../tile/split_operand.cuh"
#include "../tile/tma_operand.cuh"

namespace tc {
namespace {

constexpr int BLK_K = 64, PARTS = PartsLayout::kParts;
constexpr int kAheadInL2 = 3;  // K tiles that L2 reads before the registers do
constexpr int kSumTiles = 16;  // K tiles whose sums are added in sequence, if no other kernel has to give the same bits

// A block's K tiles, in the order in which it multiplies them.
struct KTiles {
  int work;
  WorkTile at;
  int t = 0;  // within the work tile

  __device__ explicit KTiles(const Schedule& schedule) : work(int(blockIdx.x)), at(schedule[work]) { skip_empty(schedule); }
  __device__ bool any(const Schedule& schedule) const { return work < schedule.size; }
  __device__ int64_t k() const { return int64_t(at.first + t) * BLK_K; }
  // Returns whether the next K tile is in another work tile.
  __device__ bool advance(const Schedule& schedule) {
    if (++t < at.count) return false;
    next(schedule), skip_empty(schedule);
    return true;
  }

 private:
  __device__ void next(const Schedule& schedule) {
    work += int(gridDim.x), t = 0;
    if (any(schedule)) at = schedule[work];
  }
  __device__ void skip_empty(const Schedule& schedule) {
    while (any(schedule) && at.count == 0) next(schedule);
  }
};

// ALONG_K is streamed.along_k.
template <int I, bool ALONG_K>
__global__ __launch_bounds__(kWgmmaBf16x6Rs[I].threads, 1) void wgmma_bf16x6_rs(
    const GemmDesc batch, const VectorAccess access, const Schedule schedule,
    const __grid_constant__ SplitSource batch_streamed, const __grid_constant__ SplitSource batch_shared) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Config CONFIG = kWgmmaBf16x6Rs[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages, GROUPS = CONFIG.threads / 128 - 1;
  constexpr bool STREAMS_A = BLK_M > BLK_N;
  constexpr int SHARED = STREAMS_A ? BLK_N : BLK_M;  // columns of B or rows of A in shared memory
  static_assert(BLK_K == kSplitTile);
  constexpr int K_STEPS = BLK_K / 16, STEPS_OF_SUM = 2;
  constexpr int PART_BYTES = SHARED * 128, STAGE_BYTES = PARTS * PART_BYTES;
  constexpr int ROWS = StagedPart::of(CONFIG).rows, COLS = StagedPart::of(CONFIG).columns, PITCH = StagedPart::of(CONFIG).pitch;
  static_assert(STAGES * (STAGE_BYTES + 32) + GROUPS * ROWS * PITCH * 4 == CONFIG.smem_bytes);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  const SplitSource streamed = batch_streamed.of_product(blockIdx.y), shared = batch_shared.of_product(blockIdx.y);
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = smem_address(smem);                                         // (STAGES, PARTS, SHARED, 128 bytes)
  float* const staged_tiles = reinterpret_cast<float*>(smem + STAGES * STAGE_BYTES);  // (GROUPS, ROWS, PITCH)
  float* const marks = staged_tiles + GROUPS * ROWS * PITCH;                          // (STAGES, warps of the producer)
  const uint32_t full = smem_address(marks + STAGES * 4);      // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                    // (STAGES) barriers: the stage has been multiplied
  const int group = warp_uniform(int(threadIdx.x) / 128) - 1;  // consumer warpgroup; -1 is the producer
  const int thread = threadIdx.x % 128, warp = warp_uniform(thread / 32), lane = thread % 32;
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 4);
      mbarrier_init(empty + s * 8, GROUPS * 4);
    }
  }
  __syncthreads();
  wait_on_dependencies();
  const auto first_streamed = [&](const TileIndex& tile) {  // of this warpgroup, in rows of A or columns of B
    return int64_t(STREAMS_A ? tile.m : tile.n) * (GROUPS * kStreamed) + group * kStreamed;
  };
  const auto first_shared = [&](const TileIndex& tile) { return int64_t(STREAMS_A ? tile.n : tile.m) * SHARED; };
  KTiles next(schedule);  // the K tile to load

  // ---- main loop ----
  if (group < 0) {  // producer warpgroup
    warpgroup_reg_dealloc<88>();
    constexpr int IN_TILE = SplitUnit::PER_TILE, UNITS = SHARED * IN_TILE, PER_THREAD = (UNITS + 127) / 128;
    // A thread splits 16 elements of a row at a time. Neighbouring threads load neighbouring elements.
    const auto row_of = [&](int u) { return shared.along_k ? (thread + u * 128) / IN_TILE : (thread + u * 128) % SHARED; };
    const auto unit_of = [&](int u) { return shared.along_k ? thread % IN_TILE : (thread + u * 128) / SHARED; };
    SplitUnit x[PER_THREAD];
    const auto load = [&] {
#pragma unroll
      for (int u = 0; u < PER_THREAD; ++u)
        x[u].load(shared, min(first_shared(next.at.tile) + row_of(u), shared.outer - 1), next.k() + unit_of(u) * SplitUnit::K);
    };
    if (next.any(schedule)) load();
    for (RingPosition<STAGES> at; next.any(schedule); at.advance()) {
      const uint32_t stage = stages + at.stage * STAGE_BYTES;
      mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
      Magnitudes seen;
#pragma unroll
      for (int u = 0; u < PER_THREAD; ++u) {
        if (UNITS % 128 != 0 && thread >= UNITS) break;
        x[u].store(stage, PART_BYTES, row_of(u), unit_of(u), seen);
      }
      const float mark = seen.mark_of_warp();
      if (lane == 0) marks[at.stage * 4 + warp] = mark;
      fence_proxy_async();  // wgmma reads what this thread has stored
      __syncwarp();
      mbarrier_arrive_if(lane == 0, full + at.stage * 8);
      next.advance(schedule);
      if (next.any(schedule)) load();  // not before the fence, which would wait for the loads
    }
    launch_dependents();  // all K tiles are loaded: see wgmma_tma
    return;
  }

  // consumer warpgroups
  warpgroup_reg_alloc<208>();
  const int g = lane / 4, q = lane % 4;  // PTX ISA, wgmma fragments
  // wgmma's rows g and g + 8 of a warp are neighbours in an operand whose columns are contiguous, for loads of pairs.
  const auto row_of = [&](int h) { return warp * 16 + (ALONG_K ? g + h * 8 : g * 2 + h); };
  float* const staged = staged_tiles + group * ROWS * PITCH;
  LaneElements<ALONG_K> x[K_STEPS];  // (64, BLK_K) over the warpgroup
  const float* from[2];              // the lane's first k of its rows in the next K tile
  int64_t left;                      // k from there on
  bool wide;
  const auto find_rows = [&] {
    const int64_t k = next.k() + q * kLaneK, rows = first_streamed(next.at.tile);
    left = streamed.k - k;
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      // Rows beyond the matrix repeat its last ones. The sums that come of them are not stored.
      const int64_t row = min(rows + row_of(h), streamed.outer - (!ALONG_K && streamed.wide ? 2 - h : 1));
      from[h] = streamed.data + row * streamed.outer_stride + k * streamed.k_stride;
    }
  };
  const auto begin_k_tile = [&](bool same_rows) {
    if (!next.any(schedule)) left = 0;
    else if (same_rows) from[0] += BLK_K * streamed.k_stride, from[1] += BLK_K * streamed.k_stride, left -= BLK_K;
    else find_rows();
    wide = streamed.wide && left + q * kLaneK >= BLK_K;
  };
  const auto load = [&](int k0) {  // half a K tile, from step k0 on
    if (wide) {
#pragma unroll
      for (int k = k0; k < k0 + STEPS_OF_SUM; ++k) x[k].load_wide(streamed, from, k * 16);
    } else {
#pragma unroll
      for (int k = k0; k < k0 + STEPS_OF_SUM; ++k) x[k].load_elements(streamed, from, k * 16, left);
    }
  };
  KTiles far = next;  // the K tile to prefetch
  const auto prefetch = [&] {
    if (!far.any(schedule)) return;
    constexpr int LINE = 32;  // elements
    const int64_t row = first_streamed(far.at.tile) + (ALONG_K ? thread / 2 : thread % 2 * LINE);
    const int64_t k = far.k() + (ALONG_K ? thread % 2 * LINE : thread / 2);
    if (row < streamed.outer && k < streamed.k)
      prefetch_l2(streamed.data + row * streamed.outer_stride + k * streamed.k_stride);
    far.advance(schedule);
  };
  begin_k_tile(false);
#pragma unroll
  for (int k0 = 0; k0 < K_STEPS; k0 += STEPS_OF_SUM) load(k0);
  begin_k_tile(!next.advance(schedule));
#pragma unroll 1
  for (int i = 0; i < kAheadInL2; ++i) prefetch();

  RingPosition<STAGES> at;
#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    float acc[SHARED / 2];                        // (64, SHARED) over the warpgroup: sums of the tile
    float first[SHARED / 2], lesser[SHARED / 2];  // of half a K tile: of first parts, and of the other five products
    Magnitudes seen;                              // in the warp's rows of the streamed operand
    MarkedBlock of_shared;
#pragma unroll
    for (float& sum : acc) sum = 0.f;
#pragma unroll 1
    for (int t = 0; t < work_tile.count; ++t, at.advance()) {
      const uint64_t b = tile_descriptor<true>(warp_uniform(stages + at.stage * STAGE_BYTES), 0);
      const int64_t k_left = streamed.k - int64_t(work_tile.first + t) * BLK_K;
      prefetch();
      mbarrier_wait(full + at.stage * 8, at.parity);
      if (lane == 0) {  // which arrives at `empty`
        const float4 of_warps = *reinterpret_cast<const float4*>(marks + at.stage * 4);
        for (const float mark : {of_warps.x, of_warps.y, of_warps.z, of_warps.w}) of_shared.note(mark);
      }
#pragma unroll
      for (int k0 = 0; k0 < K_STEPS; k0 += STEPS_OF_SUM) {
        SplitFragments<STEPS_OF_SUM> parts;
        parts.split(&x[k0], seen);
        load(k0);
        if (k0 * 16 >= k_left) continue;  // all zeros
        wgmma_fence();
        parts.template multiply<SHARED, STREAMS_A>(first, lesser, false, b, PART_BYTES, k0);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < SHARED / 2; ++i) acc[i] += first[i] + lesser[i];
      }
      mbarrier_arrive_if(lane == 0, empty + at.stage * 8);
      begin_k_tile(!next.advance(schedule));
      if (!p.batch_invariant && (t + 1) % kSumTiles == 0 &&
          t + 1 < work_tile.count) {                       // the staged part of D holds the sums so far
        if (t < kSumTiles) named_barrier<128>(1 + group);  // all warps have read the last tile's part
#pragma unroll
        for (int i = 0; i < SHARED / 2; ++i) {
          float& sum = staged[i * 128 + thread];
          sum = acc[i] + (t < kSumTiles ? 0.f : sum), acc[i] = 0.f;
        }
      }
    }
    if (!p.batch_invariant && work_tile.count > kSumTiles)
#pragma unroll
      for (int i = 0; i < SHARED / 2; ++i) acc[i] += staged[i * 128 + thread];

    // ---- products that the parts do not hold ----
    const int64_t x0 = first_streamed(work_tile.tile), y0 = first_shared(work_tile.tile) + q * 2;
    MarkedBlock of_streamed;
    of_streamed.note(seen.mark_of_warp());
    of_shared.combine_lanes();
    const float least = least_sum(p.k, of_streamed, of_shared);
    const int64_t rows[2] = {x0 + row_of(0), x0 + row_of(1)};
    bool differs = false;
#pragma unroll
    for (int i = 0; i < SHARED / 2; ++i)
      differs |= rows[i / 2 % 2] < streamed.outer && y0 + i / 4 * 8 + i % 2 < shared.outer && !is_as_good(acc[i], least);
    if (work_tile.count > 0 && differs) {
      const int64_t k0 = int64_t(work_tile.first) * BLK_K;
      const float* const from = streamed.data + k0 * streamed.k_stride;
      const float* const of_rows[2] = {from + min(rows[0], streamed.outer - 1) * streamed.outer_stride,
                                       from + min(rows[1], streamed.outer - 1) * streamed.outer_stride};
      form_exact_sums(
          acc, of_rows, streamed.k_stride, shared.data + y0 * shared.outer_stride + k0 * shared.k_stride, shared.outer_stride,
          shared.k_stride, shared.outer - y0, min(p.k - k0, int64_t(work_tile.count) * BLK_K), p.k);
    }

    // ---- epilogue ----
    named_barrier<128>(1 + group);  // all warps have read the last tile's part
#pragma unroll
    for (int i = 0; i < SHARED / 2; ++i) {
      const int row = row_of(i / 2 % 2), col = i / 4 * 8 + q * 2 + i % 2;
      staged[STREAMS_A ? row * PITCH + col : col * PITCH + row] = acc[i];
    }
    named_barrier<128>(1 + group);
    constexpr int OF_WARP = ROWS / 4;
    // Made anew, like the product: they would hold registers through the main loop.
    const int own = threadIdx.x % 128 / 32 * OF_WARP;  // the warp's first row
    const GemmDesc of_d = product_of(batch, opaque_product());
    const int64_t m0 = (STREAMS_A ? x0 : first_shared(work_tile.tile)) + own;
    const int64_t n0 = STREAMS_A ? first_shared(work_tile.tile) : x0, d_offset = work_tile.layer * slice_stride(p);
    finish_staged<float, OF_WARP, COLS, PITCH>(of_d, access, RowShift(), staged + own * PITCH, m0, n0, d_offset);
  }
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const SplitSource a = split_source_of(p.a, p.m, p.k), b = split_source_of(transpose(p.b), p.n, p.k);
  const Schedule schedule(call, call.config.tile_k);
  const VectorAccess access = vector_access_of(p);
  const bool streams_a = call.config.tile_m > call.config.tile_n;
  const SplitSource &streamed = streams_a ? a : b, &shared = streams_a ? b : a;
  return streamed.along_k ? launch<wgmma_bf16x6_rs<I, true>, true>(call, p, access, schedule, streamed, shared)
                          : launch<wgmma_bf16x6_rs<I, false>, true>(call, p, access, schedule, streamed, shared);
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaBf16x6Rs>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
