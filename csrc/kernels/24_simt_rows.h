// simt_rows's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtRowsMaths = Maths<Math::f32_simt>;

// A block's warps multiply four elements of K each in a step, tile_k / 2 together.
inline constexpr Config kSimtRows[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us, warp slices; smem keeps other blocks off the SM
    {1, 128, 64, 4, 256, 0, 2, 20.f, 0.5f, 8, 0, false, kEverywhere, 4},
    {4, 128, 64, 2, 256, 0, 2, 20.f, 0.5f, 8, 0, false, kEverywhere, 4},
    {8, 128, 64, 4, 256, 116 * 1024, 1, 20.f, 0.5f, 8, 0, false, kEverywhere, 4},
};

}  // namespace tc
