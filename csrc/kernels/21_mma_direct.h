// mma_direct's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaDirectMaths = Maths<Math::f16, Math::bf16, Math::f32_emulated>;

// The tile is a warp's: rows of A that it holds in registers, columns of D that it multiplies at once, and the longest K of these rows.
// direct_shape.h says how much less of it a warp takes in fp32.
constexpr Config mma_direct_config(int tile_m, int tile_k, bool fp32_alone = false) {
  constexpr bool tma_only = false, fp32 = true, fp32_d = false;
  return {tile_m, 64, tile_k, 1, 384, 227 * 1024, 1, 0, 0, 1, 0, false, kHopper, 4, tma_only, fp32, fp32_d, fp32_alone};
}

inline constexpr Config kMmaDirect[] = {
    mma_direct_config(32, 64),
    mma_direct_config(32, 128),
    mma_direct_config(16, 256),
    mma_direct_config(8, 512, true),
};

}  // namespace tc
