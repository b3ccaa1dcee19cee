// wgmma_bf16x6_streamed: fp32 on tensor cores for many rows, few columns and a short K, in one launch.
//
// What changed from wgmma_bf16x6_rs: B is split once. A block keeps the parts of its columns of B in shared memory, all of K deep, and its
// warpgroups walk over rows of A. Rows arrive by bulk copies, with what lies between them, in slots of the warpgroups' own, as in
// mma_streamed: they may begin anywhere, and no warp waits for loads that it has issued. Warpgroups share an SM, so that one splits while
// another multiplies.
//
// Measured gain (H200): 401408x64x147 takes 140 us, and torch.addmm 211; mma_direct took 223 in a run before. 65536x64x200 takes 41.6 us
// for 51.8 in wgmma_bf16x6_rs. With a K of 24 a tile's epilogue takes longer than its products: 401408x144x24 takes 171 us for 98 in
// mma_direct.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o streamed.cubin csrc/kernels/25_wgmma_bf16x6_streamed.cu
// Run:   python -m bench.sweep --kernel wgmma_bf16x6_streamed
#include "25_wgmma_bf16x6_streamed.h"

#include "../epilogue/staged.cuh"
#include "../gemm/walked_shape.h"
#include "../ptx/mbarrier.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/tma.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/dispatch.h"
#include "../tile/parts.cuh"
#include "../tile/split_operand.cuh"
#include "../tile/streamed_rows.cuh"

namespace tc {
namespace {

// A launch's WalkedShape, as the kernel reads it.
struct WalkedGrid {
  int depth, panels, walkers, slots, slot_bytes;
  bool stages_d;  // whether D goes through the slot: unless it has aligned pairs, and C is absent or one row
};

template <int I>
__global__ __launch_bounds__(kWgmmaBf16x6Streamed[I].threads, 1) void wgmma_bf16x6_streamed(
    const GemmDesc batch, const VectorAccess access, const WalkedGrid grid, const __grid_constant__ SplitSource batch_b) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  constexpr Config CONFIG = kWgmmaBf16x6Streamed[I];
  constexpr int COLS = CONFIG.tile_n, ROWS = WalkedShape::kRows, THREADS = CONFIG.threads, GROUPS = THREADS / 128;
  constexpr int STEPS = 2, STEP_K = STEPS * 16;  // whose products have sums of their own
  static_assert(CONFIG.tile_m == ROWS && WalkedShape::kPad == kRowPad);
  constexpr int B_PART = COLS * 128, B_TILE = WalkedShape::k_tile_bytes(COLS);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  const SplitSource b = batch_b.of_product(blockIdx.y);
  extern __shared__ __align__(1024) char smem[];
  const uint32_t panel = smem_address(smem);           // (depth, parts, COLS, 128 bytes) of B
  char* const all_slots = smem + grid.depth * B_TILE;  // (GROUPS, slots, slot_bytes) of A
  float* const bias = reinterpret_cast<float*>(all_slots + GROUPS * grid.slots * grid.slot_bytes);  // (COLS) of C
  float* const marks = bias + COLS;                                                                 // (warps) of B
  const uint32_t all_full = smem_address(marks + THREADS / 32);  // (GROUPS, slots) barriers: the slot holds rows
  const int group = warp_uniform(int(threadIdx.x) / 128), warp = warp_uniform(int(threadIdx.x) % 128 / 32);
  const int lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;  // PTX ISA, wgmma fragments
  const uint32_t slots = smem_address(all_slots) + group * grid.slots * grid.slot_bytes,
                 full = all_full + group * grid.slots * 8;
  if (threadIdx.x % 128 == 0)
    for (int s = 0; s < grid.slots; ++s) mbarrier_init(full + s * 8, 1);
  fence_proxy_async();
  __syncthreads();
  wait_on_dependencies(), launch_dependents();

  // A block's tiles go to its warpgroups in turn. Neighbouring tiles go to different blocks, so that few rows spread over all of them.
  const int64_t first_row = (int64_t(group) * grid.walkers + blockIdx.x / grid.panels) * ROWS;
  const int64_t step_m = int64_t(GROUPS) * grid.walkers * ROWS;
  const auto rows_at = [&](int64_t m0) { return StreamedRows(p.a.data, p.a.row, 4, m0, p.m, p.k, ROWS); };
  const auto load_rows = [&](int64_t m0, int slot) {  // one warp of the warpgroup calls it
    if (m0 < p.m) rows_at(m0).load(slots + slot * grid.slot_bytes, full + slot * 8, lane);
  };
  if (warp == 0 && grid.depth > 0)
    for (int s = 0; s < grid.slots; ++s) load_rows(first_row + s * step_m, s);

