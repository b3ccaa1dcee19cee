// simt's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtMaths = Maths<Math::f16, Math::bf16, Math::f32_simt>;

inline constexpr Config kSimt[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us
    {64, 64, 16, 1, 64, 64 * 64 * 4, 6, 32.f, 2.f},
    {128, 128, 16, 1, 256, 128 * 128 * 4, 2, 39.f, 4.f},
};

}  // namespace tc
