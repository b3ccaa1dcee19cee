// mma_skinny: a few rows against all of B, at the pace of memory.
//
// What changed from mma_swizzle: A has no more rows than one mma.sync, so every element of B is used once, and shared memory
// would only be a detour. Each lane loads B from global memory straight into the registers that mma.sync takes, 16 bytes along
// K or 8 bytes along N at a time.
//
// mma.sync counts K and N in another order than these loads. The order of K does not matter, because a sum may be taken in any
// order and A is loaded in the same one. The order of N does: the epilogue puts the columns of D back.
//
// The warps of a block divide K among them. They add their sums once, in the order of the warps, so no second kernel has to. If K
// is short, some or all of the warps multiply different rows of A instead (Config::warp_slices). Batches of small products have blocks
// of one warp: an SM holds 16 of them, which wait for no other warp. With a longer K they have blocks of four.
//
// Measured gain (H200, at 5efceaa): 1x4096x4096 in 12.4 us, mma_swizzle 13.8; 1x2304x768 in 3.7 us, mma_swizzle 6.4. Later runs
// took 11.6 us for 1x4096x4096 once L2 was asked early, and 10.8 us with a weight-major B once L2 fetched 128 bytes at once
// (bench/results/h200-tried.md). Rows that begin anywhere, beside the next best kernel: 500x128x300 takes 3.0 us, and
// 6.4 in mma_guarded; 2x3903x291 takes 2.8, and 8.7 in mma_guarded; 5x6218x510 takes 7.0, and 11.2 in wgmma_tma with two repacks.
// In blocks of 64 rows 1460x83x3 takes 3.9 us, and 5.5 in mma_guarded; 177x1352x81 takes 4.3, and 6.9 in mma_guarded. In blocks of one
// warp 320 of 6x103x64 take 4.7 us, 8.7 in mma_short, and 9.2 in torch.bmm; 400 of 6x80x20 take 5.1, 8.3 in mma_guarded, and 4.8 (H100).
// In blocks of four warps 360 of 16x32x126 take 4.3 us, 6.4 in mma_guarded, and 5.2 in torch.bmm; 204 of 1x72x196 take 4.8, 9.1 in
// mma_guarded, and 7.5.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o mma_skinny.cubin csrc/kernels/08_mma_skinny.cu
// Run:   python -m bench.sweep --kernel mma_skinny --only 1,4096,4096
#include "08_mma_skinny.h"

#include "../epilogue/vectors.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"
#include "../tile/parts.cuh"
#include "../tile/scheduler.cuh"
#include "../tile/words.cuh"

