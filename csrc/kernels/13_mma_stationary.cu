// mma_stationary: many rows and a short K. B stays in shared memory, and A and D pass by once.
//
// What changed from mma_short: a block keeps a panel of B, all of K deep, and its warps walk down A, each alone. mma_short reads A
// once for each column of tiles and B once for each row of tiles, one K tile ahead of the product, with a barrier for each. Here a
// warp loads its rows of A from global memory into the registers of mma.sync, as mma_skinny loads B, multiplies them by one chunk of
// columns after another, and takes the next rows. No barrier remains: while some warps wait for loads, others multiply or store.
//
// Rows may begin anywhere, because a lane loads 16 bytes of a row in words as wide as the alignment allows (tile/words.cuh).
// Elements of D leave as in mma_guarded, a chunk of 16 rows at a time.
//
// Measured gain (H100, one run, weight-major with a bias): 20000x300x100 takes 17.9 us, and 28.7 in wgmma_tma with two repacks, the
// fastest other kernel; 10^6x300x100 557 and 751; 200704x64x147 45.7 and 81.0 in mma_short.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/13_mma_stationary.cu
// Run:   python -m bench.sweep --kernel mma_stationary
#include "13_mma_stationary.h"

#include "../epilogue/rows.cuh"
#include "../layout/swizzle.h"
#include "../ptx/mma.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/fragment_panel.cuh"

namespace tc {
namespace {

// Prefetches into L2 the rows that a warp loads next.
template <int ROWS>
__device__ __forceinline__ void prefetch_rows(const MatrixView& a, int64_t m0, int64_t m, int64_t k) {
  const int lane = threadIdx.x % 32, size = size_of(a.dtype);
  const int64_t row = m0 + lane % 16;
  for (int i = 0; i < ROWS; i += 16)
    for (int64_t at = lane / 16 * 128; row + i < m && at < k * size; at += 256)
      prefetch_l2(static_cast<const char*>(a.data) + (row + i) * a.row * size + at);
}

// A launch's StationaryShape, as the kernel reads it.
struct StationaryGrid {
  int columns, depth;   // of a panel, in columns of D and in steps of K
  int panels, walkers;  // of B, and blocks of each
  int64_t step_m;       // from a warp's rows to its next ones
};

// Multiplies a step of A by the panel's columns from j0 on.
template <typename T, int MMAS_M, int MMAS_N, typename Panel>
__device__ __forceinline__ void multiply(float (&acc)[MMAS_M][MMAS_N][4], const uint32_t (&a)[MMAS_M][2][4], const Panel& panel,
                                         int step, int j0) {
  const uint32_t address = panel.lane_address(step, j0);
#pragma unroll
  for (int j = 0; j < MMAS_N; ++j) {
    uint32_t b[4];
    ld_shared_16(b, address + j * 8 * kStepBytes);
#pragma unroll
    for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
      for (int w = 0; w < 4; w += 2) {
        const uint32_t fragment[4] = {a[i][0][w], a[i][1][w], a[i][0][w + 1], a[i][1][w + 1]};
        mma_m16n8<T>(acc[i][j], fragment, b[w], b[w + 1]);
      }
  }
}

template <int I, Math MATH>
__global__ __launch_bounds__(kMmaStationary[I].threads) void mma_stationary(const GemmDesc batch, const VectorAccess access,
                                                                            const StationaryGrid grid) {
  using T = Operand<MATH>;
  constexpr int TILE_M = kMmaStationary[I].tile_m, TILE_N = kMmaStationary[I].tile_n, THREADS = kMmaStationary[I].threads;
  constexpr int STEPS = kMmaStationary[I].tile_k * 2 / kStepBytes, STEP_K = kStepBytes / int(sizeof(T));
  constexpr int MMAS_M = TILE_M / 16, MMAS_N = TILE_N / 8, STAGED = StationaryShape::staged_of_warp(kMmaStationary[I]);
  static_assert(StationaryShape::kPad == kRowPad && kRowPitch<TILE_N> * sizeof(T) * 16 <= STAGED);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];  // the panel of B, its part of a C with one row, the warps' staged parts of D
  const int columns = grid.columns, depth = grid.depth;
  const FragmentPanel<T, THREADS> panel{smem_address(smem), columns, depth};
  float* const bias = reinterpret_cast<float*>(smem + depth * columns * kStepBytes);  // (columns)
  const auto staged = [&] { return reinterpret_cast<char*>(bias + columns) + threadIdx.x / 32 * STAGED; };
  // Neighbouring rows go to different blocks, so that few rows spread over all of them.
  const auto first = [&] { return (int64_t(threadIdx.x / 32) * grid.walkers + blockIdx.x / grid.panels) * TILE_M; };
  const auto by_rows = [&] { return takes_rows(p) && (!p.c.data || has_bias(p) || (access.c_shifted && !is_f32(p.c.dtype))); };
  wait_on_dependencies(), launch_dependents();

