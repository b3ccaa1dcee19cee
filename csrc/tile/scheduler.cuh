// Which tile a block computes next.
#pragma once

#include <cstdint>

namespace tc {

struct TileIndex {
  int64_t m, n;
};

// Tiles in groups of GROUP rows, walked down each group's columns: blocks that run together share A's rows and B's
// columns in L2. GROUP = 1 is plain row-major order.
template <int GROUP>
__device__ __forceinline__ TileIndex tile_at(int64_t tile, int64_t tiles_m, int64_t tiles_n) {
  const int64_t per_group = GROUP * tiles_n, first = tile / per_group * GROUP;
  const int64_t rows = min(int64_t(GROUP), tiles_m - first), within = tile % per_group;
  return {first + within % rows, within / rows};
}

}  // namespace tc
