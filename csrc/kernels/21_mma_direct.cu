// mma_direct: many rows and a short K. Words of A go from memory to registers, and words of D from registers to memory.
//
// What changed from mma_stationary: operands are exchanged, D^T = B^T A^T. The second operand of mma.sync takes two registers of one
// row of A, and two mma.sync take the four words that a lane loads. As the first operand they would have to be moved beside those of
// another row, four moves for each mma.sync. Columns of B are permuted so that a lane's sums of a row are neighbours: D leaves, and a
// full C arrives, in words as wide as their alignment allows. Nothing but B passes through shared memory, in the order of fragments, so
// that the address of each is a constant. Rows of A lie in registers, all of K.
//
// Measured gain (H200, two runs, weight-major with a bias): 1000000x32x32 takes 38.5 us, 44.1 in wgmma_tma and 43.9 in torch.addmm;
// 200704x240x40 37.9, 45.3 in wgmma_multicast and 61.5; 32768x300x100 21.9, 28.3 in mma_streamed and 28.8.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o x.cubin csrc/kernels/21_mma_direct.cu
// Run:   python -m bench.sweep --kernel mma_direct
#include "21_mma_direct.h"

#include "../epilogue/formula.cuh"
#include "../gemm/direct_shape.h"
#include "../ptx/mma.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/fragment_panel.cuh"

namespace tc {
namespace {

// How lanes divide a part of a row in memory. Neighbouring lanes take neighbouring words of 32 bits, 1, 2 or 4 at a time, so that together
// they access whole sectors however few bytes one takes.
template <int LANES>
struct LaneWords {
  int log2;  // of the words at a time

  __device__ int in_access(int word) const { return word & ((1 << log2) - 1); }
  // The word of the row that is a lane's x-th, and back: the lane that has a word, and which of its words that is.
  __device__ int word(int lane, int x) const { return ((x >> log2) * LANES + lane) << log2 | in_access(x); }
  __device__ int lane(int word) const { return (word >> log2) % LANES; }
  __device__ int index(int word) const { return (word >> log2) / LANES << log2 | in_access(word); }

  // Calls act(words, x, word) for each access of a lane that has WORDS words: the access takes `words` of them from the x-th on, and
  // `word` is the first in the row.
  template <int WORDS, typename F>
  __device__ __forceinline__ void each_access(int lane, F&& act) const {
    const auto by = [&](auto words) {
      constexpr int W = decltype(words)::value;
#pragma unroll
      for (int x = 0; x < WORDS; x += W) act(words, x, x * LANES + lane * W);
    };
    if (WORDS >= 4 && log2 == 2) by(std::integral_constant<int, 4>());
    else if (log2 == 1) by(std::integral_constant<int, 2>());
    else by(std::integral_constant<int, 1>());
  }
};

// A launch's DirectShape, as the kernel reads it.
struct DirectGrid {
  int columns, depth;   // of a panel, in columns of D and in steps of K
  int panels, walkers;  // of B, and blocks of each
  int64_t step_m;       // from a warp's rows to its next ones
  int log2_a, log2_d;   // of the words that a lane loads or stores at a time, of A, and of C and D
};

// (chunks of columns, steps of K, halves of a step, TILES, 32 lanes, 16 bytes): first operands of mma.sync, 16 columns by 32 bytes of K.
// Lane g * 4 + q has two rows of each, which are a word of D, and two words of K for each row. Over all tiles of a chunk these are lane g's
// words of a row of D, and over the halves of a step lane q's words of a row of A.
template <int TILES>
struct ExchangedPanel {
  static constexpr int FRAGMENT = 32 * 16, STEP = 2 * TILES * FRAGMENT, COLUMNS = TILES * 16;
  uint32_t smem;
  int depth;  // steps
  LaneWords<4> of_a;
  LaneWords<8> of_d;

