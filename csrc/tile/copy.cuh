// Copies of tiles from global to shared memory, through registers or by cp.async. The rows of a tile are contiguous in memory:
// they are rows of a row-major matrix, or columns of a column-major one.
#pragma once

#include <cstdint>

#include "../ptx/cp_async.cuh"

namespace tc {

// The block's product, hidden from the compiler until this point: addresses computed from it hold no registers before.
__device__ __forceinline__ int opaque_product() {
  int product = blockIdx.y;
  asm volatile("" : "+r"(product));
  return product;
}

// W consecutive elements. Their alignment lets a copy use the fewest accesses of at most 16 bytes.
template <typename T, int W>
struct alignas(sizeof(T) * W < 16 ? sizeof(T) * W : 16) Vec {
  T x[W];
};

// Stores N consecutive words, 1, 2 or 4, to an address that is aligned to all of them. From an assignment of a uint4 of sums the
// compiler makes four stores of 4 bytes: 200704x240x40 takes 62.9 us with them in mma_direct and 37.1 with this (H200).
template <int N>
__device__ __forceinline__ void store_words(void* to, const uint32_t* x) {
  if constexpr (N == 4)
    asm volatile("st.global.v4.b32 [%0], {%1, %2, %3, %4};" ::"l"(to), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3]) : "memory");
  else if constexpr (N == 2) asm volatile("st.global.v2.b32 [%0], {%1, %2};" ::"l"(to), "r"(x[0]), "r"(x[1]) : "memory");
  else asm volatile("st.global.b32 [%0], %1;" ::"l"(to), "r"(x[0]) : "memory");
}

// Stores a Vec or a uint4 in the fewest instructions.
template <typename V>
__device__ __forceinline__ void store_whole(void* to, const V& x) {
  if constexpr (sizeof(V) < 4) {
    *static_cast<V*>(to) = x;
  } else {
    constexpr int WORDS = sizeof(V) / 4, W = WORDS < 4 ? WORDS : 4;
    uint32_t words[WORDS];
    memcpy(words, &x, sizeof(V));
#pragma unroll
    for (int i = 0; i < WORDS; i += W) store_words<W>(static_cast<char*>(to) + i * 4, words + i);
  }
}

// Divides a tile of (ROWS, COLS) among THREADS threads, in 16-byte vectors. A thread's vectors lie STEP rows apart.
template <int ROWS, int COLS, int THREADS, typename T>
struct ThreadCopy {
  static constexpr int W = 16 / sizeof(T), PER_ROW = COLS / W, STEP = THREADS / PER_ROW, COUNT = ROWS / STEP;
  static_assert(THREADS % PER_ROW == 0 && ROWS % STEP == 0);
  const int row, col;  // of the thread's first vector
  __device__ explicit ThreadCopy(int thread) : row(thread / PER_ROW), col(thread % PER_ROW * W) {}
  // Elements of the row from vector i on: W or more if the vector is whole, 0 or less if it does not exist.
  __device__ int left(int i, int rows, int cols) const { return row + i * STEP < rows ? cols - col : 0; }
};

// Loads 16 bytes from `source`, of which `left` elements exist, and fills up with zeros. `aligned`: `source` is a multiple of 16. Loads
// take the read-only path, because no operand aliases what a kernel writes. A kernel with PDL must not call it, nor TileRegisters::fetch,
// copy_tile and copy_tile_async, which load likewise: see load_words.
template <typename T>
__device__ __forceinline__ uint4 load_vector(const T* source, int left, bool aligned) {
  constexpr int W = 16 / sizeof(T);
  if (aligned && left >= W) return __ldg(reinterpret_cast<const uint4*>(source));
  Vec<T, W> v;
#pragma unroll
  for (int e = 0; e < W; ++e) v.x[e] = e < left ? __ldg(source + e) : T{};
  return *reinterpret_cast<const uint4*>(&v);
}

