// wmma_kstage's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "padded_smem.h"

namespace tc {

using WmmaKstageMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

inline constexpr Config kWmmaKstage[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us, warp_slices, boxes, pingpong, archs
    {128, 256, 32, 3, 256, padded_smem(128, 256, 32, 3), 1, 245.f, 16.f, 1, 0, false, kAmpere},  // 90 KB; sm_86 has 99
    // 162 KB; half as many barriers
    {128, 256, 64, 3, 256, padded_smem(128, 256, 64, 3), 1, 260.f, 16.f, 1, 0, false, kHopper},
};

}  // namespace tc