namespace tc {
namespace {

// Small blocks use PDL too. launch_rows does without it if the SMs do not hold all of them at once.
template <int I>
constexpr bool kUsesPdl = uses_pdl(kMmaSkinny[I]) || kMmaSkinny[I].threads < 256;

// The sum of K products by fp32 arithmetic. Elements of a and b are a_step and b_step apart.
[[maybe_unused]] __device__ __noinline__ float exact_sum(const float* a, int64_t a_step, const float* b, int64_t b_step,
                                                         int64_t k) {
  float sum = 0.f;
#pragma unroll 8
  for (int64_t i = 0; i < k; ++i) sum = fmaf(a[i * a_step], b[i * b_step], sum);
  return sum;
}

// Rows of A and B begin at multiples of WIDTH bytes: 16, 8 or 2, and in fp32 16 or 4.
template <int I, int WIDTH, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kMmaSkinny[I].threads, kMmaSkinny[I].blocks_per_sm) void mma_skinny(
    const GemmDesc p, const VectorAccess access, const Schedule schedule) {
  using T = Operand<MATH>;
  constexpr int BLK_M = kMmaSkinny[I].tile_m, BLK_N = kMmaSkinny[I].tile_n, STAGES = kMmaSkinny[I].stages;
  constexpr int THREADS = kMmaSkinny[I].threads, WARPS_K = kMmaSkinny[I].warp_slices;
  constexpr int LANE_K = 16 / int(sizeof(T)), WARP_K = 4 * LANE_K;  // elements of K that a lane and a warp multiply in one step
  // Element i of lane q is the step's k = q * LANE_STEP + i * ELEM_STEP. Single fp32 words lie side by side over the lanes.
  constexpr int LANE_STEP = WIDTH == 4 ? 1 : LANE_K, ELEM_STEP = WIDTH == 4 ? 4 : 1;
  constexpr int BLK_K = WARPS_K * WARP_K;
  constexpr int MMAS_N = BLK_N / 8, W = BLK_N / 8;                    // W: columns of a lane if B is contiguous along N
  constexpr int LOADS = B_K_CONTIGUOUS ? MMAS_N : LANE_K;             // a lane's loads of B in a step
  constexpr int WORDS = B_K_CONTIGUOUS ? 4 : W * int(sizeof(T)) / 4;  // of each
  constexpr bool PARTS = MATH == Math::f32_emulated;
  constexpr bool LATE_C = (PARTS && kMmaSkinny[I].blocks_per_sm > 1) || STAGES == 1;  // where no registers are free for C
  static_assert(BLK_M == THREADS / 32 / WARPS_K * 16 && kMmaSkinny[I].tile_k * 2 == BLK_K * int(sizeof(T)));

  // ---- prologue ----
  // Made anew where it is used: its addresses would hold registers through the main loop.
  const auto of_product = [&] { return product_of(p, opaque_product()); };
  __shared__ float sums[WARPS_K][BLK_M][BLK_N + 4];    // (WARPS_K, BLK_M, BLK_N + 4)
  __shared__ float largest[PARTS ? THREADS / 32 : 1];  // (warps): a bound of the magnitudes in A and B
  const int warp_k = threadIdx.x / 32 % WARPS_K, warp_m = threadIdx.x / 32 / WARPS_K * 16, lane = threadIdx.x % 32;
  const int g = lane / 4, q = lane % 4;  // PTX ISA, mma fragments: groupID and threadID_in_group
  if constexpr (kUsesPdl<I>) {
    launch_dependents();
    prefetch_first_k_tiles<BLK_N, BLK_K, THREADS, B_K_CONTIGUOUS>(
        static_cast<const T*>(of_product().b.data), p.b, p.n, p.k, schedule[blockIdx.x]);
    wait_on_dependencies();
  }

  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    constexpr int D_PAIRS = BLK_M * BLK_N / THREADS / 2, STEP_M = 2 * THREADS / BLK_N;  // of D, finished by a thread
    const int d_row = threadIdx.x * 2 / BLK_N, d_col = threadIdx.x * 2 % BLK_N;
    static_assert(D_PAIRS * STEP_M == BLK_M);
    float c[D_PAIRS][2];  // (BLK_M, BLK_N) over the block
    const auto load_c = [&](const GemmDesc& of) {
      const auto row = [&](int i) { return m0 + d_row + i * STEP_M; };
      read_c<T>(of, access, row, [&](int) { return n0 + d_col; }, c);
    };
    if (!LATE_C) load_c(of_product());

    // Rows g and g + 8, at this lane's first k of a step. Pointers beyond the matrix fall back to one of its rows or columns. The sums
    // that come of them are not stored.
    const auto a_row = [&](int h) {
      const int64_t row = min(m0 + warp_m + g + h * 8, p.m - 1);
      return static_cast<const T*>(of_product().a.data) + row * p.a.row + q * LANE_STEP * p.a.col;
    };
    const T* const a_from[2] = {a_row(0), a_row(1)};
    const T* const b_data = static_cast<const T*>(of_product().b.data);
    const T* b_from[B_K_CONTIGUOUS ? MMAS_N : 1];  // this lane's column of each mma.sync, or its first k and column
#pragma unroll
    for (int j = 0; j < MMAS_N; ++j) {
      if constexpr (B_K_CONTIGUOUS) b_from[j] = b_data + min(n0 + j * 8 + g, p.n - 1) * p.b.col + q * LANE_STEP;
      else b_from[0] = b_data + (n0 + g * W < p.n ? n0 + g * W : 0) + q * LANE_STEP * p.b.row;
    }
    Words<4, A_K_CONTIGUOUS ? WIDTH : 16> a[STAGES][2];  // (STAGES, BLK_M, WARP_K) over the warp
    Words<WORDS, WIDTH> b[STAGES][LOADS];                // (STAGES, BLK_N, WARP_K) over the warp
    const auto load = [&](int stage, int step) {
      const int64_t k0 = int64_t(step) * WARP_K;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if constexpr (A_K_CONTIGUOUS) a[stage][h].load(a_from[h] + k0, ELEM_STEP);
        else a[stage][h].load_elements(a_from[h] + k0 * p.a.col, ELEM_STEP * p.a.col, LANE_K);
      }
      const T* row = b_from[0] + k0 * p.b.row;
#pragma unroll
      for (int i = 0; i < LOADS; ++i, row += ELEM_STEP * p.b.row) {
        if constexpr (B_K_CONTIGUOUS) b[stage][i].load(b_from[i] + k0, ELEM_STEP);
        else b[stage][i].load(row);
      }
    };
    // By element, though a lane's vectors may lie inside the matrix: more code takes longer to arrive (bench/results/h200-tried.md).
    const auto load_cut = [&](int stage, int step) {
      const int64_t k0 = int64_t(step) * WARP_K;
      const int k_left = (int(p.k - k0) - q * LANE_STEP + ELEM_STEP - 1) / ELEM_STEP,
                n_left = int(min(int64_t(W), p.n - n0 - g * W));
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const T* const from = STAGES == 1 ? a_row(h) : a_from[h];  // anew where registers are few
        a[stage][h].load_elements(from + k0 * p.a.col, ELEM_STEP * p.a.col, k_left);
      }
#pragma unroll
      for (int i = 0; i < LOADS; ++i) {
        const T* const from = B_K_CONTIGUOUS ? b_from[i] + k0 : b_from[0] + (k0 + i * ELEM_STEP) * p.b.row;
        const int count = B_K_CONTIGUOUS ? k_left : i < k_left ? n_left : 0;
        b[stage][i].load_elements(from, B_K_CONTIGUOUS ? ELEM_STEP : 1, count);
      }
    };
    float acc[MMAS_N][4] = {};  // (BLK_M, BLK_N) over the warp
    Magnitudes seen;            // by the lane, in A and B, if it multiplies parts
    // `by_element`: load_cut() loaded the stage.
    const auto multiply = [&](int stage, bool by_element = false) {
      const auto rounded = [](uint32_t word) { return MATH == Math::tf32 ? to_tf32(word) : word; };
      const auto a_word = [&](int i, int word) { return rounded(a[stage][i].word(word, !by_element && is_odd(a_from[i]))); };
      const auto b_word = [&](int i, int word) {
        return rounded(b[stage][i].word(word, !by_element && is_odd(B_K_CONTIGUOUS ? b_from[i] : b_from[0] + i * p.b.row)));
      };
      if constexpr (PARTS) {
        const auto of_a = [&](int i) { return __uint_as_float(a_word(i / 4, i % 4)); };
        const auto of_b = [&](int i) { return __uint_as_float(B_K_CONTIGUOUS ? b_word(i / 4, i % 4) : b_word(i % 4, i / 4)); };
        __nv_bfloat162 least = __float2bfloat162_rn(FLT_MAX);
        PairParts a_parts[2][2], b_parts[2];
#pragma unroll
        for (int h = 0; h < 2; ++h) seen.split(a_parts[h], least, [&](int i) { return of_a(h * 4 + i); });
#pragma unroll
        for (int j = 0; j < MMAS_N; ++j) {
          seen.split(b_parts, least, [&](int i) { return of_b(j * 4 + i); });
          multiply_parts(acc[j], a_parts, b_parts);
        }
        seen.look_closer<8>(least, of_a), seen.look_closer<MMAS_N * 4>(least, of_b);
      } else {
#pragma unroll
        for (int h = 0; h < 2; ++h) {  // one mma.sync takes half of a lane's k
          const uint32_t fragment[4] = {a_word(0, h * 2), a_word(1, h * 2), a_word(0, h * 2 + 1), a_word(1, h * 2 + 1)};
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j) {
            if constexpr (B_K_CONTIGUOUS) {
              mma_m16n8<MmaType<MATH>>(acc[j], fragment, b_word(j, h * 2), b_word(j, h * 2 + 1));
            } else if constexpr (sizeof(T) == 4) {  // column j of the lane's rows h * 2 and h * 2 + 1 of B
              mma_m16n8<MmaType<MATH>>(acc[j], fragment, b_word(h * 2, j), b_word(h * 2 + 1, j));
            } else {  // column j of the lane's rows h * 4 to h * 4 + 3 of B
              const auto pair = [&](int i) {
                return __byte_perm(b_word(h * 4 + i, j / 2), b_word(h * 4 + i + 1, j / 2), j % 2 ? 0x7632 : 0x5410);
              };
              mma_m16n8<MmaType<MATH>>(acc[j], fragment, pair(0), pair(2));
            }
          }
        }
      }
    };

    // ---- main loop ----
    const int steps = int((p.k + WARP_K - 1) / WARP_K);
    const int first = work_tile.first * WARPS_K, end = min(first + work_tile.count * WARPS_K, steps);
    // Vectors may reach past the end of a row into the next row. No row follows the last one, so a last step that is cut off
    // loads element by element.
    const bool last_is_cut = p.k % WARP_K != 0 || (!B_K_CONTIGUOUS && p.n % W != 0);
    const int whole = min(end, steps - last_is_cut);
    // A warp that holds several stages takes two neighbouring steps at a time, which are 128 bytes along K: 16x4096x4096 took 11.7 us
    // on an H200, and 12.2 us with single steps.
    constexpr int PAIR = STAGES % 2 == 0 ? 2 : 1;
    const auto ahead = [](int s) { return s / PAIR * PAIR * WARPS_K + s % PAIR; };
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (first + warp_k * PAIR + ahead(s) < whole) load(s, first + warp_k * PAIR + ahead(s));
    for (int step = first + warp_k * PAIR; step < whole; step += STAGES * WARPS_K) {
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        if (step + ahead(s) >= whole) break;
        multiply(s);
        if (step + ahead(s) + STAGES * WARPS_K < whole) load(s, step + ahead(s) + STAGES * WARPS_K);
      }
    }
    if (first < end && whole < end && warp_k == WARPS_K - 1) {  // the last warp never has more steps than the others
      load_cut(0, end - 1);
      multiply(0, true);
    }

    // ---- epilogue ----
    // If B is contiguous along N, a lane's W neighbouring columns went to W mma.sync: column n of mma.sync j is the tile's n *
    // W + j.
