// wmma_block's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "../layout/swizzle.h"

namespace tc {

using WmmaBlockMaths = Maths<Math::f16, Math::bf16>;

// Bytes of an A tile and a B tile of (128, tile_k) 16-bit elements. Their MN-major form, (tile_k, 128), is never larger.
constexpr int wmma_block_smem(int tile_k) { return 2 * 128 * (tile_k + kSkew) * 2; }

inline constexpr Config kWmmaBlock[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue us, warp_slices, boxes, pingpong, archs
    // The first takes 40 KB, for GPUs whose blocks get 64 KB; the second 72 KB.
    {128, 128, 64, 1, 256, wmma_block_smem(64), 2, 165.f, 5.f, 1, 0, false, kAmpere},
    {128, 128, 128, 1, 256, wmma_block_smem(128), 2, 180.f, 5.f},
};

}  // namespace tc
