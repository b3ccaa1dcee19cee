// simt_columns's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using SimtColumnsMaths = Maths<Math::f16, Math::bf16, Math::f32_simt>;

// A tile is a warp's, not a block's. Each of its columns belongs to as many lanes as read tile_k in vectors of 16 bytes.
constexpr Config simt_columns_config(int rows, int columns, int lanes, int stages, int threads) {
  constexpr int smem = 0, blocks_per_sm = 1, warp_slices = 1, boxes = 0, alignment = 4;
  constexpr bool pingpong = false, tma_only = false, fp32 = true, fp32_d = true;
  // Tensor cores multiply two to four 16-bit rows as fast as memory brings B, unless K is short.
  const bool fp32_alone = rows > 1 && lanes == 32;
  return {rows,        columns, lanes * 8, stages,      threads,   smem,     blocks_per_sm, 0,      0,
          warp_slices, boxes,   pingpong,  kEverywhere, alignment, tma_only, fp32,          fp32_d, fp32_alone};
}

inline constexpr Config kSimtColumns[] = {
    // rows, columns, lanes of a column, stages, threads
    simt_columns_config(1, 2, 32, 2, 1024),  //
    simt_columns_config(1, 4, 32, 1, 1024),  //
    simt_columns_config(1, 32, 4, 1, 896),   // for the shortest K
    simt_columns_config(2, 4, 32, 2, 512),   //
    simt_columns_config(4, 4, 32, 2, 384),   //
    simt_columns_config(1, 32, 8, 1, 640),   // for a short K, as those below
    simt_columns_config(1, 16, 8, 1, 768),   //
    simt_columns_config(1, 16, 8, 2, 608),   //
    simt_columns_config(4, 16, 8, 1, 512),   //
};

}  // namespace tc
