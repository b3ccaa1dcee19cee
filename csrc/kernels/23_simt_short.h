// simt_short's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtShortMaths = Maths<Math::f32_simt>;

// A thread multiplies 4x4 or 8x4 elements of D, and a warp 16x32 or 32x32.
constexpr Config simt_short_config(ArchSet archs, int tile_m, int tile_n, int tile_k, int threads, int blocks_per_sm) {
  constexpr int stages = 2, smem = 0, warp_slices = 1, boxes = 0;
  constexpr float tflops = 44, epilogue_us = 0;
  constexpr bool pingpong = false;
  return {
      tile_m, tile_n, tile_k, stages, threads, smem, blocks_per_sm, tflops, epilogue_us, warp_slices, boxes, pingpong, archs};
}

// Two of them would spill registers on Ampere.
inline constexpr Config kSimtShort[] = {
    // tile_m, tile_n, tile_k, threads, blocks per SM
    simt_short_config(kHopper, 64, 64, 16, 256, 3),     simt_short_config(kHopper, 64, 32, 32, 128, 5),
    simt_short_config(kEverywhere, 32, 64, 16, 128, 5), simt_short_config(kEverywhere, 64, 32, 16, 128, 5),
    simt_short_config(kHopper, 128, 32, 16, 128, 4),
};

}  // namespace tc
