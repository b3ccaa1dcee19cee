// A panel of B in shared memory, all of K deep: what the orders of fragment_panel.cuh and word_panel.cuh have in common.
#pragma once

#include <cstdint>

#include "../gemm/panels.h"

namespace tc {

// How a warp's lanes divide 64 bytes of K, a step: lane q of a row or column takes 16 of them. mma.sync takes 32 bytes at a time, in
// another order than memory has them. A and B have them in the same order, and a sum may be taken in any.
constexpr int kStepBytes = Panels::kStep;

// (steps of K, columns, 64 bytes). Eight lanes at a time read two columns, which are 128 bytes. The XOR spreads the 16-byte vectors
// over the banks where threads write the same vector of many columns.
struct Panel {
  uint32_t smem;
  int columns, depth;  // depth: steps

  static __device__ uint32_t offset(int column, int q) { return (column * 4 + (q ^ column / 2 % 4)) * 16; }
  // The address of this lane's vector of the first eight columns from j0 on, a multiple of 8. The next eight lie 512 bytes further.
  __device__ uint32_t lane_address(int step, int j0) const {
    const int lane = threadIdx.x % 32;
    return smem + (step * columns + j0) * kStepBytes + offset(lane / 4, lane % 4);
  }
};

}  // namespace tc
