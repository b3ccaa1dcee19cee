// Not a rung: the two memory-bound kernels that a rung may need around it.
//
// repack copies an operand that cp.async and TMA cannot read (odd leading dimension, misaligned base, no direction of stride 1)
// into workspace, K contiguous, lines 16-byte aligned. reduce adds the fp32 partial products of a split K in a fixed order and
// finishes D.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o workspace.cubin csrc/kernels/00_workspace.cu
#include "../gemm/execute.h"
#include "../tile/epilogue.cuh"
#include "../tile/launch.h"

namespace tc {
namespace {

constexpr int THREADS = 256, BLK = 64;

// Element (o, k) of the source, (outer, K) with any strides, to target[o * leading + k]; zeros from K up to `leading`.
// Through shared memory, so that reads follow the source's contiguous direction and every write is 16 bytes of a line.
template <typename E>
__global__ __launch_bounds__(THREADS) void repack(const E* source, int64_t outer_stride, int64_t k_stride, E* target,
                                                  int64_t leading, int64_t outer, int64_t k) {
  constexpr int W = 16 / int(sizeof(E)), PITCH = BLK + W;
  __shared__ __align__(16) E tile[BLK * PITCH];  // (outer, K + 16 bytes)
  const bool along_k = k_stride <= outer_stride;
  const int64_t tiles_k = (leading + BLK - 1) / BLK, tiles = (outer + BLK - 1) / BLK * tiles_k;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t o0 = t / tiles_k * BLK, k0 = t % tiles_k * BLK;
#pragma unroll
    for (int i = 0; i < BLK * BLK / THREADS; ++i) {
      const int fast = threadIdx.x % BLK, slow = threadIdx.x / BLK + i * (THREADS / BLK);
      const int o = along_k ? slow : fast, kk = along_k ? fast : slow;
      tile[o * PITCH + kk] = o0 + o < outer && k0 + kk < k ? source[(o0 + o) * outer_stride + (k0 + kk) * k_stride] : E(0);
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < BLK * BLK / W / THREADS; ++i) {
      const int o = (threadIdx.x + i * THREADS) / (BLK / W), kk = (threadIdx.x + i * THREADS) % (BLK / W) * W;
      if (o0 + o < outer && k0 + kk < leading)
        *reinterpret_cast<uint4*>(&target[(o0 + o) * leading + k0 + kk]) =
            *reinterpret_cast<const uint4*>(&tile[o * PITCH + kk]);
    }
    __syncthreads();
  }
}

// D = alpha * (sum over splits of partials, (splits, M, N)) + beta * C, W elements of a row to a thread; N is a multiple of W.
template <typename T, int W>
__global__ __launch_bounds__(THREADS) void reduce(const Problem p, const Wide wide, const float* partials, const int splits) {
  const int64_t runs_n = p.n / W, runs = p.m * runs_n;
  for (int64_t r = blockIdx.x * int64_t(THREADS) + threadIdx.x; r < runs; r += int64_t(gridDim.x) * THREADS) {
    const int64_t i = r / runs_n, j = r % runs_n * W;
    float sum[W] = {};
#pragma unroll 8  // loads in flight: the sums are few and the parts many
    for (int s = 0; s < splits; ++s) {
      const Vec<float, W> part = *reinterpret_cast<const Vec<float, W>*>(partials + (s * p.m + i) * p.n + j);
#pragma unroll
      for (int e = 0; e < W; ++e) sum[e] += part.x[e];
    }
    finish_run<T>(p, wide, i, j, sum);
  }
}

cudaLaunchConfig_t grid(int64_t blocks, const Device& device, void* stream) {
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(std::min(blocks, int64_t(device.num_sms) * 8)));
  config.blockDim = dim3(THREADS);
  config.stream = static_cast<cudaStream_t>(stream);
  return config;
}

template <typename E>
Status launch_repack_of(const Matrix& x, int64_t outer, int64_t k, void* target, const Device& device, void* stream) {
  const int64_t leading = repacked_leading(k, x.dtype);
  const auto config = grid((outer + BLK - 1) / BLK * ((leading + BLK - 1) / BLK), device, stream);
  return status_of(cudaLaunchKernelEx(&config, repack<E>, static_cast<const E*>(x.data), x.row, x.col,
                                      static_cast<E*>(target), leading, outer, k), "cudaLaunchKernelEx");
}

template <typename T>
Status launch_reduce_of(const Problem& p, const float* partials, int splits, const Device& device, void* stream) {
  const int width = p.n % 4 == 0 ? 4 : 1;
  const auto config = grid((p.m * p.n / width + THREADS - 1) / THREADS, device, stream);
  const auto kernel = width == 4 ? reduce<T, 4> : reduce<T, 1>;
  return status_of(cudaLaunchKernelEx(&config, kernel, p, wide_accesses(p), partials, splits), "cudaLaunchKernelEx");
}

}  // namespace

Status launch_repack(const Matrix& x, int64_t outer, int64_t k, void* target, const Device& device, void* stream) {
  return size_of(x.dtype) == 2 ? launch_repack_of<uint16_t>(x, outer, k, target, device, stream)
                               : launch_repack_of<uint32_t>(x, outer, k, target, device, stream);
}

Status launch_reduce(const Problem& p, const float* partials, int splits, const Device& device, void* stream) {
  switch (p.a.dtype) {
    case DType::f16: return launch_reduce_of<__half>(p, partials, splits, device, stream);
    case DType::bf16: return launch_reduce_of<__nv_bfloat16>(p, partials, splits, device, stream);
    default: return launch_reduce_of<float>(p, partials, splits, device, stream);
  }
}

}  // namespace tc
