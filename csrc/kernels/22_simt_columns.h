// simt_columns's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtColumnsMaths = Maths<Math::f16, Math::bf16, Math::f32_simt>;

// A tile is a warp's, not a block's. Each of its columns belongs to as many lanes as read tile_k in vectors of 16 bytes.
constexpr Config simt_columns_config(int rows, int columns, int lanes, int stages, int threads) {
  return {rows, columns, lanes * 8, stages, threads, 0, 1, 0.f, 0.f, 1, 0, false, kEverywhere, 4, false, true, true, rows > 1};
}

inline constexpr Config kSimtColumns[] = {
    // rows, columns, lanes of a column, stages, threads
    simt_columns_config(1, 2, 32, 2, 1024),  //
    simt_columns_config(1, 4, 32, 1, 1024),  //
    simt_columns_config(1, 32, 4, 1, 896),   // for a short K
    simt_columns_config(2, 4, 32, 2, 512),   //
    simt_columns_config(4, 4, 32, 2, 384),   //
};

}  // namespace tc
