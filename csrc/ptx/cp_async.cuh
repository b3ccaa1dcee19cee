// cp.async, one wrapper per instruction. It copies from global to shared memory without registers in between.
#pragma once

#include <cstdint>

namespace tc {

__device__ __forceinline__ uint32_t smem_address(const void* p) { return uint32_t(__cvta_generic_to_shared(p)); }

// Copies 16 bytes, or writes 16 zeros if the source does not exist. Both addresses are multiples of 16, and `gmem_src` must be
// valid in either case. The instruction could also read fewer bytes, but compute-sanitizer takes such a read for 16 bytes and
// reports it at the end of an allocation. Callers therefore copy the cut vectors of a row by element. .cg keeps the bytes out
// of L1, where they would have no second reader.
__device__ __forceinline__ void cp_async_16(uint32_t smem_dst, const void* gmem_src, bool exists = true) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem_dst), "l"(gmem_src), "r"(exists ? 16 : 0) : "memory");
}

// cp_async_16 for copies of 4, 8 or 16 bytes. Both addresses are multiples of BYTES. Only 16 bytes can bypass L1.
template <int BYTES>
__device__ __forceinline__ void cp_async(uint32_t smem_dst, const void* gmem_src, bool exists) {
  if constexpr (BYTES == 16) cp_async_16(smem_dst, gmem_src, exists);
  else
    asm volatile(
        "cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(smem_dst), "l"(gmem_src), "n"(BYTES), "r"(exists ? BYTES : 0)
        : "memory");
}

__device__ __forceinline__ void st_shared_16(uint32_t smem_dst, uint4 x) {
  asm volatile("st.shared.v4.b32 [%0], {%1, %2, %3, %4};" ::"r"(smem_dst), "r"(x.x), "r"(x.y), "r"(x.z), "r"(x.w) : "memory");
}

__device__ __forceinline__ float4 ld_shared_16(uint32_t smem_src) {
  float4 x;
  asm volatile("ld.shared.v4.f32 {%0, %1, %2, %3}, [%4];" : "=f"(x.x), "=f"(x.y), "=f"(x.z), "=f"(x.w) : "r"(smem_src));
  return x;
}

__device__ __forceinline__ void ld_shared_16(uint32_t (&x)[4], uint32_t smem_src) {
  asm volatile("ld.shared.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(x[0]), "=r"(x[1]), "=r"(x[2]), "=r"(x[3]) : "r"(smem_src));
}

__device__ __forceinline__ uint32_t ld_shared_4(uint32_t smem_src) {
  uint32_t x;
  asm volatile("ld.shared.b32 %0, [%1];" : "=r"(x) : "r"(smem_src));
  return x;
}

__device__ __forceinline__ void st_shared_4(uint32_t smem_dst, uint32_t x) {
  asm volatile("st.shared.b32 [%0], %1;" ::"r"(smem_dst), "r"(x) : "memory");
}

__device__ __forceinline__ void st_shared_2(uint32_t smem_dst, uint16_t x) {
  asm volatile("st.shared.b16 [%0], %1;" ::"r"(smem_dst), "h"(x) : "memory");
}

// Copies 16 bytes if `wanted`. Otherwise shared memory keeps what it holds.
__device__ __forceinline__ void cp_async_16_if(bool wanted, uint32_t smem_dst, const void* gmem_src) {
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %0, 0;\n @p cp.async.cg.shared.global [%1], [%2], 16;\n}" ::"r"(int(wanted)),
               "r"(smem_dst), "l"(gmem_src)
               : "memory");
}

// Closes a group of this thread's copies since the last commit. A group may be empty.
__device__ __forceinline__ void cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }

// Waits until at most the N most recent groups of this thread are pending.
template <int N>
__device__ __forceinline__ void cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

}  // namespace tc
