// mma_short's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaShortMaths = Maths<Math::f16, Math::bf16>;

constexpr Config mma_short_config(int tile_m, int tile_n, int tile_k, int blocks_per_sm, float tflops) {
  return {tile_m, tile_n, tile_k, 2, 256, 0, blocks_per_sm, tflops};
}

// Eight warps a tile: each runs few instructions, and they hide each other's latency.
inline constexpr Config kMmaShort[] = {
    mma_short_config(64, 64, 32, 4, 212.f),
    mma_short_config(64, 64, 64, 3, 128.f),
    mma_short_config(64, 32, 64, 4, 75.7f),  // for few tiles
};

}  // namespace tc
