// simt_rows: up to eight rows of fp32 against a row-major B, at the pace of memory.
//
// What changed from simt_skinny: the 32 lanes of a warp lie side by side along N, so that a warp reads 512 bytes of each row of B. Eight
// lanes of simt_skinny read 64 or 128. A lane has columns of its own and adds their products over all k of its warp, so that no lanes
// add their sums by shuffles. Where rows of B begin anywhere, single words lie side by side over the lanes.
//
// A warp loads elements of A as many steps ahead as those of B, because L1 seldom holds them. In a form that loaded them one step ahead,
// 5x32768x8192 took 411 us, and takes 268 (H200; bench/results/h200-tried.md, "Rows of B, 512 bytes at a time").
//
// Measured gain (H200, one run): 5x32768x8192 takes 268 us, 366 in the fastest other kernel, and 261 in torch.addmm; 8x50257x768 52, 93 and
// 84; 1x5120x5120 28, 35 and 30; 1x12288x960 13.4, 17.2 and 13.6.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt_rows.cubin csrc/kernels/24_simt_rows.cu
// Run:   python -m bench.sweep --kernel simt_rows --only 1,4096,4096
#include "24_simt_rows.h"

#include "../epilogue/vectors.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"
#include "../tile/words.cuh"

namespace tc {
namespace {

constexpr int kStepsOfSum = 64;  // whose products a lane adds in sequence

// Rows of B begin at multiples of WIDTH bytes: 16 or 4. A_VECTORS: A has K contiguous, and its rows begin at multiples of 16.
template <int I, int WIDTH, bool A_VECTORS>
__global__ __launch_bounds__(kSimtRows[I].threads, kSimtRows[I].blocks_per_sm) void simt_rows(
    const GemmDesc batch, const VectorAccess access, const Schedule schedule) {
  constexpr int BLK_M = kSimtRows[I].tile_m, BLK_N = kSimtRows[I].tile_n, STAGES = kSimtRows[I].stages;
  constexpr int THREADS = kSimtRows[I].threads, WARPS = kSimtRows[I].warp_slices;
  constexpr int LANES = 32, COLS = BLK_N / LANES;    // lanes side by side; columns of a lane
  constexpr int WARP_K = 4, BLK_K = WARPS * WARP_K;  // elements of K that a warp, block multiply in a step
  // Column j of a lane is the tile's lane * LANE_STEP + j * COL_STEP. Single words lie side by side over the lanes.
  constexpr int LANE_STEP = WIDTH == 4 ? 1 : COLS, COL_STEP = WIDTH == 4 ? LANES : 1;
  static_assert(THREADS == WARPS * LANES && COLS == 4 && kSimtRows[I].tile_k * 2 == BLK_K * 4);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  __shared__ __align__(16) float sums[WARPS][BLK_M][BLK_N];  // (WARPS, BLK_M, BLK_N)
  const int warp = threadIdx.x / 32, lane = threadIdx.x % LANES;
  const float* const a_data = static_cast<const float*>(p.a.data);
  const float* const b_data = static_cast<const float*>(p.b.data);
  prefetch_first_k_tiles<BLK_N, BLK_K, THREADS, false>(b_data, p.b, p.n, p.k, schedule[blockIdx.x]);
  wait_on_dependencies();
  launch_dependents();

  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    // Pointers beyond the matrix fall back to its last row or first column. The sums that come of them are not stored.
    const float* const a_from = a_data + m0 * p.a.row;
    const int last_row = int(min(int64_t(BLK_M), p.m - m0)) - 1;
    // Column j of the lane, or its vector of columns.
    const float* b_from[WIDTH == 4 ? COLS : 1];
#pragma unroll
    for (int j = 0; j < (WIDTH == 4 ? COLS : 1); ++j) {
      const int64_t n = n0 + lane * LANE_STEP + j * COL_STEP;
      b_from[j] = b_data + (n < p.n ? n : 0);
    }
    Words<WARP_K, 16> a[STAGES][BLK_M];  // (STAGES, BLK_M, WARP_K) over the warp
    Words<COLS, 16> b[STAGES][WARP_K];   // (STAGES, WARP_K, BLK_N) over the warp
    const auto load = [&](int stage, int step) {
      const int64_t k0 = int64_t(step) * WARP_K;
#pragma unroll
      for (int i = 0; i < WARP_K; ++i) {
        if constexpr (WIDTH == 16) b[stage][i].load(b_from[0] + (k0 + i) * p.b.row);
        else
#pragma unroll
          for (int j = 0; j < COLS; ++j) load_word(b[stage][i].x[j], b_from[j] + (k0 + i) * p.b.row);
      }
      const float* of_row = a_from + k0 * p.a.col;
#pragma unroll
      for (int r = 0; r < BLK_M; ++r) {
        if constexpr (A_VECTORS) a[stage][r].load(of_row);
        else
#pragma unroll
          for (int i = 0; i < WARP_K; ++i) load_word(a[stage][r].x[i], of_row + i * p.a.col);
        if (r < last_row) of_row += p.a.row;
      }
    };
    float acc[BLK_M][COLS] = {};  // the lane's sums
    const auto multiply = [&](int stage) {
#pragma unroll
      for (int i = 0; i < WARP_K; ++i)
#pragma unroll
        for (int r = 0; r < BLK_M; ++r)
#pragma unroll
          for (int j = 0; j < COLS; ++j)
            acc[r][j] = fmaf(__uint_as_float(a[stage][r].x[i]), __uint_as_float(b[stage][i].x[j]), acc[r][j]);
    };
    // Multiplies a step by element: one that reaches beyond the matrix.
    const auto multiply_cut = [&](int step) {
#pragma unroll 1
      for (int i = 0; i < WARP_K; ++i) {
        const int64_t k = int64_t(step) * WARP_K + i;
        if (k >= p.k) break;
        const float* of_row = a_from + k * p.a.col;
        float x[COLS];
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
          const float* const from = WIDTH == 4 ? b_from[j] : b_from[0] + j;
          x[j] = n0 + lane * LANE_STEP + j * COL_STEP < p.n ? from[k * p.b.row] : 0.f;
        }
#pragma unroll
        for (int r = 0; r < BLK_M; ++r) {
#pragma unroll
          for (int j = 0; j < COLS; ++j) acc[r][j] = fmaf(*of_row, x[j], acc[r][j]);
          if (r < last_row) of_row += p.a.row;
        }
      }
    };
    // Adds the lane's sums to those in shared memory, which begin with them if `begins`.
    const auto add_up = [&](bool begins) {
#pragma unroll
      for (int r = 0; r < BLK_M; ++r)
#pragma unroll
        for (int j = 0; j < COLS; ++j) {
          float& sum = sums[warp][r][lane * LANE_STEP + j * COL_STEP];
          sum = begins ? acc[r][j] : sum + acc[r][j];
          acc[r][j] = 0.f;
        }
    };

