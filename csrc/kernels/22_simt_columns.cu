// simt_columns: up to four rows against all of B, by warps that know nothing of one another.
//
// What changed from simt_skinny: a warp multiplies whole columns of B, whose K is contiguous. Its lanes read a column side by side, 512
// bytes at a time, or eight or four lanes read each of several columns if K is short. They add their sums by shuffles, which leave each lane
// some of the sums to finish. No warp waits for another, and all warps of the GPU take columns in turn, so that no wave is left half empty.
// With eight lanes a tile takes about as long as its loads, so that a warp loads its next tile before it finishes the last. CUDA cores keep
// pace with memory in 16 bits, too.
//
// Measured gain (H200): 1x5120x960 in fp32 takes 7.0 us, 10.6 in simt_skinny, and 8.8 in torch.addmm; 65536x1x256 18.4, 34.2 and 23.3.
// 350 of 1x2277x72 in fp16 with a full C take 41.4, and 64.6 in torch.baddbmm; 1000000x3x40 in fp32 75.4, 103.8 in simt_kstage, and 101.0.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt_columns.cubin csrc/kernels/22_simt_columns.cu
// Run:   python -m bench.sweep --kernel simt_columns --only 1,4096,4096
#include "22_simt_columns.h"

#include <cfloat>

#include "../epilogue/vectors.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"
#include "../tile/words.cuh"

