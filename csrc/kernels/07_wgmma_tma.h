// wgmma_tma's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"

namespace tc {

using WgmmaTmaMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// Rows of 128 bytes that B's tile takes in a stage. If B is contiguous along N, they are boxes of 64 columns.
TC_HOST_DEVICE constexpr int wgmma_tma_b_lines(int tile_n) { return (tile_n + 63) / 64 * 64; }

// A block has one producer warpgroup and `groups` consumer warpgroups. Shared memory begins with the stages, the tiles of A and B
// in rows of 128 bytes, because the 128-byte swizzle needs 1024-byte alignment. The boxes of C and D follow, then a row of
// C for each consumer warpgroup, then the barriers of 8 bytes: two for each stage, one for each box, and two for the order of
// pingpong warpgroups.
constexpr Config wgmma_tma_config(int tile_m, int tile_n, int stages, int groups, int boxes, bool pingpong, float tflops,
                                  float epilogue_us, int variants = 0) {
  const int smem_bytes =
      stages * ((tile_m + wgmma_tma_b_lines(tile_n)) * 128 + 16) + groups * (boxes * (64 * 128 + 8) + tile_n * 4) + 16;
  const bool tma_only = !(variants & kViaRegisters) || tile_n % 64 != 0;
  const bool tf32 = variants & kTf32, fp32_d = variants & kFp32D;
  return {tile_m, tile_n,   64,      stages, (groups + 1) * 128, smem_bytes, 1,     tflops, epilogue_us, 1,
          boxes,  pingpong, kHopper, 16,     tma_only,           tf32,       fp32_d};
}

// Only tiles of a multiple of 64 columns can go via registers: in others D's tensor map cuts off the boxes beyond the tile.
inline constexpr Config kWgmmaTma[] = {
    // tile_m, tile_n, stages, groups, boxes, pingpong, TFLOP/s, epilogue us, variants
    wgmma_tma_config(128, 256, 3, 2, 4, false, 816.f, 2.05f, kFp32),
    wgmma_tma_config(128, 128, 5, 2, 4, true, 764.f, 0.981f, kFp32 | kViaRegisters),
    wgmma_tma_config(64, 256, 4, 2, 4, true, 698.f, 0.997f, kViaRegisters | kFp32D),
    wgmma_tma_config(128, 192, 4, 2, 3, false, 822.f, 1.41f, kFp32D),
    wgmma_tma_config(128, 128, 5, 2, 2, false, 780.f, 1.23f, kFp32D),
    wgmma_tma_config(64, 128, 8, 1, 2, false, 770.f, 0.322f, kFp32),
    wgmma_tma_config(64, 64, 10, 1, 1, false, 546.f, 0.48f, kFp32 | kViaRegisters),
    wgmma_tma_config(128, 112, 6, 2, 2, false, 748.f, 0.81f, kFp32D),
    wgmma_tma_config(128, 224, 4, 2, 2, false, 786.f, 2.59f, kFp32),
    wgmma_tma_config(192, 128, 4, 3, 2, false, 765.f, 0.97f, kFp32),
    wgmma_tma_config(192, 176, 4, 3, 1, false, 798.f, 3.5f),
    wgmma_tma_config(256, 80, 4, 2, 2, false, 719.f, 2.58f),
    wgmma_tma_config(256, 32, 4, 2, 4, true, 226.f, 0.372f, kFp32),
    // These fill waves that the others leave half empty (bench/results/h200-tried.md).
    wgmma_tma_config(128, 160, 4, 2, 3, false, 767.f, 1.13f, kFp32D),
    wgmma_tma_config(128, 144, 5, 2, 1, false, 766.f, 2.7f),
    wgmma_tma_config(192, 112, 5, 3, 1, false, 765.f, 1.9f, kFp32D),
    wgmma_tma_config(128, 80, 6, 2, 2, false, 765.f, 0.8f, kFp32D),
};

}  // namespace tc
