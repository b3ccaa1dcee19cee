// Which tile a block computes next, and which part of K.
#pragma once

#include <cstdint>

#include "../gemm/registry.h"

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

// A block's piece of work: an output tile, and the K tiles of it from `first` on.
struct Share {
  TileIndex tile;
  int split, first, count;  // the last split's count may be 0
};

// All of a problem's shares: every tile, K in `splits` parts. Made on the host, so that it costs a kernel no registers.
struct Schedule {
  int tiles_m, tiles_n, k_tiles, per_split, size;

  Schedule(const Problem& p, const Instance& tile, int tile_k, int splits)
      : tiles_m(int((p.m + tile.tile_m - 1) / tile.tile_m)), tiles_n(int((p.n + tile.tile_n - 1) / tile.tile_n)),
        k_tiles(int((p.k + tile_k - 1) / tile_k)), per_split((k_tiles + splits - 1) / splits),
        size(tiles_m * tiles_n * splits) {}

  __device__ Share operator[](int work) const {
    const int split = work / (tiles_m * tiles_n), first = split * per_split;
    return {tile_at<8>(work % (tiles_m * tiles_n), tiles_m, tiles_n), split, first, max(0, min(per_split, k_tiles - first))};
  }
};

}  // namespace tc
