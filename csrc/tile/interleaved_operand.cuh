// An operand whose rows begin anywhere, by TMA (sm_90).
//
// TMA takes addresses, distances of rows and coordinates along a row in multiples of 16 bytes: a load from another coordinate is an
// illegal instruction (H100). But among rows in sequence every second, fourth or eighth begins equally far behind a 16-byte boundary
// (rows_of_a_kind). The rows of each kind have a tensor map, which begins at that boundary, and a tile has rows of one kind. All of them
// then lie equally far behind their place along K, and B's tile is loaded from as far before its own.
#pragma once

#include "tma_operand.cuh"

namespace tc {

constexpr int kMostKinds = 8;

// Rows are numbered through all products. Row r is of kind r % kinds, and the rows of a kind lie one after the other in its maps.
struct InterleavedDescriptors {
  CUtensorMap tile[kMostKinds], last[kMostKinds];  // last: for the last tile of a kind, if that tile reaches beyond the rows
  int skipped[kMostKinds];                         // elements from the beginning of a map's rows to the matrix's
  int log2_kinds;
  int next_product;                // rows from a product's first to the next one's; 0 if all share the operand
  int outer, of_kind, tile_outer;  // rows of a product, of a kind in it, and of a tile

  __host__ __device__ int kinds() const { return 1 << log2_kinds; }
};

// Describes boxes of (tile_outer, 128 bytes) of an operand x of `batch` products, (outer, K) each, with K contiguous.
inline Status make_interleaved_descriptors(InterleavedDescriptors& maps, const MatrixView& x, int64_t batch, int64_t outer,
                                           int64_t k, int tile_outer) {
  while (maps.kinds() < rows_of_a_kind(x, k)) ++maps.log2_kinds;
  const int kinds = maps.kinds();
  maps.outer = int(outer), maps.of_kind = int(ceil_div(outer, kinds)), maps.tile_outer = tile_outer;
  if (k == 0) return {};
  maps.next_product = int(x.batch / x.row);
  const int64_t rows = (matrices_of(x, batch) - 1) * maps.next_product + outer;
  const int of_last = maps.of_kind % tile_outer;
  for (int i = 0; i < std::min<int64_t>(kinds, rows); ++i) {
    char* const row = static_cast<char*>(x.data) + i * x.row * size_of(x.dtype);
    const int64_t skipped = reinterpret_cast<uintptr_t>(row) % 16, cols = skipped / size_of(x.dtype) + k;
    const auto make = [&](CUtensorMap& map, int box_rows) {
      return make_tensor_map(
          map, row - skipped, x.dtype, ceil_div(rows - i, kinds), cols, kinds * x.row, rows_inside(tile_outer, box_rows, 8));
    };
    Status status = make(maps.tile[i], maps.of_kind);
    if (status.ok() && of_last > 0) status = make(maps.last[i], of_last);
    if (!status.ok()) return status;
    maps.skipped[i] = int(cols - k);
  }
  return {};
}

// A tile of such an operand: rows of one kind of a product.
struct InterleavedTile {
  const InterleavedDescriptors& maps;
  const int product, tile;                                        // in tiles: the kinds take turns
  const int of_product = tile & (maps.kinds() - 1);               // the product's first row of the kind
  const int first = (tile >> maps.log2_kinds) * maps.tile_outer;  // the tile's first row, among those of the kind
  const int row = product * maps.next_product + of_product, kind = row & (maps.kinds() - 1);
  const int lines = of_product < maps.outer ? max(0, rows_inside(maps.tile_outer, maps.of_kind - first, 8)) : 0;
  const CUtensorMap& box = first > 0 && lines < maps.tile_outer ? maps.last[kind] : maps.tile[kind];

  __device__ int skipped() const { return maps.skipped[kind]; }
  __device__ __forceinline__ void load(uint32_t smem, uint32_t barrier, int k0) const {
    if (lines > 0) tma_load(smem, box, barrier, k0, (row >> maps.log2_kinds) + first, 0);
  }
};

}  // namespace tc
