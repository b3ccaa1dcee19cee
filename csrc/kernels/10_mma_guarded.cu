// mma_guarded: operands whose rows begin anywhere, without a repack.
//
// What changed from mma_swizzle: a thread copies with the widest access that an operand's alignment allows, cp.async of 16, 8 or
// 4 bytes, or registers for rows that begin at odd elements (tile/guarded_tile.cuh). mma_swizzle needs 16 bytes and has other
// operands repacked by a launch of their own, which doubles the time of a small problem: 100 cubed took 6.4 us on an H200, and
// 3.2 in torch.addmm. Layouts and widths are run-time values. Each configuration is therefore one kernel per math, which
// compiles in 2 s, and branches a few times per K tile.
//
// Small problems wait for latency and for instructions that come from memory. All K tiles of a short K are under way at once,
// and one loop fills the ring and multiplies, so that its code is fetched once. Registers hold a single K tile: the next one
// loads while the current one is multiplied. Grids that the SMs hold at once use PDL, and prefetch their operands into L2
// before the previous kernel has ended. A 16-bit D leaves by epilogue/rows.cuh, unless C is a full matrix.
//
// Measured gain (H200): 2000x300x100 takes 8.3 us, mma_swizzle and its repacks 19.3; 4096x3x40 row-major 4.0, mma_skinny 7.4. It
// was the fastest at 30 of 986 drawn problems. By the fit of the cost model 128 of K take 16 warps 1.1 us. With four
// warps, 64 of K took 0.9 us.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o mma_guarded.cubin csrc/kernels/10_mma_guarded.cu
// Run:   python -m bench.sweep --kernel mma_guarded
#include "10_mma_guarded.h"

#include "../epilogue/rows.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/guarded_tile.cuh"
#include "../tile/scheduler.cuh"
#include "../tile/swizzled_tile.cuh"

