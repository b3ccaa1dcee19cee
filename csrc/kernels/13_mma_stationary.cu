// mma_stationary: many rows and a short K. B stays in shared memory, and A and D pass by once.
//
// What changed from mma_short: a block keeps a panel of B, all of K deep, and its warps walk down A, each alone. mma_short reads A
// once for each column of tiles and B once for each row of tiles, one K tile ahead of the product, with a barrier for each. Here a
// warp loads its rows of A from global memory into the registers of mma.sync, as mma_skinny loads B, multiplies them by one chunk of
// columns after another, and takes the next rows. No barrier remains: while some warps wait for loads, others multiply or store.
//
// Rows may begin anywhere, because a lane loads 16 bytes of a row in words as wide as the alignment allows (tile/words.cuh).
// Elements of D leave as in mma_guarded, a chunk of 16 rows at a time. Where rows of C and D are aligned, they go as vectors, through
// stmatrix and ldmatrix. Chunks are as wide as each other: 144 columns are three of 48, not 64, 64 and 16.
//
// Measured gain (H100, one run, weight-major with a bias): 20000x300x100 takes 17.9 us, and 28.7 in wgmma_tma with two repacks, the
// fastest other kernel; 10^6x300x100 557 and 751; 200704x64x147 45.7 and 81.0 in mma_short.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/13_mma_stationary.cu
// Run:   python -m bench.sweep --kernel mma_stationary
#include "13_mma_stationary.h"

#include "../epilogue/rows.cuh"
#include "../gemm/stationary_shape.h"
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
  int width;            // columns of a chunk
  int panels, walkers;  // of B, and blocks of each
  int64_t step_m;       // from a warp's rows to its next ones
  bool vectors;         // takes_vectors
};

// Multiplies a step of A by the panel's columns from j0 on, `width` of them.
template <typename T, int MMAS_N, typename Panel>
__device__ __forceinline__ void multiply(float (&acc)[1][MMAS_N][4], const uint32_t (&a)[1][2][4], const Panel& panel, int step,
                                         int j0, int width) {
  const uint32_t address = panel.lane_address(step, j0);
#pragma unroll
  for (int j = 0; j < MMAS_N; ++j) {
    if (j % 2 == 0 && j * 8 >= width) break;
    uint32_t b[4];
    ld_shared_16(b, address + j * 8 * kStepBytes);
#pragma unroll
    for (int w = 0; w < 4; w += 2) {
      const uint32_t fragment[4] = {a[0][0][w], a[0][1][w], a[0][0][w + 1], a[0][1][w + 1]};
      mma_m16n8<T>(acc[0][j], fragment, b[w], b[w + 1]);
    }
  }
}

