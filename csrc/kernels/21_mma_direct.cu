// mma_direct: many rows and a short K. Words of A go from memory to registers, and words of D from registers to memory.
//
// What changed from mma_stationary: operands are exchanged, D^T = B^T A^T. The second operand of mma.sync takes two registers of one
// row of A, and two mma.sync take the four words that a lane loads. As the first operand they would have to be moved beside those of
// another row, four moves for each mma.sync. Columns of B are permuted so that a lane's sums of a row are neighbours: D leaves, and a
// full C arrives, in words as wide as their alignment allows. Nothing but B passes through shared memory, in the order of fragments, so
// that the address of each is a constant. Rows of A lie in registers, all of K.
//
// In fp32 these words are elements, so that any K and N will do. A lane splits its words of A in three bf16 parts once, before the
// products with all columns; the panel holds the parts of B (tile/parts.cuh). Sums that parts cannot give are formed again in fp32.
//
// Measured gain (H200, two runs, weight-major with a bias): 1000000x32x32 takes 38.5 us, 44.1 in wgmma_tma and 43.9 in torch.addmm;
// 200704x240x40 37.9, 45.3 in wgmma_multicast and 61.5; 32768x300x100 21.9, 28.3 in mma_streamed and 28.8. In fp32 401408x144x24 takes
// 98 us, 263 in simt_kstage and 191 in torch.addmm; 100352x240x40 54, 92 in wgmma_bf16x6 and 91.
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
#include "../tile/parts.cuh"

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

// (chunks of columns, steps of K, FRAGMENTS, TILES, 32 lanes, 16 bytes): first operands of mma.sync, 16 columns by 32 bytes of K. A step has
// two of a tile, for its halves, and in fp32 three, for the parts of its 16 elements. Lane g * 4 + q has two columns of each, and two
// words of K for each column. Over all tiles of a chunk these columns are lane g's part of a row of D, and over a step the words of K
// are lane q's part of a row of A.
template <typename T, int TILES>
struct ExchangedPanel {
  static constexpr bool PARTS = sizeof(T) == 4;
  static constexpr int IN_WORD = 4 / sizeof(T), FRAGMENTS = PARTS ? PartsLayout::kParts : 2;
  static constexpr int BYTES = 32 * 16, STEP = FRAGMENTS * TILES * BYTES, COLUMNS = TILES * 16;
  uint32_t smem;
  int depth;  // steps
  LaneWords<4> of_a;
  LaneWords<8> of_d;

  __device__ static uint32_t offset(int fragment, int tile) { return (fragment * TILES + tile) * BYTES; }
  // The column of a chunk that is lane g's x-th: row g + x % 2 * 8 of tile x / 2.
  __device__ int column(int g, int x) const { return of_d.word(g, x / IN_WORD) * IN_WORD + x % IN_WORD; }
  // The place of a column of the panel, if each lane's columns of a chunk follow each other: chunk * COLUMNS + g * TILES * 2 + x.
  __device__ int place(int column) const {
    const int word = column % COLUMNS / IN_WORD;
    return column / COLUMNS * COLUMNS + of_d.lane(word) * TILES * 2 + of_d.index(word) * IN_WORD + column % IN_WORD;
  }

