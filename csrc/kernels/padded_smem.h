// Shared memory of the WMMA rungs whose rows are padded by 16 bytes.
#pragma once

#include "../layout/swizzle.h"

namespace tc {

// Bytes of `stages` K tiles of A and B with 16-bit elements. fp32 operands have half as many elements of K in the same bytes.
constexpr int padded_smem(int tile_m, int tile_n, int tile_k, int stages) {
  return stages * (tile_m + tile_n) * (tile_k * 2 + kPadBytes);
}

}  // namespace tc
