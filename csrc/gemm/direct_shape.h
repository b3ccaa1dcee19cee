// How mma_direct divides a problem among its blocks. Planner, cost model, launcher and kernel share it.
#pragma once

#include <algorithm>

#include "access.h"
#include "panels.h"
#include "parts.h"

namespace tc {

// A warp's rows of A, and the columns of D that it multiplies at once. In fp32 parts take half as many registers more, so that a longer K
// leaves room for fewer rows or columns.
TC_HOST_DEVICE constexpr int direct_rows(const Config& config, bool f32) {
  return f32 && config.tile_k == 128 ? 16 : config.tile_m;
}
TC_HOST_DEVICE constexpr int direct_columns(const Config& config, bool f32) {
  return !f32 ? config.tile_n : config.tile_k == 256 ? 16 : 32;
}

// A panel has 64 bytes of each column of B for each step of K, or their parts in fp32 (parts.h), and a bias in fp32.
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
    const bool f32 = is_f32(p.a.dtype), whole = p.n > 32 && std::min(bytes_a, bytes_d) == 16;
    config.tile_m = direct_rows(config, f32), config.tile_n = f32 || whole ? direct_columns(config, f32) : 32;
    bytes_d = std::min(bytes_d, config.tile_n / 8 * size_of(p.d.dtype));  // of a row of a chunk, which eight lanes share
    const int64_t step_bytes = f32 ? kStep / 4 * PartsLayout::kParts * 2 : kStep;
    const int64_t chunk_bytes = config.tile_n * (depth * step_bytes + 4);
    const int marks_bytes = f32 ? config.threads / 32 * 4 : 0;  // of the largest magnitudes that warps find in B
    const double of_rows = (f32 ? kRowsF32 : kRows) / config.tile_n;
    choose(p, config, num_sms, (config.smem_bytes - marks_bytes) / chunk_bytes, [&](const Panels& x) {
      const double sixteens = double(rounds(p.m, config, x.walkers)) * config.tile_m / 16;
      return double(x.chunks) * kLoad * double(depth) + sixteens * (double(x.chunks) + of_rows);
    });
    width = config.tile_n, smem_bytes = int(chunks * chunk_bytes) + marks_bytes;
  }

  // Why the kernel cannot run a problem, or null if it can.
  template <typename P>
  static const char* refuses(const P& p, const Config& config, int num_sms) {
    if (p.k * size_of(p.a.dtype) > config.tile_k * 2) return "its rows of A do not fit a warp's registers";
    const auto takes = [&](const auto& x) { return order_of(x) == Order::row_major && size_of(x.dtype) == size_of(p.a.dtype); };
    const DirectShape shape(p, config, num_sms);
    if (!takes(p.d) || (loads_c(p) && !takes(p.c)) || std::min(shape.bytes_a, shape.bytes_d) < 4)
      return "its rows of A, C and D are not contiguous in whole 32-bit words";
    return shape.chunks > 0 ? nullptr : "its columns of B, all of K deep, do not fit shared memory";
  }

  // Whether a lane loads words of C, which is no single row.
  template <typename P>
  static bool loads_c(const P& p) {
    return present(p.c) && !(p.c.row == 0 && size_of(p.c.dtype) == size_of(p.a.dtype));
  }

 private:
  // By hand, over multiplying 16 rows by a chunk: loading 64 bytes of K of the chunk. Over multiplying them by a column: loading the rows.
  static constexpr double kLoad = 0.3, kRows = 20, kRowsF32 = 45;

  // The most bytes, up to 16, whose multiples begin and end all rows of x.
  template <typename X>
  static int access_bytes(const X& x, int64_t rows, int64_t cols) {
    const int64_t bits = (cols > 0 ? alignment(x, rows, cols) : 16) | cols * size_of(x.dtype);
    return int(bits & -bits);
  }
};

}  // namespace tc
