// mma_short: a short K and many tiles, with rows that begin anywhere.
//
// What changed from mma_guarded: few instructions from load to store. Small problems wait for instructions, which come from
// memory in every launch. mma_guarded has code for every layout and width, and runs it from places far apart. Here layouts
// are template parameters, and one way of loading serves every alignment: a thread loads the aligned 16-byte words that hold
// its vectors, and shifts the vectors into place. Two stages of shared memory take one barrier a K tile. Elements of D are
// finished in the registers of mma.sync, which serves every C, and leave in aligned vectors (epilogue/rows.cuh). The
// largest tile has warps of 32x32, which run few instructions for an element. Several blocks per SM hide each other's latency. If the SMs
// hold all tiles at once, the kernel uses PDL.
//
// Measured gain (H200, one run): 839x2307x19 takes 5.5 us, mma_guarded 6.1 and torch.addmm 6.8; 5000x899x11 11.4, 14.2 and 13.5;
// 440 products of 26x128x26 5.0, 9.5 and 7.0. With eight warps of 16x32 for four of 32x32, the first two took 5.6 and 14.3.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o mma_short.cubin csrc/kernels/12_mma_short.cu
// Run:   python -m bench.sweep --kernel mma_short
#include "12_mma_short.h"

#include "../epilogue/rows.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"
#include "../tile/shifted_tile.cuh"

