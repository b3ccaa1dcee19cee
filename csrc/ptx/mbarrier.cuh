// mbarrier, one wrapper per instruction (sm_90). These barriers in shared memory separate arrival from waiting, so that an
// early warp goes on working, and they count the bytes that TMA has written.
#pragma once

#include <cstdint>

namespace tc {

// A phase completes once `count` threads have arrived.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Makes this thread's initialisations visible to the cluster and to TMA.
__device__ __forceinline__ void fence_mbarrier_init() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

// Releases this thread's earlier reads and writes to the threads that wait for the phase.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}
// The same for the threads that meet the condition. After a branch, the compiler would no longer take the warp's values to be
// uniform (warp.cuh).
__device__ __forceinline__ void mbarrier_arrive_if(bool condition, uint32_t barrier) {
  asm volatile(
      "{\n .reg .pred p;\n .reg .b64 state;\n setp.ne.u32 p, %1, 0;\n @p mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(
          barrier),
      "r"(unsigned(condition))
      : "memory");
}

// Whether the phase of this parity has completed. On a fresh barrier the phase of parity 1 counts as completed, because it
// precedes the first phase.
__device__ __forceinline__ bool mbarrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done)
               : "r"(barrier), "r"(parity)
               : "memory");
  return done;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_test(barrier, parity)) {
  }
}

// Arrives, and makes the phase wait until TMA has written `bytes` bytes as well.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Synchronises the THREADS threads that use barrier `name`, 1 to 15. __syncthreads uses barrier 0.
template <int THREADS>
__device__ __forceinline__ void named_barrier(int name) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}

// The same, and returns whether any of the threads calls it with `x`.
template <int THREADS>
__device__ __forceinline__ bool named_barrier_or(int name, bool x) {
  uint32_t any;
  asm volatile("{\n .reg .pred p, q;\n setp.ne.u32 p, %2, 0;\n bar.red.or.pred q, %1, %3, p;\n selp.u32 %0, 1, 0, q;\n}"
               : "=r"(any)
               : "r"(name), "r"(unsigned(x)), "n"(THREADS)
               : "memory");
  return any;
}

// A position in a ring of STAGES stages. `parity` is the parity of the phase that the stage's barriers are in.
template <int STAGES>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  // advance(STEPS) without a division.
  template <int STEPS>
  __device__ __forceinline__ void advance_by() {
    parity ^= STEPS / STAGES & 1;
    if ((stage += STEPS % STAGES) >= STAGES) stage -= STAGES, parity ^= 1;
  }
  __device__ __forceinline__ void advance(int steps) {
    parity ^= (stage + steps) / STAGES & 1;
    stage = (stage + steps) % STAGES;
  }
};

}  // namespace tc