  // Stores the q-th vector of a step of a column.
  __device__ __forceinline__ void store(int step, int column, int q, const uint4& vector) const {
    const int at = place(column), x = at % (TILES * 2), g = at / (TILES * 2) % 8;
    const uint32_t to = smem + (column / COLUMNS * depth + step) * STEP + offset(0, x / 2) + g * 64 + x % 2 * 4;
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
    if constexpr (PARTS) {
#pragma unroll
      for (int w = 0; w < 4; w += 2) {
        const PairParts parts(__uint_as_float(words[w]), __uint_as_float(words[w + 1]));
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = of_a.index(q * 4 + w + e);
          const uint32_t element = to + of_a.lane(q * 4 + w + e) * 16 + i / 2 * 8 + i % 2 * 2;
#pragma unroll
          for (int part = 0; part < FRAGMENTS; ++part) {
            if (of_a.log2 == 0) st_shared_2(element + offset(part, 0), uint16_t(parts.x[part] >> e * 16));
            else if (e == 0) st_shared_4(element + offset(part, 0), parts.x[part]);
          }
        }
      }
    } else {
#pragma unroll
      for (int w = 0; w < 4; ++w) {
        const int i = of_a.index(q * 4 + w);
        st_shared_4(to + offset(i / 2, 0) + of_a.lane(q * 4 + w) * 16 + i % 2 * 8, words[w]);
      }
    }
  }
};

// acc (COLUMNS, AT_ONCE * 8) = the products of parts of a panel's chunk and of some groups of rows of A. `fragments`: this lane's first in
// the chunk. As in tile/parts.cuh, fp32 additions finish the products of first parts, 16 of K at a time. Tensor cores add the lesser
// products over all of K, at most 2^-8 of the first.
template <typename Panel, int AT_ONCE, int TILES, int PAIRS>
__device__ __forceinline__ void multiply_parts(float (&acc)[AT_ONCE][TILES][4], const PairParts (*a)[PAIRS], uint32_t fragments,
                                               int depth) {
  float lesser[AT_ONCE][TILES][4] = {};
  const auto add = [&](const auto& sums) {
#pragma unroll
    for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
      for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int e = 0; e < 4; ++e) acc[i][t][e] += sums[i][t][e];
  };
#pragma unroll
  for (int s = 0; s < PAIRS / 2; ++s) {
    if (s >= depth) break;
    uint32_t b[TILES][Panel::FRAGMENTS][4];
#pragma unroll
    for (int t = 0; t < TILES; ++t)
#pragma unroll
      for (int part = 0; part < Panel::FRAGMENTS; ++part)
        ld_shared_16(b[t][part], fragments + s * Panel::STEP + Panel::offset(part, t));
    const auto multiply = [&](auto& sums, int x, int y) {
#pragma unroll
      for (int t = 0; t < TILES; ++t)
#pragma unroll
        for (int i = 0; i < AT_ONCE; ++i) mma_m16n8<__nv_bfloat16>(sums[i][t], b[t][x], a[i][s * 2].x[y], a[i][s * 2 + 1].x[y]);
    };
#pragma unroll
    for (int i = 0; i < kLesserProducts; ++i) multiply(lesser, lesser_part_of_x(i), lesser_part_of_y(i));
    if (s == 0) {
      multiply(acc, 0, 0);
    } else {
      float first[AT_ONCE][TILES][4] = {};
      multiply(first, 0, 0);
      add(first);
    }
  }
  add(lesser);
}

// Replaces the sums of products of parts that are not as good as fp32's. exact(x) is sum x by fp32 arithmetic.
template <int N, typename F>
__device__ __forceinline__ void replace_sums(float (&sums)[N], float least, F&& exact) {
  bool finite = true;
#pragma unroll
  for (float sum : sums) finite &= fabsf(sum) <= FLT_MAX;
  if (finite && least == 0.f) return;
#pragma unroll 1
  for (int x = 0; x < N; ++x) {
    float sum = 0.f;
#pragma unroll
    for (int y = 0; y < N; ++y) sum = x == y ? sums[y] : sum;  // registers cannot be indexed at run time
    if (!is_as_good(sum, least)) sum = exact(x);
#pragma unroll
    for (int y = 0; y < N; ++y) sums[y] = x == y ? sum : sums[y];
  }
}

// A value of 64 bits that the compiler computes here, once. It neither computes it again where it is used, nor keeps ahead of here what
// follows from it.
template <typename T>
__device__ __forceinline__ T computed_here(T x) {
  asm volatile("" : "+l"(x));
  return x;
}

