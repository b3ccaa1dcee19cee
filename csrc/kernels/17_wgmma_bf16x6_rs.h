// wgmma_bf16x6_rs's configurations, for the planner and the kernel.
#pragma once

#include "../gemm/kernel.h"
#include "../gemm/parts.h"
#include "../layout/swizzle.h"

namespace tc {

using WgmmaBf16x6RsMaths = Maths<Math::f32_emulated>;

// A block streams the operand along the longer side of its tile, 64 rows of A or columns of B a warpgroup. The other operand's parts lie
// in shared memory, as K tiles in stages.
constexpr int kStreamed = 64;

// A warpgroup's staged part of D, (rows, columns), and the pitch of its rows in floats. Rows that are written column by column have less
// padding.
struct StagedPart {
  int rows, columns, pitch;
  static TC_HOST_DEVICE constexpr StagedPart of(const Config& config) {
    return config.tile_m > config.tile_n ? StagedPart{kStreamed, config.tile_n, config.tile_n + kRowPad}
                                         : StagedPart{config.tile_m, kStreamed, kStreamed + kRowPad / 2};
  }
};

constexpr Config wgmma_bf16x6_rs_config(int tile_m, int tile_n, int stages, float tflops, float epilogue_us) {
  Config config = {tile_m, tile_n, 64, stages, 0, 0, 1, tflops, epilogue_us, 1, 0, false, kHopper, 4};
  const int streamed = tile_m > tile_n ? tile_m : tile_n, shared = tile_m + tile_n - streamed, groups = streamed / kStreamed;
  const StagedPart staged = StagedPart::of(config);
  config.threads = (groups + 1) * 128;
  // A stage has the producer's marks and two barriers.
  config.smem_bytes = stages * (PartsLayout::kParts * shared * 128 + 32) + groups * staged.rows * staged.pitch * 4;
  return config;
}

inline constexpr Config kWgmmaBf16x6Rs[] = {
    // tile_m, tile_n, stages, TFLOP/s of fp32, epilogue us
    wgmma_bf16x6_rs_config(16, 128, 8, 29.5f, 1.2f),  //
    wgmma_bf16x6_rs_config(32, 128, 8, 51.5f, 2.4f),  //
    wgmma_bf16x6_rs_config(64, 128, 5, 75.f, 3.6f),   //
    wgmma_bf16x6_rs_config(128, 16, 8, 28.f, 1.2f),   //
    wgmma_bf16x6_rs_config(128, 32, 8, 51.5f, 2.4f),  //
    wgmma_bf16x6_rs_config(128, 64, 5, 73.f, 3.6f),
};

}  // namespace tc
