// Loops that reach the GPU's ceilings: mma.sync that reads registers only, wgmma that reads shared memory only, and a copy.
// bench/ceilings.py times them in the same run as the kernels.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -shared -Xcompiler=-fPIC -o ceilings.so bench/ceilings.cu
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

#include "../csrc/ptx/tma.cuh"
#include "../csrc/ptx/wgmma.cuh"

namespace {

constexpr int MMAS_M = 4, MMAS_N = 8, LOOPS = 1024, THREADS = 256;

// Returns a pseudorandom number in [-1, 1). Regular data would let a tensor core draw less power and clock higher.
__device__ float noise(uint32_t x) {
  x = (x ^ x >> 16) * 0x7feb352d;
  x = (x ^ x >> 15) * 0x846ca68b;
  return int32_t(x ^ x >> 16) * 0x1p-31f;
}

// Repeats the products of a 64x64 warp tile in mma_swizzle's order. The operands stay in registers.
__global__ __launch_bounds__(THREADS, 1) void mma_loop(float* sink) {
  float d[MMAS_M][MMAS_N][4] = {};
  uint32_t a[MMAS_M][4], b[MMAS_N][2];
  uint32_t seed = (blockIdx.x * THREADS + threadIdx.x) * 2 * (MMAS_M * 4 + MMAS_N * 2);
  const auto next = [&] {
    const __half2 h = __floats2half2_rn(noise(seed), noise(seed + 1));
    seed += 2;
    return reinterpret_cast<const uint32_t&>(h);
  };
  for (auto& row : a)
    for (uint32_t& x : row) x = next();
  for (auto& column : b)
    for (uint32_t& x : column) x = next();
#pragma unroll 1
  for (int loop = 0; loop < LOOPS; ++loop)
#pragma unroll
    for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
      for (int jj = 0; jj < MMAS_N; ++jj) {
        const int j = i % 2 ? MMAS_N - 1 - jj : jj;
        asm volatile(
            "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
            "{%0, %1, %2, %3};"
            : "+f"(d[i][j][0]), "+f"(d[i][j][1]), "+f"(d[i][j][2]), "+f"(d[i][j][3])
            : "r"(a[i][0]), "r"(a[i][1]), "r"(a[i][2]), "r"(a[i][3]), "r"(b[j][0]), "r"(b[j][1]));
      }
  float sum = 0;
  for (const auto& row : d)
    for (const auto& tile : row)
      for (const float x : tile) sum += x;
  if (sum == 12345.678f) *sink = sum;  // never true; the compiler cannot drop the loop
}

constexpr int WGMMA_SMEM = (128 + 256) * 128 + 1024;  // bytes: A (128, 64), B (256, 64), and 1024 to align them

// Repeats the products of wgmma_tma's 128x256x64 tile by two warpgroups. The operands stay in shared memory.
template <typename T>
__global__ __launch_bounds__(256, 1) void wgmma_loop(float* sink) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  extern __shared__ char memory[];
  const uint32_t begin = uint32_t(__cvta_generic_to_shared(memory)), tiles = (begin + 1023) / 1024 * 1024;
  T* const elements = reinterpret_cast<T*>(memory + (tiles - begin));  // (128 + 256, 64)
  for (int i = threadIdx.x; i < (128 + 256) * 64; i += 256) elements[i] = T(noise(blockIdx.x * (128 + 256) * 64 + i));
  tc::fence_proxy_async();  // wgmma reads shared memory as TMA does
  __syncthreads();
  const uint64_t a = tc::tile_descriptor<true>(tiles + threadIdx.x / 128 * (64 * 128), 0);
  const uint64_t b = tc::tile_descriptor<true>(tiles + 128 * 128, 0);
  float d[128] = {};
#pragma unroll 1
  for (int loop = 0; loop < LOOPS; ++loop) {
    tc::wgmma_fence();
#pragma unroll
    for (int k = 0; k < 4; ++k) tc::wgmma<T, 256, true, true>(d, a + k * tc::kNextK<true>, b + k * tc::kNextK<true>, true);
    tc::wgmma_commit();
    tc::wgmma_wait<1>();
  }
  tc::wgmma_wait<0>();
  float sum = 0;
  for (const float x : d) sum += x;
  if (sum == 12345.678f) *sink = sum;  // never true; the compiler cannot drop the loop
#endif
}

__global__ void copy(const uint4* source, uint4* target, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    target[i] = source[i];
}

// Returns the milliseconds of the fastest of seven runs, or -1 after a CUDA error.
template <typename F>
float fastest(F&& run) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  float best = 1e30f;
  for (int i = 0; i < 7; ++i) {
    cudaEventRecord(begin);
    run();
    cudaEventRecord(end);
    if (cudaEventSynchronize(end) != cudaSuccess || cudaGetLastError() != cudaSuccess) return -1;
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    best = std::min(best, ms);
  }
  return best;
}

int multiprocessors() {
  int device = 0, count = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count;
}

}  // namespace

// Launches mma_loop on `stream`. Returns the launch's FLOPs, or -1 after a CUDA error. `sink` is a device pointer.
extern "C" double launch_mma_sync(float* sink, void* stream) {
  const int blocks = multiprocessors();
  mma_loop<<<blocks, THREADS, 0, static_cast<cudaStream_t>(stream)>>>(sink);
  return cudaGetLastError() == cudaSuccess ? 2.0 * 16 * 8 * 16 * MMAS_M * MMAS_N * LOOPS * blocks * (THREADS / 32) : -1;
}

// Launches wgmma_loop on `stream`. Returns the launch's FLOPs, or -1 after a CUDA error. `sink` is a device pointer.
extern "C" double launch_wgmma(float* sink, void* stream, int bf16) {
  const auto kernel = bf16 ? wgmma_loop<__nv_bfloat16> : wgmma_loop<__half>;
  const int blocks = multiprocessors();
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, WGMMA_SMEM);
  kernel<<<blocks, 256, WGMMA_SMEM, static_cast<cudaStream_t>(stream)>>>(sink);
  return cudaGetLastError() == cudaSuccess ? 2.0 * 128 * 256 * 64 * LOOPS * blocks : -1;
}

// Copies 2 GiB. Returns TB/s, read plus written, or -1 after a CUDA error.
extern "C" double copy_tbytes() {
  const int64_t bytes = int64_t(1) << 31;
  uint4 *source = nullptr, *target = nullptr;
  if (cudaMalloc(&source, bytes) != cudaSuccess || cudaMalloc(&target, bytes) != cudaSuccess) return -1;
  cudaMemset(source, 1, bytes);
  const float ms = fastest([&] { copy<<<multiprocessors() * 16, 512>>>(source, target, bytes / 16); });
  cudaFree(source);
  cudaFree(target);
  return ms < 0 ? -1 : 2.0 * bytes / (ms * 1e9);
}
