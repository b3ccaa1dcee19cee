// Which tile a block computes next.
#pragma once

namespace tc {

// 32 bits hold any tile number: a matrix of 2^36 elements, more than a GPU's memory, has 2^30 tiles of 64 rows at worst.
struct TileIndex {
  int m, n;
};

// Tiles in groups of GROUP rows, walked down each group's columns: blocks that run together share A's rows and B's
// columns in L2. GROUP = 1 is plain row-major order.
template <int GROUP>
__device__ __forceinline__ TileIndex tile_at(int tile, int tiles_m, int tiles_n) {
  const int per_group = GROUP * tiles_n, first = tile / per_group * GROUP;
  const int rows = min(GROUP, tiles_m - first), within = tile % per_group;
  return {first + within % rows, within / rows};
}

}  // namespace tc
