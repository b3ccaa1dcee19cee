// mma_skinny's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaSkinnyMaths = Maths<Math::f16, Math::bf16>;

// A warp multiplies 32 elements of K at a time; the eight warps of a block multiply tile_k.
inline constexpr Config kMmaSkinny[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us
    {16, 32, 256, 6, 256, 116 * 1024, 1, 101.f, 0.53f},  // smem is unused: it keeps other blocks off the SM
    {16, 32, 256, 2, 256, 0, 2, 107.f, 0.27f},
    // For rows that begin anywhere.
    {16, 32, 256, 4, 256, 116 * 1024, 1, 135.f, 0.49f, 1, 0, false, kEverywhere, 2},
};

}  // namespace tc
