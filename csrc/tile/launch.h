// How kernels are launched. One may start while the kernel before it in the stream still runs.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <initializer_list>

#include "../gemm/kernel.h"

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

// Programmatic dependent launch: a kernel that overlaps starts early and waits here until the one before it is done and
// its writes are visible. Before that it may ask L2 for memory, but neither read nor write it.
__device__ __forceinline__ void wait_for_previous_kernel() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// From here on the kernel's successor may start, on any SM that has room; without this, once all blocks have ended.
__device__ __forceinline__ void let_next_kernel_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

// Whether this build has code for Hopper. Without it Hopper runs an older GPU's PTX, in which wait_for_previous_kernel
// does nothing.
constexpr bool compiled_for_hopper() {
  for (const int arch : {__CUDA_ARCH_LIST__})
    if (arch == 900) return true;
  return false;
}

// OVERLAPS: every block of the kernel calls wait_for_previous_kernel; without that wait it would race. cluster: of so many blocks.
template <auto Kernel, bool OVERLAPS, typename... Args>
Status launch_blocks(int64_t blocks, int threads, int smem_bytes, const Device& device, void* stream, int cluster,
                     const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (OVERLAPS && compiled_for_hopper() && device.sm == 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(blocks));
  config.blockDim = dim3(unsigned(threads));
  config.dynamicSmemBytes = size_t(smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return status_of(cudaLaunchKernelEx(&config, Kernel, args...), "cudaLaunchKernelEx");
}

// Persistent grid: as many blocks as the GPU holds at once, or one per tile and split if those are fewer.
template <auto Kernel, bool OVERLAPS = false, typename... Args>
Status launch(const Launch& call, const Args&... args) {
  const Instance& tile = call.tile;
  const Status smem = allow_smem<Kernel>(tile.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  const int64_t work = tiles_of(call.problem, tile) * call.splits;
  const int64_t blocks = std::min(work, int64_t(call.device.num_sms) * tile.blocks_per_sm);
  return launch_blocks<Kernel, OVERLAPS>(blocks, tile.threads, tile.smem_bytes, call.device, call.stream, 1, args...);
}

}  // namespace tc
