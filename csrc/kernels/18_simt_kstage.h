// simt_kstage's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "../layout/swizzle.h"

namespace tc {

using SimtKstageMaths = Maths<Math::f32_simt>;

// Floats of a K tile of an operand with `mn` rows or columns, in either order in memory (tile/padded_ring.cuh).
TC_HOST_DEVICE constexpr int simt_kstage_tile(int mn, int tile_k) {
  return mn * tile_k + kSlabPad * (mn > tile_k ? mn : tile_k);
}

// A block's warps lie side by side in two columns if its tile is square, and in one otherwise. A warp has 4 x 8 lanes.
TC_HOST_DEVICE constexpr int simt_kstage_warps_n(int tile_m, int tile_n) { return tile_m == tile_n ? 2 : 1; }

// Floats in which a warp keeps sums of K, and later stages products for the epilogue, in one or two passes.
TC_HOST_DEVICE constexpr int simt_kstage_passes(int warp_m, int warp_n) { return warp_m * warp_n >= 1024 ? 2 : 1; }
TC_HOST_DEVICE constexpr int simt_kstage_sums(int warp_m, int warp_n) {
  const int sums = warp_m * warp_n, staged = warp_m / simt_kstage_passes(warp_m, warp_n) * (warp_n + kRowPad);
  return sums > staged ? sums : staged;
}

constexpr Config simt_kstage_config(int tile_m, int tile_n, int tile_k, int stages, int threads, int blocks_per_sm,
                                    float tflops) {
  const int warps = threads / 32, warps_n = simt_kstage_warps_n(tile_m, tile_n);
  const int ring = stages * (simt_kstage_tile(tile_m, tile_k) + simt_kstage_tile(tile_n, tile_k));
  const int sums = warps * simt_kstage_sums(tile_m / (warps / warps_n), tile_n / warps_n);
  return {tile_m, tile_n, tile_k, stages, threads, (ring + sums) * 4, blocks_per_sm, tflops};
}

inline constexpr Config kSimtKstage[] = {
    // tile_m, tile_n, tile_k, stages, threads, blocks per SM, TFLOP/s
    simt_kstage_config(64, 64, 16, 4, 128, 4, 33.8f),
    simt_kstage_config(64, 32, 16, 4, 128, 5, 30.4f),
    simt_kstage_config(32, 32, 16, 4, 128, 6, 27.f),
    simt_kstage_config(128, 16, 16, 4, 128, 3, 23.6f),
};

}  // namespace tc
