// mma_short's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaShortMaths = Maths<Math::f16, Math::bf16>;

constexpr Config mma_short_config(int tile_m, int tile_n, int tile_k, int threads, int blocks_per_sm, float tflops) {
  return {tile_m, tile_n, tile_k, 2, threads, 0, blocks_per_sm, tflops};
}

// Four of ten forms, chosen by the times of 46 drawn problems (h200-tried.md, "mma_short by warps of 32x32"). The first has warps of
// 32x32, which run the fewest instructions for an element. The last two leave the least of a tile empty at small products.
inline constexpr Config kMmaShort[] = {
    mma_short_config(64, 64, 32, 128, 5, 193.f),
    mma_short_config(64, 32, 64, 256, 4, 108.f),  // for few tiles
    mma_short_config(32, 64, 32, 128, 7, 146.f),
    mma_short_config(32, 32, 32, 64, 10, 74.f),
};

}  // namespace tc