  // The parts of B. A thread has the loads of two units under way.
  const int64_t n0 = int64_t(blockIdx.x % grid.panels) * COLS;
  const int columns = int(min(int64_t(COLS), p.n - n0)), units = COLS * SplitUnit::PER_TILE * grid.depth;
  if (threadIdx.x < COLS)
    bias[threadIdx.x] = present(p.c) && !grid.stages_d && threadIdx.x < columns
                            ? static_cast<const float*>(p.c.data)[(n0 + threadIdx.x) * p.c.col]
                            : 0.f;
  Magnitudes of_b;
#pragma unroll 1
  for (int begin = threadIdx.x; begin < units; begin += 2 * THREADS) {
    constexpr int IN_TILE = SplitUnit::PER_TILE;
    const auto row_of = [&](int u) { return b.along_k ? u / IN_TILE % COLS : u % COLS; };
    const auto unit_of = [&](int u) { return b.along_k ? u % IN_TILE + u / (IN_TILE * COLS) * IN_TILE : u / COLS; };
    SplitUnit loaded[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = begin + i * THREADS;
      if (u < units) loaded[i].load(b, min(n0 + row_of(u), b.outer - 1), int64_t(unit_of(u)) * SplitUnit::K);
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const int u = begin + i * THREADS, unit = unit_of(u);
      if (u < units) loaded[i].store(panel + unit / IN_TILE * B_TILE, B_PART, row_of(u), unit % IN_TILE, of_b);
    }
  }
  const float of_warp = of_b.mark_of_warp();
  if (lane == 0) marks[threadIdx.x / 32] = of_warp;
  fence_proxy_async();  // wgmma reads what this thread has stored
  __syncthreads();
  MarkedBlock marked;
#pragma unroll
  for (int w = 0; w < THREADS / 32; ++w) marked.note(marks[w]);

