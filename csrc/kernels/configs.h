// Every instance of every kernel, stated once: the planner prices them, the launchers compile them.
#pragma once

#include "../layout/swizzle.h"
#include "../gemm/kernel.h"

namespace tc {

// A and B tiles of (128, tile_k) halves; the MN-major form (tile_k, 128) is never larger.
constexpr int wmma_block_smem(int tile_k) { return 2 * 128 * (tile_k + kSkew) * 2; }

// K tiles of A and B in halves; fp32 operands have half as many elements of K in the same bytes.
constexpr int padded_smem(int tile_m, int tile_n, int tile_k, int stages) {
  return stages * (tile_m + tile_n) * (tile_k * 2 + kPadBytes);
}

inline constexpr Instance kSimt[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s
    {64, 64, 16, 1, 64, 0, 8, 25.f},
};

inline constexpr Instance kWmmaNaive[] = {
    {64, 32, 16, 1, 256, 8 * 16 * 24 * 4, 4, 30.f},  // 16x16 accumulators of eight warps, rows padded to 24 floats
};

inline constexpr Instance kWmmaBlock[] = {
    {128, 128, 64, 1, 256, wmma_block_smem(64), 2, 165.f},    // 40 KB: fits wherever 64 KB can be had
    {128, 128, 128, 1, 256, wmma_block_smem(128), 2, 180.f},  // 72 KB
};

inline constexpr Instance kWmmaDoubleBuffer[] = {
    {128, 256, 32, 2, 256, padded_smem(128, 256, 32, 2), 1, 245.f},
};

inline constexpr Instance kWmmaKstage[] = {
    {128, 256, 32, 2, 256, padded_smem(128, 256, 32, 2), 1, 240.f},  // 60 KB
    {128, 256, 32, 3, 256, padded_smem(128, 256, 32, 3), 1, 245.f},  // 90 KB: the most that sm_86 and sm_89 have
    {128, 256, 32, 4, 256, padded_smem(128, 256, 32, 4), 1, 250.f},  // 120 KB
    {128, 256, 32, 5, 256, padded_smem(128, 256, 32, 5), 1, 255.f},  // 150 KB
    {128, 256, 64, 3, 256, padded_smem(128, 256, 64, 3), 1, 260.f},  // 162 KB, half the barriers
};

// Stages of (tile_m + tile_n) lines of tile_k halves; TF32 keeps the bytes and halves tile_k.
constexpr Instance mma_swizzle_instance(int tile_m, int tile_n, int tile_k, int stages, int threads, int blocks_per_sm,
                                        float tflops, int slices = 1) {
  return {tile_m, tile_n, tile_k, stages, threads, stages * (tile_m + tile_n) * tile_k * 2, blocks_per_sm, tflops,
          slices > 1 ? 1.9f : 0, slices};
}

// Warp tiles are 64x64 where the block tile is large enough for its warps: each fragment then feeds eight or four mma.sync.
inline constexpr Instance kMmaSwizzle[] = {
    mma_swizzle_instance(128, 256, 64, 4, 256, 1, 440.f),
    mma_swizzle_instance(256, 128, 32, 6, 256, 1, 400.f),
    mma_swizzle_instance(128, 256, 32, 4, 256, 1, 395.f),  // 96 KB: the large tile of sm_86 and sm_89
    mma_swizzle_instance(128, 128, 64, 4, 256, 1, 370.f),
    mma_swizzle_instance(128, 128, 64, 3, 128, 2, 410.f),
    mma_swizzle_instance(64, 128, 64, 4, 128, 2, 340.f),
    mma_swizzle_instance(64, 64, 64, 4, 128, 3, 270.f),
    // One wave of small tiles waits for latency alone: more K tiles under way, and an early start (launch.h).
    mma_swizzle_instance(64, 128, 64, 6, 128, 1, 330.f),
    mma_swizzle_instance(64, 64, 64, 8, 256, 1, 330.f, 2),
    mma_swizzle_instance(64, 128, 64, 8, 128, 1, 333.f),  // 192 KB
};

// Warpgroups of four warps: one that copies, and `groups` that multiply. Stages of (tile_m + tile_n) lines of 128 bytes, boxes of C
// and D, a row of C, and a barrier for each box, two for each stage and two more for taking turns. Stages come first: the swizzle
// wants them 1024-byte aligned.
constexpr Instance wgmma_tma_instance(int tile_m, int tile_n, int stages, int groups, int boxes, bool pingpong, float tflops,
                                      float epilogue) {
  const int smem_bytes = stages * ((tile_m + tile_n) * 128 + 16) + groups * (boxes * (64 * 128 + 8) + tile_n * 4) + 16;
  return {tile_m, tile_n, 64, stages, (groups + 1) * 128, smem_bytes, 1, tflops, epilogue, 1, boxes, pingpong};
}

inline constexpr Instance kWgmmaTma[] = {
    // tile_m, tile_n, stages, groups, boxes, pingpong, TFLOP/s, epilogue
    wgmma_tma_instance(128, 256, 3, 2, 4, false, 830.f, 3.5f),
    wgmma_tma_instance(128, 256, 4, 2, 2, false, 818.f, 4.4f),
    wgmma_tma_instance(128, 128, 5, 2, 4, true, 755.f, 1.45f),
    wgmma_tma_instance(64, 256, 4, 2, 4, true, 764.f, 2.35f),
    wgmma_tma_instance(128, 192, 4, 2, 3, false, 755.f, 2.75f),
    wgmma_tma_instance(128, 128, 5, 2, 2, false, 753.f, 1.95f),
    wgmma_tma_instance(64, 128, 8, 1, 2, false, 639.f, 1.8f),
    wgmma_tma_instance(64, 64, 10, 1, 1, false, 376.f, 0.9f),
};

// A warpgroup to 64 rows, and a warp that copies. Stages as above; the sums take their place.
constexpr Instance wgmma_cluster_instance(int tile_m, int tile_n, int stages, float tflops, float epilogue) {
  return {tile_m, tile_n, 64, stages, tile_m * 2 + 32, stages * ((tile_m + tile_n) * 128 + 16), 1, tflops, epilogue};
}

inline constexpr Instance kWgmmaCluster[] = {
    // tile_m, tile_n, stages, TFLOP/s, epilogue
    wgmma_cluster_instance(64, 64, 12, 400.f, 2.3f),
    wgmma_cluster_instance(128, 64, 8, 520.f, 3.5f),
};

// A warp multiplies 32 of K at a time, and a block's warps tile_k together.
inline constexpr Instance kMmaSkinny[] = {
    // tile_m, tile_n, tile_k, stages, threads, smem, blocks per SM, TFLOP/s, epilogue
    {16, 32, 256, 6, 256, 116 * 1024, 1, 80.f, 0.6f},  // unused shared memory, which keeps other blocks off its SM
    {16, 32, 256, 2, 256, 0, 2, 90.f, 0.3f},
};

}  // namespace tc
