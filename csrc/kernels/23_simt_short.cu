// simt_short: fp32 on CUDA cores for the shortest K, with the fewest instructions from load to store.
//
// What changed from simt_kstage: no ring of stages, and no copies of vectors. Where K has few elements, a problem waits for its
// launch, one load and one store. A thread loads single elements into registers, so that rows may begin anywhere, and stores them
// K-major to one of two stages. The next K tile's loads go on meanwhile, and one barrier a K tile suffices. A thread's 4x4 or 8x4
// elements of D leave its registers in vectors of a row. Only where D's rows begin anywhere, they change lanes through shared memory
// first, so that a warp's stores lie side by side: a lane that stores four neighbours one by one reaches four times as many sectors
// at once.
//
// Measured gain (H200): 23x9496x8 takes 2.9 us, 4.7 in the fastest of the other kernels, and 3.5 in torch.addmm; 6304x1005x2 14.2,
// 22.3 and 14.5. With 8x4 elements a thread runs fewer instructions for each: 608x3352x24 takes 7.3 in tiles of 128x32, 9.3 at best
// with 4x4, and 7.2 in torch.addmm.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt_short.cubin csrc/kernels/23_simt_short.cu
// Run:   python -m bench.sweep --kernel simt_short
#include "23_simt_short.h"

#include "../epilogue/vectors.cuh"
#include "../layout/swizzle.h"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

constexpr int W = 4;         // columns of a thread, and rows that it has side by side
constexpr int BAND = 4 * W;  // rows in which each thread of a warp has W
constexpr int kSumOf = 256;  // elements of K whose products are added in sequence

// A thread's part of K tiles of BLK rows of A or columns of B, on their way to shared memory.
template <int BLK, int BLK_K, bool K_CONTIGUOUS, int THREADS>
struct ElementTile {
  static constexpr int PITCH = BLK + kSlabPad, ACROSS = K_CONTIGUOUS ? BLK_K : BLK, STEP = THREADS / ACROSS;
  static constexpr int COUNT = BLK * BLK_K / THREADS;
  static_assert(STEP * ACROSS == THREADS && COUNT * THREADS == BLK * BLK_K);
  float x[COUNT];
  const float* from;       // the thread's first element of the next K tile
  int64_t stride, step_k;  // to the thread's next element, and of K
  int outer_left;          // rows of A or columns of B from the thread's first to the matrix's edge

  static __device__ __forceinline__ int outer() { return threadIdx.x / (K_CONTIGUOUS ? ACROSS : 1) % BLK; }
  static __device__ __forceinline__ int k() { return K_CONTIGUOUS ? threadIdx.x % ACROSS : threadIdx.x / ACROSS; }

  // x is (outer, K) with strides (outer_stride, k_stride).
  __device__ __forceinline__ void go_to(const void* data, int64_t outer_stride, int64_t k_stride, int64_t outer0, int64_t end) {
    from = static_cast<const float*>(data) + (outer0 + outer()) * outer_stride + k() * k_stride;
    stride = STEP * (K_CONTIGUOUS ? outer_stride : k_stride), step_k = k_stride;
    outer_left = int(min(int64_t(BLK), end - outer0)) - outer();
  }
  // Loads a K tile, of which `k_left` elements of K exist, and goes on to the next.
  __device__ __forceinline__ void load(int k_left) {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const bool exists = K_CONTIGUOUS ? k() < k_left && i * STEP < outer_left : k() + i * STEP < k_left && outer_left > 0;
      x[i] = exists ? from[i * stride] : 0.f;
    }
    from += BLK_K * step_k;
  }
  // Stores the K tile to smem, (BLK_K, PITCH).
  __device__ __forceinline__ void store(float* smem) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
      smem[(k() + (K_CONTIGUOUS ? 0 : i * STEP)) * PITCH + outer() + (K_CONTIGUOUS ? i * STEP : 0)] = x[i];
  }
};

