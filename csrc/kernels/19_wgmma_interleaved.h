// wgmma_interleaved's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaInterleavedMaths = Maths<Math::f16, Math::bf16>;

// A block has one producer warpgroup, and a consumer warpgroup for each 64 rows. Shared memory begins with the stages, the tiles of A
// and B in rows of 128 bytes. The boxes of C and D follow, then a row of C for each consumer warpgroup, then the barriers of 8 bytes,
// two for each stage.
constexpr Config wgmma_interleaved_config(int tile_m, int tile_n, int stages, int boxes, float tflops, float epilogue_us) {
  const int groups = tile_m / 64;
  const int smem_bytes = stages * ((tile_m + tile_n) * 128 + 16) + groups * (boxes * 64 * 128 + tile_n * 4);
  return {tile_m, tile_n, 64, stages, (groups + 1) * 128, smem_bytes, 1, tflops, epilogue_us, 1, boxes, false, kHopper};
}

// Rates and epilogues are those of wgmma_tma's tiles of these sizes.
inline constexpr Config kWgmmaInterleaved[] = {
    // tile_m, tile_n, stages, boxes, TFLOP/s, epilogue us
    wgmma_interleaved_config(128, 64, 8, 1, 700.f, 0.6f),
    wgmma_interleaved_config(128, 128, 6, 2, 790.f, 1.23f),
    wgmma_interleaved_config(128, 256, 4, 2, 765.f, 2.05f),
    wgmma_interleaved_config(64, 128, 8, 2, 723.f, 0.322f),
};

}  // namespace tc
