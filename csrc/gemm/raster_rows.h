// How high the groups of tiles are in which kernels walk over D (tile/scheduler.cuh). Launchers and the cost model share it.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "access.h"
#include "kernel.h"

namespace tc {

// The tiles that the GPU holds at once should span about as many rows as columns: the GPU then reads the least. If the GPU holds
// all tiles at once, the tiles of a GPC should span as many rows as columns, because L2 merges the reads of a GPC's SMs
// (needs_order). 1024x1024x4096 in tiles of 128x64 takes 14.8 us with groups of 4 rows, and 16.7 with 8 (H200). Stores take the
// time of a short K. Where rows of D begin within lines, tiles side by side then come one after the other, and L2 merges the parts of
// lines between them: 126 of 2016x1584x48 take 350 us, and 365 in groups that are as high as wide (H100). P is a GemmDesc or a PlanKey.
template <typename P>
int rows_at_once(const P& p, const Config& config, const Modes& modes, int num_sms) {
  constexpr int kSmsOfGpc = 16, kShortK = 128;
  if (p.k <= kShortK && straddles(128, p.d, p.m, p.n)) return 1;
  const int blocks = modes.cluster.blocks();
  const int64_t tiles = p.batch * ceil_div(p.m, config.tile_m) * ceil_div(p.n, modes.columns);
  const int64_t at_once = int64_t(num_sms) * config.blocks_per_sm;
  const double columns_per_row = double(modes.columns * modes.cluster.n) / (config.tile_m * modes.cluster.m);
  if (blocks == 1 && tiles <= at_once) return int(std::ceil(std::sqrt(kSmsOfGpc * columns_per_row)));
  return int(std::lround(std::sqrt(double(at_once) / blocks * columns_per_row)));
}

// Rows of a group, if `rows` rows form the fewest groups of at most `most` rows, and groups are as equal as possible.
inline int evenly(int rows, int most) {
  const int groups = std::max(1, int(ceil_div(rows, std::max(1, most))));
  return std::max(1, int(ceil_div(rows, groups)));
}

}  // namespace tc
