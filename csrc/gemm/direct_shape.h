// How mma_direct divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "panels.h"

namespace tc {

// A panel has 64 bytes of each column of B for each step of K, and a bias in fp32.
struct DirectShape : Panels {
  int64_t depth;         // steps of K
  int bytes_a, bytes_d;  // that a lane loads of A at once, and stores of D
  int smem_bytes = 0;

  // P is a GemmDesc or a PlanKey.
  template <typename P>
  DirectShape(const P& p, Config config, int num_sms)
      : depth(ceil_div(p.k * size_of(p.a.dtype), kStep)),
        bytes_a(access_bytes(p.a, p.m, p.k)),
        bytes_d(std::min(access_bytes(p.d, p.m, p.n), loads_c(p) ? access_bytes(p.c, p.m, p.n) : 16)) {
    // A lane has 16 bytes of a row of D in a chunk of 64 columns, and 8 bytes in one of 32.
    const bool whole = p.n > 32 && std::min(bytes_a, bytes_d) == 16;
    if (!whole) config.tile_n = 32, bytes_d = std::min(bytes_d, 8);
    const int64_t chunk_bytes = config.tile_n * (depth * kStep + 4);
    choose(p, config, num_sms, config.smem_bytes / chunk_bytes, [&](const Panels& x) {
      return double(x.chunks) * (kLoad * double(depth) + double(rounds(p.m, config, x.walkers)) * double(config.tile_m) / 16);
    });
    width = config.tile_n, smem_bytes = int(chunks * chunk_bytes);
  }

  // Why the kernel cannot run a problem, or null if it can.
  template <typename P>
  static const char* refuses(const P& p, const Config& config, int num_sms) {
    if (p.k > config.tile_k) return "its rows of A do not fit a warp's registers";
    const auto takes = [&](const auto& x) { return order_of(x) == Order::row_major && !is_f32(x.dtype); };
    const DirectShape shape(p, config, num_sms);
    if (!takes(p.d) || (loads_c(p) && !takes(p.c)) || std::min(shape.bytes_a, shape.bytes_d) < 4)
      return "its rows of A, C and D are no whole words of two 16-bit elements";
    return shape.chunks > 0 ? nullptr : "its columns of B, all of K deep, do not fit shared memory";
  }

  // Whether a lane loads words of C, which is no single row.
  template <typename P>
  static bool loads_c(const P& p) {
    return present(p.c) && !has_bias(p);
  }

 private:
  static constexpr double kLoad = 0.3;  // loading 64 bytes of K of a chunk of B, over multiplying 16 rows by it; by hand

  // The most bytes, up to 16, whose multiples begin and end all rows of x.
  template <typename X>
  static int access_bytes(const X& x, int64_t rows, int64_t cols) {
    const int64_t bits = (cols > 0 ? alignment(x, rows, cols) : 16) | cols * size_of(x.dtype);
    return int(bits & -bits);
  }
};

}  // namespace tc
