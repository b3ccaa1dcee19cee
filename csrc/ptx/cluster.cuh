// Cluster instructions, one wrapper each (sm_90). Blocks of a cluster run at the same time and read each other's shared memory.
#pragma once

#include <cstdint>

namespace tc {

__device__ __forceinline__ int cluster_size() {
  int n;
  asm("mov.u32 %0, %%cluster_nctarank;" : "=r"(n));
  return n;
}
__device__ __forceinline__ int cluster_rank() {
  int rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// The cluster's number in the grid, and how many there are. A block without a cluster is one of its own.
__device__ __forceinline__ int cluster_id() {
  int id;
  asm("mov.u32 %0, %%clusterid.x;" : "=r"(id));
  return id;
}
__device__ __forceinline__ int cluster_count() {
  int n;
  asm("mov.u32 %0, %%nclusterid.x;" : "=r"(n));
  return n;
}

// All threads of the cluster call both. cluster_wait returns once all have arrived, and what they wrote before is then visible.
__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
// Without an order for what the thread wrote before. mbarriers that were initialised need fence_mbarrier_init first.
__device__ __forceinline__ void cluster_arrive_relaxed() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// The address of `smem` in block `rank`.
__device__ __forceinline__ uint32_t address_in_block(uint32_t smem, int rank) {
  uint32_t there;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(smem), "r"(rank));
  return there;
}

// mbarrier_arrive_if at an mbarrier of any block of the cluster. `barrier` is what address_in_block returned. The default scope
// is the right one: .release.cluster would compile to a MEMBAR.ALL.GPU, which costs half the speed.
__device__ __forceinline__ void mbarrier_arrive_in_block_if(bool condition, uint32_t barrier) {
  asm volatile("{\n .reg .pred p;\n setp.ne.u32 p, %1, 0;\n @p mbarrier.arrive.shared::cluster.b64 _, [%0];\n}" ::"r"(barrier),
               "r"(unsigned(condition))
               : "memory");
}

// Stores 16 bytes to the shared memory of a block. Its mbarrier `barrier` counts them when they have arrived. Both are
// addresses that address_in_block returned.
__device__ __forceinline__ void store_async(uint32_t there, float4 x, uint32_t barrier) {
  asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(there),
               "f"(x.x), "f"(x.y), "f"(x.z), "f"(x.w), "r"(barrier)
               : "memory");
}

// Loads 16 bytes from the shared memory of block `rank`. `smem` is the address of the same data in this block.
__device__ __forceinline__ float4 load_from_cluster(uint32_t smem, int rank) {
  float4 x;
  asm volatile(
      "{\n .reg .b32 there;\n mapa.shared::cluster.u32 there, %4, %5;\n"
      " ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [there];\n}"
      : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w)
      : "r"(smem), "r"(rank));
  return x;
}

}  // namespace tc
