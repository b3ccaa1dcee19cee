// simt_skinny: up to four rows of fp32 against all of B, at the pace of memory.
//
// What changed from mma_skinny: with so few rows, fp32 arithmetic takes less time than splitting B into parts. A lane multiplies the
// vectors of B that mma_skinny's lane loads by the same k of four rows of A. The four lanes that share columns add their sums by
// shuffles, and the block's warps, which divide K among them, through shared memory.
//
// Measured gain (H200): 3x10240x5120 takes 60.4 us, torch.addmm 128.3; 1x3840x5120 takes 23.0 in both. With 16 warps 1x384x3072 takes 4.8,
// with eight 5.6, torch.addmm 4.8.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt_skinny.cubin csrc/kernels/16_simt_skinny.cu
// Run:   python -m bench.sweep --kernel simt_skinny --only 1,4096,4096
#include "16_simt_skinny.h"

#include "../epilogue/vectors.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"
#include "../tile/words.cuh"

namespace tc {
namespace {

// Rows of A and B begin at multiples of WIDTH bytes: 16 or 4.
template <int I, int WIDTH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kSimtSkinny[I].threads, kSimtSkinny[I].blocks_per_sm) void simt_skinny(
    const GemmDesc batch, const VectorAccess access, const Schedule schedule) {
  constexpr int BLK_M = kSimtSkinny[I].tile_m, BLK_N = kSimtSkinny[I].tile_n, STAGES = kSimtSkinny[I].stages;
  constexpr int THREADS = kSimtSkinny[I].threads, WARPS = kSimtSkinny[I].warp_slices;
  constexpr int LANE_K = 4, WARP_K = 4 * LANE_K,
                BLK_K = WARPS * WARP_K;  // elements of K that a lane, warp, block multiply in a step
  // Element i of lane q is the step's k = q * LANE_STEP + i * ELEM_STEP. Single words lie side by side over the lanes.
  constexpr int LANE_STEP = WIDTH == 4 ? 1 : LANE_K, ELEM_STEP = WIDTH == 4 ? 4 : 1;
  constexpr int COLS = BLK_N / 8;  // of a lane: eight apart, or side by side if B is contiguous along N
  constexpr int LOADS = B_K_CONTIGUOUS ? COLS : LANE_K,
                WORDS = B_K_CONTIGUOUS ? LANE_K : COLS;  // of a lane's part of B in a step
  static_assert(THREADS == WARPS * 32 && kSimtSkinny[I].tile_k * 2 == BLK_K * 4);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  __shared__ float sums[WARPS][BLK_M][BLK_N];  // (WARPS, BLK_M, BLK_N)
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const float* const a_data = static_cast<const float*>(p.a.data);
  const float* const b_data = static_cast<const float*>(p.b.data);
  prefetch_first_k_tiles<BLK_N, BLK_K, THREADS, B_K_CONTIGUOUS>(b_data, p.b, p.n, p.k, schedule[blockIdx.x]);
  wait_on_dependencies();
  launch_dependents();

  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    // Pointers beyond the matrix fall back to one of its rows or columns. The sums that come of them are not stored.
    const float* a_from[BLK_M];
    const float* b_from[B_K_CONTIGUOUS ? COLS : 1];
#pragma unroll
    for (int r = 0; r < BLK_M; ++r) a_from[r] = a_data + min(m0 + r, p.m - 1) * p.a.row + q * LANE_STEP * p.a.col;
#pragma unroll
    for (int j = 0; j < COLS; ++j) {
      if constexpr (B_K_CONTIGUOUS) b_from[j] = b_data + min(n0 + j * 8 + g, p.n - 1) * p.b.col + q * LANE_STEP;
      else b_from[0] = b_data + (n0 + g * COLS < p.n ? n0 + g * COLS : 0) + q * LANE_STEP * p.b.row;
    }
    Words<4, A_K_CONTIGUOUS ? WIDTH : 16> a[STAGES][BLK_M];  // (STAGES, BLK_M, WARP_K) over the warp
    Words<WORDS, WIDTH> b[STAGES][LOADS];  // (STAGES, BLK_N, WARP_K) over the warp: a column's k, or a k's columns
    const auto load = [&](int stage, int step) {
      const int64_t k0 = int64_t(step) * WARP_K;
#pragma unroll
      for (int i = 0; i < LOADS; ++i) {
        if constexpr (B_K_CONTIGUOUS) b[stage][i].load(b_from[i] + k0, ELEM_STEP);
        else b[stage][i].load(b_from[0] + (k0 + i * ELEM_STEP) * p.b.row);
      }
#pragma unroll
      for (int r = 0; r < BLK_M; ++r) {
        if constexpr (A_K_CONTIGUOUS) a[stage][r].load(a_from[r] + k0, ELEM_STEP);
        else a[stage][r].load_elements(a_from[r] + k0 * p.a.col, ELEM_STEP * p.a.col, LANE_K);
      }
    };
    const auto load_cut = [&](int stage, int step) {
      const int64_t k0 = int64_t(step) * WARP_K;
      const int k_left = (int(p.k - k0) - q * LANE_STEP + ELEM_STEP - 1) / ELEM_STEP,
                n_left = int(min(int64_t(COLS), p.n - n0 - g * COLS));
#pragma unroll
      for (int i = 0; i < LOADS; ++i) {
        if constexpr (B_K_CONTIGUOUS) b[stage][i].load_elements(b_from[i] + k0, ELEM_STEP, k_left);
        else b[stage][i].load_elements(b_from[0] + (k0 + i * ELEM_STEP) * p.b.row, 1, i < k_left ? n_left : 0);
      }
#pragma unroll
      for (int r = 0; r < BLK_M; ++r) a[stage][r].load_elements(a_from[r] + k0 * p.a.col, ELEM_STEP * p.a.col, k_left);
    };
    float acc[BLK_M][COLS] = {};  // the lane's sums
    const auto multiply = [&](int stage) {
#pragma unroll
      for (int i = 0; i < LANE_K; ++i)
#pragma unroll
        for (int r = 0; r < BLK_M; ++r)
#pragma unroll
          for (int j = 0; j < COLS; ++j)
            acc[r][j] = fmaf(__uint_as_float(a[stage][r].x[i]),
                             __uint_as_float(B_K_CONTIGUOUS ? b[stage][j].x[i] : b[stage][i].x[j]), acc[r][j]);
    };

    // ---- main loop ----
    const int steps = int((p.k + WARP_K - 1) / WARP_K);
    const int first = work_tile.first * WARPS, end = min(first + work_tile.count * WARPS, steps);
    // Vectors may reach past the end of a row into the next row. No row follows the last one, so a last step that is cut off
    // loads element by element.
    const bool last_is_cut = p.k % WARP_K != 0 || (!B_K_CONTIGUOUS && p.n % COLS != 0);
    const int whole = min(end, steps - last_is_cut);
    const auto ahead = [](int s) { return s / 2 * 2 * WARPS + s % 2; };  // two neighbouring steps at a time, see mma_skinny
    static_assert(STAGES % 2 == 0);
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (first + warp * 2 + ahead(s) < whole) load(s, first + warp * 2 + ahead(s));
    for (int step = first + warp * 2; step < whole; step += STAGES * WARPS) {
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        if (step + ahead(s) >= whole) break;
        multiply(s);
        if (step + ahead(s) + STAGES * WARPS < whole) load(s, step + ahead(s) + STAGES * WARPS);
      }
    }
    if (first < end && whole < end && warp == WARPS - 1) {  // the last warp never has more steps than the others
      load_cut(0, end - 1);
      multiply(0);
    }

