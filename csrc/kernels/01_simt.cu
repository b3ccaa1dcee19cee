// simt: the first rung, fp32 arithmetic on CUDA cores.
//
// simt accepts any strides and any dtype, so it is also the fallback of all other rungs. Each thread of a block computes 8x8 elements
// of a tile of D. The block multiplies slabs of A and B in shared memory that are 16 deep in K. There are two of each: while the
// threads multiply one, they hold the next in registers, and store it to the other.
//
// Slabs hold fp32 and lie K-major; A is transposed on its way in. One k of a thread's eight rows or columns is then two 16-byte
// reads, and neighbouring threads share those reads by broadcast. Each read serves sixteen products, so that the FMAs
// limit the kernel, not shared memory. They issue in 55 % of the cycles, because many wait for a register port (18_simt_kstage.cu).
//
// A global load takes four elements along the contiguous direction. Loads take single elements where no direction is
// contiguous, at the matrix's edges, and at misaligned addresses.
//
// Measured (H200, 4096 cubed): 34 TFLOP/s in tiles of 128x128, 29 in 64x64, cuBLAS's SGEMM 51 in the same run. One sum of all of K instead
// of sums of 256 had 37 and 31.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt.cubin csrc/kernels/01_simt.cu
// Run:   python -m bench.sweep --kernel simt
#include "01_simt.h"

#include "../epilogue/vectors.cuh"
#include "../layout/swizzle.h"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"

namespace tc {
namespace {

constexpr int BLK_K = 16, W = 4;        // W: elements of one load
constexpr int kSumSteps = 256 / BLK_K;  // whose products are added in sequence

// A thread's part of slabs of BLK rows of A or columns of B.
template <typename T, int BLK, int THREADS>
struct Slab {
  static constexpr int PITCH = BLK + kSlabPad, LOADS = BLK * BLK_K / W / THREADS;
  static_assert(LOADS * THREADS * W == BLK * BLK_K);
  Vec<T, W> v[LOADS];

  // The load's place in the slab.
  static __device__ __forceinline__ int outer_of(int load, bool along_k) {
    const int id = threadIdx.x + load * THREADS;
    return along_k ? id / (BLK_K / W) : id % (BLK / W) * W;
  }
  static __device__ __forceinline__ int k_of(int load, bool along_k) {
    const int id = threadIdx.x + load * THREADS;
    return along_k ? id % (BLK_K / W) * W : id / (BLK / W);
  }

  // Loads the slab at (outer0, k0) of x, (outer, K) with strides (outer_stride, k_stride). `packed` says that x has a direction
  // of stride 1 and that each W elements along it start at a multiple of their size.
  __device__ __forceinline__ void load(const MatrixView& x, int64_t outer_stride, int64_t k_stride, int64_t outer0, int64_t k0,
                                       int64_t outer, int64_t k, bool packed) {
    const bool along_k = k_stride == 1;
    const int64_t step = along_k ? k_stride : outer_stride;
#pragma unroll
    for (int c = 0; c < LOADS; ++c) {
      const int64_t o = outer0 + outer_of(c, along_k), kk = k0 + k_of(c, along_k);
      const int64_t left = o >= outer || kk >= k ? 0 : along_k ? k - kk : outer - o;
      const T* source = static_cast<const T*>(x.data) + o * outer_stride + kk * k_stride;
      if (packed && left >= W) {
        v[c] = *reinterpret_cast<const Vec<T, W>*>(source);
      } else {
#pragma unroll
        for (int e = 0; e < W; ++e) v[c].x[e] = e < left ? source[e * step] : T{};
      }
    }
  }

