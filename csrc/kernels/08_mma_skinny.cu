// mma_skinny: a few rows against all of B, at the pace of memory.
//
// What changed from mma_swizzle: where A has no more rows than one mma.sync, every element of B is used once, and shared memory
// would only be a detour. Each lane loads B from global memory straight into the registers that mma.sync takes, 16 bytes of K
// or 8 of N at a time. That is not the order in which mma.sync counts K and N, but a sum over K may be taken in any order as
// long as A follows it, and columns of D only have to be put back. The warps of a block share K, and their sums meet once, in
// the order of the warps, so that no second kernel has to add them.
//
// Measured gain (H200): 1x4096x4096 in 12.4 microseconds where mma_swizzle takes 13.8, 1x2304x768 in 3.7 where it takes 6.4; in other
// runs, since L2 is asked early, 11.6, and since it fetches 128 bytes at once, 10.8 with a weight-major B.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o mma_skinny.cubin csrc/kernels/08_mma_skinny.cu
// Run:   python -m bench.sweep --kernel mma_skinny --only 1,4096,4096
#include "08_mma_skinny.h"

#include "../epilogue/vectors.cuh"
#include "../ptx/mma.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

template <int I>
constexpr bool kUsesPdl = uses_pdl(kMmaSkinny[I]);

// N consecutive 32-bit words, read once: they leave no trace in L1. 16 bytes are of a line along K, of which L2 is to fetch 128 at
// once (1x4096x4096 on an H200: 11.9 microseconds, 11.2 like this; where the words are 8 bytes along N, and another block reads
// the line's rest, 11.7 and 12.8). Not .nc, which wants memory that nothing wrote since the kernel started: this one may start before
// the kernel that wrote its operands has ended.
template <int N>
__device__ __forceinline__ void load_words(uint32_t (&x)[N], const void* from) {
  static_assert(N == 2 || N == 4);
  if constexpr (N == 4)
    asm volatile("ld.global.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
                 : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "l"(from));
  else asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "l"(from));
}

// The same by element, `stride` apart: the first `count` of them, and zeros.
template <typename T, int N>
__device__ __forceinline__ void load_elements(uint32_t (&x)[N], const T* from, int64_t stride, int count) {
  const auto bits = [&](int e) { return uint32_t(e < count ? reinterpret_cast<const uint16_t&>(from[e * stride]) : 0); };
#pragma unroll
  for (int i = 0; i < N; ++i) x[i] = bits(2 * i) | bits(2 * i + 1) << 16;
}

