// Which tile a block computes next, and which part of K.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../gemm/kernel.h"

namespace tc {

// x / value for 0 <= x < 2^31, by a multiplication (Granlund and Montgomery 1994). Three divisions for a tile's coordinates took a
// warp of an H200 some 500 cycles.
struct Divisor {
  int value, shift;
  uint32_t multiplier;

  explicit Divisor(int value) : value(value), shift(31) {
    while (int64_t(1) << (shift - 31) < value) ++shift;
    multiplier = uint32_t(((uint64_t(1) << shift) + value - 1) / value);
  }
  __device__ int into(int x) const { return int(uint64_t(x) * multiplier >> shift); }
};

// 32 bits hold any tile number: one row of 2^35 halves, of which B and D would take 128 GiB, has 2^30 tiles of 32 columns.
struct TileIndex {
  int m, n;
};

// Tiles in groups of `group` rows, walked down each group's columns: blocks that run together share A's rows and B's
// columns in L2. A group of 1 is plain row-major order. Made on the host, so that it costs a kernel no registers.
struct Raster {
  int tiles_m, tiles_n, size, group;
  Divisor of_group, rows, last_rows;  // tiles of a group, its rows, and those of the last group

  Raster(const Launch& call, int most_rows)
      : tiles_m(int((call.desc.m + call.config.tile_m - 1) / call.config.tile_m)),
        tiles_n(int((call.desc.n + call.config.tile_n - 1) / call.config.tile_n)), size(tiles_m * tiles_n),
        group(std::max(1, std::min(most_rows, tiles_m))), of_group(std::max(1, group * tiles_n)), rows(group),
        last_rows(tiles_m % group ? tiles_m % group : group) {}

  __device__ TileIndex operator[](int tile) const {
    const int above = of_group.into(tile), within = tile - above * of_group.value;
    const Divisor high = (above + 1) * group <= tiles_m ? rows : last_rows;
    const int n = high.into(within);
    return {above * group + within - n * high.value, n};
  }
};

// A block's piece of work: an output tile, and the K tiles of it from `first` on.
struct WorkTile {
  TileIndex tile;
  int slice, first, count;  // the last k_slices' counts may be 0
};

// All of a problem's shares: every tile, K in parts.
struct Schedule {
  Raster raster;
  int k_tiles, per_slice, size;
  Divisor tiles;

  Schedule(const Launch& call, int tile_k)
      : raster(call, rows_at_once(call)), k_tiles(int((call.desc.k + tile_k - 1) / tile_k)),
        per_slice((k_tiles + call.k_slices - 1) / call.k_slices), size(raster.size * call.k_slices), tiles(std::max(1, raster.size)) {}

  // What the GPU holds at once is about as many rows high as columns wide: it then reads the least.
  static int rows_at_once(const Launch& call) {
    const double at_once = double(call.device.gpu.num_sms) * call.config.blocks_per_sm;
    return int(std::lround(std::sqrt(at_once * call.config.tile_n / call.config.tile_m)));
  }

  __device__ WorkTile operator[](int work) const {
    const int slice = tiles.into(work), first = slice * per_slice;
    return {raster[work - slice * tiles.value], slice, first, max(0, min(per_slice, k_tiles - first))};
  }
};

}  // namespace tc
