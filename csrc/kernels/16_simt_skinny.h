// simt_skinny's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtSkinnyMaths = Maths<Math::f32_simt>;

inline constexpr Config kSimtSkinny[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us, warp slices; smem keeps other blocks off the SM
    {4, 32, 256, 4, 256, 116 * 1024, 1, 19.f, 0.6f, 8, 0, false, kEverywhere, 4},
    {4, 16, 256, 4, 256, 116 * 1024, 1, 16.f, 0.5f, 8, 0, false, kEverywhere, 4},
    {1, 16, 256, 6, 256, 116 * 1024, 1, 20.f, 0.5f, 8, 0, false, kEverywhere, 4},
    {1, 16, 512, 6, 512, 116 * 1024, 1, 20.f, 0.5f, 16, 0, false, kEverywhere, 4},  // for few columns and a long K
    {1, 32, 256, 6, 256, 116 * 1024, 1, 20.f, 0.5f, 8, 0, false, kEverywhere, 4},
};

}  // namespace tc
