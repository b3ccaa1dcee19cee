// mma_streamed: rows of A that begin anywhere, by bulk copies.
//
// What changed from mma_stationary: a warp's rows of A arrive in shared memory, in one bulk copy with what lies between them, however they
// are aligned. mma_stationary loads them into registers, in words as wide as their alignment allows: rows that begin at multiples
// of 4 or 2 bytes take four times the loads, and no TF32 is read so. Columns of B come the same way, and go to a panel in the order of
// mma.sync's fragments. A warp has a slot or two of its own, so that warps still wait for no one. The panel divides columns among lanes so
// that four neighbouring sums of a row belong to one lane.
//
// Measured gain (H200, one run, weight-major with a bias): 401408x64x147 in fp16 takes 68.8 us, 80.7 in mma_stationary, and 134.8 in
// torch.addmm; 131x6929x273 11.4, 13.9 and 17.4; 8192x128x300 10.1, 12.5 and 10.1. With more than 64 columns of aligned rows
// mma_stationary or wgmma are faster (bench/results/h200-tried.md, "Rows that begin anywhere, by bulk copies").
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/20_mma_streamed.cu
// Run:   python -m bench.sweep --kernel mma_streamed
#include "20_mma_streamed.h"

#include "../epilogue/rows.cuh"
#include "../gemm/streamed_shape.h"
#include "../layout/swizzle.h"
#include "../ptx/mbarrier.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/tma.cuh"
#include "../tile/dispatch.h"
#include "../tile/word_panel.cuh"

namespace tc {
namespace {

// A launch's StreamedShape, as the kernel reads it.
struct StreamedGrid {
  int columns, depth;          // a panel's columns, and its steps of K
  int width, panels, walkers;  // a chunk's columns, the panels of B, and the blocks of each
  bool streams_b;
  int warps, slots, slot_bytes, staged_bytes;
  bool fours;  // whether a lane reads four elements of a full C at once
};

template <typename T>
__device__ __forceinline__ float4 load_four(const T* from) {
  const Vec<T, 4> x = *reinterpret_cast<const Vec<T, 4>*>(from);
  return make_float4(to_float(x.x[0]), to_float(x.x[1]), to_float(x.x[2]), to_float(x.x[3]));
}
template <typename T>
__device__ __forceinline__ Vec<T, 4> rounded_four(float4 x) {
  return {from_float<T>(x.x), from_float<T>(x.y), from_float<T>(x.z), from_float<T>(x.w)};
}

// WordPanel gives lane q four columns of each 16, from this one on. Their sums are those of mma.sync x * 2 and x * 2 + 1.
__device__ __forceinline__ int column_of(int x, int q) { return x * 16 + q * 4; }

// ODD: rows of A or columns of B begin at odd multiples of 2 bytes.
template <int I, Math MATH, bool ODD>
__global__ __launch_bounds__(kMmaStreamed[I].threads, 1) void mma_streamed(const GemmDesc batch, const StreamedGrid grid) {
#if __CUDA_ARCH__ >= 900
  using T = Operand<MATH>;
  constexpr int TILE_M = kMmaStreamed[I].tile_m, TILE_N = kMmaStreamed[I].tile_n, THREADS = kMmaStreamed[I].threads;
  constexpr int MMAS_N = TILE_N / 8, FOURS = MMAS_N / 2;
  static_assert(TILE_M == 16 && StreamedShape::kPad == kRowPad);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];  // the warps' slots, the panel of B, a bias, staged parts of D, barriers
  const int columns = grid.columns, depth = grid.depth, warps = grid.warps;
  char* const panel_at = smem + warps * grid.slots * grid.slot_bytes;
  const WordPanel<T, MATH == Math::tf32> panel{smem_address(panel_at), columns, depth};
  float* const bias = reinterpret_cast<float*>(panel_at + depth * columns * kStepBytes);  // (columns)
  char* const staged_at = reinterpret_cast<char*>(bias + columns);                        // (warps, 16, TILE_N) of D, padded
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  const uint32_t slots = smem_address(smem) + warp * grid.slots * grid.slot_bytes;
  const uint32_t full = smem_address(staged_at) + warps * grid.staged_bytes + warp * 16;  // (2) barriers: a slot holds a tile
  if (lane == 0 && warp < warps) {
    mbarrier_init(full, 1), mbarrier_init(full + 8, 1);
    fence_proxy_async();
  }
  __syncwarp();
  wait_on_dependencies(), launch_dependents();