    // ---- main loop ----
    const int steps = int((p.k + WARP_K - 1) / WARP_K);
    const int first = work_tile.first * WARPS, end = min(first + work_tile.count * WARPS, steps);
    // A vector may reach past the end of a row into the next row. No row follows the last one, so a last step that is cut off loads
    // element by element.
    const bool last_is_cut = p.k % WARP_K != 0 || (WIDTH == 16 && p.n % COLS != 0);
    const int whole = max(first, min(end, steps - last_is_cut));
    const auto ahead = [](int s) { return s / 2 * 2 * WARPS + s % 2; };  // two neighbouring steps at a time, see mma_skinny
    static_assert(STAGES % 2 == 0);
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (first + warp * 2 + ahead(s) < whole) load(s, first + warp * 2 + ahead(s));
    bool begins = true;
    int turns = 0;  // of the ring, since lanes' sums began
    for (int step = first + warp * 2; step < whole; step += STAGES * WARPS) {
      if (turns++ == kStepsOfSum / STAGES) add_up(begins), begins = false, turns = 1;
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        if (step + ahead(s) >= whole) break;
        multiply(s);
        if (step + ahead(s) + STAGES * WARPS < whole) load(s, step + ahead(s) + STAGES * WARPS);
      }
    }
    if (whole < end && warp == WARPS - 1) multiply_cut(end - 1);  // the last warp never has more steps than the others

    // ---- epilogue ----
    constexpr int VECTORS = BLK_M * BLK_N / COLS;  // of D, one for each of the first threads
    static_assert(VECTORS <= THREADS);
    const int row = threadIdx.x / LANES, col = lane * COLS;
    float c[COLS], sum[COLS] = {};
    if (threadIdx.x < VECTORS) read_c<float>(p, access, m0 + row, n0 + col, c);
    add_up(begins);
    __syncthreads();
    if (threadIdx.x < VECTORS) {
#pragma unroll
      for (int w = 0; w < WARPS; ++w)
#pragma unroll
        for (int j = 0; j < COLS; ++j) sum[j] += sums[w][row][col + j];
      finish_vector<float>(p, access, m0 + row, n0 + col, sum, c, work_tile.layer * slice_stride(p));
    }
    __syncthreads();  // the next tile's sums take the place of this tile's
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k / 2);
  const bool a_vectors = order_of(p.a) == Order::row_major && alignment(p.a, p.m, p.k) == 16;
  const auto with_width = [&](auto width) {
    const auto run = [&](auto a) { return launch<simt_rows<I, width, a>, true>(call, p, vector_access_of(p), schedule); };
    return a_vectors ? run(std::true_type()) : run(std::false_type());
  };
  return alignment(p.b, p.k, p.n) < 16 ? with_width(std::integral_constant<int, 4>())
                                       : with_width(std::integral_constant<int, 16>());
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimtRows>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