template <int I, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kSimtShort[I].threads, kSimtShort[I].blocks_per_sm) void simt_short(
    const GemmDesc batch, const VectorAccess access, const Schedule schedule) {
  constexpr int BLK_M = kSimtShort[I].tile_m, BLK_N = kSimtShort[I].tile_n, BLK_K = kSimtShort[I].tile_k;
  constexpr int THREADS = kSimtShort[I].threads, WARPS_N = BLK_N / 32;
  constexpr int ROWS = BLK_M * BLK_N / THREADS / W, WARP_ROWS = ROWS / W * BAND;  // rows of a thread, and of a warp
  using ATile = ElementTile<BLK_M, BLK_K, A_K_CONTIGUOUS, THREADS>;
  using BTile = ElementTile<BLK_N, BLK_K, B_K_CONTIGUOUS, THREADS>;
  static_assert(BLK_M / WARP_ROWS * WARPS_N * 32 == THREADS && ROWS % W == 0);

  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  __shared__ __align__(16) float smem_a[2][BLK_K * ATile::PITCH];  // (2, BLK_K, PITCH)
  __shared__ __align__(16) float smem_b[2][BLK_K * BTile::PITCH];  // (2, BLK_K, PITCH)
  // Sums of kSumOf each, of which a thread reads and writes its own; then a warp's rows of 32 elements of D.
  __shared__ Vec<float, W> sums[ROWS][THREADS];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A quarter of a warp reads vectors of two rows and of four columns, as in simt_kstage.
  const int lane_m = lane / 16 * 2 + lane % 2, lane_n = lane / 2 % 8;
  const int warp_m = warp / WARPS_N * WARP_ROWS, warp_n = warp % WARPS_N * 32;
  const auto below = [](int i) { return i / W * BAND + i % W; };  // rows from a thread's first to its row i
  const auto of_row = [&](int i) { return &sums[i / W][warp * 32 + i % W * (32 / W)]; };
  const int k_tiles = int((p.k + BLK_K - 1) / BLK_K);
  ATile a_tile;
  BTile b_tile;
  wait_on_dependencies();
  launch_dependents();

  int stage = 0;
#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const TileIndex tile = schedule[work].tile;
    const int64_t m0 = int64_t(tile.m) * BLK_M, n0 = int64_t(tile.n) * BLK_N;
    // The lane's first element of D.
    const int64_t m = m0 + warp_m + (access.d ? lane_m * W : 0), n = n0 + warp_n + (access.d ? lane_n * W : lane);
    a_tile.go_to(p.a.data, p.a.row, p.a.col, m0, p.m);
    b_tile.go_to(p.b.data, p.b.col, p.b.row, n0, p.n);
    const auto load = [&](int k_left) { a_tile.load(k_left), b_tile.load(k_left); };
    if (p.k > 0) load(int(min(p.k, int64_t(BLK_K))));
    const bool full_c = p.c.data && p.c.row != 0;
    float bias[W];  // of the lane's columns, if C has one row
    if (!full_c && access.d) read_c<float>(p, access, m, n, bias);
    if (!full_c && !access.d) read_c<float>(p, access, m, n, reinterpret_cast<float (&)[1]>(bias));
    float acc[ROWS][W] = {};  // (BLK_M, BLK_N) over the block
    const auto add_sums = [&] {
#pragma unroll
      for (int i = 0; i < ROWS; ++i)
#pragma unroll
        for (int j = 0; j < W; ++j) acc[i][j] += sums[i][threadIdx.x].x[j];
    };

    // ---- main loop ----
    constexpr int SUM_TILES = kSumOf / BLK_K, UNROLLED_K = 8;
#pragma unroll 1
    for (int t = 0; t < k_tiles; ++t) {
      if (t > 0 && t % SUM_TILES == 0) {
        if (t > SUM_TILES) add_sums();
#pragma unroll
        for (int i = 0; i < ROWS; ++i) {
          sums[i][threadIdx.x] = reinterpret_cast<const Vec<float, W>&>(acc[i]);
#pragma unroll
          for (int j = 0; j < W; ++j) acc[i][j] = 0.f;
        }
      }
      const int left = int(min(p.k - int64_t(t) * BLK_K, int64_t(2 * BLK_K)));  // in this K tile and the next
      float* const a = smem_a[stage];
      float* const b = smem_b[stage];
      a_tile.store(a), b_tile.store(b);
      if (t + 1 < k_tiles) load(left - BLK_K);
      __syncthreads();  // K tile t has arrived, and all warps have read K tile t - 1
#pragma unroll 1
      for (int k0 = 0; k0 < min(left, BLK_K); k0 += UNROLLED_K) {
#pragma unroll
        for (int k = k0; k < k0 + UNROLLED_K; ++k) {
          Vec<float, W> a_k[ROWS / W];
#pragma unroll
          for (int i = 0; i < ROWS / W; ++i)
            a_k[i] = *reinterpret_cast<const Vec<float, W>*>(a + k * ATile::PITCH + warp_m + i * BAND + lane_m * W);
          const Vec<float, W> b_k = *reinterpret_cast<const Vec<float, W>*>(b + k * BTile::PITCH + warp_n + lane_n * W);
#pragma unroll
          for (int i = 0; i < ROWS; ++i)
#pragma unroll
            for (int j = 0; j < W; ++j) acc[i][j] = fmaf(a_k[i / W].x[i % W], b_k.x[j], acc[i][j]);
        }
      }
      stage ^= 1;
    }
    if (k_tiles > SUM_TILES) add_sums();

    // ---- epilogue ----
    GemmDesc of_d = product_of(batch, opaque_product());
    if (access.d) {
      const auto row_of = [&](int i) { return m + below(i); };
      float c[ROWS][W];
      if (full_c) {
        read_c<float>(of_d, access, row_of, [&](int) { return n; }, c);
      } else {
#pragma unroll
        for (int i = 0; i < ROWS; ++i)
#pragma unroll
          for (int j = 0; j < W; ++j) c[i][j] = bias[j];
      }
#pragma unroll
      for (int i = 0; i < ROWS; ++i) finish_vector<float>(of_d, access, row_of(i), n, acc[i], c[i], 0);
    } else {
      // The warp's elements change lanes, so that its stores lie side by side. A lane has a part of a column, which is a row of D^T.
      __syncwarp();
#pragma unroll
      for (int i = 0; i < ROWS; ++i) of_row(lane_m * W + below(i))[lane_n] = reinterpret_cast<const Vec<float, W>&>(acc[i]);
      __syncwarp();
      of_d.m = p.n, of_d.n = p.m;
      of_d.c.row = p.c.col, of_d.c.col = p.c.row;
      of_d.d.row = p.d.col, of_d.d.col = p.d.row;
      constexpr int BATCH = 8;
#pragma unroll 1
      for (int first = 0; first < WARP_ROWS; first += BATCH) {
        float sum[BATCH], c[BATCH];
#pragma unroll
        for (int i = 0; i < BATCH; ++i) sum[i] = of_row(first + i)[lane / W].x[lane % W], c[i] = bias[0];
        if (full_c) read_c<float>(of_d, VectorAccess{}, n, m + first, c);
        finish_vector<float>(of_d, VectorAccess{}, n, m + first, sum, c, 0);
      }
      __syncwarp();
    }
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const bool pdl = !would_crowd(p, call.config, call.modes, call.device.gpu.num_sms);
  return with_layouts(p, [&](auto a_k, auto b_k) {
    const auto run = [&](auto uses_pdl) {
      return launch<simt_short<I, a_k, b_k>, uses_pdl>(call, p, vector_access_of(p), Schedule(call, call.config.tile_k));
    };
    return pdl ? run(std::true_type()) : run(std::false_type());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimtShort>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
