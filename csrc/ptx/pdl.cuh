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

// Lets the next kernel start on any SM that has room. Without this call the next kernel starts once all blocks have ended.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tc