namespace tc {
namespace {

constexpr int kStepsOfSum = 16;  // whose products a lane adds in sequence

// Element i of a word, which holds two of 16 bits or one of fp32.
template <typename T>
__device__ __forceinline__ float element_of(uint32_t word, int i) {
  if constexpr (sizeof(T) == 4) return __uint_as_float(word);
  else if constexpr (std::is_same_v<T, __half>) return __half2float(__ushort_as_half(uint16_t(word >> i * 16)));
  else return __uint_as_float(i ? word & 0xffff0000 : word << 16);
}

// Loads 16 bytes that other warps read, too.
__device__ __forceinline__ void load_cached(uint32_t (&x)[4], const void* from) {
  asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
}

// Adds the HELD sums of LANES neighbouring lanes, of which this is lane q, by halving: in each turn two lanes divide between them the sums that
// both hold, as long as there are two. Lane q's first sums are then those from number q * HELD / LANES on.
template <int LANES, int HELD>
__device__ __forceinline__ void reduce_scatter(float (&sums)[HELD], int q) {
  if constexpr (LANES > 1) {
    constexpr int LEFT = HELD > 1 ? HELD / 2 : 1;
    const bool upper = HELD > 1 && q & LANES / 2;
    float left[LEFT];
#pragma unroll
    for (int i = 0; i < LEFT; ++i) {
      const float kept = sums[i], other = sums[HELD - LEFT + i];
      left[i] = (upper ? other : kept) + __shfl_xor_sync(0xffffffff, upper ? kept : other, LANES / 2);
    }
    reduce_scatter<LANES / 2>(left, q);
#pragma unroll
    for (int i = 0; i < LEFT; ++i) sums[i] = left[i];
  }
}

// Rows of A and columns of B begin at multiples of WIDTH bytes: 16 or 4.
template <int I, Math MATH, int WIDTH>
__global__ __launch_bounds__(kSimtColumns[I].threads,
                             1) void simt_columns(const GemmDesc p, const VectorAccess access, const Schedule schedule) {
  using T = Operand<MATH>;
  constexpr int BLK_M = kSimtColumns[I].tile_m, BLK_N = kSimtColumns[I].tile_n, STAGES = kSimtColumns[I].stages;
  constexpr int WARPS = kSimtColumns[I].threads / 32, LANES = kSimtColumns[I].tile_k / 8;  // LANES: of a column
  constexpr int AT_ONCE = 32 / LANES, COLS = BLK_N / AT_ONCE;        // columns that a warp loads at once; of a lane
  constexpr int SUMS = BLK_M * COLS;                                 // of a lane: its share of the elements of D in its columns
  constexpr int FINISHED = SUMS > LANES ? SUMS / LANES : 1;          // of them, those that a lane finishes
  constexpr int WORDS = 4, PER_WORD = 4 / int(sizeof(T));            // words of a lane in a step, and their elements
  constexpr int LANE_K = WORDS * PER_WORD, WARP_K = LANES * LANE_K;  // elements of K that a lane, warp multiply in a step
  // Word i of lane q begins with the step's k = q * LANE_STEP + i * WORD_STEP. Single words lie side by side over the lanes.
  constexpr int LANE_STEP = WIDTH == 4 ? PER_WORD : LANE_K, WORD_STEP = WIDTH == 4 ? LANES * PER_WORD : PER_WORD;

  // ---- prologue ----
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, q = lane % LANES, column = lane / LANES;
  // Neighbouring tiles are those of different blocks.
  const int first = blockIdx.x + warp * gridDim.x;
  if (first < schedule.size && q % 8 == 0) {  // L2 fetches the first tile's lines while the kernel before ends
    const WorkTile work_tile = schedule[first];
    const T* const data = static_cast<const T*>(matrix_of(p.b, work_tile.product).data);
#pragma unroll 1
    for (int i = 0; i < COLS * STAGES; ++i) {
      const int64_t n = int64_t(work_tile.tile.n) * BLK_N + i / STAGES * AT_ONCE + column;
      const int64_t k = int64_t(work_tile.first + i % STAGES) * WARP_K + q * LANE_K;
      if (n < p.n && k < p.k) prefetch_l2(data + n * p.b.col + k);
    }
  }
  wait_on_dependencies();
  launch_dependents();

  // The elements of D that the lane finishes. If there are fewer than lanes, neighbours finish the same one, and the first stores it.
  constexpr int ALIKE = SUMS < LANES ? LANES / SUMS : 1;
  const int finished = q * SUMS / LANES;
  const bool stores = q % ALIKE == 0;
  const auto row_of = [&](int i) { return (finished + i) / COLS; };
  const auto col_of = [&](int i) { return (finished + i) % COLS * AT_ONCE + column; };
  Words<WORDS, WIDTH> a[STAGES][BLK_M], b[STAGES][COLS];  // (STAGES, BLK_M, WARP_K), (STAGES, BLK_N, WARP_K) over the warp
  WorkTile work_tile;
  const T* a_first;
  const T* b_first;
  int last_row, last_column;  // of the matrix, counted from the lane's first
  float c[FINISHED][1];
  // Pointers beyond the matrix fall back to its last row or column. The sums that come of them are not stored.
  const auto a_from = [&](int r) { return a_first + int64_t(min(r, last_row)) * p.a.row; };
  const auto b_from = [&](int j) { return b_first + int64_t(min(j * AT_ONCE, last_column)) * p.b.col; };
  // A warp loads its next tile before this tile's epilogue. With other numbers of lanes that spills, or gains nothing.
  constexpr bool AHEAD = LANES == 8;
  // In the last step, lanes whose vector lies in K load it, and others load zeros.
  constexpr bool PARTIAL = AHEAD && WIDTH == 16;
  const int whole = int(p.k / WARP_K);                                          // steps in which each lane has a vector
  const int steps = PARTIAL ? int((p.k / LANE_K + LANES - 1) / LANES) : whole;  // steps in which a lane has one
  const auto load = [&](int stage, int step) {
    const int64_t k0 = int64_t(step) * WARP_K;
    if (!PARTIAL || step < whole || (q + 1) * LANE_K <= int(p.k - k0)) {
#pragma unroll
      for (int j = 0; j < COLS; ++j) b[stage][j].load(b_from(j) + k0, LANES);
#pragma unroll
      for (int r = 0; r < BLK_M; ++r) {
        if constexpr (WIDTH == 16) load_cached(a[stage][r].x, a_from(r) + k0);
        else a[stage][r].load(a_from(r) + k0, LANES);
      }
    } else {
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
#pragma unroll
        for (int j = 0; j < COLS; ++j) b[stage][j].x[i] = 0;
#pragma unroll
        for (int r = 0; r < BLK_M; ++r) a[stage][r].x[i] = 0;
      }
    }
  };
  // Goes to a tile, and loads its first steps and its part of C.
  const auto go_to = [&](int work) {
    work_tile = schedule[work];
    const MatrixView a_view = matrix_of(p.a, work_tile.product), b_view = matrix_of(p.b, work_tile.product);
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    a_first = static_cast<const T*>(a_view.data) + m0 * p.a.row + q * LANE_STEP;
    b_first = static_cast<const T*>(b_view.data) + min(n0 + column, p.n - 1) * p.b.col + q * LANE_STEP;
    const auto following = [](int64_t first, int64_t count, int most) {
      return int(max(min(count - 1 - first, int64_t(most)), int64_t(0)));
    };
    last_row = following(m0, p.m, BLK_M), last_column = following(n0 + column, p.n, BLK_N);
    const int end = min(work_tile.first + work_tile.count, steps);
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (work_tile.first + s < end) load(s, work_tile.first + s);
    // After the loads, which would wait for it: it is converted where it is read.
#pragma unroll
    for (int i = 0; i < FINISHED; ++i)
      read_c<T>(product_of(p, work_tile.product), access, m0 + row_of(i), n0 + col_of(i), c[i]);
  };

