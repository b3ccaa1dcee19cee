// mma_guarded's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using MmaGuardedMaths = Maths<Math::f16, Math::bf16>;

// smem_kb is more than the stages take where it keeps other blocks off the SM.
constexpr Config mma_guarded_config(ArchSet archs, int tile_m, int tile_n, int tile_k, int stages, int threads,
                                    int blocks_per_sm, float tflops, int smem_kb) {
  return {tile_m, tile_n, tile_k, stages, threads, smem_kb * 1024, blocks_per_sm, tflops, 0, 1, 0, false, archs};
}

// The rates are those of an SM full of blocks. A single block waits for latency (cost_model.cpp).
inline constexpr Config kMmaGuarded[] = {
    // One wave of small tiles waits for latency alone. These two have 448 elements of K under way, and use PDL on Hopper.
    mma_guarded_config(kHopper, 64, 64, 64, 8, 256, 1, 71.f, 128),
    mma_guarded_config(kEverywhere, 32, 32, 64, 8, 128, 1, 71.f, 116),  // the stages take 64 KB
    // The blocks of an SM hide each other's latency. A K tile of 32 leaves registers for four blocks of 64x64.
    mma_guarded_config(kEverywhere, 32, 32, 64, 4, 128, 5, 86.f, 32),
    mma_guarded_config(kEverywhere, 64, 64, 32, 6, 128, 4, 175.f, 48),
    mma_guarded_config(kEverywhere, 64, 32, 32, 6, 128, 5, 95.f, 36),  // for few columns
    mma_guarded_config(kEverywhere, 128, 64, 32, 4, 256, 2, 145.f, 48),
};

}  // namespace tc
