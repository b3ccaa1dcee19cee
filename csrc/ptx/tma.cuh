// TMA, one wrapper per instruction (sm_90). It copies boxes of a matrix, or consecutive bytes, between global and shared memory.
#pragma once

#include <cuda.h>

#include <cstdint>

namespace tc {

// Copies `bytes` consecutive bytes from global to shared memory. Addresses and size are multiples of 16. `barrier` counts the bytes that
// arrive.
__device__ __forceinline__ void bulk_load(uint32_t smem, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

// Fetches the tensor map itself, so that the first copy need not wait for it.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at (x, y) of matrix z to shared memory. x and y count elements, x along the map's innermost dimension. `barrier`
// counts the bytes that arrive.
__device__ __forceinline__ void tma_load(uint32_t smem, const CUtensorMap& map, uint32_t barrier, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];" ::"r"(
          smem),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z)
      : "memory");
}

// The same to the shared memory of several blocks of the cluster: bit i of `blocks` is block i. Data and barrier lie at the same
// addresses in each, and each block's barrier counts the bytes that the block receives.
__device__ __forceinline__ void tma_load_multicast(uint32_t smem, const CUtensorMap& map, uint32_t barrier, int x, int y, int z,
                                                   uint16_t blocks) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes.multicast::cluster "
      "[%0], [%1, {%3, %4, %5}], [%2], %6;" ::"r"(smem),
      "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(z), "h"(blocks)
      : "memory");
}

// Copies the box at (x, y) of matrix z to L2.
__device__ __forceinline__ void tma_prefetch(const CUtensorMap& map, int x, int y, int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global.tile [%0, {%1, %2, %3}];" ::"l"(&map), "r"(x), "r"(y), "r"(z)
               : "memory");
}

// L2's cache policy for a store (PTX ISA, "createpolicy"): evict_first or evict_normal.
__device__ __forceinline__ uint64_t cache_policy(bool evict_first) {
  uint64_t first, normal;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(first));
  asm("createpolicy.fractional.L2::evict_normal.b64 %0, 1.0;" : "=l"(normal));
  return evict_first ? first : normal;
}

// Copies a box to global memory, except the elements outside the matrix. The copy joins this thread's next bulk group.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t smem, uint64_t policy, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%3, %4, %5}], [%1], %2;" ::"l"(&map),
      "r"(smem), "l"(policy), "r"(x), "r"(y), "r"(z)
      : "memory");
}
// The same for a map with a fourth dimension.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t smem, uint64_t policy, int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.tile.bulk_group.L2::cache_hint [%0, {%3, %4, %5, %6}], [%1], %2;" ::"l"(&map),
      "r"(smem), "l"(policy), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Waits until at most the N most recent bulk groups of this thread still read shared memory.
template <int N>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}

// Makes this thread's stores to shared memory visible to TMA.
__device__ __forceinline__ void fence_proxy_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tc