// TILES: of 16 columns, that a warp multiplies at once. Four, in 16 bits, take vectors of A, C and D; one and two take any words.
template <int I, Math MATH, int TILES, bool FULL_C>
__global__ __launch_bounds__(kMmaDirect[I].threads, 1) void mma_direct(const GemmDesc batch, const DirectGrid grid) {
  using T = Operand<MATH>;
  constexpr bool PARTS = MATH == Math::f32_emulated;
  constexpr int TILE_M = direct_rows(kMmaDirect[I], PARTS), GROUPS = TILE_M / 8;  // groups of 8 rows
  constexpr int THREADS = kMmaDirect[I].threads;
  constexpr int STEPS = kMmaDirect[I].tile_k * 2 / kStepBytes, STEP_WORDS = kStepBytes / 4;
  // Groups that share a read of B: all whose sums find registers beside A and a full C, or beside the parts of A.
  constexpr int AT_ONCE = GROUPS > 2 && (PARTS || (FULL_C && GROUPS * STEPS > 8)) ? 2 : GROUPS;
  constexpr bool VECTORS = TILES == 4;
  using Panel = ExchangedPanel<T, TILES>;
  constexpr int IN_WORD = Panel::IN_WORD, D_WORDS = TILES * 2 / IN_WORD;  // elements of a word; words of D of a lane's row
  // Lanes that have the same row of mma.sync's second operand divide a step of A's row, and lanes that have the same row of its sums
  // divide a chunk of D's.
  const LaneWords<4> of_a{VECTORS ? 2 : grid.log2_a};
  const LaneWords<8> of_d{VECTORS ? 2 : grid.log2_d};

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  extern __shared__ __align__(128) char smem[];  // the panel of B, its part of a C with one row, in fp32 a float of each warp
  const int columns = grid.columns, depth = grid.depth, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;
  float* const bias = reinterpret_cast<float*>(smem + columns / Panel::COLUMNS * depth * Panel::STEP);  // (columns) of beta * C
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
    const int words = i * 8 + g < rows ? int(p.k) / IN_WORD : 0;
    const T* const row = lane_a + i * 8 * computed_here(p.a.row);
    of_a.template each_access<4>(q, [&](auto count, int x, int word) {
      constexpr int W = decltype(count)::value;
#pragma unroll
      for (int s = 0; s < STEPS; ++s) {
        if (s * STEP_WORDS + word >= words) continue;
        Words<W, W * 4> loaded;
        loaded.load(row + (s * STEP_WORDS + word) * IN_WORD);
#pragma unroll
        for (int w = 0; w < W; ++w) a[i][s][x + w] = loaded.x[w];
      }
    });
  };
#pragma unroll
  for (int i = 0; i < GROUPS; ++i) load(i, rows_from(m0));
  const Panel panel{smem_address(smem), depth, of_a, of_d};
  for (int j = threadIdx.x; j < columns; j += THREADS)
    bias[panel.place(j)] = !FULL_C && present(p.c) && j < cols
                               ? p.epilogue.beta * to_float(static_cast<const T*>(p.c.data)[(n0 + j) * p.c.col])
                               : 0.f;
  Magnitudes of_b;  // of this thread's elements, in fp32
  load_columns<T, THREADS>(p.b, n0, p.n, p.k, columns, depth, [&](int s, int column, int q, const uint4& x) {
    if (PARTS)
      for (uint32_t word : {x.x, x.y, x.z, x.w}) of_b.note(__uint_as_float(word));
    panel.store(s, column, q, x);
  });
  float* const marks = bias + columns;  // (warps) of B
  if constexpr (PARTS) {
    const float mark = of_b.mark_of_warp();
    if (lane == 0) marks[threadIdx.x / 32] = mark;
  }
  __syncthreads();