  // Stores the q-th vector of a step of a column.
  __device__ __forceinline__ void store(int step, int column, int q, const uint4& x) const {
    const int pair = column % COLUMNS / 2, g = of_d.lane(pair), tile = of_d.index(pair);
    const uint32_t to = smem + (column / COLUMNS * depth + step) * STEP + tile * FRAGMENT + g * 64 + column % 2 * 4;
    const uint32_t words[4] = {x.x, x.y, x.z, x.w};
#pragma unroll
    for (int w = 0; w < 4; ++w) {
      const int i = of_a.index(q * 4 + w);  // i / 2: the half of the step
      st_shared_4(to + i / 2 * TILES * FRAGMENT + of_a.lane(q * 4 + w) * 16 + i % 2 * 8, words[w]);
    }
  }
};

// A value of 64 bits that the compiler computes here, once. It neither computes it again where it is used, nor keeps ahead of here what
// follows from it.
template <typename T>
__device__ __forceinline__ T computed_here(T x) {
  asm volatile("" : "+l"(x));
  return x;
}

// TILES: of 16 columns, that a warp multiplies at once. Four take vectors of A, C and D, and two take any words.
template <int I, Math MATH, int TILES, bool FULL_C>
__global__ __launch_bounds__(kMmaDirect[I].threads, 1) void mma_direct(const GemmDesc batch, const DirectGrid grid) {
  using T = Operand<MATH>;
  constexpr int TILE_M = kMmaDirect[I].tile_m, THREADS = kMmaDirect[I].threads, GROUPS = TILE_M / 8;  // groups of 8 rows
  constexpr int STEPS = kMmaDirect[I].tile_k * 2 / kStepBytes, STEP_WORDS = kStepBytes / 4;
  // Groups that share a read of B: all whose sums find registers beside A and a full C.
  constexpr int AT_ONCE = FULL_C && GROUPS * STEPS > 8 && GROUPS > 2 ? 2 : GROUPS;
  constexpr bool VECTORS = TILES == 4;
  using Panel = ExchangedPanel<TILES>;
  // Lanes that have the same row of mma.sync's second operand divide a step of A's row, and lanes that have the same row of its sums
  // divide a chunk of D's.
  const LaneWords<4> of_a{VECTORS ? 2 : grid.log2_a};
  const LaneWords<8> of_d{VECTORS ? 2 : grid.log2_d};

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];  // the panel of B, its part of a C with one row
  const int columns = grid.columns, depth = grid.depth, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* const bias = reinterpret_cast<float*>(smem + depth * columns * kStepBytes);  // (columns) of beta * C
  const int64_t n0 = int64_t(blockIdx.x % grid.panels) * columns;
  const int cols = int(min(int64_t(columns), p.n - n0));
  wait_on_dependencies(), launch_dependents();

  // Neighbouring rows go to different blocks, so that few rows spread over all of them.
  int64_t m0 = (int64_t(threadIdx.x / 32) * grid.walkers + blockIdx.x / grid.panels) * TILE_M;
  const auto rows_from = [&](int64_t m) { return int(max(int64_t(0), min(int64_t(TILE_M), p.m - m))); };
  // This lane's first row of A, which is row g of a tile, and of C and D, row q * 2.
  const T* lane_a = computed_here(static_cast<const T*>(p.a.data) + (m0 + g) * p.a.row);
  const T* lane_c = FULL_C ? computed_here(static_cast<const T*>(p.c.data) + (m0 + q * 2) * p.c.row + n0) : nullptr;
  T* lane_d = computed_here(static_cast<T*>(p.d.data) + (m0 + q * 2) * p.d.row + n0);

