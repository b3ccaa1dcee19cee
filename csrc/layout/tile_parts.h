// How an epilogue divides a tile of D, and how much of it lies in shared memory.
#pragma once

#include "swizzle.h"

namespace tc {

// Parts of `rows` rows each, but for the last, which has `last`. A box of TMA brings the rows of one part.
struct TileParts {
  int count, rows, last;

  // The fewest parts of at most `most` rows. `tile_rows`, `most` and the parts' rows are multiples of 8.
  static TC_HOST_DEVICE constexpr TileParts of(int tile_rows, int most) {
    const int count = (tile_rows + most - 1) / most, rows = (tile_rows / 8 + count - 1) / count * 8;
    return {count, rows, tile_rows - (count - 1) * rows};
  }
};

// How many of a tile's `count` parts or boxes lie in shared memory: at most `most`, a divisor of them.
TC_HOST_DEVICE constexpr int buffers_of(int count, int most) {
  int buffers = count < most ? count : most;
  while (count % buffers) --buffers;
  return buffers;
}

}  // namespace tc