#pragma unroll 1
  for (; m0 < p.m; m0 += grid.step_m) {
    const int rows = rows_from(m0), next_rows = rows_from(m0 + grid.step_m);
    lane_a += grid.step_m * p.a.row;
    if (FULL_C)
      prefetch_lines(static_cast<const T*>(p.c.data) + (m0 + grid.step_m) * p.c.row + n0, p.c.row * sizeof(T), next_rows,
                     cols * int64_t(sizeof(T)), lane, 32);
    // In fp32 registers hold the parts of A, which leave no room for the next rows. These come to L2 meanwhile.
    PairParts a_parts[PARTS ? GROUPS : 1][STEPS * 2];
    float least = 0.f;  // the least magnitude of a sum of parts that is as good as fp32's
    if constexpr (PARTS) {
      prefetch_lines(static_cast<const T*>(p.a.data) + (m0 + grid.step_m) * p.a.row, p.a.row * sizeof(T), next_rows,
                     p.k * int64_t(sizeof(T)), lane, 32);
      Magnitudes of_a;
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) of_a.split(a_parts[i], [&](int e) { return __uint_as_float(a[i][e / 4][e % 4]); });
      MarkedBlock marked;
      marked.note(of_a.mark_of_warp());
#pragma unroll
      for (int w = 0; w < THREADS / 32; ++w) marked.note(marks[w]);
      if (marked.lossy) least = least_sum(p.k, marked.largest);
    }
    uint32_t fragments = panel.smem + lane * 16;
