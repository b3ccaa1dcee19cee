// Waves of tiles: what the kernels that divide D among blocks have in common.
#pragma once

#include <algorithm>

#include "cost_parts.h"

namespace tc {

// A wave takes the 4-norm of three times: a tile's on its SM, and those in which L2 and DRAM move what all tiles of the wave read
// and write. A tile also waits for rows that begin within sectors and that many SMs ask for: 200704x240x40, whose rows have 80 bytes,
// takes 63.7 us in single blocks of 128x128, and 45.1 in clusters of 2x1 that share B, in 256x128 (H200). So does a
// row-major B, which TMA loads in boxes of 64 columns: 1000000x32x32 takes 49.2 us, and 44.1 with K contiguous in B.
struct Wave {
  double l2_us = 0, dram_us = 0, wait_us = 0;
  double us(double tile_us) const { return norm4(tile_us + wait_us, l2_us, dram_us); }
};

// Tiles in waves: each cluster that the GPU holds has one tile in a full wave, and some have one in the last.
struct Waves {
  int64_t count = 0;
  Wave full, last;

  // An SM multiplies a tile in `product_us` and finishes it in `epilogue_us`. Loads for the next tile and stores of the last go on
  // meanwhile, and the next tile begins `earlier_us` before the end. Nothing hides the last epilogue.
  double us(double product_us, double epilogue_us, double earlier_us = 0) const {
    if (count == 0) return 0;
    return (count - 1) * full.us(std::max(0.0, product_us + epilogue_us - earlier_us)) + last.us(product_us) + epilogue_us;
  }
};

// Blocks that share by multicast read once. Weights in 72 tiles stream from DRAM at 39 KB/us for each SM, because some SMs share
// their port; 64 tiles have a port each and stream at 59. `boxes`: whether TMA loads rows of 128 bytes, or a warp vectors.
// `tiles_m`: how many tiles cover the rows, if not as few as can.
Waves waves_of(const Config& config, const PlanKey& p, const Modes& modes, const DeviceSpec& device, bool boxes = true,
               int64_t tiles_m = 0);

// How long `readers` blocks that ask for the same columns of B at once wait for its lines of L2. In mma_short, 20000x32x32 with a bias takes
// 5.0 us in 625 tiles of 32x32 on an H200, and 4.0 in 313 of 64x64.
double hot_columns_us(const PlanKey&, int64_t columns, int64_t readers);

// How many clusters of a configuration a GPU runs at once.
int64_t clusters_at_once(const Config&, const Cluster&, const DeviceSpec&);

}  // namespace tc
