// The warp's view of a value.
#pragma once

#include <cstdint>

namespace tc {

// The value of the warp's first lane. A compiler that knows a value to be the same in all lanes keeps it, and what it computes
// from it, in uniform registers. wgmma and TMA take their operands from those: other values must be moved there one by one. The
// compiler does not see through the shuffle. It keeps the result, and does not compute it again in each pass of a loop.
template <typename T>
__device__ __forceinline__ T warp_uniform(T x) {
  return __shfl_sync(0xffffffff, x, 0);
}

// True in one lane of the warp, whose lanes all call it. The compiler knows that it is one: around a TMA copy under another
// condition it builds a loop over the lanes.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n .reg .pred p;\n elect.sync _|p, 0xffffffff;\n selp.u32 %0, 1, 0, p;\n}" : "=r"(elected));
  return elected;
}

}  // namespace tc