// The 16 bytes that begin `shift` bytes into the 32 bytes of lo and hi. `shift` is even and below 16.
__device__ __forceinline__ uint4 funnel(const uint4& lo, const uint4& hi, int shift) {
  const uint32_t w[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  uint32_t by_8[6], by_4[5], x[4];  // selections: registers cannot be indexed at run time
#pragma unroll
  for (int i = 0; i < 6; ++i) by_8[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) by_4[i] = shift & 4 ? by_8[i + 1] : by_8[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __funnelshift_r(by_4[i], by_4[i + 1], shift % 4 * 8);
  return make_uint4(x[0], x[1], x[2], x[3]);
}

// Keeps the first `count` bytes of x, an even number, and zeros the rest.
__device__ __forceinline__ uint4 cut(uint4 x, int count) {
  const auto word = [&](uint32_t w, int left) { return left >= 4 ? w : left > 0 ? w & 0xffff : 0; };
  return make_uint4(word(x.x, count), word(x.y, count - 4), word(x.z, count - 8), word(x.w, count - 12));
}

// A vector of a matrix at any even address. fetch() loads the one or two aligned 16-byte words that hold the vector, and
// value() shifts it into place, so that many vectors can be under way before the first value(). The words also hold
// neighbouring elements, which another block may be writing where C is D; value() drops those. A word may reach past its row,
// but not past the matrix, where nothing need be mapped: vectors at the matrix's ends are read by element.
struct ShiftedVector {
  uint4 lo, hi;
  int count;  // bytes of the vector that exist; the others become zeros
  bool by_element;

  // The matrix occupies the addresses from `begin` to `end`.
  __device__ void fetch(uintptr_t from, int count, uintptr_t begin, uintptr_t end) {
    this->count = count;
    const int words = count == 0 ? 0 : from % 16 + count > 16 ? 2 : 1;
    by_element = from / 16 * 16 < begin || from / 16 * 16 + words * 16 > end;
    const uint4* const word = reinterpret_cast<const uint4*>(from / 16 * 16);
    lo = hi = make_uint4(0, 0, 0, 0);
    if (words > 0 && !by_element) lo = word[0];
    if (words > 1 && !by_element) hi = word[1];
  }
  // `from` is the address that fetch() had. The caller recomputes it, which takes no registers in between.
  __device__ uint4 value(uintptr_t from) const {
    if (!by_element) return cut(funnel(lo, hi, int(from % 16)), count);
    Vec<uint16_t, 8> v;
#pragma unroll
    for (int e = 0; e < 8; ++e) v.x[e] = e * 2 < count ? reinterpret_cast<const uint16_t*>(from)[e] : 0;
    return *reinterpret_cast<const uint4*>(&v);
  }
};

// A thread's vectors of a tile, held in registers so that other work can come between the loads and the stores. Elements beyond
// `rows` and `cols` become zeros. `aligned`: every row starts at a 16-byte boundary.
template <int ROWS, int COLS, int PITCH, int THREADS, typename T>
struct TileRegisters {
  using Copy = ThreadCopy<ROWS, COLS, THREADS, T>;
  uint4 vector[Copy::COUNT];

  __device__ __forceinline__ void fetch(const T* gmem, int64_t leading, int rows, int cols, bool aligned,
                                        int thread = threadIdx.x) {
    const Copy copy(thread);
    const T* source = gmem + copy.row * leading + copy.col;
    if (aligned && rows >= ROWS && cols >= COLS) {
#pragma unroll
      for (int i = 0; i < Copy::COUNT; ++i)
        vector[i] = __ldg(reinterpret_cast<const uint4*>(source + i * Copy::STEP * leading));
    } else {
#pragma unroll
      for (int i = 0; i < Copy::COUNT; ++i)
        vector[i] = load_vector(source + i * Copy::STEP * leading, copy.left(i, rows, cols), aligned);
    }
  }

  __device__ __forceinline__ void store(T* smem, int thread = threadIdx.x) const {
    static_assert(PITCH % Copy::W == 0);
    const Copy copy(thread);
    T* target = smem + copy.row * PITCH + copy.col;
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i) *reinterpret_cast<uint4*>(target + i * Copy::STEP * PITCH) = vector[i];
  }
};

// Copies a tile to shared memory, (ROWS, PITCH). If the tile is whole and aligned, a thread issues all of its loads before its
// first store. Other tiles are copied one vector at a time: this rarer path then takes no registers from the main loop.
template <int ROWS, int COLS, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void copy_tile(T* smem, const T* gmem, int64_t leading, int rows, int cols, bool aligned,
                                          int thread = threadIdx.x) {
  using Copy = ThreadCopy<ROWS, COLS, THREADS, T>;
  if (aligned && rows >= ROWS && cols >= COLS) {
    TileRegisters<ROWS, COLS, PITCH, THREADS, T> registers;
    registers.fetch(gmem, leading, ROWS, COLS, true, thread);
    registers.store(smem, thread);
    return;
  }
  const Copy copy(thread);
  const T* source = gmem + copy.row * leading + copy.col;
  T* target = smem + copy.row * PITCH + copy.col;
#pragma unroll 1
  for (int i = 0; i < Copy::COUNT; ++i, source += Copy::STEP * leading, target += Copy::STEP * PITCH)
    *reinterpret_cast<uint4*>(target) = load_vector(source, copy.left(i, rows, cols), aligned);
}

// Copies a tile by cp.async. The copy is complete once the caller has waited for its group. cp.async cannot read misaligned
// operands: they go through registers and are stored before this function returns.
template <int ROWS, int COLS, int PITCH, int THREADS, typename T>
__device__ __forceinline__ void copy_tile_async(T* smem, const T* gmem, int64_t leading, int rows, int cols, bool aligned) {
  using Copy = ThreadCopy<ROWS, COLS, THREADS, T>;
  const Copy copy(threadIdx.x);
  const T* source = gmem + copy.row * leading + copy.col;
  T* target = smem + copy.row * PITCH + copy.col;
  if (!aligned) {
    TileRegisters<ROWS, COLS, PITCH, THREADS, T> registers;
    registers.fetch(gmem, leading, rows, cols, false);
    registers.store(smem);
  } else if (rows >= ROWS && cols >= COLS) {
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i)
      cp_async_16(smem_address(target + i * Copy::STEP * PITCH), source + i * Copy::STEP * leading);
  } else {
#pragma unroll
    for (int i = 0; i < Copy::COUNT; ++i) {
      const int left = copy.left(i, rows, cols);
      const T* const from = source + i * Copy::STEP * leading;
      T* const to = target + i * Copy::STEP * PITCH;
      if (0 < left && left < Copy::W) *reinterpret_cast<uint4*>(to) = load_vector(from, left, true);
      else cp_async_16(smem_address(to), left > 0 ? from : gmem, left > 0);
    }
  }
}

// Bytes of A and B that fit L2 with room to spare: an A100 has 40 MB of L2, an H100 50 MB. Kernels that run in one wave prefetch
// operands up to this size.
constexpr int64_t kSmallOperands = 16 << 20;

__device__ __forceinline__ void prefetch_l2(const void* address) { asm volatile("prefetch.global.L2 [%0];" ::"l"(address)); }

// Prefetches into L2 the cache lines of `rows` rows of `bytes` bytes, `pitch` bytes apart. Thread `thread` takes every
// `threads`-th cache line.
__device__ __forceinline__ void prefetch_lines(const void* first, int64_t pitch, int rows, int64_t bytes, int thread,
                                               int threads) {
  constexpr int CACHE_LINE = 128;  // bytes
  const int per_row = int((bytes + CACHE_LINE - 1) / CACHE_LINE);
  for (int i = thread; i < rows * per_row; i += threads)
    prefetch_l2(static_cast<const char*>(first) + i / per_row * pitch + i % per_row * CACHE_LINE);
}

}  // namespace tc
