// mma_skinny's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaSkinnyMaths = Maths<Math::f16, Math::bf16, Math::tf32, Math::f32_emulated>;

// A warp multiplies 16 rows by 64 bytes of K at a time. The warp slices of a block multiply tile_k.
inline constexpr Config kMmaSkinny[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us, warp slices
    {16, 32, 256, 6, 256, 116 * 1024, 1, 124.f, 0.867f, 8},  // smem is unused: it keeps other blocks off the SM
    {16, 32, 256, 2, 256, 0, 2, 132.f, 0.27f, 8},
    // For rows that begin anywhere.
    {16, 32, 256, 4, 256, 116 * 1024, 1, 72.7f, 0.609f, 8, 0, false, kEverywhere, 2},
    // The same for a short K.
    {64, 32, 64, 2, 256, 116 * 1024, 1, 108.f, 1.77f, 2, 0, false, kEverywhere, 2},
    // Blocks of one warp, for batches of small products. 16-bit operands only.
    {16, 32, 32, 1, 32, 0, 16, 40.f, 1.3f, 1, 0, false, kEverywhere, 2, false, false},
    // The same for a longer K: four warps share it. On Ampere it would spill registers.
    {16, 32, 128, 1, 128, 0, 5, 90.f, 1.f, 4, 0, false, kHopper, 2, false, false},
};

}  // namespace tc
