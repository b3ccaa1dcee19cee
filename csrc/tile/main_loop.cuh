// The main loop of a consumer warpgroup (sm_90a).
#pragma once

#include "../ptx/mbarrier.cuh"
#include "../ptx/wgmma.cuh"

namespace tc {

// Multiplies the `count` K tiles of a work tile, if there are any, which lie in the ring from `at` on. `at` then is the last one, whose
// products are pending and whose stage is in use. multiply(accumulate) waits for the K tile in stage `at`, begins its products and
// commits them, after_first() runs beside the first K tile's products, and leave(stage) says that a stage's products are done.
//
// The first K tile stands before the loop, which then branches at its barrier and its end only. A further branch made warps diverge
// where a thread leaves a stage: 512x1024x3584 in wgmma_tma's tiles of 64x64 took 12.0 us and takes 10.4 (h200-tried.md, "A main loop
// without branches").
template <int STAGES, typename Multiply, typename AfterFirst, typename Leave>
__device__ __forceinline__ void multiply_k_tiles(RingPosition<STAGES>& at, int count, Multiply&& multiply,
                                                 AfterFirst&& after_first, Leave&& leave) {
  if (count > 0) {
    multiply(false);
    after_first();
  }
  for (int t = 1; t < count; ++t) {
    const int last = at.stage;
    at.advance();
    multiply(true);
    wgmma_wait<1>();
    leave(last);
  }
}

}  // namespace tc
