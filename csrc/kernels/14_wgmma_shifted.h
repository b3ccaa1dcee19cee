// wgmma_shifted's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaShiftedMaths = Maths<Math::f16, Math::bf16>;

// Two warpgroups copy B.
inline constexpr int kShiftingThreads = 256;
// Shared memory for the words of four K tiles before they are shifted: nine words of 16 bytes for each of 128 columns.
inline constexpr int kShiftedBytes = 4 * 128 * 144;

// One consumer warpgroup multiplies. Shared memory begins like that of wgmma_tma, with stages, boxes of C and D, a row of C and barriers.
// The words follow.
constexpr Config wgmma_shifted_config(int tile_m, int stages, float tflops, float epilogue_us) {
  const int tile_n = 128, boxes = 2, threads = kShiftingThreads + 128;
  const int smem_bytes = stages * ((tile_m + tile_n) * 128 + 16) + boxes * (64 * 128 + 8) + tile_n * 4 + kShiftedBytes + 8;
  return {tile_m, tile_n, 64, stages, threads, smem_bytes, 1, tflops, epilogue_us, 1, boxes, false, kHopper};
}

// Rates and epilogues are those of wgmma_tma's tiles of these sizes.
inline constexpr Config kWgmmaShifted[] = {
    wgmma_shifted_config(64, 5, 735.f, 0.322f),
    wgmma_shifted_config(128, 4, 790.f, 1.23f),
};

}  // namespace tc
