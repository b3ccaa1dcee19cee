// Programmatic dependent launch: a kernel may start while the one before it in the stream still runs (sm_90; elsewhere both
// functions do nothing).
#pragma once

namespace tc {

// Waits until the kernel before has ended and its writes are visible. A kernel that was launched early may ask L2 for memory before
// this, but it may neither read nor write any.
__device__ __forceinline__ void wait_on_dependencies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

// Lets the kernel after this one start on any SM that has room. Without this call it starts once all blocks have ended.
__device__ __forceinline__ void launch_dependents() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

}  // namespace tc
