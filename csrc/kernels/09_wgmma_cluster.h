// wgmma_cluster's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaClusterMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// A block has one consumer warpgroup for every 64 rows and one producer warp. Stages are laid out as in 07_wgmma_tma.h, and
// each has two barriers of 8 bytes. The epilogue's sums reuse the memory of the stages.
constexpr Config wgmma_cluster_config(int tile_m, int tile_n, int stages, float tflops, float epilogue_us) {
  return {tile_m,      tile_n, 64, stages, tile_m * 2 + 32, stages * ((tile_m + tile_n) * 128 + 16), 1, tflops,
          epilogue_us, 1,      0,  false,  kHopper};
}

inline constexpr Cluster kWgmmaClusters[] = {{1, 1, 2}, {1, 1, 3}, {1, 1, 4}};

inline constexpr Config kWgmmaCluster[] = {
    // tile_m, tile_n, stages, TFLOP/s, epilogue us
    wgmma_cluster_config(64, 64, 12, 559.f, 2.38f),
};

}  // namespace tc