#pragma unroll
    for (int j = 0; j < MMAS_N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = q * 2 + e % 2;
        sums[warp_k][warp_m + g + e / 2 * 8][B_K_CONTIGUOUS ? j * 8 + n : n * W + j] = acc[j][e];
      }
    float least = 0.f;  // the least magnitude of a sum of parts that is as good as fp32's
    if (PARTS && __syncthreads_or(seen.lossy())) {
      const float of_lane = warp_max(seen.largest());
      if (lane == 0) largest[threadIdx.x / 32] = of_lane;
      __syncthreads();
      float of_block = 0.f;
      for (float x : largest) of_block = fmaxf(of_block, x);
      least = least_sum(p.k, of_block);
    }
    if (!PARTS) __syncthreads();
    const GemmDesc of_d = of_product();
    if (LATE_C) load_c(of_d);
#pragma unroll
    for (int i = 0; i < D_PAIRS; ++i) {
      const int row = d_row + i * STEP_M;
      float sum[2] = {};
#pragma unroll
      for (int w = 0; w < WARPS_K; ++w)
#pragma unroll
        for (int e = 0; e < 2; ++e) sum[e] += sums[w][row][d_col + e];
      if constexpr (PARTS) {
        const int64_t k0 = int64_t(work_tile.first) * BLK_K, k = min(p.k - k0, int64_t(work_tile.count) * BLK_K);
        const T* const a_row = static_cast<const T*>(of_d.a.data) + (m0 + row) * p.a.row + k0 * p.a.col;
        const T* const b_col = static_cast<const T*>(of_d.b.data) + (n0 + d_col) * p.b.col + k0 * p.b.row;
#pragma unroll
        for (int e = 0; e < 2; ++e)
          if (m0 + row < p.m && n0 + d_col + e < p.n && !is_as_good(sum[e], least))
            sum[e] = exact_sum(a_row, p.a.col, b_col + e * p.b.col, p.b.row, k);
      }
      finish_vector<T>(of_d, access, m0 + row, n0 + d_col, sum, c[i], schedule.layer_of(work) * slice_stride(p));
    }
    __syncthreads();  // the next tile's sums take the place of this tile's
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k * 2 / size_of(p.a.dtype));
  return with_math(ConfigMaths<MmaSkinnyMaths, kMmaSkinny[I].fp32>(), call.math, [&](auto math) {
    const auto with_width = [&](auto width) {
      return with_layouts(p, [&](auto a_k, auto b_k) {
        return launch<mma_skinny<I, width, math, a_k, b_k>, kUsesPdl<I>>(call, p, vector_access_of(p), schedule);
      });
    };
    const int width = std::min(alignment(p.a, p.m, p.k), alignment(p.b, p.k, p.n));
    if constexpr (kMmaSkinny[I].alignment == 16) return with_width(std::integral_constant<int, 16>());
    else if constexpr (is_f32(operand_dtype(math)))
      return width < 16 ? with_width(std::integral_constant<int, 4>()) : with_width(std::integral_constant<int, 16>());
    else return width < 8 ? with_width(std::integral_constant<int, 2>()) : with_width(std::integral_constant<int, 8>());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaSkinny>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
