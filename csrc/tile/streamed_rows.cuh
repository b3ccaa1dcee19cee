// Rows of an operand, which begin anywhere, by bulk copies (sm_90).
#pragma once

#include "../gemm/desc.h"
#include "../ptx/bulk.cuh"
#include "../ptx/mbarrier.cuh"
#include "copy.cuh"

namespace tc {

constexpr int kStepBytes = 64;  // of K, a step: two mma.sync

// A tile: rows of A or columns of B, K contiguous, with what lies between them. In shared memory they lie as in global memory. A bulk
// copy takes whole 16-byte words. The first may begin before the operand, in the 16 bytes that hold its first element, but nothing is
// read past the operand's last element.
struct StreamedRows {
  const char* first;  // the first row
  const char* end;    // of the operand
  int row;            // bytes from a row to the next
  int bytes;          // of a row
  int rows;           // that exist

  // `count` rows of x, (outer, K), or as many as there are, from row0 on.
  __device__ StreamedRows(const void* data, int64_t leading, int size, int64_t row0, int64_t outer, int64_t k, int count)
      : row(int(leading) * size), bytes(int(k) * size), rows(int(min(int64_t(count), outer - row0))) {
    first = static_cast<const char*>(data) + row0 * leading * size;
    end = static_cast<const char*>(data) + (outer - 1) * leading * size + bytes;
  }

  __device__ int begin() const { return int(reinterpret_cast<uintptr_t>(first) % kChunk); }
  // Where row r lies in shared memory.
  __device__ uint32_t offset(int r) const { return begin() + r * row; }

  // By all lanes of a warp. `full` counts an arrival and the bytes.
  __device__ __forceinline__ void load(uint32_t smem, uint32_t full, int lane) const {
    constexpr int PIECE = 4096;  // of a copy. A copy of 18816 bytes failed (H200).
    const char* const from = first - begin();
    const int size = begin() + (rows - 1) * row + bytes;
    int words = (size + kChunk - 1) / kChunk * kChunk;
    if (from + words > end) {  // the operand's end may cut the last word
      words = size / kChunk * kChunk;
      if (lane < (size - words) / 2)
        st_shared_2(smem + words + lane * 2, reinterpret_cast<const uint16_t*>(from + words)[lane]);
      __syncwarp();
    }
    if (lane == 0) mbarrier_arrive_expect(full, words);
    __syncwarp();
    for (int at = lane * PIECE; at < words; at += 32 * PIECE) bulk_load(smem + at, from + at, min(PIECE, words - at), full);
  }
};

// A lane's words of a step of a row in shared memory: words q, q + 4, q + 8 and q + 12. ODD: the row may begin at an odd multiple of
// 2 bytes.
template <bool ODD>
struct RowWords {
  uint32_t at;  // the lane's first word
  bool odd;

  RowWords() = default;
  __device__ RowWords(uint32_t row, int first) : at((row & ~3) + first * 4), odd(row & 2) {}
  // Word `w` after the lane's first one.
  __device__ __forceinline__ uint32_t word(int w) const {
    const uint32_t x = ld_shared_4(at + w * 4);
    return ODD ? __funnelshift_r(x, ld_shared_4(at + w * 4 + 4), odd ? 16 : 0) : x;
  }
};

// The part of a word that lies in a row, of which `left` bytes exist from the word's first on.
__device__ __forceinline__ uint32_t row_mask(int left) { return left >= 4 ? 0xffffffff : left == 2 ? 0xffff : 0; }

}  // namespace tc
