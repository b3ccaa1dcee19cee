// Launches kernels, and registers their compiled code with the planner.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <type_traits>

#include "../gemm/kernel.h"

namespace tc {

#ifndef TC_COUNT
#define TC_COUNT 1  // how many configurations the object has; the build gives it
#endif

// Enters the code of COUNT configurations, from FIRST on, in the planner's table. A rung's file ends with
// `const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<CONFIGS>, [](auto i) { return launch_config<i>; })`,
// and each of its objects has some of the configurations.
template <int FIRST, int COUNT, typename F>
bool register_configs(Code* code, F&& launcher_of) {
  if constexpr (COUNT > 0) {
    code[FIRST].launch = launcher_of(std::integral_constant<int, FIRST>());
    int i = 0;
    for (const int arch : {__CUDA_ARCH_LIST__}) code[FIRST].archs[i++] = arch;
    return register_configs<FIRST + 1, COUNT - 1>(code, launcher_of);
  }
  return true;
}

inline Status status_of(cudaError_t error, const char* call) {
  if (error != cudaSuccess) cudaGetLastError();  // clears the error, so that no later call reports it again
  return {int(error), call};
}

// More than 48 KB of shared memory, static and dynamic, needs cudaFuncSetAttribute, once per kernel and device. The compiler
// alone knows how much is static, so that every kernel with dynamic memory asks.
template <auto Kernel>
Status allow_smem(int bytes, int device) {
  static std::atomic<uint64_t> allowed{0};  // one bit per device; devices past the 64th set the attribute every time
  const uint64_t mask = device < 64 ? uint64_t(1) << device : 0;
  if (bytes == 0 || (allowed.load(std::memory_order_relaxed) & mask)) return {};
  const cudaError_t error =
      cudaFuncSetAttribute(reinterpret_cast<const void*>(Kernel), cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  if (error == cudaSuccess) allowed.fetch_or(mask, std::memory_order_relaxed);
  return status_of(error, "cudaFuncSetAttribute");
}

// Whether this object has machine code for Hopper. Without machine code Hopper runs an older GPU's PTX, in which ptx/pdl.cuh
// does nothing.
constexpr bool compiled_for_hopper() {
  for (const int arch : {__CUDA_ARCH_LIST__})
    if (arch == 900) return true;
  return false;
}

struct Grid {
  int64_t blocks;
  int threads;
  int smem_bytes = 0;
  int cluster = 1;       // blocks per cluster
  bool pdl = true;       // if the kernel uses PDL
  int64_t products = 1;  // of a batch, each with so many blocks
};

// USES_PDL requires that every block of the kernel calls wait_on_dependencies. Without that wait the kernel would race with the
// previous one.
template <auto Kernel, bool USES_PDL, typename... Args>
Status launch_grid(const Grid& grid, const DeviceSpec& device, void* stream, const Args&... args) {
  cudaLaunchAttribute attributes[2] = {};
  int count = 0;
  if (USES_PDL && grid.pdl && compiled_for_hopper() && device.gpu.sm == 90) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {unsigned(grid.cluster), 1, 1};
  }
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(unsigned(grid.blocks), unsigned(grid.products));
  config.blockDim = dim3(unsigned(grid.threads));
  config.dynamicSmemBytes = size_t(grid.smem_bytes);
  config.stream = static_cast<cudaStream_t>(stream);
  config.attrs = attributes;
  config.numAttrs = count;
  return status_of(cudaLaunchKernelEx(&config, Kernel, args...), "cudaLaunchKernelEx");
}

// launch_grid for a kernel whose dynamic shared memory follows from the problem, up to the configuration's.
template <auto Kernel, bool USES_PDL, typename... Args>
Status launch_sized(const Launch& call, const Grid& grid, const Args&... args) {
  const Status smem = allow_smem<Kernel>(call.config.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  return launch_grid<Kernel, USES_PDL>(grid, call.device, call.stream, args...);
}

// Launches a persistent grid of `rows` rows. Each has as many blocks as the GPU holds at once, or one per work tile if those are
// fewer.
template <auto Kernel, bool USES_PDL, typename... Args>
Status launch_rows(const Launch& call, int64_t rows, const Args&... args) {
  const Config& config = call.config;
  const Status smem = allow_smem<Kernel>(config.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  const int64_t work = blocks_of(call.desc, config, call.modes);
  const int64_t resident = int64_t(call.device.gpu.num_sms) * config.blocks_per_sm;
  // With several blocks per SM, PDL only starts grids that the SMs hold at once. Blocks of other grids would crowd on the
  // first SMs that fall free (uses_pdl).
  const bool pdl = !needs_order(call.desc, config, call.modes) && (config.blocks_per_sm == 1 || work <= resident);
  return launch_grid<Kernel, USES_PDL>(
      {std::min(work / rows, resident), config.threads, config.smem_bytes, 1, pdl, rows}, call.device, call.stream, args...);
}

// Launches a kernel whose grid has a row of blocks for each product.
template <auto Kernel, bool USES_PDL = false, typename... Args>
Status launch(const Launch& call, const Args&... args) {
  return launch_rows<Kernel, USES_PDL>(call, call.desc.batch, args...);
}

// Launches a kernel whose blocks walk over the work tiles of all products.
template <auto Kernel, bool USES_PDL, typename... Args>
Status launch_walk(const Launch& call, const Args&... args) {
  return launch_rows<Kernel, USES_PDL>(call, 1, args...);
}

// How many clusters of `blocks` blocks a GPU holds at once. The answer depends on how the GPU's SMs are grouped, so that the
// driver is asked, once for each kernel, size and device.
template <auto Kernel>
Status resident_clusters(int64_t& resident, const Config& config, int blocks, int device) {
  constexpr int kSizes = 4, kDevices = 64;  // clusters of 1, 2, 4 and 8 blocks
  static std::atomic<int> known[kDevices][kSizes];
  const int size = blocks == 8 ? 3 : blocks / 2;
  if (device < kDevices && (resident = known[device][size].load(std::memory_order_relaxed)) > 0) return {};
  cudaLaunchAttribute attribute = {};
  attribute.id = cudaLaunchAttributeClusterDimension;
  attribute.val.clusterDim = {unsigned(blocks), 1, 1};
  cudaLaunchConfig_t query = {};
  query.gridDim = dim3(unsigned(blocks));
  query.blockDim = dim3(unsigned(config.threads));
  query.dynamicSmemBytes = size_t(config.smem_bytes);
  query.attrs = &attribute;
  query.numAttrs = 1;
  int count = 0;
  const cudaError_t error = cudaOccupancyMaxActiveClusters(&count, reinterpret_cast<const void*>(Kernel), &query);
  resident = std::max(1, count);
  if (error == cudaSuccess && device < kDevices) known[device][size].store(int(resident), std::memory_order_relaxed);
  return status_of(error, "cudaOccupancyMaxActiveClusters");
}

// Launches a grid of `rows` rows of clusters, in each one for each of `work` work tiles. If their blocks do not share K, the grid is
// persistent and a row has at most as many clusters as the GPU holds at once.
template <auto Kernel, bool USES_PDL, typename... Args>
Status launch_clusters(const Launch& call, int64_t work, int64_t rows, const Args&... args) {
  const Config& config = call.config;
  const Cluster& cluster = call.modes.cluster;
  const Status smem = allow_smem<Kernel>(config.smem_bytes, call.device.ordinal);
  if (!smem.ok()) return smem;
  int64_t clusters = std::min(work, int64_t(call.device.gpu.num_sms) * config.blocks_per_sm);
  if (cluster.k > 1) {
    clusters = work;
  } else if (cluster.blocks() > 1) {
    int64_t resident = 0;
    const Status status = resident_clusters<Kernel>(resident, config, cluster.blocks(), call.device.ordinal);
    if (!status.ok()) return status;
    clusters = std::min(work, resident);
  }
  return launch_grid<Kernel, USES_PDL>(
      {clusters * cluster.blocks(), config.threads, config.smem_bytes, cluster.blocks(),
       !needs_order(call.desc, config, call.modes), rows},
      call.device, call.stream, args...);
}

}  // namespace tc
