// cp.async, one wrapper per instruction: copies from global to shared memory that pass through no register.
#pragma once

#include <cstdint>

namespace tc {

__device__ __forceinline__ uint32_t smem_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// 16 bytes, both addresses multiples of 16, or 16 zeros where the source does not exist; its address must be valid all the same.
// The instruction could also read fewer bytes, but compute-sanitizer takes that for a read of 16, and reports it at the end of an
// allocation: callers copy the cut vectors of a row by element. .cg keeps the copy out of L1, where it would have no second reader.
__device__ __forceinline__ void cp_async_16(uint32_t smem_dst, const void* gmem_src, bool exists = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_dst), "l"(gmem_src), "r"(exists ? 16 : 0) : "memory");
}

// 16 bytes from registers.
__device__ __forceinline__ void st_shared_16(uint32_t smem_dst, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem_dst), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

// All 16 bytes, or nothing at all.
__device__ __forceinline__ void cp_async_16_if(bool wanted, uint32_t smem_dst, const void* gmem_src) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %0, 0;\n @p cp.async.cg.shared.global [%1], [%2], 16;\n}"
               ::"r"(int(wanted)), "r"(smem_dst), "l"(gmem_src) : "memory");
}

// Closes a group over this thread's copies since the last one; a group may be empty.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Until at most N of this thread's groups, the youngest, are still under way.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace tc
