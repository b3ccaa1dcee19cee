// Which tile a block computes next, and which part of K.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../gemm/registry.h"

namespace tc {

// 32 bits hold any tile number: one row of 2^35 halves, of which B and D would take 128 GiB, has 2^30 tiles of 32 columns.
struct TileIndex {
  int m, n;
};

// Tiles in groups of `group` rows, walked down each group's columns: blocks that run together share A's rows and B's
// columns in L2. A group of 1 is plain row-major order.
__device__ __forceinline__ TileIndex tile_at(int tile, int tiles_m, int tiles_n, int group) {
  const int per_group = group * tiles_n, first = tile / per_group * group;
  const int rows = min(group, tiles_m - first), within = tile % per_group;
  return {first + within % rows, within / rows};
}

// A block's piece of work: an output tile, and the K tiles of it from `first` on.
struct Share {
  TileIndex tile;
  int split, first, count;  // the last splits' counts may be 0
};

// All of a problem's shares: every tile, K in parts. Made on the host, so that it costs a kernel no registers.
struct Schedule {
  int tiles_m, tiles_n, k_tiles, per_split, size, group;

  Schedule(const Launch& call, int tile_k)
      : tiles_m(int((call.problem.m + call.tile.tile_m - 1) / call.tile.tile_m)),
        tiles_n(int((call.problem.n + call.tile.tile_n - 1) / call.tile.tile_n)),
        k_tiles(int((call.problem.k + tile_k - 1) / tile_k)), per_split((k_tiles + call.splits - 1) / call.splits),
        size(tiles_m * tiles_n * call.splits) {
    // What the GPU holds at once is about as many rows high as columns wide: it then reads the least.
    const double at_once = double(call.device.num_sms) * call.tile.blocks_per_sm;
    const int high = std::max(1, int(std::lround(std::sqrt(at_once * call.tile.tile_n / call.tile.tile_m))));
    group = std::min(high, std::max(1, tiles_m));  // so that a group has no more tiles than there are
  }

  __device__ Share operator[](int work) const {
    const int tiles = tiles_m * tiles_n, split = work / tiles, first = split * per_split;
    return {tile_at(work % tiles, tiles_m, tiles_n, group), split, first, max(0, min(per_split, k_tiles - first))};
  }
};

}  // namespace tc
