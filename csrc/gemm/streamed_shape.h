// How mma_streamed divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "panels.h"

namespace tc {

// A panel has 64 bytes of each column of B for each step of K. Each warp has one or two slots of shared memory, which hold a tile of rows
// of A each, and a tile of columns of B before. A warp multiplies a tile of rows by one chunk of columns after another.
struct StreamedShape : Panels {
  int64_t depth;                 // steps of K
  bool streams_b;                // whether tiles of B's columns go through the slots too: dense ones do
  int64_t slot_bytes;            // a tile as it lies in memory, and what the last step reads behind it
  int64_t warps = 0, slots = 1;  // warps that have slots, and slots of each

  // Whether a bulk copy of x, the rows of A or the columns of B, wastes little on what lies between the rows.
  template <typename X>
  static bool is_dense(const X& x, int64_t outer, int64_t k) {
    return k == 0 || (order_of(x) == Order::row_major && (outer == 1 || (x.row >= k && x.row <= k + k / 4 + 8)));
  }

  // P is a GemmDesc or a PlanKey.
  template <typename P>
  StreamedShape(const P& p, const Config& config, int num_sms)
      : depth(ceil_div(p.k * size_of(p.a.dtype), kStep)), streams_b(is_dense(transpose(p.b), p.n, p.k)) {
    const int64_t leading = p.k == 0 ? 0 : std::max(p.a.row, streams_b ? p.b.col : 0) * size_of(p.a.dtype);
    slot_bytes = (16 + (config.tile_m - 1) * leading + depth * kStep + 19) / 16 * 16;
    const auto free = [&](const Panels& x) { return config.smem_bytes - x.chunks * chunk_bytes(x.width); };
    const auto warps_beside = [&](const Panels& x) {
      return std::min<int64_t>(config.threads / 32, free(x) / of_warp(p, config));
    };
    const int64_t most = (config.smem_bytes - kLeastWarps * of_warp(p, config)) / chunk_bytes(config.tile_n);
    choose(p, config, num_sms, most, [&](const Panels& x) {
      return double(x.chunks) * (kLoad + double(rounds(p.m, config, x.walkers, warps_beside(x))));
    });
    if (chunks == 0) return;
    warps = warps_beside(*this);
    slots = free(*this) >= warps * (of_warp(p, config) + slot_bytes) ? 2 : 1;
  }

  // Whether A must be repacked first.
  template <typename X>
  static bool must_repack(const X& a, int64_t m, int64_t k, const Config& config) {
    return needs_repack(a, m, k, true, config.alignment) || !is_dense(a, m, k);
  }

  // How many tiles a warp multiplies.
  static int64_t rounds(int64_t m, const Config& config, int64_t walkers, int64_t warps) {
    return ceil_div(ceil_div(ceil_div(m, config.tile_m), walkers), warps);
  }
  // A chunk of B, and of a bias in fp32.
  int64_t chunk_bytes(int64_t columns) const { return columns * (depth * kStep + 4); }
  // A warp's staged part of D: 16 rows, of fp32 unless they go as 16-bit rows.
  static constexpr int kPad = 8;
  template <typename P>
  static int64_t staged_of_warp(const P& p, const Config& config) {
    return 16 * (config.tile_n + kPad) * (takes_rows(p) ? 2 : 4);
  }
  // A warp's share of shared memory with one slot: slot, staged part of D and two barriers.
  template <typename P>
  int64_t of_warp(const P& p, const Config& config) const {
    return slot_bytes + staged_of_warp(p, config) + 16;
  }
  template <typename P>
  int smem_bytes(const P& p, const Config& config) const {
    return int(warps * (of_warp(p, config) + (slots - 1) * slot_bytes) + chunks * chunk_bytes(width));
  }

 private:
  static constexpr int kLeastWarps = 2;
  static constexpr double kLoad = 0.3;  // loading a chunk of B, over multiplying a tile of rows by it; by hand
};

}  // namespace tc