template <int I, Math MATH>
__global__ __launch_bounds__(kMmaStationary[I].threads) void mma_stationary(const GemmDesc batch, const VectorAccess access,
                                                                            const StationaryGrid grid) {
  using T = Operand<MATH>;
  constexpr int TILE_M = kMmaStationary[I].tile_m, TILE_N = kMmaStationary[I].tile_n, THREADS = kMmaStationary[I].threads;
  constexpr int STEPS = kMmaStationary[I].tile_k * 2 / kStepBytes, STEP_K = kStepBytes / int(sizeof(T));
  constexpr int MMAS_N = TILE_N / 8, STAGED = StationaryShape::staged_of_warp(kMmaStationary[I]);
  static_assert(TILE_M == 16 && StationaryShape::kPad == kRowPad && kRowPitch<TILE_N> * sizeof(T) * 16 <= STAGED);

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
    for (int j0 = 0; j0 < columns && n0 + j0 < p.n; j0 += grid.width) {
      const int64_t n = n0 + j0;
      const int rows = int(min(int64_t(TILE_M), p.m - m0)), cols = int(min(int64_t(grid.width), p.n - n));
      T* const elements = reinterpret_cast<T*>(staged());  // (16, kRowPitch<TILE_N>) of C and D
      const bool as_vectors = grid.vectors && cols % 8 == 0, full_c = p.c.data && !has_bias(p);
      const WarpVectors vectors(grid.width);
      if (as_vectors && full_c)  // C arrives while the products run
        vectors.each(rows, cols, [&](int row) {
          const T* const from = static_cast<const T*>(p.c.data) + (m0 + row) * p.c.row + n + vectors.col;
          cp_async_16(smem_address(elements + row * kRowPitch<TILE_N> + vectors.col), from);
        });

      // ---- main loop ----
      float acc[1][MMAS_N][4] = {};  // (TILE_M, TILE_N) over the warp
#pragma unroll 1
      for (int step0 = 0; step0 < depth; step0 += STEPS) {
        const int count = min(depth - step0, STEPS);
        if (j0 == 0 || depth > STEPS) a.load(p.a, m0, p.m, int64_t(step0) * STEP_K, p.k, count);
#pragma unroll
        for (int s = 0; s < STEPS - 1; ++s)
          if (s + 1 < count) multiply<T>(acc, a.steps[s], panel, step0 + s, j0, grid.width);
        multiply<T>(acc, a.last_step, panel, step0 + count - 1, j0, grid.width);
      }

      // ---- epilogue ----
      const int lane = opaque_lane(), g = lane / 4, q = lane % 4;
      const auto of_chunk = [&] {
        GemmDesc chunk = product_of(batch, opaque_product());  // anew: its addresses would hold registers through the main loop
        chunk.n = n + cols;
        return chunk;
      };
      if (as_vectors) {
        cp_async_commit(), cp_async_wait<0>();
        __syncwarp();
        const uint32_t at = smem_address(elements + lane % 16 * kRowPitch<TILE_N> + lane / 16 * 8);
#pragma unroll
        for (int j = 0; j < MMAS_N; j += 2) {
          if (j * 8 >= grid.width) break;
          finish_matrices<T>(
              p, reinterpret_cast<float (&)[1][2][4]>(acc[0][j]), at + j * 8 * sizeof(T), full_c, bias + j0 + j * 8);
        }
        __syncwarp();
        vectors.each(rows, cols, [&](int row) {
          *reinterpret_cast<uint4*>(static_cast<T*>(p.d.data) + (m0 + row) * p.d.row + n + vectors.col) =
              *reinterpret_cast<const uint4*>(elements + row * kRowPitch<TILE_N> + vectors.col);
        });
      } else if (by_rows()) {
        const RowShift shift(p, m0, n, 0);
        if (!full_c) {
          finish_products(p.epilogue, acc, [&](int, int j, int e) {
            return p.c.data && j * 8 < grid.width ? bias[j0 + j * 8 + q * 2 + e % 2] : 0.f;
          });
        } else {
          load_rows<16, TILE_N, 32>(of_chunk(), shift, elements, m0, n, lane);
          __syncwarp();
          finish_products(p.epilogue, acc, [&](int, int j, int e) {
            const int row = g + e / 2 * 8;
            return to_float(elements[row * kRowPitch<TILE_N> + shift(row) + j * 8 + q * 2 + e % 2]);
          });
        }
        if (shift.even()) stage_row_pairs<TILE_N>(shift, acc, elements);
        else stage_rows<TILE_N>(shift, acc, elements, 0, 0);
        __syncwarp();
        store_rows<16, TILE_N, 32>(of_chunk(), shift, elements, m0, n, lane);
      } else {
        constexpr int D_PITCH = TILE_N + kRowPad;
        float* const sums = reinterpret_cast<float*>(staged());  // (16, D_PITCH)
#pragma unroll
        for (int h = 0; h < 2; ++h) stage_pairs(false, &sums[(g + h * 8) * D_PITCH + q * 2], acc[0], h);
        __syncwarp();
        finish_staged_elements<T, 16, TILE_N, D_PITCH>(of_chunk(), sums, m0, n);
      }
      __syncwarp();  // all lanes have read the staged rows
    }
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Config& config = call.config;
  const StationaryShape shape(p, config, call.device.gpu.num_sms);
  const StationaryGrid grid{
      int(shape.chunks * shape.width),
      int(shape.depth),
      int(shape.width),
      int(shape.panels),
      int(shape.walkers),
      shape.walkers * (config.threads / 32) * config.tile_m,
      takes_vectors(p)};
  return with_math(MmaStationaryMaths(), call.math, [&](auto math) {
    const Grid blocks{shape.panels * shape.walkers, config.threads, shape.smem_bytes(config), 1, true, p.batch};
    return launch_sized<mma_stationary<I, math>, true>(call, blocks, p, vector_access_of(p), grid);
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaStationary>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
