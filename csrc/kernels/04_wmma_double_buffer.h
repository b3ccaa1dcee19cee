// wmma_double_buffer's configuration, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "padded_smem.h"

namespace tc {

using WmmaDoubleBufferMaths = Maths<Math::f16, Math::bf16>;

inline constexpr Config kWmmaDoubleBuffer[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us
    {128, 256, 32, 2, 256, padded_smem(128, 256, 32, 2), 1, 245.f, 24.f},
};

}  // namespace tc
