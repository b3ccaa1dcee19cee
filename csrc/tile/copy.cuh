// Moving tiles from global to shared memory.
#pragma once

#include <cstdint>

namespace tc {

// W consecutive elements, moved in as few instructions as 16-byte accesses allow.
template <typename T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vec {
  T x[W];
};

// Copies LINES contiguous lines of EXTENT elements into shared memory, (LINES, PITCH), by a block of THREADS, 16 bytes
// a thread at a time. Lines and elements beyond `lines` and `extent` become zeros. `wide`: every line starts at a
// 16-byte boundary. Whole tiles issue all of a thread's loads before its first store; tiles that are cut off or
// misaligned go piece by piece, which keeps the registers of that rarer path out of the main loop.
// Reads use the read-only path: no operand aliases what a kernel writes.
template <int LINES, int EXTENT, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void copy_tile(T* smem, const T* gmem, int64_t leading, int lines, int extent, bool wide) {
  constexpr int W = 16 / sizeof(T), PER_LINE = EXTENT / W, STEP = THREADS / PER_LINE, PIECES = LINES / STEP;
  static_assert(THREADS % PER_LINE == 0 && LINES % STEP == 0 && PITCH % W == 0);
  const int line = threadIdx.x / PER_LINE, col = threadIdx.x % PER_LINE * W;  // a thread's pieces lie STEP lines apart
  const T* source = gmem + line * leading + col;
  T* target = smem + line * PITCH + col;
  if (wide && lines >= LINES && extent >= EXTENT) {
    uint4 piece[PIECES];
#pragma unroll
    for (int i = 0; i < PIECES; ++i) piece[i] = __ldg(reinterpret_cast<const uint4*>(source + i * STEP * leading));
#pragma unroll
    for (int i = 0; i < PIECES; ++i) *reinterpret_cast<uint4*>(target + i * STEP * PITCH) = piece[i];
    return;
  }
#pragma unroll 1
  for (int i = 0; i < PIECES; ++i, source += STEP * leading, target += STEP * PITCH) {
    const int left = line + i * STEP < lines ? extent - col : 0;
    if (wide && left >= W) {
      *reinterpret_cast<uint4*>(target) = __ldg(reinterpret_cast<const uint4*>(source));
    } else {
      Vec<T, W> v;
#pragma unroll
      for (int e = 0; e < W; ++e) v.x[e] = e < left ? __ldg(source + e) : T{};
      *reinterpret_cast<Vec<T, W>*>(target) = v;
    }
  }
}

}  // namespace tc