  int slot = 0, parity = 0;
#pragma unroll 1
  for (int64_t m0 = first_row; m0 < p.m; m0 += step_m) {
    float acc[COLS / 2];  // (ROWS, COLS) over the warpgroup: sums of the tile
    Magnitudes seen;      // in the warp's rows
#pragma unroll
    for (float& sum : acc) sum = 0.f;

    // ---- main loop ----
    if (grid.depth > 0) {
      const StreamedRows tile = rows_at(m0);
      mbarrier_wait(full + slot * 8, parity);
      // Rows beyond the matrix repeat its last one. The sums that come of them are not stored.
      uint32_t at[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        at[h] = slots + slot * grid.slot_bytes + tile.offset(min(warp * 16 + g + h * 8, tile.rows - 1)) + q * kLaneK * 4;
      LaneElements<true> x[STEPS];
      const auto load = [&](int k0) {
        const int left = int(p.k) - k0;
        if (left >= STEP_K && access.a) {
#pragma unroll
          for (int k = 0; k < STEPS; ++k)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              ld_shared_16(reinterpret_cast<uint32_t (&)[4]>(x[k].x[h * kLaneK]), at[h] + (k0 + k * 16) * 4);
        } else {
#pragma unroll
          for (int k = 0; k < STEPS; ++k)
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
              for (int i = 0; i < kLaneK; ++i)
                x[k](h, i) = q * kLaneK + k * 16 + i < left ? __uint_as_float(ld_shared_4(at[h] + (k0 + k * 16 + i) * 4)) : 0.f;
        }
      };
      load(0);
      float lesser[COLS / 2];  // all of K
#pragma unroll 1
      for (int k0 = 0; k0 < int(p.k); k0 += STEP_K) {
        SplitFragments<STEPS> a;
        a.split(x, seen);
        load(k0 + STEP_K);
        const uint64_t y = tile_descriptor<true>(warp_uniform(panel + k0 / WalkedShape::kTileK * B_TILE), 0);
        float first[COLS / 2];
        wgmma_fence();
        a.template multiply<COLS, true>(first, lesser, k0 > 0, y, B_PART, k0 % WalkedShape::kTileK / 16);
        wgmma_commit();
        wgmma_wait<0>();
#pragma unroll
        for (int i = 0; i < COLS / 2; ++i) acc[i] += first[i];
      }
#pragma unroll
      for (int i = 0; i < COLS / 2; ++i) acc[i] += lesser[i];
    }
    const auto load_next = [&] {
      named_barrier<128>(1 + group);  // no warp needs the slot any more
      if (warp == 0 && grid.depth > 0) load_rows(m0 + grid.slots * step_m, slot);
    };
    if (grid.stages_d) named_barrier<128>(1 + group);  // all warps have read the slot
    else load_next();

    // ---- products that the parts do not hold ----
    const int64_t rows[2] = {m0 + warp * 16 + g, m0 + warp * 16 + g + 8}, y0 = n0 + q * 2;
    MarkedBlock of_a;
    of_a.note(seen.mark_of_warp());
    const float least = least_sum(p.k, of_a, marked);
    bool differs = false;
#pragma unroll
    for (int i = 0; i < COLS / 2; ++i)
      differs |= rows[i / 2 % 2] < p.m && y0 + i / 4 * 8 + i % 2 < p.n && !is_as_good(acc[i], least);
    if (grid.depth > 0 && differs) {
      const float* const data = static_cast<const float*>(p.a.data);
      const float* const of_rows[2] = {data + min(rows[0], p.m - 1) * p.a.row, data + min(rows[1], p.m - 1) * p.a.row};
      form_exact_sums(acc, of_rows, 1, b.data + y0 * b.outer_stride, b.outer_stride, b.k_stride, b.outer - y0, p.k, p.k);
    }

    // ---- epilogue ----
    if (grid.stages_d) {
      constexpr int PITCH = WalkedShape::staged_pitch(COLS);
      float* const staged =
          reinterpret_cast<float*>(all_slots + (group * grid.slots + slot) * grid.slot_bytes) + warp * 16 * PITCH;
#pragma unroll
      for (int i = 0; i < COLS / 2; i += 2)
        *reinterpret_cast<float2*>(&staged[(g + i / 2 % 2 * 8) * PITCH + i / 4 * 8 + q * 2]) = make_float2(acc[i], acc[i + 1]);
      __syncwarp();
      const GemmDesc of_d = product_of(batch, opaque_product());  // made anew: it would hold registers through the main loop
      finish_staged<float, 16, COLS, PITCH>(of_d, access, RowShift(), staged, m0 + warp * 16, n0, 0);
      fence_proxy_async();  // the slot's next rows come by bulk copies
      load_next();
    } else {
      constexpr int PAIRS = COLS / 8;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        float x[PAIRS * 2];
#pragma unroll
        for (int j = 0; j < PAIRS; ++j) {
          const float2 c = *reinterpret_cast<const float2*>(bias + q * 2 + j * 8);
          x[j * 2] = combine(acc[j * 4 + h * 2], p.epilogue.alpha, c.x, p.epilogue.beta);
          x[j * 2 + 1] = combine(acc[j * 4 + h * 2 + 1], p.epilogue.alpha, c.y, p.epilogue.beta);
        }
        activate<PAIRS * 2>(x, p.epilogue.activation);
        float* const d = static_cast<float*>(p.d.data) + rows[h] * p.d.row + y0;
#pragma unroll
        for (int j = 0; j < PAIRS; ++j)
          if (rows[h] < p.m && q * 2 + j * 8 < columns)
            *reinterpret_cast<float2*>(d + j * 8) = make_float2(x[j * 2], x[j * 2 + 1]);
      }
    }
    if (++slot == grid.slots) slot = 0, parity ^= 1;
  }
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const WalkedShape shape(p, call.config, call.device.gpu.num_sms);
  const bool one_row_of_c = !present(p.c) || p.c.row == 0;
  const WalkedGrid grid{int(shape.depth), int(shape.panels),     int(shape.walkers),
                        shape.slots,      int(shape.slot_bytes), !(one_row_of_c && WalkedShape::has_pairs(p))};
  const Grid blocks{shape.panels * shape.walkers, call.config.threads, int(shape.smem_bytes(call.config)), 1, true, p.batch};
  return launch_sized<wgmma_bf16x6_streamed<I>, true>(
      call, blocks, p, vector_access_of(p), grid, split_source_of(transpose(p.b), p.n, p.k));
}

const bool registered =
    register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaBf16x6Streamed>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
