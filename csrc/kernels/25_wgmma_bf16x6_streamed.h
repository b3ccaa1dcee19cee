// wgmma_bf16x6_streamed's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaBf16x6StreamedMaths = Maths<Math::f32_emulated>;

// A block multiplies tiles of 64 rows of A by its `tile_n` columns of B, one for each of its warpgroups at a time.
constexpr Config wgmma_bf16x6_streamed_config(int tile_n, int warpgroups) {
  return {64, tile_n, 64, 1, warpgroups * 128, 227 * 1024, 1, 0, 0, 1, 0, false, kHopper, 4};
}

inline constexpr Config kWgmmaBf16x6Streamed[] = {
    wgmma_bf16x6_streamed_config(64, 3),
    wgmma_bf16x6_streamed_config(64, 2),  // for a K of 193 to 256, less if rows are padded: those of three do not fit
    wgmma_bf16x6_streamed_config(32, 4),  // for few columns or rows
};

}  // namespace tc
