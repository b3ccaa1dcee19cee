// How mma_stationary divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include "access.h"
#include "panels.h"

namespace tc {

// A panel has 64 bytes of each column of B for each step of K.
struct StationaryShape : Panels {
  int64_t depth;  // steps of K

  // P is a GemmDesc or a PlanKey.
  template <typename P>
  StationaryShape(const P& p, const Config& config, int num_sms) : depth(ceil_div(p.k * size_of(p.a.dtype), kStep)) {
    choose(p, config, num_sms, (config.smem_bytes - staged(config)) / chunk_bytes(config.tile_n), [&](const Panels& x) {
      return double(x.chunks) * kLoad + double(rounds(p.m, config, x.walkers)) * (double(x.chunks) + kRows);
    });
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
