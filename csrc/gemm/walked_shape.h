// How wgmma_bf16x6_streamed divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "parts.h"

namespace tc {

// A block keeps the bf16 parts of tile_n columns of B in shared memory, all of K deep, and each of its warpgroups walks over tiles of
// kRows rows of A. A slot of shared memory holds a tile as it lies in global memory, and afterwards the tile of D, if D is staged.
struct WalkedShape {
  static constexpr int kRows = 64, kTileK = PartsLayout::kBlock, kPad = 8;
  int64_t depth, panels, walkers, slot_bytes;  // K tiles; of a product: panels of columns, and blocks of each
  int slots;                                   // of a warpgroup

  // P is a GemmDesc or a PlanKey.
  template <typename P>
  WalkedShape(const P& p, const Config& config, int num_sms)
      : depth(ceil_div(p.k, int64_t(kTileK))), panels(std::max<int64_t>(1, ceil_div(p.n, config.tile_n))) {
    const int64_t sms = std::max<int64_t>(1, num_sms / std::max<int64_t>(1, p.batch));
    walkers = std::max<int64_t>(1, std::min(sms / panels, ceil_div(p.m, int64_t(kRows))));
    const int64_t staged = kRows * staged_pitch(config.tile_n) * 4, rows = std::clamp<int64_t>(p.m, 1, kRows);
    const int64_t of_a =
        p.k == 0 ? 0 : 12 + ((rows - 1) * p.a.row + p.k) * 4;  // rows may begin 12 bytes behind a multiple of 16
    slot_bytes = std::max(staged, ceil_div(of_a, int64_t(16)) * 16);
    slots = 2;
    if (smem_bytes(config) > config.smem_bytes) slots = 1;
  }

  // Floats from a row of a staged tile of D to the next.
  static TC_HOST_DEVICE constexpr int staged_pitch(int columns) { return columns + kPad; }
  // Whether D's rows consist of aligned pairs, which leave straight from registers.
  template <typename P>
  static bool has_pairs(const P& p) {
    return order_of(p.d) == Order::row_major && alignment(p.d, p.m, p.n) >= 8 && p.n % 2 == 0;
  }
  static constexpr int warpgroups(const Config& config) { return config.threads / 128; }
  // The bytes that the parts of a K tile of B take.
  static TC_HOST_DEVICE constexpr int k_tile_bytes(int columns) { return PartsLayout::kParts * columns * 128; }
  int64_t smem_bytes(const Config& config) const {
    return depth * k_tile_bytes(config.tile_n) + warpgroups(config) * slots * (slot_bytes + 8) +
           (config.tile_n + config.threads / 32) * 4;
  }
  // Tiles of rows that a warpgroup multiplies.
  int64_t rounds(int64_t m, const Config& config) const {
    return ceil_div(ceil_div(m, int64_t(kRows)), walkers * warpgroups(config));
  }

  // Why the kernel cannot run a problem, or null if it can.
  template <typename P>
  static const char* refuses(const P& p, const Config& config, int num_sms) {
    const bool fits = WalkedShape(p, config, num_sms).smem_bytes(config) <= config.smem_bytes;
    return fits ? nullptr : "its columns of B, all of K deep, do not fit shared memory beside rows of A";
  }
};

}  // namespace tc
