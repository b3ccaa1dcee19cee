// wgmma_bf16x6's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "../gemm/parts.h"

namespace tc {

using WgmmaBf16x6Maths = Maths<Math::f32_emulated>;

// Shared memory is that of wgmma_tma, but for stages of three parts of A's tile and of B's.
constexpr Config wgmma_bf16x6_config(int tile_m, int tile_n, int stages, int groups, int boxes, float tflops,
                                     float epilogue_us) {
  const int stage = PartsLayout::kParts * (tile_m + tile_n) * 128 + 16;
  const int smem_bytes = stages * stage + groups * (boxes * (64 * 128 + 8) + tile_n * 4);
  return {tile_m, tile_n, 64, stages, (groups + 1) * 128, smem_bytes, 1, tflops, epilogue_us, 1, boxes, false, kHopper};
}

inline constexpr Config kWgmmaBf16x6[] = {
    // tile_m, tile_n, stages, groups, boxes, TFLOP/s of fp32, epilogue us
    wgmma_bf16x6_config(128, 128, 2, 2, 2, 140.f, 1.5f),
    wgmma_bf16x6_config(64, 128, 3, 1, 1, 109.f, 1.5f),
    wgmma_bf16x6_config(64, 64, 4, 1, 2, 104.f, 0.8f),
    wgmma_bf16x6_config(128, 64, 2, 2, 2, 127.f, 0.8f),
};

}  // namespace tc