  // The warp's slots take turns. `loads` counts the tiles that were asked for, and `uses` those that the warp has waited for.
  int loads = 0, uses = 0;
  const auto load = [&](const StreamedRows& rows) {
    const int slot = loads++ & (grid.slots - 1);
    rows.load(slots + slot * grid.slot_bytes, full + slot * 8, lane);
  };
  const auto wait = [&] {
    const int slot = uses & (grid.slots - 1);
    mbarrier_wait(full + slot * 8, uses++ >> (grid.slots - 1) & 1);
    return slots + slot * grid.slot_bytes;
  };

  const int64_t n0 = int64_t(blockIdx.x % grid.panels) * columns;
  const int of_panel = int(min(int64_t(columns), p.n - n0));  // columns that exist
  const auto columns_at = [&](int column) {
    return StreamedRows(p.b.data, p.b.col, sizeof(T), n0 + column, n0 + of_panel, p.k, TILE_M);
  };
  const auto rows_at = [&](int64_t m0) { return StreamedRows(p.a.data, p.a.row, sizeof(T), m0, p.m, p.k, TILE_M); };
  // Neighbouring rows go to different blocks, so that few rows spread over all of them.
  const int64_t first = (int64_t(warp) * grid.walkers + blockIdx.x / grid.panels) * TILE_M,
                step_m = int64_t(warps) * grid.walkers * TILE_M;
  if (has_bias(p))
    for (int j = threadIdx.x; j < columns; j += THREADS)
      bias[j] = j < of_panel ? to_float(static_cast<const T*>(p.c.data)[(n0 + j) * p.c.col]) : 0.f;
  if (grid.streams_b && depth > 0) {
#pragma unroll 1
    for (int column = warp * TILE_M; warp < warps && column < of_panel; column += warps * TILE_M) {
      const StreamedRows tile = columns_at(column);
      load(tile);
      panel.template put<ODD>(tile, wait(), column, lane);
      __syncwarp();
    }
  } else {
    panel.template load<THREADS>(p.b, n0, p.n, p.k);
  }
  if (depth > 0 && warp < warps && first < p.m) load(rows_at(first));
  __syncthreads();
  if (warp >= warps) return;

#pragma unroll 1
  for (int64_t m0 = first; m0 < p.m; m0 += step_m) {
    RowWords<ODD> words[2];  // rows g and g + 8, from word q on
    if (depth > 0) {
      if (grid.slots > 1 && m0 + step_m < p.m) load(rows_at(m0 + step_m));
      const StreamedRows rows = rows_at(m0);
      const uint32_t at = wait();
#pragma unroll
      for (int h = 0; h < 2; ++h) words[h] = RowWords<ODD>(at + rows.offset(h * 8 + g), q);
    }
    const bool all_rows = m0 + TILE_M <= p.m;
#pragma unroll 1
    for (int j0 = 0; j0 < of_panel; j0 += grid.width) {
      // ---- main loop ----
      float acc[MMAS_N][4] = {};  // (TILE_M, TILE_N) over the warp
#pragma unroll 1
      for (int step = 0; step < depth; ++step) {
        uint32_t a[2][4];
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int w = 0; w < 4; ++w) a[h][w] = words[h].word(step * 16 + w * 4);
        if (step == depth - 1) {  // zeros beyond K
#pragma unroll
          for (int w = 0; w < 4; ++w) {
            const uint32_t mask = row_mask(int(p.k) * int(sizeof(T)) - step * kStepBytes - q * 4 - w * 16);
            a[0][w] &= mask, a[1][w] &= mask;
          }
        }
        if (MATH == Math::tf32) {
#pragma unroll
          for (int x = 0; x < 8; ++x) a[x / 4][x % 4] = to_tf32(a[x / 4][x % 4]);
        }
        const uint32_t b_at = panel.lane_address(step, j0);
#pragma unroll
        for (int j = 0; j < MMAS_N; ++j) {
          if (j % 2 == 0 && j * 8 >= grid.width) break;
          uint32_t b[4];
          ld_shared_16(b, b_at + j * 8 * kStepBytes);
#pragma unroll
          for (int w = 0; w < 4; w += 2) {
            const uint32_t fragment[4] = {a[0][w], a[1][w], a[0][w + 1], a[1][w + 1]};
            mma_m16n8<MmaType<MATH>>(acc[j], fragment, b[w], b[w + 1]);
          }
        }
      }

      // ---- epilogue ----
      const int64_t n = n0 + j0;
      const int cols = min(grid.width, of_panel - j0);
      const bool whole = all_rows && cols == TILE_N;
      const auto row_of = [&](int h) { return m0 + h * 8 + g; };
      const auto exists = [&](int h, int x) { return whole || (row_of(h) < p.m && column_of(x, q) < cols); };
      const auto combine_with = [&](auto&& c) {  // c(h, x): what to add to sums x * 4 to x * 4 + 3 of row g + h * 8
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int x = 0; x < FOURS; ++x) {
            const float4 addend = c(h, x);
            float (&y)[4] = acc[x * 2], (&z)[4] = acc[x * 2 + 1];
            const float alpha = p.epilogue.alpha, beta = p.epilogue.beta;
            y[h * 2] = combine(y[h * 2], alpha, addend.x, beta), y[h * 2 + 1] = combine(y[h * 2 + 1], alpha, addend.y, beta);
            z[h * 2] = combine(z[h * 2], alpha, addend.z, beta), z[h * 2 + 1] = combine(z[h * 2 + 1], alpha, addend.w, beta);
          }
      };
      const float4 zeros = make_float4(0.f, 0.f, 0.f, 0.f);
      if (has_bias(p)) {
        float4 c[FOURS];
#pragma unroll
        for (int x = 0; x < FOURS; ++x)
          c[x] = x * 16 < grid.width ? *reinterpret_cast<const float4*>(bias + j0 + column_of(x, q)) : zeros;
        combine_with([&](int, int x) { return c[x]; });
      } else if (!p.c.data) {
        combine_with([&](int, int) { return zeros; });
      } else if (grid.fours) {
        combine_with([&](int h, int x) {
          return exists(h, x) ? load_four(static_cast<const T*>(p.c.data) + row_of(h) * p.c.row + n + column_of(x, q)) : zeros;
        });
      } else {
        combine_with([&](int h, int x) {
          const auto element = [&](int e) {  // beyond the matrix its last column again
            const int64_t at = row_of(h) * p.c.row + min(n + column_of(x, q) + e, p.n - 1) * p.c.col;
            return is_f32(p.c.dtype) ? static_cast<const float*>(p.c.data)[at] : to_float(static_cast<const T*>(p.c.data)[at]);
          };
          return exists(h, x) ? make_float4(element(0), element(1), element(2), element(3)) : zeros;
        });
      }
      activate<MMAS_N * 4>(&acc[0][0], p.epilogue.activation);
      const auto four = [&](int h, int x) {
        const float (&y)[4] = acc[x * 2], (&z)[4] = acc[x * 2 + 1];
        return make_float4(y[h * 2], y[h * 2 + 1], z[h * 2], z[h * 2 + 1]);
      };
      char* const staged = staged_at + warp * grid.staged_bytes;
      if constexpr (sizeof(T) == 2) {
        if (takes_rows(p)) {
          T* const elements = reinterpret_cast<T*>(staged);  // (16, kRowPitch<TILE_N>)
          const RowShift shift(p, m0, n, 0);
          const bool even = shift.even();
#pragma unroll
          for (int h = 0; h < 2; ++h) {
            T* const row = elements + (h * 8 + g) * kRowPitch<TILE_N> + shift(h * 8 + g) + q * 4;
#pragma unroll
            for (int x = 0; x < FOURS; ++x) {
              const Vec<T, 4> v = rounded_four<T>(four(h, x));
              if (even) {
                *reinterpret_cast<Vec<T, 2>*>(row + x * 16) = {v.x[0], v.x[1]};
                *reinterpret_cast<Vec<T, 2>*>(row + x * 16 + 2) = {v.x[2], v.x[3]};
              } else {
#pragma unroll
                for (int e = 0; e < 4; ++e) row[x * 16 + e] = v.x[e];
              }
            }
          }
          __syncwarp();
          GemmDesc chunk = p;
          chunk.n = n + cols;
          store_rows<16, TILE_N, 32>(chunk, shift, elements, m0, n, lane);
        }
      }
      if (!takes_rows(p)) {  // by element
        constexpr int PITCH = TILE_N + kRowPad;
        float* const floats = reinterpret_cast<float*>(staged);  // (16, PITCH)
#pragma unroll
        for (int h = 0; h < 2; ++h)
#pragma unroll
          for (int x = 0; x < FOURS; ++x)
            *reinterpret_cast<float4*>(floats + (h * 8 + g) * PITCH + column_of(x, q)) = four(h, x);
        __syncwarp();
        const auto store = [&](auto type) {
          using D = decltype(type);
          for (int r = 0; r < min(int64_t(16), p.m - m0); ++r)
            for (int column = lane; column < cols; column += 32)
              static_cast<D*>(p.d.data)[(m0 + r) * p.d.row + (n + column) * p.d.col] =
                  from_float<D>(floats[r * PITCH + column]);
        };
        if (is_f32(p.d.dtype)) store(float());
        else store(T());
      }
      __syncwarp();  // all lanes have read the staged rows
    }
    __syncwarp();  // all lanes have read the slot
    if (grid.slots == 1 && depth > 0 && m0 + step_m < p.m) load(rows_at(m0 + step_m));
  }
