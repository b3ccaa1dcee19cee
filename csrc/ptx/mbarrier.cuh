// mbarrier, one wrapper per instruction: barriers in shared memory whose arrival and wait are apart, so that a warp that is
// early goes on working, and TMA can count the bytes that it has written (sm_90).
#pragma once

#include <cstdint>

namespace tc {

// A phase completes when `count` threads have arrived.
__device__ __forceinline__ void mbarrier_init(uint32_t barrier, int count) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(barrier), "r"(count) : "memory");
}

// Releases this thread's reads and writes to the threads that wait for the phase.
__device__ __forceinline__ void mbarrier_arrive(uint32_t barrier) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(barrier) : "memory");
}

// Whether the phase of this parity has completed; of a fresh barrier, the phase before its first (parity 1) has.
__device__ __forceinline__ bool mbarrier_test(uint32_t barrier, uint32_t parity) {
  uint32_t done;
  asm volatile("{\n .reg .pred p;\n mbarrier.try_wait.parity.shared.b64 p, [%1], %2;\n selp.u32 %0, 1, 0, p;\n}"
               : "=r"(done) : "r"(barrier), "r"(parity) : "memory");
  return done;
}

__device__ __forceinline__ void mbarrier_wait(uint32_t barrier, uint32_t parity) {
  while (!mbarrier_test(barrier, parity)) {}
}

// Arrives, and has the phase wait for `bytes` bytes that TMA is to write as well.
__device__ __forceinline__ void mbarrier_arrive_expect(uint32_t barrier, uint32_t bytes) {
  asm volatile("{\n .reg .b64 state;\n mbarrier.arrive.expect_tx.shared.b64 state, [%0], %1;\n}" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// The THREADS threads that name the same barrier, 1 to 15, wait for each other; __syncthreads is barrier 0.
template <int THREADS>
__device__ __forceinline__ void named_barrier(int name) {
  asm volatile("bar.sync %0, %1;" ::"r"(name), "n"(THREADS) : "memory");
}

// Where a walk round a ring of STAGES stands, and the parity of the phase that its barriers are in there.
template <int STAGES>
struct RingPosition {
  int stage = 0;
  uint32_t parity = 0;
  __device__ __forceinline__ void advance() {
    if (++stage == STAGES) stage = 0, parity ^= 1;
  }
  __device__ __forceinline__ void advance(int steps) {
    parity ^= (stage + steps) / STAGES & 1;
    stage = (stage + steps) % STAGES;
  }
};

}  // namespace tc
