// Moving tiles from global to shared memory.
#pragma once

#include <cstdint>

#include "../ptx/cp_async.cuh"

namespace tc {

// W consecutive elements, moved in as few instructions as 16-byte accesses allow.
template <typename T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vec {
  T x[W];
};

// How THREADS threads share LINES contiguous lines of EXTENT elements: 16-byte pieces, a thread's own STEP lines apart.
template <int LINES, int EXTENT, int THREADS, typename T>
struct ThreadCopy {
  static constexpr int W = 16 / sizeof(T), PER_LINE = EXTENT / W, STEP = THREADS / PER_LINE, COUNT = LINES / STEP;
  static_assert(THREADS % PER_LINE == 0 && LINES % STEP == 0);
  const int line, col;  // of the thread's first piece
  __device__ explicit ThreadCopy(int thread) : line(thread / PER_LINE), col(thread % PER_LINE * W) {}
  // How many elements of piece i exist; negative past the end of a line.
  __device__ int left(int i, int lines, int extent) const { return line + i * STEP < lines ? extent - col : 0; }
};

// 16 bytes from `source`, of which `left` elements exist, with zeros after them. `aligned`: source is a multiple of 16.
// Reads use the read-only path: no operand aliases what a kernel writes.
template <typename T>
__device__ __forceinline__ uint4 load_vector(const T* source, int left, bool aligned) {
  constexpr int W = 16 / sizeof(T);
  if (aligned && left >= W) return __ldg(reinterpret_cast<const uint4*>(source));
  Vec<T, W> v;
#pragma unroll
  for (int e = 0; e < W; ++e) v.x[e] = e < left ? __ldg(source + e) : T{};
  return *reinterpret_cast<const uint4*>(&v);
}

// The 16 bytes that begin `shift` bytes into the 32 of lo and hi, an even number below 16.
__device__ __forceinline__ uint4 funnel(const uint4& lo, const uint4& hi, int shift) {
  const uint32_t w[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  uint32_t by_8[6], by_4[5], x[4];  // selections, because registers have no index
#pragma unroll
  for (int i = 0; i < 6; ++i) by_8[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) by_4[i] = shift & 4 ? by_8[i + 1] : by_8[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __funnelshift_r(by_4[i], by_4[i + 1], shift % 4 * 8);
  return make_uint4(x[0], x[1], x[2], x[3]);
}

// The first `count` bytes of x, an even number, and zeros.
__device__ __forceinline__ uint4 cut(uint4 x, int count) {
  const auto word = [&](uint32_t w, int left) { return left >= 4 ? w : left > 0 ? w & 0xffff : 0; };
  return make_uint4(word(x.x, count), word(x.y, count - 4), word(x.z, count - 8), word(x.w, count - 12));
}

// 16 bytes of a matrix from any even address: the one or two aligned words that they touch, put together only once they are
// asked for, so that many can be under way. What they hold of its neighbours, which another block may be writing where C is D, is
// shifted out. A word may reach past its line but not past the matrix, where nothing need be mapped: chunks at the matrix's ends
// are read by element.
struct ShiftedVector {
  uint4 lo, hi;
  int count;  // bytes that exist, the others become zeros
  bool by_element;

  // The matrix lies from `begin` to `end`.
  __device__ void fetch(uintptr_t from, int count, uintptr_t begin, uintptr_t end) {
    this->count = count;
    const int words = count == 0 ? 0 : from % 16 + count > 16 ? 2 : 1;
    by_element = from / 16 * 16 < begin || from / 16 * 16 + words * 16 > end;
    const uint4* const word = reinterpret_cast<const uint4*>(from / 16 * 16);
    lo = hi = make_uint4(0, 0, 0, 0);
    if (words > 0 && !by_element) lo = word[0];
    if (words > 1 && !by_element) hi = word[1];
  }
  // `from` as given to fetch: kept by the caller, who can work it out, instead of in registers.
  __device__ uint4 value(uintptr_t from) const {
    if (!by_element) return cut(funnel(lo, hi, int(from % 16)), count);
    Vec<uint16_t, 8> v;
#pragma unroll
    for (int e = 0; e < 8; ++e) v.x[e] = e * 2 < count ? reinterpret_cast<const uint16_t*>(from)[e] : 0;
    return *reinterpret_cast<const uint4*>(&v);
  }
};

// A thread's share of a tile on its way through registers, so that work can come between the loads and the stores.
// Lines and elements beyond `lines` and `extent` become zeros. `wide`: every line starts at a 16-byte boundary.
template <int LINES, int EXTENT, int PITCH, int THREADS, typename T>
struct TileRegisters {
  using Copy = ThreadCopy<LINES, EXTENT, THREADS, T>;
  uint4 vector[Copy::COUNT];

  __device__ __forceinline__ void fetch(const T* gmem, int64_t leading, int lines, int extent, bool wide,
                                        int thread = threadIdx.x) {
    const Copy copy(thread);
    const T* source = gmem + copy.line * leading + copy.col;
    if (wide && lines >= LINES && extent >= EXTENT) {
#pragma unroll
      for (int i = 0; i < Copy::COUNT; ++i)
        vector[i] = __ldg(reinterpret_cast<const uint4*>(source + i * Copy::STEP * leading));
    } else {
#pragma unroll
      for (int i = 0; i < Copy::COUNT; ++i)
        vector[i] = load_vector(source + i * Copy::STEP * leading, copy.left(i, lines, extent), wide);
    }
  }

  __device__ __forceinline__ void store(T* smem, int thread = threadIdx.x) const {
    static_assert(PITCH % Copy::W == 0);
    const Copy copy(thread);
    T* target = smem + copy.line * PITCH + copy.col;
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i) *reinterpret_cast<uint4*>(target + i * Copy::STEP * PITCH) = vector[i];
  }
};

// Copies a tile into shared memory, (LINES, PITCH). Whole tiles issue all of a thread's loads before its first store;
// tiles that are cut off or misaligned go piece by piece, which keeps the registers of that rarer path out of the main
// loop.
template <int LINES, int EXTENT, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void copy_tile(T* smem, const T* gmem, int64_t leading, int lines, int extent, bool wide,
                                          int thread = threadIdx.x) {
  using Copy = ThreadCopy<LINES, EXTENT, THREADS, T>;
  if (wide && lines >= LINES && extent >= EXTENT) {
    TileRegisters<LINES, EXTENT, PITCH, THREADS, T> registers;
    registers.fetch(gmem, leading, LINES, EXTENT, true, thread);
    registers.store(smem, thread);
    return;
  }
  const Copy copy(thread);
  const T* source = gmem + copy.line * leading + copy.col;
  T* target = smem + copy.line * PITCH + copy.col;
#pragma unroll 1
  for (int i = 0; i < Copy::COUNT; ++i, source += Copy::STEP * leading, target += Copy::STEP * PITCH)
    *reinterpret_cast<uint4*>(target) = load_vector(source, copy.left(i, lines, extent), wide);
}

// The same by cp.async: the copy counts as done once the caller has waited for its group. Misaligned operands, which
// cp.async cannot read, are stored before this returns.
template <int LINES, int EXTENT, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void copy_tile_async(T* smem, const T* gmem, int64_t leading, int lines, int extent,
                                                bool wide) {
  using Copy = ThreadCopy<LINES, EXTENT, THREADS, T>;
  const Copy copy(threadIdx.x);
  const T* source = gmem + copy.line * leading + copy.col;
  T* target = smem + copy.line * PITCH + copy.col;
  if (!wide) {
    TileRegisters<LINES, EXTENT, PITCH, THREADS, T> registers;
    registers.fetch(gmem, leading, lines, extent, false);
    registers.store(smem);
  } else if (lines >= LINES && extent >= EXTENT) {
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i)
      cp_async_16(smem_address(target + i * Copy::STEP * PITCH), source + i * Copy::STEP * leading);
  } else {
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i) {
      const int left = copy.left(i, lines, extent);
      const T* const from = source + i * Copy::STEP * leading;
      T* const to = target + i * Copy::STEP * PITCH;
      if (0 < left && left < Copy::W) *reinterpret_cast<uint4*>(to) = load_vector(from, left, true);
      else cp_async_16(smem_address(to), left > 0 ? from : gmem, left > 0);
    }
  }
}

// Asks L2 for `lines` lines of `bytes` bytes, `pitch` bytes apart: every `threads`-th of their 128-byte pieces from `thread` on.
__device__ __forceinline__ void prefetch_lines(const void* first, int64_t pitch, int lines, int64_t bytes, int thread,
                                               int threads) {
  constexpr int PIECE = 128;  // bytes of a cache line
  const int per_line = int((bytes + PIECE - 1) / PIECE);
  for (int i = thread; i < lines * per_line; i += threads)
    asm volatile("prefetch.global.L2 [%0];" ::"l"(static_cast<const char*>(first) + i / per_line * pitch +
                                                  i % per_line * PIECE));
}

}  // namespace tc