  if (first >= schedule.size) return;
  go_to(first);
#pragma unroll 1
  for (int work = first; work < schedule.size;) {
    // Loads a lane's words, by element if K ends among them. `left`: how many k lie in the matrix from its first one on.
    const auto load_elements = [](auto& words, const T* from, int left) {
      using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
      if (WIDTH == 16 && left >= LANE_K) return words.load(from);
#pragma unroll
      for (int i = 0; i < WORDS; ++i) {
        words.x[i] = 0;
#pragma unroll
        for (int e = 0; e < PER_WORD; ++e)
          if (i * WORD_STEP + e < left)
            words.x[i] |= uint32_t(reinterpret_cast<const Bits&>(from[i * WORD_STEP + e])) << e * 16;
      }
    };
    float acc[SUMS] = {};                             // (BLK_M, COLS): the lane's sums
    float sum[FINISHED] = {}, excess[FINISHED] = {};  // of the elements that the lane finishes
    const auto multiply = [&](int stage) {
#pragma unroll
      for (int i = 0; i < WORDS; ++i)
#pragma unroll
        for (int e = 0; e < PER_WORD; ++e)
#pragma unroll
          for (int r = 0; r < BLK_M; ++r)
#pragma unroll
            for (int j = 0; j < COLS; ++j)
              acc[r * COLS + j] =
                  fmaf(element_of<T>(a[stage][r].x[i], e), element_of<T>(b[stage][j].x[i], e), acc[r * COLS + j]);
    };
    // Adds the lanes' sums, and leaves each lane those that it finishes. What rounding adds to a sum is taken from the
    // next one (Kahan 1965).
    const auto add_up = [&] {
      reduce_scatter<LANES>(acc, q);
#pragma unroll
      for (int i = 0; i < FINISHED; ++i) {
        const float before = sum[i], more = acc[i] - excess[i];
        sum[i] = before + more;
        excess[i] = fabsf(sum[i]) <= FLT_MAX ? (sum[i] - before) - more : 0.f;
      }
#pragma unroll
      for (float& x : acc) x = 0.f;
    };

    // ---- main loop ----
    const int begin = work_tile.first, end = begin + work_tile.count, last = min(end, steps);
    int sum_from = begin;  // the first step in the lanes' sums
    for (int step = begin; step < last; step += STAGES) {
      if (step == sum_from + kStepsOfSum) add_up(), sum_from = step;
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        if (step + s >= last) break;
        multiply(s);
        if (step + s + STAGES < last) load(s, step + s + STAGES);
      }
    }
    // The rest of K, which the steps above did not multiply. Vectors may not reach past its end: no column follows the last one.
    if (max(begin, whole) < end && (!PARTIAL || p.k % LANE_K != 0)) {
      const int64_t k0 = int64_t(whole) * WARP_K;
      const int until_end = int(p.k - k0) - q * LANE_STEP;
      const int left = PARTIAL && until_end >= LANE_K ? 0 : until_end;  // the last step had a whole vector already
#pragma unroll
      for (int j = 0; j < COLS; ++j) load_elements(b[0][j], b_from(j) + k0, left);
#pragma unroll
      for (int r = 0; r < BLK_M; ++r) load_elements(a[0][r], a_from(r) + k0, left);
      multiply(0);
    }

    // ---- epilogue ----
    const WorkTile done = work_tile;
    float of_c[FINISHED][1];
#pragma unroll
    for (int i = 0; i < FINISHED; ++i) of_c[i][0] = c[i][0];
    work += WARPS * gridDim.x;
    if (AHEAD && work < schedule.size) go_to(work);  // its first loads go on during this tile's epilogue
    add_up();
    const int64_t m0 = int64_t(done.tile.m) * BLK_M, n0 = int64_t(done.tile.n) * BLK_N;
#pragma unroll
    for (int i = 0; i < FINISHED; ++i) {
      float product[1] = {sum[i]};
      if (stores) finish_vector<T>(p, access, m0 + row_of(i), n0 + col_of(i), product, of_c[i], done.layer * p.d.batch);
    }
    if (!AHEAD && work < schedule.size) go_to(work);
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k * 2 / size_of(p.a.dtype), p.batch);
  const VectorAccess access = vector_access_of(p);
  return with_math(ConfigMaths<SimtColumnsMaths, true, kSimtColumns[I].fp32_alone>(), call.math, [&](auto math) {
    const auto run = [&](auto width) { return launch_walk<simt_columns<I, math, width>, true>(call, p, access, schedule); };
    return access.a && access.b ? run(std::integral_constant<int, 16>()) : run(std::integral_constant<int, 4>());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimtColumns>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
