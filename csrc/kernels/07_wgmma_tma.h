// wgmma_tma's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaTmaMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// A block has one producer warpgroup and `groups` consumer warpgroups. Shared memory begins with the stages, each (tile_m +
// tile_n) rows of 128 bytes, because the 128-byte swizzle needs 1024-byte alignment. The boxes of C and D follow, then a row of
// C for each consumer warpgroup, then the barriers of 8 bytes: two for each stage, one for each box, and two for the order of
// pingpong warpgroups.
constexpr Config wgmma_tma_config(int tile_m, int tile_n, int stages, int groups, int boxes, bool pingpong, float tflops,
                                  float epilogue_us) {
  const int smem_bytes = stages * ((tile_m + tile_n) * 128 + 16) + groups * (boxes * (64 * 128 + 8) + tile_n * 4) + 16;
  return {tile_m, tile_n, 64, stages, (groups + 1) * 128, smem_bytes, 1, tflops, epilogue_us, 1, boxes, pingpong, kHopper};
}

inline constexpr Config kWgmmaTma[] = {
    // tile_m, tile_n, stages, groups, boxes, pingpong, TFLOP/s, epilogue us
    wgmma_tma_config(128, 256, 3, 2, 4, false, 767.f, 0.33f), wgmma_tma_config(128, 256, 4, 2, 2, false, 771.f, 1.54f),
    wgmma_tma_config(128, 128, 5, 2, 4, true, 763.f, 0.62f),  wgmma_tma_config(64, 256, 4, 2, 4, true, 779.f, 1.39f),
    wgmma_tma_config(128, 192, 4, 2, 3, false, 754.f, 0.65f), wgmma_tma_config(128, 128, 5, 2, 2, false, 771.f, 0.75f),
    wgmma_tma_config(64, 128, 8, 1, 2, false, 767.f, 0.5f),   wgmma_tma_config(64, 64, 10, 1, 1, false, 444.f, 0.49f),
};

}  // namespace tc
