// The one way a kernel is launched: a persistent grid, whose start may overlap the end of the kernel before it.
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

// Programmatic dependent launch: a kernel of the product path may start while the one before it in the stream still runs, does
// what touches no memory that it could be writing, and waits here. Its own successor may do the same.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\n griddepcontrol.wait;" ::: "memory");
#endif
}

// OVERLAPS: the kernel calls wait_for_previous_kernel. Without that call it would race; so it would where code older than
// sm_90a runs, which has no such instruction.
template <auto Kernel, bool OVERLAPS, typename... Args>
Status launch_blocks(int64_t blocks, int threads, int smem_bytes, const Device& device, void* stream, const Args&... args) {
  cudaLaunchAttribute overlap = {};
  overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  overlap.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = size_t(smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = &overlap;
  config.numAttrs = OVERLAPS && device.sm == 90;
  return status_of(cudaLaunchKernelEx(&config, Kernel, args...), "cudaLaunchKernelEx");
}

// Persistent grid: as many blocks as the GPU holds at once, or one per tile and split if those are fewer.
template <auto Kernel, bool OVERLAPS = false, typename... Args>
Status launch(const Launch& call, const Args&... args) {
  const Instance& tile = call.tile;
  const Status smem = allow_smem<Kernel>(tile.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  const int64_t work = tiles_of(call.problem, tile) * call.splits;
  return launch_blocks<Kernel, OVERLAPS>(std::min(work, int64_t(call.device.num_sms) * tile.blocks_per_sm), tile.threads,
                                         tile.smem_bytes, call.device, call.stream, args...);
}

}  // namespace tc