  const int64_t n0 = int64_t(blockIdx.x % grid.panels) * columns;
  prefetch_rows<TILE_M>(p.a, first(), p.m, p.k);
  if (has_bias(p))
    for (int j = threadIdx.x; j < columns; j += THREADS)
      bias[j] = n0 + j < p.n ? to_float(static_cast<const T*>(p.c.data)[(n0 + j) * p.c.col]) : 0.f;
  panel.load(p.b, n0, p.n, p.k);
  __syncthreads();

#pragma unroll 1
  for (int64_t m0 = first(); m0 < p.m; m0 += grid.step_m) {
    RowFragments<T, TILE_M, STEPS> a;
    prefetch_rows<TILE_M>(p.a, m0 + grid.step_m, p.m, p.k);
#pragma unroll 1
    for (int j0 = 0; j0 < columns && n0 + j0 < p.n; j0 += TILE_N) {
      // ---- main loop ----
      float acc[MMAS_M][MMAS_N][4] = {};  // (TILE_M, TILE_N) over the warp
#pragma unroll 1
      for (int step0 = 0; step0 < depth; step0 += STEPS) {
        const int count = min(depth - step0, STEPS);
        if (j0 == 0 || depth > STEPS) a.load(p.a, m0, p.m, int64_t(step0) * STEP_K, p.k, count);
#pragma unroll
        for (int s = 0; s < STEPS - 1; ++s)
          if (s + 1 < count) multiply<T>(acc, a.steps[s], panel, step0 + s, j0);
        multiply<T>(acc, a.last_step, panel, step0 + count - 1, j0);
      }

      // ---- epilogue ----
      const int lane = opaque_lane(), g = lane / 4, q = lane % 4;
      const int64_t n = n0 + j0;
#pragma unroll
      for (int i = 0; i < MMAS_M; ++i) {
        const int64_t m = m0 + i * 16;
        if (m >= p.m) break;
        float part[1][MMAS_N][4];
#pragma unroll
        for (int x = 0; x < MMAS_N * 4; ++x) part[0][x / 4][x % 4] = acc[i][x / 4][x % 4];
        if (by_rows()) {
          const RowShift<true> shift(p, m, n, 0);
          T* const rows = reinterpret_cast<T*>(staged());  // (16, kRowPitch<TILE_N>)
          if (!p.c.data || has_bias(p)) {
            finish_products(p, part, bias + j0);
          } else {
            load_rows<16, TILE_N, 32>(p, shift, rows, m, n, lane);
            __syncwarp();
            finish_products(p.epilogue, part, [&](int, int j, int e) {
              const int row = g + e / 2 * 8;
              return to_float(rows[row * kRowPitch<TILE_N> + shift(row) + j * 8 + q * 2 + e % 2]);
            });
          }
          if (shift.even()) stage_row_pairs<TILE_N>(shift, part, rows);
          else stage_rows<TILE_N>(shift, part, rows, 0, 0);
          __syncwarp();
          store_rows<16, TILE_N, 32>(p, shift, rows, m, n, lane);
          __syncwarp();  // all lanes have read the rows
        } else {
          constexpr int D_PITCH = TILE_N + kRowPad;
          float* const rows = reinterpret_cast<float*>(staged());  // (16, D_PITCH)
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              store_pair<false>(&rows[(g + h * 8) * D_PITCH + j * 8 + q * 2], part[0][j][h * 2], part[0][j][h * 2 + 1]);
          __syncwarp();
          finish_staged_elements<T, 16, TILE_N, D_PITCH>(p, rows, m, n);
          __syncwarp();  // all lanes have read the rows
        }
      }
    }
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Config& config = call.config;
  const StationaryShape shape(p, config, call.device.gpu.num_sms);
  const StationaryGrid grid{int(shape.chunks) * config.tile_n, int(shape.depth), int(shape.panels), int(shape.walkers),
                            shape.walkers * (config.threads / 32) * config.tile_m};
  return with_math(MmaStationaryMaths(), call.math, [&](auto math) {
    constexpr auto kernel = mma_stationary<I, math>;
    const Status smem = allow_smem<kernel>(config.smem_bytes, call.device.ordinal);
    if (!smem.ok()) return smem;
    return launch_grid<kernel, true>({shape.panels * shape.walkers, config.threads, shape.smem_bytes(config), 1, true, p.batch},
                                     call.device, call.stream, p, vector_access_of(p), grid);
  });
}

const Registration registered(kCode<kMmaStationary>[TC_CONFIG], launch_config<TC_CONFIG>);

}  // namespace
}  // namespace tc
