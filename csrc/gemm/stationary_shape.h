// How mma_stationary divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "kernel.h"

namespace tc {

// A panel of B has 64 bytes of each column for each step of K. Each panel belongs to `walkers` blocks, whose warps share the rows.
struct StationaryShape {
  static constexpr int kStep = 64;  // bytes of K
  int64_t depth;                    // steps of K
  int64_t chunks = 0;               // of columns, in a panel; 0: shared memory and SMs do not hold all panels
  int64_t width = 0;                // of a chunk: the least multiple of 16 columns with as many chunks
  int64_t panels = 1, walkers = 1;  // of a product of a batch

  // P is a GemmDesc or a PlanKey. More panels than the least that fit give more warps rows of their own, where rows are few.
  template <typename P>
  StationaryShape(const P& p, const Config& config, int num_sms) : depth(ceil_div(p.k * size_of(p.a.dtype), kStep)) {
    const int64_t most = (config.smem_bytes - staged(config)) / chunk_bytes(config.tile_n), all = ceil_div(p.n, config.tile_n);
    const int64_t sms = std::max<int64_t>(1, num_sms / std::max<int64_t>(1, p.batch));  // of a product
    double least = 0;
    for (int64_t x = most > 0 ? std::max<int64_t>(1, ceil_div(all, most)) : num_sms + 1; x <= std::min<int64_t>(all, num_sms);
         ++x) {
      const int64_t of_panel = ceil_div(all, x), count = ceil_div(all, of_panel);
      const int64_t blocks = std::max<int64_t>(1, std::min(sms / x, ceil_div(p.m, config.tile_m)));
      const double waves = double(ceil_div(p.batch * count * blocks, num_sms));
      const double time = waves * (double(of_panel) * kLoad + double(rounds(p.m, config, blocks)) * (double(of_panel) + kRows));
      if (chunks > 0 && time >= least) continue;
      least = time, chunks = of_panel, panels = count, walkers = blocks;
      width = ceil_div(ceil_div(p.n, of_panel * panels), 16) * 16;
    }
  }

  // Whether a warp loads its next rows of A while it finishes the last ones: whole aligned vectors, and all of K at once.
  template <typename P>
  bool loads_ahead(const P& p, const Config& config) const {
    return depth > 0 && depth * kStep <= config.tile_k * 2 && alignment(p.a, p.m, p.k) == 16 &&
           p.k * size_of(p.a.dtype) % 16 == 0;
  }

  // How many tiles of rows a warp takes.
  static int64_t rounds(int64_t m, const Config& config, int64_t walkers) {
    return ceil_div(ceil_div(m, config.tile_m), walkers * (config.threads / 32));
  }
  // A chunk of B, and of a bias in fp32.
  int64_t chunk_bytes(int64_t columns) const { return columns * (depth * kStep + 4); }
  // A warp's staged part of D: 16 rows of fp32, padded as epilogues pad them.
  static constexpr int kPad = 8;
  static TC_HOST_DEVICE constexpr int staged_of_warp(const Config& config) { return 16 * (config.tile_n + kPad) * 4; }
  static int64_t staged(const Config& config) { return config.threads / 32 * staged_of_warp(config); }
  int smem_bytes(const Config& config) const { return int(chunks * chunk_bytes(width) + staged(config)); }

 private:
  // By hand, over multiplying a tile of rows by a chunk: loading the chunk, and loading the rows.
  static constexpr double kLoad = 0.3, kRows = 0.35;
};

}  // namespace tc
