// How mma_streamed divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "kernel.h"

namespace tc {

// A panel of B has 64 bytes of each column for each step of K. Each panel belongs to `walkers` blocks, whose warps share the rows of A.
// Each warp has a slot or two, for tiles of its rows, and before them of columns of B. A warp multiplies a tile of rows by one chunk of
// columns after another.
struct StreamedShape {
  static constexpr int kStep = 64;  // bytes of K
  static constexpr int kLeastWarps = 2;
  int64_t depth;       // steps of K
  bool streams_b;      // whether columns of B come in tiles too: contiguous ones, with as little in between as rows of A
  int64_t slot_bytes;  // rows as they lie in memory, and what the last step reads beyond the last row
  int64_t chunks = 0;  // of columns, in a panel; 0: shared memory and SMs do not hold all panels
  int64_t width = 0;   // of a chunk: the least multiple of 16 columns with as many chunks
  int64_t panels = 1, walkers = 1;  // of a product of a batch
  int64_t warps = 0, slots = 1;     // that take part, and of each

  // Whether rows of A or columns of B, (outer, K), follow each other closely enough to be copied with what lies between them.
  template <typename X>
  static bool is_dense(const X& x, int64_t outer, int64_t k) {
    return k == 0 || (order_of(x) == Order::row_major && (outer == 1 || (x.row >= k && x.row <= k + k / 4 + 8)));
  }

  // P is a GemmDesc or a PlanKey. More panels than the least that fit give more warps rows of their own, where rows are few.
  template <typename P>
  StreamedShape(const P& p, const Config& config, int num_sms)
      : depth(ceil_div(p.k * size_of(p.a.dtype), kStep)),
        streams_b(is_dense(transpose(p.b), p.n, p.k)),
        slot_bytes(
            (16 + (config.tile_m - 1) * std::max(p.a.row, streams_b ? p.b.col : 0) * size_of(p.a.dtype) + depth * kStep + 19) /
            16 * 16) {
    const int64_t most = (config.smem_bytes - kLeastWarps * of_warp(p, config)) / chunk_bytes(config.tile_n);
    const int64_t all = ceil_div(p.n, config.tile_n);
    const int64_t sms = std::max<int64_t>(1, num_sms / std::max<int64_t>(1, p.batch));  // of a product
    double least = 0;
    for (int64_t x = most > 0 ? std::max<int64_t>(1, ceil_div(all, most)) : num_sms + 1; x <= std::min<int64_t>(all, num_sms);
         ++x) {
      const int64_t of_panel = ceil_div(all, x), count = ceil_div(all, of_panel);
      const int64_t blocks = std::max<int64_t>(1, std::min(sms / x, ceil_div(p.m, config.tile_m)));
      const int64_t columns = ceil_div(ceil_div(p.n, of_panel * count), 16) * 16;
      const int64_t left = config.smem_bytes - of_panel * chunk_bytes(columns);
      const int64_t taking = std::min<int64_t>(config.threads / 32, left / of_warp(p, config));
      const double waves = double(ceil_div(p.batch * count * blocks, num_sms));
      const double time = waves * double(of_panel) * (kLoad + double(rounds(p.m, config, blocks, taking)));
      if (chunks > 0 && time >= least) continue;
      least = time, chunks = of_panel, panels = count, walkers = blocks, width = columns, warps = taking;
      slots = left >= taking * (of_warp(p, config) + slot_bytes) ? 2 : 1;
    }
  }

  // Tiles that a warp takes.
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
  // A slot and barriers as well.
  template <typename P>
  int64_t of_warp(const P& p, const Config& config) const {
    return slot_bytes + staged_of_warp(p, config) + 16;
  }
  template <typename P>
  int smem_bytes(const P& p, const Config& config) const {
    return int(warps * (of_warp(p, config) + (slots - 1) * slot_bytes) + chunks * chunk_bytes(width));
  }

 private:
  static constexpr double kLoad = 0.3;  // of a chunk of B, over a tile of rows times it; by hand
};

}  // namespace tc
