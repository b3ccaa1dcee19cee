// wmma_naive's configuration, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WmmaNaiveMaths = Maths<Math::f16, Math::bf16>;

inline constexpr Config kWmmaNaive[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us
    {64, 32, 16, 1, 256, 8 * 16 * 24 * 4, 4, 30.f, 0.45f},  // smem: each of eight warps stages 16 rows of 24 floats
};

}  // namespace tc