#pragma unroll 1
    for (int j0 = 0; j0 < cols; j0 += Panel::COLUMNS, fragments += depth * Panel::STEP) {
      const int words = (cols - j0) / IN_WORD;  // of a row of D from the chunk on
#pragma unroll
      for (int i0 = 0; i0 < GROUPS; i0 += AT_ONCE) {
        const auto row_step = [&](int i, int e) { return (i0 + i) * 8 + e; };  // from the lane's first row
        const auto exists = [&](int i, int e, int word) { return row_step(i, e) + q * 2 < rows && word < words; };
        uint32_t c[AT_ONCE][2][D_WORDS];
        const auto load_c = [&] {
          of_d.template each_access<D_WORDS>(g, [&](auto count, int x, int word) {
            constexpr int W = decltype(count)::value;
#pragma unroll
            for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
              for (int e = 0; e < 2; ++e) {
                if (!exists(i, e, word)) continue;
                Words<W, W * 4> loaded;
                loaded.load(lane_c + row_step(i, e) * p.c.row + j0 + word * IN_WORD);
#pragma unroll
                for (int w = 0; w < W; ++w) c[i][e][x + w] = loaded.x[w];
              }
          });
        };
        if (FULL_C && !PARTS) load_c();  // arrives while the products run

        // ---- main loop ----
        float acc[AT_ONCE][TILES][4] = {};  // (COLUMNS, AT_ONCE * 8) over the warp
        if constexpr (PARTS) {
          multiply_parts<Panel>(acc, &a_parts[i0], fragments, depth);
        } else {
#pragma unroll
          for (int s = 0; s < STEPS; ++s) {
            if (s >= depth) break;
#pragma unroll
            for (int h = 0; h < 2; ++h)
#pragma unroll
              for (int t = 0; t < TILES; ++t) {
                uint32_t b[4];
                ld_shared_16(b, fragments + s * Panel::STEP + Panel::offset(h, t));
#pragma unroll
                for (int i = 0; i < AT_ONCE; ++i) mma_m16n8<T>(acc[i][t], b, a[i0 + i][s][h * 2], a[i0 + i][s][h * 2 + 1]);
              }
          }
        }
        if constexpr (PARTS)
          replace_sums(reinterpret_cast<float (&)[AT_ONCE * TILES * 4]>(acc), least, [&](int x) {
            const int row = row_step(x / (TILES * 4), x % 2) + q * 2, column = j0 + panel.column(g, x / 2 % (TILES * 2));
            float sum = 0.f;
            if (row >= rows || column >= cols) return sum;
            const float* const of_a = static_cast<const float*>(p.a.data) + (m0 + row) * p.a.row;
            const float* const of_b = static_cast<const float*>(p.b.data) + (n0 + column) * p.b.col;
#pragma unroll 1
            for (int k = 0; k < int(p.k); ++k) sum = fmaf(of_a[k], of_b[k * p.b.row], sum);
            return sum;
          });
        if (!PARTS && j0 + Panel::COLUMNS >= cols)
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i) load(i0 + i, next_rows);

        // ---- epilogue ----
        if (FULL_C && PARTS) load_c();
        const float alpha = p.epilogue.alpha, beta = p.epilogue.beta;
        Vec<float, TILES * 2> of_bias = {};
        if (!FULL_C) of_bias = *reinterpret_cast<const Vec<float, TILES * 2>*>(bias + j0 + g * TILES * 2);
#pragma unroll
        for (int t = 0; t < TILES; ++t)
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              float2 of_c = {of_bias.x[t * 2], of_bias.x[t * 2 + 1]};
              if constexpr (FULL_C && PARTS) of_c = {__uint_as_float(c[i][e][t * 2]), __uint_as_float(c[i][e][t * 2 + 1])};
              else if constexpr (FULL_C) of_c = unpack(c[i][e][t], T());
              if (FULL_C) of_c.x *= beta, of_c.y *= beta;
              acc[i][t][e] = fmaf(alpha, acc[i][t][e], of_c.x);
              acc[i][t][e + 2] = fmaf(alpha, acc[i][t][e + 2], of_c.y);
            }
        activate<AT_ONCE * TILES * 4>(&acc[0][0][0], p.epilogue.activation);
        const int64_t pitch = computed_here(p.d.row);
        of_d.template each_access<D_WORDS>(g, [&](auto count, int x, int word) {
          constexpr int W = decltype(count)::value;
#pragma unroll
          for (int i = 0; i < AT_ONCE; ++i)
#pragma unroll
            for (int e = 0; e < 2; ++e) {
              uint32_t d[W];
#pragma unroll
              for (int w = 0; w < W; ++w) {
                if constexpr (PARTS) d[w] = __float_as_uint(acc[i][(x + w) / 2][e + (x + w) % 2 * 2]);
                else d[w] = pack(acc[i][x + w][e], acc[i][x + w][e + 2], T());
              }
              if (exists(i, e, word)) store_words<W>(lane_d + row_step(i, e) * pitch + j0 + word * IN_WORD, d);
            }
        });
      }
    }
    if constexpr (PARTS)
#pragma unroll
      for (int i = 0; i < GROUPS; ++i) {
        for (auto& step : a[i])
          for (uint32_t& word : step) word = 0;
        load(i, next_rows);
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
      shape.walkers * (config.threads / 32) * direct_rows(config, is_f32(p.a.dtype)),
      log2_words(shape.bytes_a),
      log2_words(shape.bytes_d)};
  return with_math(ConfigMaths<MmaDirectMaths, true, kMmaDirect[I].fp32_alone>(), call.math, [&](auto math) {
    const auto run = [&](auto tiles, auto full_c) {
      const Grid blocks{shape.panels * shape.walkers, config.threads, shape.smem_bytes, 1, true, p.batch};
      return launch_sized<mma_direct<I, math, tiles, full_c>, true>(call, blocks, p, grid);
    };
    const auto with_tiles = [&](auto full_c) {
      if constexpr (is_f32(operand_dtype(math)))
        return run(std::integral_constant<int, direct_columns(kMmaDirect[I], true) / 16>(), full_c);
      else
        return shape.width == 64 ? run(std::integral_constant<int, 4>(), full_c)
                                 : run(std::integral_constant<int, 2>(), full_c);
    };
    return shape.loads_c(p) ? with_tiles(std::true_type()) : with_tiles(std::false_type());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaDirect>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
