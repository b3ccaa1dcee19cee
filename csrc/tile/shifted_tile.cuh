// An operand's tile in XOR-swizzled shared memory, copied through registers from rows that begin at any element.
#pragma once

#include "swizzled_tile.cuh"

namespace tc {

// A or B, (outer, K), of 16-bit elements. SwizzledTile or wgmma reads the tile. A row is a row of the tile: one row or column of the
// operand. fetch() loads the one or two aligned 16-byte words that hold a vector, and store() shifts the vector into place
// and zeros what lies beyond the matrix. A word may begin before the operand, in the 16 bytes that hold its first element,
// but nothing is read past the operand's last element.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int THREADS>
struct ShiftedTile {
  using Tile = SwizzledTile<T, MN, BLK_K, K_CONTIGUOUS, THREADS>;
  static_assert(sizeof(T) == 2);

  const char *next, *end;                  // this thread's first vector of the next K tile; the end of the operand
  int64_t leading;                         // bytes
  int outer_left;                          // rows of A or columns of B from the tile's first to the matrix's edge
  uint4 lo[Tile::COUNT], hi[Tile::COUNT];  // what fetch() loaded

  __device__ __forceinline__ ShiftedTile(const void* data, int64_t leading_elements, int64_t outer0, int64_t outer, int64_t k0,
                                         int64_t k)
      : leading(leading_elements * 2), outer_left(int(min(int64_t(MN), outer - outer0))) {
    const char* const first = static_cast<const char*>(data);
    next = first + ((K_CONTIGUOUS ? outer0 : k0) + Tile::row()) * leading + ((K_CONTIGUOUS ? k0 : outer0) + Tile::col()) * 2;
    // Hidden from the compiler, which would keep the address and its distance from the operand's first element.
    asm volatile("" : "+l"(next));
    end = first + ((K_CONTIGUOUS ? outer : k) - 1) * leading + (K_CONTIGUOUS ? k : outer) * 2;
  }

  // How many bytes of vector i exist. `k_left` elements of K remain, or as many as a K tile has.
  __device__ __forceinline__ int exist(int i, int k_left) const {
    const int rows = K_CONTIGUOUS ? outer_left : k_left, cols = K_CONTIGUOUS ? k_left : outer_left;
    return Tile::row() + i * Tile::STEP < rows ? max(0, min(kChunk, (cols - Tile::col()) * 2)) : 0;
  }
  __device__ __forceinline__ const char* step() const { return next + (K_CONTIGUOUS ? BLK_K * 2 : BLK_K * leading); }

  // Prefetches the vectors of the first K tiles into L2, and steps past none. `k` elements of K remain.
  __device__ __forceinline__ void prefetch(int64_t k) const {
    constexpr int MOST = 128;  // elements of K
    const char* at = next;
#pragma unroll 1
    for (int left = int(min(k, int64_t(MOST))); left > 0; left -= BLK_K, at += step() - next)
#pragma unroll
      for (int i = 0; i < Tile::COUNT; ++i)
        if (exist(i, left) > 0) prefetch_l2(at + i * Tile::STEP * leading);
  }

  __device__ __forceinline__ void fetch(int k_left) {
#pragma unroll
    for (int i = 0; i < Tile::COUNT; ++i) {
      const char* const from = next + i * Tile::STEP * leading;
      const int shift = int(reinterpret_cast<uintptr_t>(from) % kChunk);
      const int bytes = exist(i, k_left);
      lo[i] = hi[i] = make_uint4(0, 0, 0, 0);
      const char* const word = from - shift;
      const int left = int(min(end - word, int64_t(2 * kChunk)));
      if (bytes > 0) load_word(lo[i], word, left);
      if (bytes > 0 && shift + bytes > kChunk) load_word(hi[i], word + kChunk, left - kChunk);
    }
  }
  __device__ __forceinline__ void store(uint32_t smem, int k_left) {
#pragma unroll
    for (int i = 0; i < Tile::COUNT; ++i) {
      const int shift = int(reinterpret_cast<uintptr_t>(next + i * Tile::STEP * leading) % kChunk);
      st_shared_16(smem + Tile::target() + i * Tile::STEP * Tile::COLS * 2, cut(funnel(lo[i], hi[i], shift), exist(i, k_left)));
    }
    next = step();
  }

 private:
  // Loads an aligned 16-byte word, of which `left` bytes exist. An operand's last word may be cut off. It is loaded in parts,
  // none of which waits for another. The compiler no longer knows that the address is global, so that the instructions say
  // so.
  static __device__ __forceinline__ void load_word(uint4& to, const char* word, int left) {
    if (left >= kChunk) {
      asm volatile("ld.global.v4.b32 {%0, %1, %2, %3}, [%4];" : "=r"(to.x), "=r"(to.y), "=r"(to.z), "=r"(to.w) : "l"(word));
    } else {
      const auto part = [&](uint32_t& x, int i) {
        const char* const at = word + i * 4;
        uint16_t half;
        if (left >= i * 4 + 4) asm volatile("ld.global.b32 %0, [%1];" : "=r"(x) : "l"(at));
        else if (left > i * 4) {
          asm volatile("ld.global.b16 %0, [%1];" : "=h"(half) : "l"(at));
          x = half;
        }
      };
      part(to.x, 0), part(to.y, 1), part(to.z, 2), part(to.w, 3);
    }
  }
};

}  // namespace tc
