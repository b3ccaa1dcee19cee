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
    wgmma_tma_config(128, 256, 3, 2, 4, false, 724.f, 1.05f), wgmma_tma_config(128, 256, 4, 2, 2, false, 706.f, 1.32f),
    wgmma_tma_config(128, 128, 5, 2, 4, true, 752.f, 0.44f),  wgmma_tma_config(64, 256, 4, 2, 4, true, 765.f, 0.7f),
    wgmma_tma_config(128, 192, 4, 2, 3, false, 724.f, 0.82f), wgmma_tma_config(128, 128, 5, 2, 2, false, 755.f, 0.58f),
    wgmma_tma_config(64, 128, 8, 1, 2, false, 819.f, 0.54f),  wgmma_tma_config(64, 64, 10, 1, 1, false, 469.f, 0.27f),
};

}  // namespace tc
