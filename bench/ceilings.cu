// Two ceilings, measured beside the kernels by bench/ladder.py: mma.sync on registers alone, and a copy.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler=-fPIC -o ceilings.so bench/ceilings.cu
#include <cuda_fp16.h>

#include <algorithm>
#include <cstdint>

namespace {

constexpr int CHAINS = 16, LOOPS = 4096;

// CHAINS independent accumulators a warp, so that no mma.sync waits for the one before it. Operands differ from lane to lane:
// a tensor core draws less power, and clocks higher, on constants.
__global__ void mma_loop(float* sink) {
  float d[CHAINS][4] = {};
  uint32_t x[6];
  for (int i = 0; i < 6; ++i) {
    const __half2 h = __floats2half2_rn(sinf(threadIdx.x * 7.f + i), cosf(threadIdx.x * 3.f + i));
    x[i] = reinterpret_cast<const uint32_t&>(h);
  }
  for (int loop = 0; loop < LOOPS; ++loop)
#pragma unroll
    for (int c = 0; c < CHAINS; ++c)
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
                   "{%0, %1, %2, %3};"
                   : "+f"(d[c][0]), "+f"(d[c][1]), "+f"(d[c][2]), "+f"(d[c][3])
                   : "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]), "r"(x[4]), "r"(x[5]));
  float sum = 0;
  for (int c = 0; c < CHAINS; ++c)
    for (int i = 0; i < 4; ++i) sum += d[c][i];
  if (sum == 12345.678f) *sink = sum;  // never true; keeps the loop
}

__global__ void copy(const uint4* source, uint4* target, int64_t count) {
  for (int64_t i = blockIdx.x * int64_t(blockDim.x) + threadIdx.x; i < count; i += int64_t(gridDim.x) * blockDim.x)
    target[i] = source[i];
}

// Milliseconds of the fastest of seven runs, or -1 after a CUDA error.
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

extern "C" double mma_sync_tflops() {
  float* sink = nullptr;
  if (cudaMalloc(&sink, sizeof(float)) != cudaSuccess) return -1;
  const int blocks = multiprocessors() * 2, threads = 256;
  const float ms = fastest([&] { mma_loop<<<blocks, threads>>>(sink); });
  cudaFree(sink);
  return ms < 0 ? -1 : 2.0 * 16 * 8 * 16 * CHAINS * LOOPS * blocks * (threads / 32) / (ms * 1e9);
}

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
