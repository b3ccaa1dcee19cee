// The tiles of an operand whose rows begin at any element, by cp.async and a shift in shared memory.
#pragma once

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "copy.cuh"

namespace tc {

// WARPS warps bring a tile of B, (BLK_N, 64) of 16-bit elements, to where wgmma reads it. Each has some of the tile's rows. A row is a
// column of B if K is contiguous, and BLK_N elements with the same k otherwise.
//
// copy() starts cp.async of the aligned 16-byte words that hold a row, AHEAD tiles early. store() shifts the row's vectors into place, and
// zeros what lies beyond the matrix. The first word may begin before the operand, in the 16 bytes that hold its first element. Nothing
// is read past the operand's last element. Strides and steps are bytes.
template <typename T, int BLK_N, bool K_CONTIGUOUS, int WARPS>
struct ShiftedCopy {
  static_assert(sizeof(T) == 2);
  static constexpr int BLK_K = 64, AHEAD = 3;
  static constexpr int ROWS = (K_CONTIGUOUS ? BLK_N : BLK_K) / WARPS, VECTORS = (K_CONTIGUOUS ? BLK_K : BLK_N) / 8;  // of a row
  static constexpr int WORDS = VECTORS + 1, COPIES = (ROWS * WORDS + 31) / 32, ROWS_AT_ONCE = 32 / VECTORS;
  static constexpr int TILE_BYTES = ROWS * WORDS * kChunk, BYTES = (AHEAD + 1) * TILE_BYTES;
  static_assert(ROWS % ROWS_AT_ONCE == 0 && BYTES % 16 == 0);

  const char* next[COPIES];  // the words of the next K tile that this lane copies
  const char* end;           // of the operand
  int64_t step;              // to the next K tile
  unsigned first, leading;   // the low bits of the address of the warp's first row, and of the distance of two rows
  int outer_left;            // columns of B from the work tile's first to the matrix's edge
  int64_t k_left;            // from the work tile's first k
  uint32_t words;            // (AHEAD + 1, ROWS, WORDS) in shared memory: the warp's words of the K tiles under way
  int warp, lane;

  __device__ __forceinline__ ShiftedCopy(const MatrixView& b, int n0, int64_t n, int64_t k0, int64_t k, uint32_t words,
                                         int warp, int lane)
      : outer_left(int(min(int64_t(BLK_N), n - n0))), k_left(k - k0), words(words), warp(warp), lane(lane) {
    const int64_t pitch = (K_CONTIGUOUS ? b.col : b.row) * 2;
    const char* const data = static_cast<const char*>(b.data);
    const char* const row0 = data + ((K_CONTIGUOUS ? n0 : k0) + warp * ROWS) * pitch + (K_CONTIGUOUS ? k0 : n0) * 2;
#pragma unroll
    for (int i = 0; i < COPIES; ++i)
      next[i] =
          row0 + row_of(i) * pitch - (reinterpret_cast<uintptr_t>(row0) + row_of(i) * pitch) % kChunk + word_of(i) * kChunk;
    end = data + ((K_CONTIGUOUS ? n : k) - 1) * pitch + (K_CONTIGUOUS ? k : n) * 2;
    step = K_CONTIGUOUS ? BLK_K * 2 : BLK_K * pitch;
    first = unsigned(reinterpret_cast<uintptr_t>(row0)), leading = unsigned(pitch);
  }

  // This lane's copy i takes word word_of(i) of row row_of(i).
  __device__ int row_of(int i) const { return (lane + i * 32) / WORDS; }
  __device__ int word_of(int i) const { return (lane + i * 32) % WORDS; }
  // How much of K, at most 64, K tile t has.
  __device__ int k_of(int t) const { return int(min(k_left - int64_t(t) * BLK_K, int64_t(BLK_K))); }
  // Whether K tile t lies inside B and all of its words do: another vector of each row, or another row, follows it.
  __device__ bool whole(int t) const {
    return outer_left == BLK_N && k_left - int64_t(t) * BLK_K >= BLK_K + (K_CONTIGUOUS ? 8 : 1);
  }
  __device__ uint32_t words_of(int t) const { return words + t % (AHEAD + 1) * TILE_BYTES; }

  // Starts the copies of K tile t if t < count, and closes their group. Calls must have t = 0, 1, 2 and so on.
  __device__ __forceinline__ void copy(int t, int count) {
    if (t < count) {
      const uint32_t to = words_of(t) + lane * kChunk;
      if (whole(t)) {
#pragma unroll
        for (int i = 0; i < COPIES; ++i) cp_async_16_if(lane + i * 32 < ROWS * WORDS, to + i * 32 * kChunk, next[i]);
      } else {
        copy_cut(to, (K_CONTIGUOUS ? outer_left : k_of(t)) - warp * ROWS);
      }
#pragma unroll
      for (int i = 0; i < COPIES; ++i) next[i] += step;
    }
    cp_async_commit();
  }

  // Waits for the copies of K tile t and writes the tile to `smem`.
  __device__ __forceinline__ void store(int t, uint32_t smem) const {
    constexpr int COUNT = ROWS / ROWS_AT_ONCE;  // vectors of this lane
    cp_async_wait<AHEAD>();
    __syncwarp();
    const int v = lane % VECTORS, row0 = lane / VECTORS;
    const uint32_t from = words_of(t) + (row0 * WORDS + v) * kChunk;
    uint4 x[COUNT], hi[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      x[i] = load(from + i * ROWS_AT_ONCE * WORDS * kChunk);
      hi[i] = load(from + (i * ROWS_AT_ONCE * WORDS + 1) * kChunk);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) x[i] = funnel(x[i], hi[i], int((first + (row0 + i * ROWS_AT_ONCE) * leading) % kChunk));
    if (!whole(t)) {
      const int left = k_of(t), rows = K_CONTIGUOUS ? outer_left : left, cols = K_CONTIGUOUS ? left : outer_left;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) x[i] = cut(x[i], warp * ROWS + row0 + i * ROWS_AT_ONCE < rows ? (cols - v * 8) * 2 : 0);
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int row = warp * ROWS + row0 + i * ROWS_AT_ONCE;
      st_shared_16(smem + v / 8 * (64 * 128) + row * 128 + (v % 8 ^ row % 8) * kChunk, x[i]);
    }
  }

 private:
  static __device__ __forceinline__ uint4 load(uint32_t smem) {
    const float4 x = ld_shared_16(smem);
    return make_uint4(__float_as_uint(x.x), __float_as_uint(x.y), __float_as_uint(x.z), __float_as_uint(x.w));
  }
  // Starts the copies of a K tile at B's edges. The warp has `rows` rows of it.
  __device__ __forceinline__ void copy_cut(uint32_t to, int rows) const {
#pragma unroll
    for (int i = 0; i < COPIES; ++i) {
      const char* const from = next[i];
      if (row_of(i) >= min(ROWS, rows)) continue;
      if (from + kChunk <= end) {
        cp_async_16(to + i * 32 * kChunk, from);
      } else {  // the operand's end cuts the word
        Vec<uint16_t, 8> v;
#pragma unroll
        for (int e = 0; e < 8; ++e) v.x[e] = from + e * 2 < end ? reinterpret_cast<const uint16_t*>(from)[e] : 0;
        st_shared_16(to + i * 32 * kChunk, *reinterpret_cast<const uint4*>(&v));
      }
    }
  }
};

}  // namespace tc
