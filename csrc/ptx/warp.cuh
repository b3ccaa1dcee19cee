// The warp's view of a value.
#pragma once

namespace tc {

// The value of the warp's first lane. A compiler that knows a value to be the same in all lanes keeps it, and what it computes
// from it, in uniform registers. wgmma and TMA take their operands from those: other values must be moved there one by one.
template <typename T>
__device__ __forceinline__ T warp_uniform(T x) {
  return __shfl_sync(0xffffffff, x, 0);
}

}  // namespace tc
