// mma_swizzle's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaSwizzleMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// A stage holds (tile_m + tile_n) rows of tile_k 16-bit elements. TF32 takes the same bytes with half of tile_k. With
// sliced K, epilogue_us is 1.9 us on an H200; otherwise the cost model derives it from the tile's size.
constexpr Config mma_swizzle_config(ArchSet archs, int tile_m, int tile_n, int tile_k, int stages, int threads,
                                    int blocks_per_sm, float tflops, int warp_slices = 1) {
  return {tile_m,        tile_n,  tile_k,
          stages,        threads, stages * (tile_m + tile_n) * tile_k * 2,
          blocks_per_sm, tflops,  warp_slices > 1 ? 2.27f : 0,
          warp_slices,   0,       false,
          archs};
}

// Warp tiles are 64x64 where the block tile is large enough for its warps: each A fragment then feeds eight mma.sync, and each
// B fragment four. Hopper has two configurations: the largest tile, which the ladder shows, and one that wins there when a
// problem has few small tiles.
inline constexpr Config kMmaSwizzle[] = {
    mma_swizzle_config(kHopper, 128, 256, 64, 4, 256, 1, 469.f),  // 192 KB
    mma_swizzle_config(kAmpere, 128, 256, 32, 4, 256, 1, 395.f),  // 96 KB: the large tile of sm_86 and sm_89
    mma_swizzle_config(kAmpere, 128, 128, 64, 3, 128, 2, 410.f),
    mma_swizzle_config(kAmpere, 64, 128, 64, 4, 128, 2, 340.f),
    mma_swizzle_config(kAmpere, 64, 64, 64, 4, 128, 3, 270.f),
    // One wave of small tiles waits for latency alone. These two keep more K tiles under way, and use PDL on Hopper.
    mma_swizzle_config(kAmpere, 64, 128, 64, 6, 128, 1, 330.f),
    mma_swizzle_config(kEverywhere, 64, 64, 64, 8, 256, 1, 270.f, 2),
};

}  // namespace tc