namespace tc {
namespace {

template <int I>
using ATile = GuardedTile<kMmaGuarded[I].tile_m, kMmaGuarded[I].tile_k, kMmaGuarded[I].threads>;
template <int I>
using BTile = GuardedTile<kMmaGuarded[I].tile_n, kMmaGuarded[I].tile_k, kMmaGuarded[I].threads>;

template <int I, Math MATH>
__global__ __launch_bounds__(kMmaGuarded[I].threads, kMmaGuarded[I].blocks_per_sm) void mma_guarded(
    const GemmDesc p, const VectorAccess access, const Schedule schedule, const GuardedOperand a_operand,
    const GuardedOperand b_operand) {
  using T = Operand<MATH>;
  constexpr int BLK_M = kMmaGuarded[I].tile_m, BLK_N = kMmaGuarded[I].tile_n, BLK_K = kMmaGuarded[I].tile_k;
  constexpr int STAGES = kMmaGuarded[I].stages, THREADS = kMmaGuarded[I].threads;
  constexpr int WARP_SLICES = kMmaGuarded[I].warp_slices, STEPS = BLK_K / 16 / WARP_SLICES;  // STEPS: k-steps of a slice
  constexpr int WARPS = THREADS / 32 / WARP_SLICES, WARPS_N = BLK_N == 32 && BLK_M > 32 ? 1 : 2, WARPS_M = WARPS / WARPS_N;
  constexpr int WARP_M = BLK_M / WARPS_M, WARP_N = BLK_N / WARPS_N, MMAS_M = WARP_M / 16, MMAS_N = WARP_N / 8;
  constexpr int A_BYTES = ATile<I>::BYTES, STAGE_BYTES = A_BYTES + BTile<I>::BYTES;
  static_assert(MMAS_M > 0 && MMAS_N % 2 == 0);
  static_assert(STAGES >= 2 && STAGES * STAGE_BYTES <= kMmaGuarded[I].smem_bytes);

  // ---- prologue ----
  // Made anew where it is used: its addresses would hold registers through the main loop.
  const auto of_product = [&] { return product_of(p, opaque_product()); };
  extern __shared__ __align__(128) char smem[];  // main loop: (STAGES, A tile then B tile); epilogue: (warps, WARP_M, D_PITCH)
  const uint32_t stages = smem_address(smem), stages_end = stages + STAGES * STAGE_BYTES;
  // Functions, because the values would hold registers through the main loop.
  const auto slice = [] { return int(threadIdx.x / 32) / WARPS; };
  const auto warp_m = [] { return int(threadIdx.x / 32) % WARPS / WARPS_N * WARP_M; };
  const auto warp_n = [] { return int(threadIdx.x / 32) % WARPS_N * WARP_N; };

  if (schedule.size <= gridDim.x && (p.m + p.n) * p.k * int64_t(sizeof(T)) <= kSmallOperands) {
    const WorkTile first = schedule[blockIdx.x];
    const int64_t k0 = int64_t(first.first) * BLK_K, k = min(int64_t(first.count) * BLK_K, p.k - k0);
    ATile<I>::prefetch(a_operand, int64_t(first.tile.m) * BLK_M, p.m, k0, k, first.tile.n, schedule.raster.tiles_n);
    BTile<I>::prefetch(b_operand, int64_t(first.tile.n) * BLK_N, p.n, k0, k, first.tile.m, schedule.raster.tiles_m);
  }
  wait_on_dependencies(), launch_dependents();

  // For the epilogue, in shared memory because the main loop has no registers to spare.
  __shared__ struct {
    WorkTile tile;
    int work;
  } current;
  __shared__ __align__(8) float bias[BLK_N];  // the tile's part of a C with one row
#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size;) {
    const WorkTile work_tile = schedule[work];
    if (threadIdx.x == 0) current = {work_tile, work};
    const int count = work_tile.count;
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    const int64_t k0 = int64_t(work_tile.first) * BLK_K;
    ATile<I> a_tile(a_operand, m0, p.m, k0);
    BTile<I> b_tile(b_operand, n0, p.n, k0);

    // Each acts on K tile t of the work tile, if there is one. copy() closes a commit group.
    const int k_last = int(p.k - int64_t(schedule.k_tiles - 1) * BLK_K);  // depth of the last K tile, which may be cut off
    const auto k_left = [&](int t) { return work_tile.first + t == schedule.k_tiles - 1 ? k_last : BLK_K; };
    const auto copy = [&](int t, uint32_t stage) {
      if (t < count && !a_tile.via_registers()) a_tile.copy_async(stage, k_left(t));
      if (t < count && !b_tile.via_registers()) b_tile.copy_async(stage + A_BYTES, k_left(t));
      cp_async_commit();
    };
    const auto fetch = [&](int t) {
      if (t < count && a_tile.via_registers()) a_tile.fetch(k_left(t));
      if (t < count && b_tile.via_registers()) b_tile.fetch(k_left(t));
    };
    const auto store = [&](int t, uint32_t stage) {
      if (t < count && a_tile.via_registers()) a_tile.store(stage, k_left(t));
      if (t < count && b_tile.via_registers()) b_tile.store(stage + A_BYTES, k_left(t));
    };

    float acc[MMAS_M][MMAS_N][4] = {};  // (WARP_M, WARP_N) over the warp
    const auto multiply = [&](uint32_t stage, auto a_k, auto b_k) {
      constexpr bool A_K = decltype(a_k)::value, B_K = decltype(b_k)::value;
      using A = SwizzledTile<T, BLK_M, BLK_K, A_K, THREADS>;
      using B = SwizzledTile<T, BLK_N, BLK_K, B_K, THREADS>;
      const int lane = opaque_lane();
      const uint32_t a_lane = a_lane_offset<A, A_K>(warp_m(), lane), b_lane = b_lane_offset<B, B_K>(warp_n(), lane);
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        const int step = slice() * STEPS + s;
        uint32_t a[MMAS_M][4], b[MMAS_N / 2][4];  // (WARP_M, 16) and (WARP_N, 16) over the warp
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i) load_fragment<MATH, A_K>(a[i], A::address(stage, a_lane, i, step));
#pragma unroll
        for (int j = 0; j < MMAS_N / 2; ++j) load_fragment<MATH, B_K>(b[j], B::address(stage + A_BYTES, b_lane, j, step));
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j) mma_m16n8<T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    };

    // ---- main loop ----
    // The first `ahead` rounds fill the ring and multiply nothing. Copies are `ahead` K tiles ahead of the product, registers
    // one. If the ring holds all of K, all of it is under way after these rounds, and one wait is for everything.
    const auto after = [&](uint32_t stage) { return stage + STAGE_BYTES == stages_end ? stages : stage + STAGE_BYTES; };
    const int ahead = min(max(count, 1), STAGES - 1);
    uint32_t stage = stages, filled = stages;  // of the product and of the copies
#pragma unroll 1
    for (int t = -ahead; t < count; ++t) {
      if (t >= 0) {  // K tile t has arrived behind the barrier, and the stage that the last product read is free
        if (ahead == STAGES - 1) cp_async_wait<STAGES - 2>();
        else cp_async_wait<0>();
        __syncthreads();
      }
      copy(t + ahead, filled);
      filled = after(filled);
      const float c = t == -1 ? load_bias<T, BLK_N>(of_product(), n0) : 0.f;
      if (t >= -1) fetch(t + 1);
      if (t == -1) prefetch_c<BLK_M, BLK_N, THREADS>(of_product(), m0, n0);
      if (t == -1 && threadIdx.x < BLK_N) bias[threadIdx.x] = c;
      if (t >= 0) {
        if (a_operand.k_contiguous) {
          if (b_operand.k_contiguous) multiply(stage, std::true_type(), std::true_type());
          else multiply(stage, std::true_type(), std::false_type());
        } else {
          if (b_operand.k_contiguous) multiply(stage, std::false_type(), std::true_type());
          else multiply(stage, std::false_type(), std::false_type());
        }
        stage = after(stage);
      }
      if (t >= -1) store(t + 1, stage);
    }

