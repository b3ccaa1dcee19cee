// Operands from global memory straight into the registers of mma.sync, in words of 4 bytes.
#pragma once

#include <cstdint>
#include <type_traits>

#include "copy.cuh"
#include "scheduler.cuh"

namespace tc {

// Loads N consecutive 32-bit words from an address that is aligned to all of them. They are read once, so L1 does not keep them.
// A load of 16 bytes lies along K, and L2 then fetches 128 bytes at once: 1x4096x4096 took 11.2 us on an H200 with L2::128B, and
// 11.9 us without. A load of 8 bytes lies along N, and another block reads the rest of the 128 bytes: L2::128B made that case
// slower, 12.8 us instead of 11.7 (bench/results/h200-tried.md). The loads are not .nc: .nc requires memory that nothing writes
// while the kernel runs, and a kernel with PDL may start before the kernel that wrote its operands has ended.
template <int N>
__device__ __forceinline__ void load_words(uint32_t (&x)[N], const void* from) {
  if constexpr (N == 2) {
    asm volatile("ld.global.L1::no_allocate.v2.b32 {%0, %1}, [%2];" : "=r"(x[0]), "=r"(x[1]) : "l"(from));
  } else {
#pragma unroll
    for (int i = 0; i < N; i += 4)
      asm volatile("ld.global.L1::no_allocate.L2::128B.v4.b32 {%0, %1, %2, %3}, [%4];"
                   : "=r"(x[i]), "=r"(x[i + 1]), "=r"(x[i + 2]), "=r"(x[i + 3])
                   : "l"(static_cast<const char*>(from) + i * 4));
  }
}

__device__ __forceinline__ void load_word(uint32_t& to, const void* from) {
  asm volatile("ld.global.b32 %0, [%1];" : "=r"(to) : "l"(from));
}

// N consecutive words, of two 16-bit elements or one fp32 element, at an address that is a multiple of WIDTH bytes: 16, 8, 4 or 2.
// load() reads the words, or the aligned words that they lie in. word() shifts them into place, so that many loads can be under way
// before the first word(). Narrow loads stay in L1, where the next ones find the rest of their sectors.
template <int N, int WIDTH>
struct Words {
  uint32_t x[N + (WIDTH == 2)];

  // `step`: between the words of fp32, with WIDTH 4.
  __device__ __forceinline__ void load(const void* from, int step = 1) {
    if constexpr (WIDTH == 2) {
      const uint32_t* const first = reinterpret_cast<const uint32_t*>(reinterpret_cast<uintptr_t>(from) / 4 * 4);
#pragma unroll
      for (int i = 0; i < N; ++i) load_word(x[i], first + i);
      x[N] = 0;
      if (first != from) load_half(x[N], first + N);  // its other half may lie beyond the matrix
    } else if constexpr (WIDTH == 4) {
#pragma unroll
      for (int i = 0; i < N; ++i) load_word(x[i], static_cast<const uint32_t*>(from) + i * step);
    } else if constexpr (WIDTH == 8) {
#pragma unroll
      for (int i = 0; i < N; i += 2)
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
                     : "=r"(x[i]), "=r"(x[i + 1])
                     : "l"(static_cast<const char*>(from) + i * 4));
    } else {
      load_words(x, from);
    }
  }
  // Loads the words element by element. Elements are `stride` apart; those from `count` on become zeros.
  template <typename T>
  __device__ __forceinline__ void load_elements(const T* from, int64_t stride, int count) {
    using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint16_t>;
    const auto bits = [&](int e) { return e < count ? uint32_t(reinterpret_cast<const Bits&>(from[e * stride])) : 0; };
#pragma unroll
    for (int i = 0; i < N; ++i) x[i] = sizeof(T) == 4 ? bits(i) : bits(2 * i) | bits(2 * i + 1) << 16;
  }
  // `odd`: load()'s address was an odd multiple of 2.
  __device__ __forceinline__ uint32_t word(int i, bool odd) const {
    if constexpr (WIDTH == 2) return __funnelshift_r(x[i], x[i + 1], odd ? 16 : 0);
    else return x[i];
  }

 private:
  static __device__ __forceinline__ void load_half(uint32_t& to, const uint32_t* from) {
    uint16_t half;
    asm volatile("ld.global.b16 %0, [%1];" : "=h"(half) : "l"(from));
    to = half;
  }
};

// L2 prefetches a block's first two K tiles of B while the kernel before ends. 1x4096x4096 took 11.6 us on an H200 with two K tiles,
// 12.2 us with none, 12.6 us with six, and 15.5 us with all 16 (mma_skinny).
template <int BLK_N, int BLK_K, int THREADS, bool B_K_CONTIGUOUS, typename T>
__device__ __forceinline__ void prefetch_first_k_tiles(const T* data, const MatrixView& b, int64_t n, int64_t k,
                                                       const WorkTile& work) {
  const int64_t n0 = int64_t(work.tile.n) * BLK_N, k0 = int64_t(work.first) * BLK_K;
  const int columns = int(min(int64_t(BLK_N), n - n0)), length = int(min(int64_t(min(work.count, 2)) * BLK_K, k - k0));
  const auto prefetch = [&](const T* first, int64_t leading, int rows, int elements) {
    prefetch_lines(first, leading * sizeof(T), rows, elements * int64_t(sizeof(T)), threadIdx.x, THREADS);
  };
  if constexpr (B_K_CONTIGUOUS) prefetch(data + n0 * b.col + k0, b.col, columns, length);
  else prefetch(data + k0 * b.row + n0, b.row, length, columns);
}

__device__ __forceinline__ bool is_odd(const void* address) { return reinterpret_cast<uintptr_t>(address) % 4 != 0; }

}  // namespace tc
