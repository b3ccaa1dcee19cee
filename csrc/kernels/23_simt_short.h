// simt_short's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtShortMaths = Maths<Math::f32_simt>;

// A thread multiplies 4x4 elements of D, and a warp 16x32.
constexpr Config simt_short_config(int tile_m, int tile_n, int tile_k, int blocks_per_sm, float tflops) {
  return {tile_m, tile_n, tile_k, 2, tile_m * tile_n / 16, 0, blocks_per_sm, tflops};
}

inline constexpr Config kSimtShort[] = {
    // tile_m, tile_n, tile_k, blocks per SM, TFLOP/s
    simt_short_config(64, 64, 16, 3, 41.f),
    simt_short_config(32, 64, 16, 5, 41.f),
    simt_short_config(64, 32, 16, 5, 41.f),
    simt_short_config(64, 32, 32, 5, 41.f),
};

}  // namespace tc