  uint32_t a[GROUPS][STEPS][4] = {};  // this lane's words of row g of each group. Those beyond K stay zeros
  const auto load = [&](int i, int rows) {
    const int words = i * 8 + g < rows ? int(p.k) / 2 : 0;
    const T* const row = lane_a + i * 8 * computed_here(p.a.row);
    of_a.template each_access<4>(q, [&](auto count, int x, int word) {
      constexpr int W = decltype(count)::value;
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        if (s * STEP_WORDS + word >= words) continue;
        Words<W, W * 4> loaded;
        loaded.load(row + (s * STEP_WORDS + word) * 2);
#pragma unroll
        for (int w = 0; w < W; ++w) a[i][s][x + w] = loaded.x[w];
      }
    });
  };
#pragma unroll
  for (int i = 0; i < GROUPS; ++i) load(i, rows_from(m0));
  for (int j = threadIdx.x; j < columns; j += THREADS)
    bias[j] = has_bias(p) && j < cols ? p.epilogue.beta * to_float(static_cast<const T*>(p.c.data)[(n0 + j) * p.c.col]) : 0.f;
  const Panel panel{smem_address(smem), depth, of_a, of_d};
  load_columns<T, THREADS>(
      p.b, n0, p.n, p.k, columns, depth, [&](int s, int column, int q, const uint4& x) { panel.store(s, column, q, x); });
  __syncthreads();

#pragma unroll 1
  for (; m0 < p.m; m0 += grid.step_m) {
    const int rows = rows_from(m0), next_rows = rows_from(m0 + grid.step_m);
    lane_a += grid.step_m * p.a.row;
    if (FULL_C)
      prefetch_lines(static_cast<const T*>(p.c.data) + (m0 + grid.step_m) * p.c.row + n0, p.c.row * sizeof(T), next_rows,
                     cols * int64_t(sizeof(T)), lane, 32);
    uint32_t fragments = panel.smem + lane * 16;
#pragma unroll 1
    for (int j0 = 0; j0 < cols; j0 += Panel::COLUMNS, fragments += depth * Panel::STEP) {
      const int words = (cols - j0) / 2;  // of a row of D from the chunk on
#pragma unroll
      for (int i0 = 0; i0 < GROUPS; i0 += AT_ONCE) {
        const auto row_step = [&](int i, int e) { return (i0 + i) * 8 + e; };  // from the lane's first row
        const auto exists = [&](int i, int e, int word) { return row_step(i, e) + q * 2 < rows && word < words; };
        uint32_t c[AT_ONCE][2][TILES];  // arrives while the products run
        if (FULL_C)
          of_d.template each_access<TILES>(g, [&](auto count, int t, int word) {
            constexpr int W = decltype(count)::value;
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                if (!exists(i, e, word)) continue;
                Words<W, W * 4> loaded;
                loaded.load(lane_c + row_step(i, e) * p.c.row + j0 + word * 2);
#pragma unroll
                for (int w = 0; w < W; ++w) c[i][e][t + w] = loaded.x[w];
              }
          });

        // ---- main loop ----
        float acc[AT_ONCE][TILES][4] = {};  // (COLUMNS, AT_ONCE * 8) over the warp
#pragma unroll
        for (int s = 0; s < STEPS; ++s) {
          if (s >= depth) break;
#pragma unroll
          for (int h = 0; h < 2; ++h)
#pragma unroll
            for (int t = 0; t < TILES; ++t) {
              uint32_t b[4];
              ld_shared_16(b, fragments + s * Panel::STEP + (h * TILES + t) * Panel::FRAGMENT);
#pragma unroll
              for (int i = 0; i < AT_ONCE; ++i) mma_m16n8<T>(acc[i][t], b, a[i0 + i][s][h * 2], a[i0 + i][s][h * 2 + 1]);
            }
        }
        if (j0 + Panel::COLUMNS >= cols)
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i) load(i0 + i, next_rows);

        // ---- epilogue ----
        const float alpha = p.epilogue.alpha, beta = p.epilogue.beta;
#pragma unroll
        for (int t = 0; t < TILES; ++t) {
          const float2 of_bias = *reinterpret_cast<const float2*>(bias + j0 + of_d.word(g, t) * 2);
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float2 of_c = of_bias;
              if (FULL_C) of_c = unpack(c[i][e][t], T()), of_c.x *= beta, of_c.y *= beta;
              acc[i][t][e] = fmaf(alpha, acc[i][t][e], of_c.x);
              acc[i][t][e + 2] = fmaf(alpha, acc[i][t][e + 2], of_c.y);
            }
        }
        activate<AT_ONCE * TILES * 4>(&acc[0][0][0], p.epilogue.activation);
        const int64_t pitch = computed_here(p.d.row);
        of_d.template each_access<TILES>(g, [&](auto count, int t, int word) {
          constexpr int W = decltype(count)::value;
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              uint32_t d[W];
#pragma unroll
              for (int w = 0; w < W; ++w) d[w] = pack(acc[i][t + w][e], acc[i][t + w][e + 2], T());
              if (exists(i, e, word)) store_words<W>(lane_d + row_step(i, e) * pitch + j0 + word * 2, d);
            }
        });
      }
    }
    lane_d += grid.step_m * p.d.row;
    if (FULL_C) lane_c += grid.step_m * p.c.row;
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Config& config = call.config;
  const DirectShape shape(p, config, call.device.gpu.num_sms);
  const auto log2_words = [](int bytes) { return bytes / 8; };  // of 4, 8 and 16 bytes
  const DirectGrid grid{
      int(shape.chunks * shape.width),
      int(shape.depth),
      int(shape.panels),
      int(shape.walkers),
      shape.walkers * (config.threads / 32) * config.tile_m,
      log2_words(shape.bytes_a),
      log2_words(shape.bytes_d)};
  return with_math(MmaDirectMaths(), call.math, [&](auto math) {
    const auto run = [&](auto tiles, auto full_c) {
      const Grid blocks{shape.panels * shape.walkers, config.threads, shape.smem_bytes, 1, true, p.batch};
      return launch_sized<mma_direct<I, math, tiles, full_c>, true>(call, blocks, p, grid);
    };
    const auto with_tiles = [&](auto full_c) {
      return shape.width == 64 ? run(std::integral_constant<int, 4>(), full_c) : run(std::integral_constant<int, 2>(), full_c);
    };
    return shape.loads_c(p) ? with_tiles(std::true_type()) : with_tiles(std::false_type());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaDirect>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
