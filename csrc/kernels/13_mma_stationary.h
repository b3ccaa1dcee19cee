// mma_stationary's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaStationaryMaths = Maths<Math::f16, Math::bf16>;

// The tile is a warp's: rows of A that it holds in registers, columns of D that it multiplies at once at most, and as many 16-bit
// elements of K as those registers take. The second has registers for half of K, and 16 warps for 12.
constexpr Config mma_stationary_config(int tile_m, int tile_n, int tile_k, int threads) {
  return {tile_m, tile_n, tile_k, 1, threads, 227 * 1024, 1, 0, 0, 1, 0, false, kHopper, 2};
}

inline constexpr Config kMmaStationary[] = {
    mma_stationary_config(16, 64, 128, 384),
    mma_stationary_config(16, 64, 64, 512),
};

}  // namespace tc