#else
  asm("trap;");  // only sm_90 has bulk copies
#endif
}

// Whether C has the operands' type and rows that begin at multiples of four elements.
bool takes_fours(const GemmDesc& p) {
  return present(p.c) && p.c.dtype == p.a.dtype && order_of(p.c) == Order::row_major && p.n % 4 == 0 &&
         alignment(p.c, p.m, p.n) >= 4 * size_of(p.c.dtype);
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Config& config = call.config;
  const StreamedShape shape(p, config, call.device.gpu.num_sms);
  const StreamedGrid grid{
      int(shape.chunks * shape.width),
      int(shape.depth),
      int(shape.width),
      int(shape.panels),
      int(shape.walkers),
      shape.streams_b,
      int(shape.warps),
      int(shape.slots),
      int(shape.slot_bytes),
      int(shape.staged_of_warp(p, config)),
      takes_fours(p)};
  return with_math(MmaStreamedMaths(), call.math, [&](auto math) {
    const auto run = [&](auto odd) {
      const bool pdl = !needs_order(p, config, call.modes);
      const Grid blocks{shape.panels * shape.walkers, config.threads, shape.smem_bytes(p, config), 1, pdl, p.batch};
      return launch_sized<mma_streamed<I, math, odd>, true>(call, blocks, p, grid);
    };
    const bool odd = alignment(p.a, p.m, p.k) < 4 || (shape.streams_b && alignment(p.b, p.k, p.n) < 4);
    if constexpr (!is_f32(operand_dtype(math)))
      if (odd) return run(std::true_type());
    return run(std::false_type());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaStreamed>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
