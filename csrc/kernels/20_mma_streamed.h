// mma_streamed's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaStreamedMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// The tile is a warp's: rows of A and columns of D that it multiplies at once at most.
constexpr Config mma_streamed_config(int tile_m, int tile_n, int warps) {
  return {tile_m, tile_n, 32, 1, warps * 32, 227 * 1024, 1, 0, 0, 1, 0, false, kHopper, 2};
}

inline constexpr Config kMmaStreamed[] = {
    mma_streamed_config(16, 64, 12),
};

}  // namespace tc
