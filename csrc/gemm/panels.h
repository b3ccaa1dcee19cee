// How kernels that keep B in shared memory divide a problem among their blocks.
#pragma once

#include <algorithm>

#include "ceil_div.h"
#include "kernel.h"

namespace tc {

// A panel of B has some of its columns, all of K deep. `walkers` blocks share the rows of A that a panel multiplies.
struct Panels {
  static constexpr int kStep = 64;  // bytes of K, a step
  int64_t chunks = 0;               // of columns, in a panel; 0: shared memory and SMs do not hold all panels
  int64_t width = 0;                // of a chunk: the least multiple of 16 columns with as many chunks
  int64_t panels = 1, walkers = 1;  // of a product of a batch

  // How many tiles of rows a warp takes, if all of a block's warps take part.
  static int64_t rounds(int64_t m, const Config& config, int64_t walkers) {
    return ceil_div(ceil_div(m, config.tile_m), walkers * (config.threads / 32));
  }

  // Chooses the panels of up to `most` chunks whose blocks take the least time. time(panels) is a block's, in any unit. More panels than
  // the least that fit give more warps rows of their own, where rows are few. P is a GemmDesc or a PlanKey.
  template <typename P, typename F>
  void choose(const P& p, const Config& config, int num_sms, int64_t most, F&& time) {
    const int64_t all = ceil_div(p.n, config.tile_n);
    const int64_t sms = std::max<int64_t>(1, num_sms / std::max<int64_t>(1, p.batch));  // of a product
    double least = 0;
    for (int64_t x = most > 0 ? std::max<int64_t>(1, ceil_div(all, most)) : num_sms + 1; x <= std::min<int64_t>(all, num_sms);
         ++x) {
      const int64_t of_panel = ceil_div(all, x), count = ceil_div(all, of_panel);
      const int64_t blocks = std::max<int64_t>(1, std::min(sms / x, ceil_div(p.m, config.tile_m)));
      const Panels next{of_panel, ceil_div(ceil_div(p.n, of_panel * count), 16) * 16, count, blocks};
      const double of_all = double(ceil_div(p.batch * count * blocks, num_sms)) * time(next);
      if (chunks > 0 && of_all >= least) continue;
      least = of_all, *this = next;
    }
  }
};

}  // namespace tc
