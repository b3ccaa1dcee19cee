// Assigns output tiles and K slices to blocks.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "../gemm/access.h"
#include "../gemm/ceil_div.h"
#include "../gemm/kernel.h"
#include "../gemm/raster_rows.h"

namespace tc {

// Divides by `value` with a multiplication (Granlund and Montgomery 1994), for 0 <= x < 2^31. Three divisions for a tile's
// coordinates took a warp of an H200 some 500 cycles.
struct Divisor {
  int value, shift;
  uint32_t multiplier;

  explicit Divisor(int value) : value(value), shift(31) {
    while (int64_t(1) << (shift - 31) < value) ++shift;
    multiplier = uint32_t(((uint64_t(1) << shift) + value - 1) / value);
  }
  __device__ int into(int x) const { return int(uint64_t(x) * multiplier >> shift); }
};

// The coordinates of an output tile, in tiles. 32 bits hold a tile's number: kernels with small tiles refuse results with more tiles
// (needs_32_bit_numbers), and of larger tiles no GPU's memory holds so many.
struct TileIndex {
  int m, n;
};

// The order of the tiles. Each group of `group` rows of tiles is walked column by column, so that blocks that run at the same
// time share rows of A and columns of B in L2. A group of 1 gives row-major order. The host makes the raster, so that the setup
// costs a kernel no registers.
struct Raster {
  int tiles_m, tiles_n, size, group;
  Divisor of_group, rows, last_rows;  // by the tiles of a group, by its rows, and by the rows of the last group

  // Where blocks form clusters, a tile of the raster is the tile of a cluster.
  Raster(const Launch& call, int most_rows)
      : tiles_m(int(ceil_div(call.desc.m, call.config.tile_m * call.modes.cluster.m))),
        tiles_n(int(ceil_div(call.desc.n, call.modes.columns * call.modes.cluster.n))),
        size(tiles_m * tiles_n),
        group(evenly(tiles_m, most_rows)),
        of_group(std::max(1, group * tiles_n)),
        rows(group),
        last_rows(tiles_m % group ? tiles_m % group : group) {}

  __device__ TileIndex operator[](int tile) const {
    const int above = of_group.into(tile), within = tile - above * of_group.value;
    const Divisor high = (above + 1) * group <= tiles_m ? rows : last_rows;
    const int n = high.into(within);
    return {above * group + within - n * high.value, n};
  }
};

// A cluster's shape. m and n are powers of two: a division would take a warp 100 cycles. Blocks of the same K slice have
// neighbouring ranks.
struct ClusterShape {
  int m, n, k, log2_m, log2_sharers;

  explicit ClusterShape(const Cluster& x)
      : m(x.m), n(x.n), k(x.k), log2_m(int(std::log2(x.m))), log2_sharers(int(std::log2(x.m * x.n))) {}
  __device__ int sharers() const { return 1 << log2_sharers; }  // blocks of the same K slice
  __device__ int blocks() const { return k << log2_sharers; }
  __device__ int row(int rank) const { return rank & (m - 1); }
  __device__ int column(int rank) const { return rank >> log2_m & (n - 1); }
  __device__ int slice(int rank) const { return rank >> log2_sharers; }
};

// A unit of work for a block: `count` K tiles of an output tile, from K tile `first` on.
struct WorkTile {
  TileIndex tile;
  int layer, product;  // of D, see partial_products; of the batch
  int first, count;    // count may be 0 in the last K slices
};

// K tiles that a block prefetches at most. 8 and 16 gain no more than 4, and 2 less (H100, 12 problems).
constexpr int kPrefetched = 4;

// All work tiles of `products` products: each output tile once per K slice, or once per cluster whose blocks share K. A kernel
// either walks over the work tiles of all products, or its grid has a row of blocks for each product, which walk over those of
// one.
struct Schedule {
  Raster raster;
  int k_tiles, per_slice, size;
  int prefetched;  // K tiles that a block copies to L2 before the previous kernel has ended
  Divisor tiles, products;

  Schedule(const Launch& call, int tile_k, int64_t products = 1)
      : raster(call, rows_at_once(call.desc, call.config, call.modes, call.device.gpu.num_sms)),
        k_tiles(int((call.desc.k + tile_k - 1) / tile_k)),
        per_slice((k_tiles + call.modes.k_slices - 1) / call.modes.k_slices),
        size(raster.size * call.modes.layers() * int(products)),
        prefetched(prefetches_k_tiles(call.desc, call.config, call.modes, call.device.gpu.num_sms) ? kPrefetched : 0),
        tiles(std::max(1, raster.size)),
        products(int(products)) {}

  __device__ WorkTile operator[](int work) const {
    const int layer = tiles.into(work), slice = products.into(layer), first = slice * per_slice;
    return {raster[work - layer * tiles.value], layer, layer - slice * products.value, first, count_from(first)};
  }
  // Which layer of D a work tile is of.
  __device__ int layer_of(int work) const { return tiles.into(work); }
  // How many K tiles a K slice has that begins with K tile `first`.
  __device__ int count_from(int first) const { return max(0, min(per_slice, k_tiles - first)); }
};

}  // namespace tc
