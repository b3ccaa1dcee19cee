// wgmma_multicast's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "../layout/tile_parts.h"

namespace tc {

using WgmmaMulticastMaths = Maths<Math::f16, Math::bf16, Math::tf32>;

// An H200 holds 66 clusters of two blocks at once, 39 of three, 30 of four and 15 of eight. Each of these shapes is the
// fastest way to run some of 281 drawn problems; 2x4, 4x2, 8x1 and 1x2x2 were at one or none.
inline constexpr Cluster kMulticastClusters[] = {
    {1, 1}, {2, 1}, {1, 2}, {4, 1}, {1, 4}, {2, 2}, {1, 8}, {1, 1, 2}, {1, 1, 3}, {2, 1, 2}, {4, 1, 2}, {1, 4, 2}, {2, 2, 2}};

// Every warpgroup keeps a column: it has 64 or 128.
inline constexpr int kMulticastNarrower[] = {8, 16, 24, 32, 40, 48, 56};

// The epilogue brings C and D in parts of 64 columns: of up to 64 rows in 16 bits, and of up to 32 rows in fp32.
TC_HOST_DEVICE constexpr int multicast_most_rows(bool f32) { return f32 ? 32 : 64; }
TC_HOST_DEVICE constexpr TileParts multicast_parts(int tile_m, bool f32) {
  return TileParts::of(tile_m, multicast_most_rows(f32));
}

// How many parts a warpgroup with `cols` columns of D has in shared memory.
TC_HOST_DEVICE constexpr int multicast_buffers(int tile_m, int cols, bool f32, int most) {
  return buffers_of(cols / 64 * multicast_parts(tile_m, f32).count, most);
}

// Bytes of a warpgroup's `buffers`. Each holds a part of a 16-bit D. If they hold all parts, the parts lie one behind the other without
// gaps. An fp32 D uses the same bytes for its own parts, of two boxes each.
TC_HOST_DEVICE constexpr int multicast_parts_bytes(int tile_m, int cols, int buffers, bool fp32_d) {
  const TileParts parts = multicast_parts(tile_m, false);
  const int rows = buffers == cols / 64 * parts.count ? cols / 64 * tile_m : buffers * parts.rows;
  const int rows_f32 = 2 * multicast_buffers(tile_m, cols, true, buffers) * multicast_parts(tile_m, true).rows;
  return 128 * (fp32_d && rows_f32 > rows ? rows_f32 : rows);
}

// Bytes of shared memory beside the stages: for each warpgroup its parts with a barrier each, a row of C, and a barrier for
// the sums that it receives; and one more barrier.
TC_HOST_DEVICE constexpr int multicast_epilogue_bytes(int tile_m, int tile_n, int groups, int buffers, bool fp32_d) {
  const int cols = tile_n / groups;
  return groups * (multicast_parts_bytes(tile_m, cols, buffers, fp32_d) + buffers * 8 + cols * 4 + 8) + 8;
}

// tile_m rows of D lie on wgmma's N, and tile_n columns on its M, 64 for each wgmma. A block has one producer warpgroup, and
// consumer warpgroups of 64 columns, or of 128 where four of them would leave too few registers. It has as many stages as fit beside
// `most_buffers`, each (tile_m + tile_n) rows of 128 bytes and two barriers. A second block on an SM would leave each half of them.
// All parts of D have a buffer if that costs no stage: then no part waits until another has left its own.
constexpr Config wgmma_multicast_config(int tile_m, int tile_n, int most_buffers, int variants = 0) {
  constexpr int kRoom = 227 * 1024, kMostStages = 24, kMostBuffers = 4;  // a buffer has a warp that issues its copies
  const bool tf32 = variants & kTf32, fp32_d = variants & kFp32D;
  const int groups = tile_n == 256 ? 2 : tile_n / 64, stage = (tile_m + tile_n) * 128 + 16;
  const auto buffers_of_most = [&](int most) { return multicast_buffers(tile_m, tile_n / groups, false, most); };
  const auto epilogue_of = [&](int buffers) { return multicast_epilogue_bytes(tile_m, tile_n, groups, buffers, fp32_d); };
  const auto stages_beside = [&](int buffers) {
    const int fit = (kRoom - epilogue_of(buffers)) / stage;
    return fit < kMostStages ? fit : kMostStages;
  };
  const int fewer = buffers_of_most(most_buffers), more = buffers_of_most(kMostBuffers), stages = stages_beside(fewer);
  const int buffers = stages_beside(more) == stages ? more : fewer;
  const int smem_bytes = stages * stage + epilogue_of(buffers), threads = (groups + 1) * 128;
  return {tile_m, tile_n, 64, stages, threads, smem_bytes, 1, 0, 0, 1, buffers, false, kHopper, 16, true, tf32, fp32_d};
}

// Chosen from all sizes of 8 to 256 rows by 64 to 256 columns: by how often each was the fastest at drawn problems, by greedy
// searches, and by times alone beside torch.addmm (bench/results/h200-tried.md, "Tiles by measured times" and "Alone, after a
// rest"). One buffer for C and D leaves room for another stage, the fourth or the fifth ("A stage more").
inline constexpr Config kWgmmaMulticast[] = {
    // tile_m, tile_n, the most buffers, variants
    wgmma_multicast_config(8, 64, 3, kFp32D),    wgmma_multicast_config(16, 64, 3, kFp32),
    wgmma_multicast_config(24, 64, 3, kFp32D),   wgmma_multicast_config(32, 64, 3, kFp32),
    wgmma_multicast_config(40, 64, 3, kFp32D),   wgmma_multicast_config(48, 64, 3, kFp32D),
    wgmma_multicast_config(64, 64, 3, kFp32),    wgmma_multicast_config(72, 64, 3, kFp32D),
    wgmma_multicast_config(80, 64, 3),           wgmma_multicast_config(88, 64, 3, kFp32D),
    wgmma_multicast_config(96, 64, 3),           wgmma_multicast_config(104, 64, 3, kFp32D),
    wgmma_multicast_config(112, 64, 3),          wgmma_multicast_config(120, 64, 3),
    wgmma_multicast_config(128, 64, 3, kFp32),   wgmma_multicast_config(136, 64, 3),
    wgmma_multicast_config(144, 64, 3),          wgmma_multicast_config(152, 64, 3),
    wgmma_multicast_config(160, 64, 3, kFp32D),  wgmma_multicast_config(192, 64, 3, kFp32),
    wgmma_multicast_config(200, 64, 3),          wgmma_multicast_config(8, 128, 3, kFp32D),
    wgmma_multicast_config(24, 128, 3, kFp32D),  wgmma_multicast_config(48, 128, 3),
    wgmma_multicast_config(64, 128, 3, kFp32),   wgmma_multicast_config(72, 128, 3, kFp32D),
    wgmma_multicast_config(80, 128, 3),          wgmma_multicast_config(88, 128, 3),
    wgmma_multicast_config(96, 128, 3, kFp32D),  wgmma_multicast_config(104, 128, 3),
    wgmma_multicast_config(112, 128, 3),         wgmma_multicast_config(120, 128, 3, kFp32D),
    wgmma_multicast_config(136, 128, 3, kFp32D), wgmma_multicast_config(144, 128, 3),
    wgmma_multicast_config(152, 128, 3, kFp32D), wgmma_multicast_config(160, 128, 1),
    wgmma_multicast_config(168, 128, 1),         wgmma_multicast_config(176, 128, 1, kFp32D),
    wgmma_multicast_config(184, 128, 1),         wgmma_multicast_config(192, 128, 3, kFp32),
    wgmma_multicast_config(200, 128, 3),         wgmma_multicast_config(208, 128, 3),
    wgmma_multicast_config(216, 128, 3),         wgmma_multicast_config(224, 128, 3),
    wgmma_multicast_config(232, 128, 3),         wgmma_multicast_config(240, 128, 3),
    wgmma_multicast_config(256, 128, 3, kFp32),  wgmma_multicast_config(24, 192, 3),
    wgmma_multicast_config(56, 192, 3),          wgmma_multicast_config(80, 192, 3),
    wgmma_multicast_config(96, 192, 1, kFp32D),  wgmma_multicast_config(104, 192, 1),
    wgmma_multicast_config(112, 192, 1),         wgmma_multicast_config(120, 192, 1),
    wgmma_multicast_config(136, 192, 1, kFp32D), wgmma_multicast_config(144, 192, 1),
    wgmma_multicast_config(160, 192, 1),         wgmma_multicast_config(168, 192, 1, kFp32D),
    wgmma_multicast_config(176, 192, 1),         wgmma_multicast_config(184, 192, 1),
    wgmma_multicast_config(192, 192, 1, kFp32D), wgmma_multicast_config(200, 192, 1),
    wgmma_multicast_config(88, 256, 3),          wgmma_multicast_config(104, 256, 3),
    wgmma_multicast_config(136, 256, 1),         wgmma_multicast_config(152, 256, 1),
    wgmma_multicast_config(160, 256, 1),
};

}  // namespace tc