    // ---- epilogue ----
#pragma unroll
    for (int r = 0; r < BLK_M; ++r)
#pragma unroll
      for (int j = 0; j < COLS; ++j) {
        float sum = acc[r][j];
        sum += __shfl_xor_sync(0xffffffff, sum, 1);
        sum += __shfl_xor_sync(0xffffffff, sum, 2);
        if (q == 0) sums[warp][r][B_K_CONTIGUOUS ? j * 8 + g : g * COLS + j] = sum;
      }
    __syncthreads();
    if (threadIdx.x < BLK_M * BLK_N) {
      const int row = threadIdx.x / BLK_N, col = threadIdx.x % BLK_N;
      float c[1], sum[1] = {};
      read_c<float>(p, access, m0 + row, n0 + col, c);
#pragma unroll
      for (int w = 0; w < WARPS; ++w) sum[0] += sums[w][row][col];
      finish_vector<float>(p, access, m0 + row, n0 + col, sum, c, work_tile.layer * slice_stride(p));
    }
    __syncthreads();  // the next tile's sums take the place of this tile's
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k / 2);
  const auto with_width = [&](auto width) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<simt_skinny<I, width, a_k, b_k>, true>(call, p, vector_access_of(p), schedule);
    });
  };
  return std::min(alignment(p.a, p.m, p.k), alignment(p.b, p.k, p.n)) < 16
             ? with_width(std::integral_constant<int, 4>())
             : with_width(std::integral_constant<int, 16>());
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimtSkinny>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