namespace tc {
namespace {

template <int I, Math MATH, bool A_K, bool B_K>
__global__ __launch_bounds__(kMmaShort[I].threads,
                             kMmaShort[I].blocks_per_sm) void mma_short(const GemmDesc batch, const Schedule schedule) {
  const GemmDesc p = product_of(batch, blockIdx.y);
  using T = Operand<MATH>;
  constexpr int BLK_M = kMmaShort[I].tile_m, BLK_N = kMmaShort[I].tile_n, BLK_K = kMmaShort[I].tile_k;
  constexpr int THREADS = kMmaShort[I].threads, WARPS_N = 2, WARPS_M = THREADS / 32 / WARPS_N;
  constexpr int WARP_M = BLK_M / WARPS_M, WARP_N = BLK_N / WARPS_N, MMAS_M = WARP_M / 16, MMAS_N = WARP_N / 8;
  static_assert(MMAS_M > 0 && MMAS_N % 2 == 0 && THREADS >= BLK_N && kMmaShort[I].stages == 2);
  using A = SwizzledTile<T, BLK_M, BLK_K, A_K, THREADS>;
  using B = SwizzledTile<T, BLK_N, BLK_K, B_K, THREADS>;
  __shared__ __align__(128) char stages[2][A::BYTES + B::BYTES];
  __shared__ __align__(16) T staged[BLK_M * kRowPitch<BLK_N>];
  __shared__ __align__(8) float bias[BLK_N];  // the tile's part of a C with one row
  const int warp_m = threadIdx.x / 32 / WARPS_N * WARP_M, warp_n = threadIdx.x / 32 % WARPS_N * WARP_N;

#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    // ---- prologue ----
    const WorkTile work_tile = schedule[work];
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    const int64_t k0 = int64_t(work_tile.first) * BLK_K;
    const int count = work_tile.count;
    const auto k_left = [&](int t) { return int(min(p.k - k0 - int64_t(t) * BLK_K, int64_t(BLK_K))); };  // from K tile t on
    ShiftedTile<T, BLK_M, BLK_K, A_K, THREADS> a_tile(p.a.data, A_K ? p.a.row : p.a.col, m0, p.m, k0, p.k);
    ShiftedTile<T, BLK_N, BLK_K, B_K, THREADS> b_tile(p.b.data, B_K ? p.b.col : p.b.row, n0, p.n, k0, p.k);
    prefetch_c<BLK_M, BLK_N, THREADS>(p, m0, n0);
    if (work == blockIdx.x) {
      a_tile.prefetch(p.k - k0), b_tile.prefetch(p.k - k0);
      prefetch_bias<T, BLK_N>(p, n0);
      wait_on_dependencies(), launch_dependents();
    }

    // ---- main loop ----
    if (count > 0) a_tile.fetch(k_left(0)), b_tile.fetch(k_left(0));
    const float c = load_bias<T, BLK_N>(p, n0);
    if (threadIdx.x < BLK_N) bias[threadIdx.x] = c;
    if (count == 0) __syncthreads();
    float acc[MMAS_M][MMAS_N][4] = {};  // (WARP_M, WARP_N) over the warp
    const uint32_t a_lane = a_lane_offset<A, A_K>(warp_m, threadIdx.x % 32);
    const uint32_t b_lane = b_lane_offset<B, B_K>(warp_n, threadIdx.x % 32);
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const uint32_t a_stage = smem_address(stages[t % 2]), b_stage = a_stage + A::BYTES;
      a_tile.store(a_stage, k_left(t)), b_tile.store(b_stage, k_left(t));
      if (t + 1 < count) a_tile.fetch(k_left(t + 1)), b_tile.fetch(k_left(t + 1));
      __syncthreads();  // K tile t has arrived, and all warps have read K tile t - 1
#pragma unroll
      for (int step = 0; step < BLK_K / 16; ++step) {
        uint32_t a[MMAS_M][4], b[MMAS_N / 2][4];  // (WARP_M, 16) and (WARP_N, 16) over the warp
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i) load_fragment<MATH, A_K>(a[i], A::address(a_stage, a_lane, i, step));
#pragma unroll
        for (int j = 0; j < MMAS_N / 2; ++j) load_fragment<MATH, B_K>(b[j], B::address(b_stage, b_lane, j, step));
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j) mma_m16n8<T>(acc[i][j], a[i], b[j / 2][j % 2 * 2], b[j / 2][j % 2 * 2 + 1]);
      }
    }

    // ---- epilogue ----
    const int lane = opaque_lane();
    // How many of the tile's rows and columns lie inside the matrix, and where this lane's elements of acc lie in the tile.
    const int rows = int(min(p.m - m0, int64_t(BLK_M))), columns = int(min(p.n - n0, int64_t(BLK_N)));
    const auto row = [&](int y) { return warp_m + lane / 4 + y * 8; };
    const auto column = [&](int x) { return warp_n + lane % 4 * 2 + x / 2 * 8 + x % 2; };
    const auto element = [&](int y, int x) -> float& { return acc[y / 2][x / 2][y % 2 * 2 + x % 2]; };
    if (!p.c.data || has_bias(p)) {
      finish_products(p, acc, bias + warp_n);
    } else {
      // A lane loads C column by column, because the addresses of all its elements would not fit the registers. Beyond the matrix it loads
      // the last row or column again, because a branch would wait for each load.
      const auto add = [&](auto type) {
        const auto* const from = static_cast<const decltype(type)*>(p.c.data) + m0 * p.c.row + n0 * p.c.col;
#pragma unroll
        for (int x = 0; x < MMAS_N * 2; ++x) {
          const auto* const of_column = from + min(column(x), columns - 1) * p.c.col;
#pragma unroll
          for (int y = 0; y < MMAS_M * 2; ++y) {
            const float c_yx = to_float(of_column[min(row(y), rows - 1) * p.c.row]);
            element(y, x) = combine(element(y, x), p.epilogue.alpha, c_yx, p.epilogue.beta);
          }
        }
      };
      if (is_f32(p.c.dtype)) add(float());
      else add(T());
      activate<MMAS_M * MMAS_N * 4>(&acc[0][0][0], p.epilogue.activation);
    }
    if (takes_rows(p)) {
      const RowShift shift(p, m0, n0, 0);
      stage_rows<BLK_N>(shift, acc, staged, warp_m, warp_n);
      __syncthreads();
      store_rows<BLK_M, BLK_N, THREADS>(p, shift, staged, m0, n0);
    } else {
      const auto store = [&](auto type) {
        using D = decltype(type);
        D* const to = static_cast<D*>(p.d.data) + work_tile.layer * slice_stride(p) + m0 * p.d.row + n0 * p.d.col;
#pragma unroll
        for (int x = 0; x < MMAS_N * 2; ++x)
#pragma unroll
          for (int y = 0; y < MMAS_M * 2; ++y)
            if (row(y) < rows && column(x) < columns) to[row(y) * p.d.row + column(x) * p.d.col] = from_float<D>(element(y, x));
      };
      __syncthreads();  // all of the tile's C has been read, which may be D; the next tile's K tiles take the stages
      if (is_f32(p.d.dtype)) store(float());
      else store(T());
    }
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(MmaShortMaths(), call.math, [&](auto math) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<mma_short<I, math, a_k, b_k>, true>(call, p, Schedule(call, call.config.tile_k));
    });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaShort>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
