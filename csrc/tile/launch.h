// The one way a kernel is launched.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>

#include "../gemm/registry.h"

namespace tc {

inline int64_t tiles_of(const Problem& p, const Instance& tile) {
  return ((p.m + tile.tile_m - 1) / tile.tile_m) * ((p.n + tile.tile_n - 1) / tile.tile_n);
}

inline Status status_of(cudaError_t error, const char* call) {
  if (error != cudaSuccess) cudaGetLastError();  // reported here, so that no later call reports it again
  return {int(error), call};
}

// More than 48 KB of dynamic shared memory has to be asked for, once per kernel and device.
template <auto Kernel>
Status allow_smem(int bytes, int device) {
  static std::atomic<uint64_t> allowed{0};  // a bit per device; a device past the 64th asks every time
  const uint64_t mask = device < 64 ? uint64_t(1) << device : 0;
  if (bytes <= 48 * 1024 || (allowed.load(std::memory_order_relaxed) & mask)) return {};
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(Kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) allowed.fetch_or(mask, std::memory_order_relaxed);
  return status_of(error, "cudaFuncSetAttribute");
}

// Persistent grid: as many blocks as the GPU holds at once, or one per tile and split if those are fewer.
template <auto Kernel, typename... Args>
Status launch(const Launch& call, const Args&... args) {
  const Instance& tile = call.tile;
  const Status smem = allow_smem<Kernel>(tile.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  const int64_t work = tiles_of(call.problem, tile) * call.splits;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(std::min(work, int64_t(call.device.num_sms) * tile.blocks_per_sm)));
  config.blockDim = dim3(unsigned(tile.threads));
  config.dynamicSmemBytes = size_t(tile.smem_bytes);
  config.stream = static_cast<cudaStream_t>(call.stream);
  return status_of(cudaLaunchKernelEx(&config, Kernel, args...), "cudaLaunchKernelEx");
}

}  // namespace tc