template <int I, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kMmaSkinny[I].threads, kMmaSkinny[I].blocks_per_sm) void mma_skinny(
    const GemmDesc p, const VectorAccess wide, const Schedule schedule) {
  using T = Operand<MATH>;
  constexpr int BLK_M = kMmaSkinny[I].tile_m, BLK_N = kMmaSkinny[I].tile_n, STAGES = kMmaSkinny[I].stages;
  constexpr int THREADS = kMmaSkinny[I].threads, WARPS = THREADS / 32, CHUNK = 32;  // of K, multiplied by a warp at a time
  constexpr int MMAS_N = BLK_N / 8, W = BLK_N / 8;  // W: columns of a lane where B lies contiguous along N
  constexpr int LINES = B_K_CONTIGUOUS ? MMAS_N : 8, WORDS = B_K_CONTIGUOUS ? 4 : W / 2;  // of B that a lane loads of a chunk
  static_assert(BLK_M == 16 && kMmaSkinny[I].tile_k == WARPS * CHUNK && BLK_M * BLK_N % (2 * THREADS) == 0);

  // ---- prologue ----
  __shared__ float sums[WARPS][BLK_M][BLK_N + 4];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, q = lane % 4;  // g, q: as PTX names mma's layouts
  const T* const b_data = static_cast<const T*>(p.b.data);
  if constexpr (kUsesPdl<I>) {
    launch_dependents();
    // While the kernel before ends, L2 is asked for the two K tiles of B that the block begins with (1x4096x4096 on an H200: 11.6
    // microseconds, 12.2 without, 12.6 for six of them, 15.5 for all 16).
    constexpr int BLK_K = kMmaSkinny[I].tile_k;
    const WorkTile work_tile = schedule[blockIdx.x];
    const int64_t n0 = int64_t(work_tile.tile.n) * BLK_N, k0 = int64_t(work_tile.first) * BLK_K;
    const int n = int(min(int64_t(BLK_N), p.n - n0)), k = int(min(int64_t(min(work_tile.count, 2)) * BLK_K, p.k - k0));
    const auto ask_for = [&](const T* first, int64_t pitch, int lines, int length) {
      prefetch_lines(first, pitch * sizeof(T), lines, length * int64_t(sizeof(T)), threadIdx.x, THREADS);
    };
    if constexpr (B_K_CONTIGUOUS) ask_for(b_data + n0 * p.b.col + k0, p.b.col, n, k);
    else ask_for(b_data + k0 * p.b.row + n0, p.b.row, k, n);
    wait_on_dependencies();
  }

  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    constexpr int OWN = BLK_M * BLK_N / THREADS;  // elements of D that a thread finishes
    const int own_row = threadIdx.x * OWN / BLK_N, own_col = threadIdx.x * OWN % BLK_N;
    float c[OWN];
    read_c<T>(p, wide, m0 + own_row, n0 + own_col, c);

    // Rows and columns beyond the matrix are others again: what comes of them is not stored.
    const T* a_line[2];  // rows g and g + 8, from this lane's part of a chunk on
    const T* b_line[B_K_CONTIGUOUS ? MMAS_N : 1];
#pragma unroll
    for (int h = 0; h < 2; ++h)
      a_line[h] = static_cast<const T*>(p.a.data) + min(m0 + g + h * 8, p.m - 1) * p.a.row + q * 8 * p.a.col;
#pragma unroll
    for (int j = 0; j < MMAS_N; ++j) {
      if constexpr (B_K_CONTIGUOUS) b_line[j] = b_data + min(n0 + j * 8 + g, p.n - 1) * p.b.col + q * 8;
      else b_line[0] = b_data + (n0 + g * W < p.n ? n0 + g * W : 0) + q * 8 * p.b.row;
    }
    uint32_t a[STAGES][2][4], b[STAGES][LINES][WORDS];
    const auto load = [&](int stage, int chunk) {
      const int64_t k0 = int64_t(chunk) * CHUNK;
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        if constexpr (A_K_CONTIGUOUS) load_words(a[stage][h], a_line[h] + k0);
        else load_elements(a[stage][h], a_line[h] + k0 * p.a.col, p.a.col, 8);
      }
      const T* line = b_line[0] + k0 * p.b.row;
#pragma unroll
      for (int i = 0; i < LINES; ++i, line += p.b.row) load_words(b[stage][i], B_K_CONTIGUOUS ? b_line[i] + k0 : line);
    };
    const auto load_cut = [&](int stage, int chunk) {
      const int64_t k0 = int64_t(chunk) * CHUNK;
      const int k_left = int(p.k - k0) - q * 8, n_left = int(min(int64_t(W), p.n - n0 - g * W));
#pragma unroll
      for (int h = 0; h < 2; ++h) load_elements(a[stage][h], a_line[h] + k0 * p.a.col, p.a.col, k_left);
#pragma unroll
      for (int i = 0; i < LINES; ++i) {
        if constexpr (B_K_CONTIGUOUS) load_elements(b[stage][i], b_line[i] + k0, 1, k_left);
        else load_elements(b[stage][i], b_line[0] + (k0 + i) * p.b.row, 1, i < k_left ? n_left : 0);
      }
    };
    float acc[MMAS_N][4] = {};
    const auto multiply = [&](int stage) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {  // half a chunk: of each lane's eight k, four
        const uint32_t fragment[4] = {a[stage][0][h * 2], a[stage][1][h * 2], a[stage][0][h * 2 + 1], a[stage][1][h * 2 + 1]};
#pragma unroll
        for (int j = 0; j < MMAS_N; ++j) {
          if constexpr (B_K_CONTIGUOUS) {
            mma_m16n8<MmaType<MATH>>(acc[j], fragment, b[stage][j][h * 2], b[stage][j][h * 2 + 1]);
          } else {  // column j of four lines
            const auto pair = [&](int i) {
              return __byte_perm(b[stage][h * 4 + i][j / 2], b[stage][h * 4 + i + 1][j / 2], j % 2 ? 0x7632 : 0x5410);
            };
            mma_m16n8<MmaType<MATH>>(acc[j], fragment, pair(0), pair(2));
          }
        }
      }
    };

    // ---- main loop ----
    const int chunks = int((p.k + CHUNK - 1) / CHUNK), first = work_tile.first * WARPS, end = min(first + work_tile.count * WARPS, chunks);
    // A lane may read past the end of a line into the next one, but after the last there may be nothing.
    const bool last_is_cut = p.k % CHUNK != 0 || (!B_K_CONTIGUOUS && p.n % W != 0);
    const int whole = min(end, chunks - last_is_cut);
    // Two neighbours to a warp at a time: 128 bytes of a line along K (16x4096x4096 on an H200: 12.2 microseconds, 11.7 like this).
    const auto ahead = [](int s) { return s / 2 * 2 * WARPS + s % 2; };
    static_assert(STAGES % 2 == 0);
#pragma unroll
    for (int s = 0; s < STAGES; ++s)
      if (first + warp * 2 + ahead(s) < whole) load(s, first + warp * 2 + ahead(s));
    for (int chunk = first + warp * 2; chunk < whole; chunk += STAGES * WARPS) {
#pragma unroll
      for (int s = 0; s < STAGES; ++s) {
        if (chunk + ahead(s) >= whole) break;
        multiply(s);
        if (chunk + ahead(s) + STAGES * WARPS < whole) load(s, chunk + ahead(s) + STAGES * WARPS);
      }
    }
    if (first < end && whole < end && warp == WARPS - 1) {  // which has no more to do than the others
      load_cut(0, end - 1);
      multiply(0);
    }

    // ---- epilogue ----
#pragma unroll
    for (int j = 0; j < MMAS_N; ++j)
#pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int n = q * 2 + e % 2;
        sums[warp][g + e / 2 * 8][B_K_CONTIGUOUS ? j * 8 + n : n * W + j] = acc[j][e];
      }
    __syncthreads();
    float sum[OWN] = {};
#pragma unroll
    for (int w = 0; w < WARPS; ++w)
#pragma unroll
      for (int e = 0; e < OWN; ++e) sum[e] += sums[w][own_row][own_col + e];
    finish_vector<T>(p, wide, m0 + own_row, n0 + own_col, sum, c, work_tile.slice * p.m * p.n);
    __syncthreads();  // the next tile's sums take these ones' place
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k);
  return with_math(MmaSkinnyMaths(), call.math, [&](auto math) {
    return with_layouts(p, [&](auto a_k, auto b_k) {
      return launch<mma_skinny<I, math, a_k, b_k>, kUsesPdl<I>>(call, p, vector_access_of(p, call.k_slices), schedule);
    });
  });
}

const Registration registered(kCode<kMmaSkinny>[TC_CONFIG], launch_config<TC_CONFIG>);

}  // namespace
}  // namespace tc