    // ---- epilogue ----
    cp_async_wait<0>();
    __syncthreads();
    if constexpr (WARP_SLICES > 1) {  // the first slice adds the sums of the others
      constexpr int SUMS = MMAS_M * MMAS_N;
      float4* const handed =
          reinterpret_cast<float4*>(smem) + threadIdx.x % (WARPS * 32);  // (WARP_SLICES - 1, SUMS, WARPS * 32)
      static_assert((WARP_SLICES - 1) * SUMS * WARPS * 32 * 16 <= kMmaGuarded[I].smem_bytes);
      const auto each = [&](int from, auto&& act) {
#pragma unroll
        for (int x = 0; x < SUMS; ++x) act(acc[x / MMAS_N][x % MMAS_N], handed[((from - 1) * SUMS + x) * WARPS * 32]);
      };
      if (slice() > 0)
        each(slice(), [](const float (&sum)[4], float4& to) { to = make_float4(sum[0], sum[1], sum[2], sum[3]); });
      __syncthreads();
      for (int from = 1; slice() == 0 && from < WARP_SLICES; ++from)
        each(from, [](float (&sum)[4], const float4& x) { sum[0] += x.x, sum[1] += x.y, sum[2] += x.z, sum[3] += x.w; });
      __syncthreads();
    }
    constexpr int D_PITCH = WARP_N + kRowPad;
    static_assert(WARPS * WARP_M * D_PITCH * 4 <= kMmaGuarded[I].smem_bytes);
    float* const staged = reinterpret_cast<float*>(smem) + threadIdx.x / 32 * WARP_M * D_PITCH;  // (WARP_M, D_PITCH)
    const WorkTile done = current.tile;
    const GemmDesc of_d = of_product();
    const int64_t m = int64_t(done.tile.m) * BLK_M + warp_m(), n = int64_t(done.tile.n) * BLK_N + warp_n();
    const int64_t d0 = done.layer * slice_stride(p);
    const auto finish_sums = [&] {
      const RowShift shift(of_d, m, n, d0, access.d_shifted);
      const int lane = opaque_lane();
#pragma unroll
      for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const int row = i * 16 + lane / 4 + h * 8;
          stage_pairs(shift.shifted, &staged[row * D_PITCH + shift(row) + lane % 4 * 2], acc[i], h);
        }
      __syncwarp();
      finish_staged<T, WARP_M, WARP_N, D_PITCH>(of_d, access, shift, staged, m, n, d0);
    };
    if (takes_rows(p) && (!p.c.data || has_bias(p))) {
      T* const tile = reinterpret_cast<T*>(smem);  // (BLK_M, kRowPitch<BLK_N>)
      static_assert(BLK_M * kRowPitch<BLK_N> * sizeof(T) <= kMmaGuarded[I].smem_bytes);
      const RowShift shift(of_d, m - warp_m(), n - warp_n(), 0);
      if (slice() == 0) {
        finish_products(p, acc, bias + warp_n());
        stage_rows<BLK_N>(shift, acc, tile, warp_m(), warp_n());
      }
      __syncthreads();
      store_rows<BLK_M, BLK_N, THREADS>(of_d, shift, tile, m - warp_m(), n - warp_n());
    } else if (slice() == 0) {
      finish_sums();
    }
    work = current.work + gridDim.x;
    __syncthreads();  // the next tile's operands take the memory where other warps still stage this tile
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(MmaGuardedMaths(), call.math, [&](auto math) {
    return launch<mma_guarded<I, math>, true>(call, p, vector_access_of(p), Schedule(call, call.config.tile_k),
                                              ATile<I>::operand(p.a, p.m, p.k), BTile<I>::operand(transpose(p.b), p.n, p.k));
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaGuarded>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
