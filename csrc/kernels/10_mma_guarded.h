// mma_guarded's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaGuardedMaths = Maths<Math::f16, Math::bf16>;

// smem_kb is more than the stages take where it keeps other blocks off the SM.
constexpr Config mma_guarded_config(ArchSet archs, int tile_m, int tile_n, int tile_k, int stages, int threads,
                                    int blocks_per_sm, float tflops, int smem_kb, int warp_slices = 1) {
  return {tile_m, tile_n, tile_k, stages, threads, smem_kb * 1024, blocks_per_sm, tflops, 0, warp_slices, 0, false, archs};
}

// The rates are those of an SM full of blocks. A single block waits for latency (cost_short_k.cpp).
inline constexpr Config kMmaGuarded[] = {
    // One wave of small tiles waits for latency alone. These two have 384 elements of K or more under way, and use PDL on Hopper.
    // Their 16 warps hide the latency of each other's instructions: four warps took 0.9 us to copy and multiply 64 of K.
    mma_guarded_config(kHopper, 64, 64, 64, 8, 512, 1, 43.3f, 128, 2),
    mma_guarded_config(kEverywhere, 32, 32, 128, 4, 512, 1, 71.f, 116, 4),  // the stages take 64 KB
    // The blocks of an SM hide each other's latency. A K tile of 32 leaves registers for four blocks of 64x64.
    mma_guarded_config(kEverywhere, 32, 32, 64, 4, 128, 5, 46.8f, 32),
    mma_guarded_config(kEverywhere, 64, 64, 32, 6, 128, 4, 175.f, 48),
    mma_guarded_config(kEverywhere, 64, 32, 32, 6, 128, 5, 111.f, 36),  // for few columns
    mma_guarded_config(kEverywhere, 128, 64, 32, 4, 256, 2, 154.f, 48),
};

}  // namespace tc
