// The shared memory of the WMMA rungs that pad rows by 16 bytes: wmma_double_buffer and wmma_kstage.
#pragma once

#include "../layout/swizzle.h"

namespace tc {

// Bytes of `stages` K tiles of A and B with 16-bit elements. fp32 operands take the same bytes with half as many elements of K.
constexpr int padded_smem(int tile_m, int tile_n, int tile_k, int stages) {
  return stages * (tile_m + tile_n) * (tile_k * 2 + kPadBytes);
}

}  // namespace tc
