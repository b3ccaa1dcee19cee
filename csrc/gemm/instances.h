// Every instance of every kernel, stated once: the planner prices them, the launchers compile them.
#pragma once

#include "registry.h"

namespace tc {

constexpr int kSkew = 16;  // halves added to each shared-memory row of wmma_block; WMMA needs a 32-byte multiple

// A and B tiles of (128, tile_k) halves; the MN-major form (tile_k, 128) is never larger.
constexpr int wmma_block_smem(int tile_k) { return 2 * 128 * (tile_k + kSkew) * 2; }

inline constexpr Instance kSimt[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s
    {64, 64, 16, 1, 64, 0, 8, 25.f},
};

inline constexpr Instance kWmmaBlock[] = {
    {128, 128, 64, 1, 256, wmma_block_smem(64), 2, 165.f},    // 40 KB: fits wherever 64 KB can be had
    {128, 128, 128, 1, 256, wmma_block_smem(128), 2, 180.f},  // 72 KB
};

}  // namespace tc
