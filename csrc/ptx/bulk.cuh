// Copies of consecutive bytes, one wrapper per instruction (sm_90).
#pragma once

#include <cstdint>

namespace tc {

// Copies `bytes` bytes from global to shared memory. Addresses and size are multiples of 16. `barrier` counts the bytes that arrive.
__device__ __forceinline__ void bulk_load(uint32_t smem, const void* from, uint32_t bytes, uint32_t barrier) {
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(smem), "l"(from),
               "r"(bytes), "r"(barrier)
               : "memory");
}

}  // namespace tc