  // Stores it to smem, (BLK_K, PITCH).
  __device__ __forceinline__ void store(float* smem, bool along_k) const {
#pragma unroll
    for (int c = 0; c < LOADS; ++c) {
      const int o = outer_of(c, along_k), kk = k_of(c, along_k);
#pragma unroll
      for (int e = 0; e < W; ++e) smem[along_k ? (kk + e) * PITCH + o : kk * PITCH + o + e] = to_float(v[c].x[e]);
    }
  }
};

template <int I, typename T>
__global__ __launch_bounds__(kSimt[I].threads, kSimt[I].blocks_per_sm) void simt(
    const GemmDesc batch, const VectorAccess access, const bool a_packed, const bool b_packed) {
  // ---- prologue ----
  const GemmDesc p = product_of(batch, blockIdx.y);
  constexpr int BLK_M = kSimt[I].tile_m, BLK_N = kSimt[I].tile_n, THREADS = kSimt[I].threads;
  using SlabA = Slab<T, BLK_M, THREADS>;
  using SlabB = Slab<T, BLK_N, THREADS>;
  __shared__ __align__(16) float smem_a[2][BLK_K * SlabA::PITCH];  // (2, BLK_K, PITCH)
  __shared__ __align__(16) float smem_b[2][BLK_K * SlabB::PITCH];  // (2, BLK_K, PITCH)
  // (4 * W, THREADS, W) sums of kSumSteps each. A thread reads and writes its own.
  extern __shared__ __align__(16) char smem[];
  Vec<float, W>* const sums = reinterpret_cast<Vec<float, W>*>(smem) + threadIdx.x;
  // A warp's threads form a rectangle of 4 x 8. A thread's other four rows and columns lie half a tile further on.
  constexpr int LANES_M = 4, LANES_N = 8, WARPS_N = BLK_N / 8 / LANES_N;
  static_assert(THREADS == BLK_M / 8 * BLK_N / 8 && kSimt[I].smem_bytes == BLK_M * BLK_N * 4);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int row = (warp / WARPS_N * LANES_M + lane / LANES_N) * W, col = (warp % WARPS_N * LANES_N + lane % LANES_N) * W;
  const int64_t tiles_n = (p.n + BLK_N - 1) / BLK_N, tiles = (p.m + BLK_M - 1) / BLK_M * tiles_n;
  wait_on_dependencies();

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t m0 = tile / tiles_n * BLK_M, n0 = tile % tiles_n * BLK_N;
    float acc[2][2][W][W] = {};  // (row half, column half, W, W)
    SlabA a_next;
    SlabB b_next;
    const auto load = [&](int64_t k0) {
      a_next.load(p.a, p.a.row, p.a.col, m0, k0, p.m, p.k, a_packed);
      b_next.load(p.b, p.b.col, p.b.row, n0, k0, p.n, p.k, b_packed);
    };
    const auto store = [&](int buffer) {
      a_next.store(smem_a[buffer], p.a.col == 1);
      b_next.store(smem_b[buffer], p.b.row == 1);
    };

    // ---- main loop ----
    if (p.k > 0) load(0), store(0);
    __syncthreads();
    const int steps = int((p.k + BLK_K - 1) / BLK_K);
    for (int step = 0; step < steps; ++step) {
      const int buffer = step % 2;
      const bool more = step + 1 < steps;
      if (more) load(int64_t(step + 1) * BLK_K);
#pragma unroll
      for (int k = 0; k < BLK_K; ++k) {
        Vec<float, W> a[2], b[2];  // (half, W)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          a[h] = *reinterpret_cast<const Vec<float, W>*>(&smem_a[buffer][k * SlabA::PITCH + row + h * BLK_M / 2]);
          b[h] = *reinterpret_cast<const Vec<float, W>*>(&smem_b[buffer][k * SlabB::PITCH + col + h * BLK_N / 2]);
        }
#pragma unroll
        for (int hm = 0; hm < 2; ++hm)
#pragma unroll
          for (int hn = 0; hn < 2; ++hn)
#pragma unroll
            for (int i = 0; i < W; ++i)
#pragma unroll
              for (int j = 0; j < W; ++j) acc[hm][hn][i][j] = fmaf(a[hm].x[i], b[hn].x[j], acc[hm][hn][i][j]);
      }
      if (more) store(buffer ^ 1);
      if (!more || (step + 1) % kSumSteps == 0) {
        float (&parts)[4 * W][W] = reinterpret_cast<float (&)[4 * W][W]>(acc);
#pragma unroll
        for (int i = 0; i < 4 * W; ++i) {
          Vec<float, W>& sum = sums[i * THREADS];
#pragma unroll
          for (int j = 0; j < W; ++j) parts[i][j] += step >= kSumSteps ? sum.x[j] : 0.f;
          if (!more) continue;
          sum = reinterpret_cast<const Vec<float, W>&>(parts[i]);
#pragma unroll
          for (int j = 0; j < W; ++j) parts[i][j] = 0.f;
        }
      }
      __syncthreads();
    }

    // ---- epilogue ----
#pragma unroll
    for (int hm = 0; hm < 2; ++hm)
#pragma unroll
      for (int hn = 0; hn < 2; ++hn)
#pragma unroll
        for (int i = 0; i < W; ++i)
          finish_vector<T>(p, access, m0 + hm * BLK_M / 2 + row + i, n0 + hn * BLK_N / 2 + col, acc[hm][hn][i]);
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(SimtMaths(), call.math, [&](auto math) {
    using T = Operand<math>;
    const int packed = W * sizeof(T);
    return launch<simt<I, T>, true>(
        call, p, vector_access_of(p), order_of(p.a) != Order::strided && alignment(p.a, p.m, p.k) >= packed,
        order_of(p.b) != Order::strided && alignment(p.b, p.k, p.n) >= packed);
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimt>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
