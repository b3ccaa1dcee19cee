// Programmatic dependent launch (PDL): a kernel may start while the previous kernel in the stream still runs. Both functions do
// nothing before sm_90.
#pragma once

namespace tc {

// Waits until the previous kernel has ended and its writes are visible. Before this call a kernel may prefetch global memory
// into L2, but may neither read nor write it.
__device__ __forceinline__ void wait_on_dependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the next kernel start on any SM that has room. Without this call the next kernel starts once all blocks have ended. A
// kernel calls this after its own wait: before it, a third small grid finds room while the first still runs, then a fourth, and
// the more grids wait, the slower they start. 500x512x13 in tiles of 64x64 of mma_short, whose 64 blocks left room for seven more
// grids, took 6.3 us on an H200 with this call before the wait, and takes 2.9 (bench/results/h200-tried.md, "How many grids wait").
// mma_skinny, which does not gain by that, and mma_swizzle, which was not timed, call it before.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tc
