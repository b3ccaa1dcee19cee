// simt: the first rung, fp32 arithmetic on CUDA cores.
//
// simt accepts any strides and any dtype, so it is also the fallback of all other rungs. A block of 64 threads computes a 64x64
// tile of D, and each thread computes 8x8 elements of it. The block multiplies slabs of A and B in shared memory that are 16
// deep in K.
//
// Slabs hold fp32 and lie K-major; A is transposed on its way in. One k of a thread's eight rows or columns is then two 16-byte
// reads, and neighbouring threads share those reads by broadcast. Each read serves sixteen products, so FMA issue limits the
// kernel, not shared memory.
//
// A global load takes four elements along the contiguous direction. Loads take single elements where no direction is
// contiguous, at the matrix's edges, and at misaligned addresses.
//
// Measured (H200, 4096 cubed, python -m bench.ladder at 04bea51): 25 TFLOP/s.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt.cubin csrc/kernels/01_simt.cu
// Run:   python -m bench.sweep --kernel simt
#include "01_simt.h"

#include "../epilogue/vectors.cuh"
#include "../layout/swizzle.h"
#include "../tile/copy.cuh"
#include "../tile/dispatch.h"

namespace tc {
namespace {

constexpr int BLK = 64, BLK_K = 16, THREADS = 64, W = 4;  // W: elements of one load
constexpr int PITCH = BLK + kSlabPad;                     // floats

// Loads the slab at (outer0, k0) of X into smem. X is (outer, K) with strides (outer_stride, k_stride); smem is (BLK_K, PITCH).
// `packed` says that X has a direction of stride 1 and that each W elements along it start at a multiple of their size.
template <typename T>
__device__ __forceinline__ void load_slab(float* smem, const MatrixView& x, int64_t outer_stride, int64_t k_stride,
                                          int64_t outer0, int64_t k0, int64_t outer, int64_t k, bool packed) {
  const bool along_k = k_stride == 1;
  const int64_t step = along_k ? k_stride : outer_stride;
#pragma unroll
  for (int c = 0; c < BLK * BLK_K / W / THREADS; ++c) {
    const int id = threadIdx.x + c * THREADS;
    const int o = along_k ? id / (BLK_K / W) : id % (BLK / W) * W, kk = along_k ? id % (BLK_K / W) * W : id / (BLK / W);
    const int64_t outer_left = outer - outer0 - o, k_left = k - k0 - kk;
    const int64_t left = outer_left <= 0 || k_left <= 0 ? 0 : along_k ? k_left : outer_left;
    const T* source = static_cast<const T*>(x.data) + (outer0 + o) * outer_stride + (k0 + kk) * k_stride;
    Vec<T, W> v;
    if (packed && left >= W) {
      v = *reinterpret_cast<const Vec<T, W>*>(source);
    } else {
#pragma unroll
      for (int e = 0; e < W; ++e) v.x[e] = e < left ? source[e * step] : T{};
    }
#pragma unroll
    for (int e = 0; e < W; ++e) smem[along_k ? (kk + e) * PITCH + o : kk * PITCH + o + e] = to_float(v.x[e]);
  }
}

template <typename T>
__global__ __launch_bounds__(THREADS, kSimt[0].blocks_per_sm) void simt(const GemmDesc p, const VectorAccess access,
                                                                        const bool a_packed, const bool b_packed) {
  // ---- prologue ----
  __shared__ __align__(16) float smem_a[BLK_K * PITCH];            // (BLK_K, PITCH)
  __shared__ __align__(16) float smem_b[BLK_K * PITCH];            // (BLK_K, PITCH)
  const int row = threadIdx.x / 8 * W, col = threadIdx.x % 8 * W;  // the thread's other four rows and columns lie 32 further on
  const int64_t tiles_n = (p.n + BLK - 1) / BLK, tiles = (p.m + BLK - 1) / BLK * tiles_n;

  for (int64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    const int64_t m0 = tile / tiles_n * BLK, n0 = tile % tiles_n * BLK;
    float acc[2][2][W][W] = {};  // (row half, column half, W, W)

    // ---- main loop ----
    for (int64_t k0 = 0; k0 < p.k; k0 += BLK_K) {
      load_slab<T>(smem_a, p.a, p.a.row, p.a.col, m0, k0, p.m, p.k, a_packed);
      load_slab<T>(smem_b, p.b, p.b.col, p.b.row, n0, k0, p.n, p.k, b_packed);
      __syncthreads();
#pragma unroll
      for (int k = 0; k < BLK_K; ++k) {
        Vec<float, W> a[2], b[2];  // (half, W)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          a[h] = *reinterpret_cast<const Vec<float, W>*>(&smem_a[k * PITCH + row + h * 32]);
          b[h] = *reinterpret_cast<const Vec<float, W>*>(&smem_b[k * PITCH + col + h * 32]);
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
      __syncthreads();
    }

    // ---- epilogue ----
#pragma unroll
    for (int hm = 0; hm < 2; ++hm)
#pragma unroll
      for (int hn = 0; hn < 2; ++hn)
#pragma unroll
        for (int i = 0; i < W; ++i) finish_vector<T>(p, access, m0 + hm * 32 + row + i, n0 + hn * 32 + col, acc[hm][hn][i]);
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  return with_math(SimtMaths(), call.math, [&](auto math) {
    using T = Operand<math>;
    const int packed = W * sizeof(T);
    return launch<simt<T>>(call, p, vector_access_of(p), order_of(p.a) != Order::strided && alignment(p.a, p.m, p.k) >= packed,
                           order_of(p.b) != Order::strided && alignment(p.b, p.k, p.n) >= packed);
  });
}

const Registration registered(kCode<kSimt>[TC_CONFIG], launch_config<TC_CONFIG>);

}  // namespace
}  // namespace tc
