// Rows of an operand that begin at any element, by bulk copies (sm_90).
#pragma once

#include "../layout/swizzle.h"
#include "../ptx/mbarrier.cuh"
#include "../ptx/tma.cuh"
#include "copy.cuh"

namespace tc {

// A tile of rows of A, or of columns of B, with K contiguous. Shared memory holds the rows and what lies between them, as global memory
// does. Bulk copies take whole 16-byte vectors. The first vector may begin before the operand, in the 16 bytes that hold its first
// element. Nothing is read past the operand's last element.
struct StreamedRows {
  const char* first;  // the first row
  const char* end;    // of the operand
  int row;            // bytes from a row to the next
  int bytes;          // of a row
  int rows;           // that exist

  // Describes rows row0 to row0 + count - 1 of a matrix of `outer` rows and K columns, as far as they exist.
  __device__ StreamedRows(const void* data, int64_t leading, int size, int64_t row0, int64_t outer, int64_t k, int count)
      : row(int(leading) * size), bytes(int(k) * size), rows(int(min(int64_t(count), outer - row0))) {
    first = static_cast<const char*>(data) + row0 * leading * size;
    end = static_cast<const char*>(data) + (outer - 1) * leading * size + bytes;
  }

  __device__ int begin() const { return int(reinterpret_cast<uintptr_t>(first) % kChunk); }
  // The bytes from the tile's first vector to row r.
  __device__ uint32_t offset(int r) const { return begin() + r * row; }

  // Starts the tile's copies. All lanes of a warp call it. `full` counts one arrival, and the bytes.
  __device__ __forceinline__ void load(uint32_t smem, uint32_t full, int lane) const {
    // Lanes share a large tile: their copies follow each other every 54 cycles, those of one lane every 73 (h200-tried.md).
    constexpr int PIECE = 4096;
    const char* const from = first - begin();
    const int size = begin() + (rows - 1) * row + bytes;
    int whole = (size + kChunk - 1) / kChunk * kChunk;
    if (from + whole > end) {  // the operand's end cuts the last vector
      whole = size / kChunk * kChunk;
      if (lane < (size - whole) / 2)
        st_shared_2(smem + whole + lane * 2, reinterpret_cast<const uint16_t*>(from + whole)[lane]);
      fence_proxy_async();  // the slot's next rows come by bulk copies
      __syncwarp();
    }
    if (lane == 0) mbarrier_arrive_expect(full, whole);
    __syncwarp();
    for (int at = lane * PIECE; at < whole; at += 32 * PIECE) bulk_load(smem + at, from + at, min(PIECE, whole - at), full);
  }
};

// A row in shared memory, as a lane reads it: words of 4 bytes, of which the first is word `first` of the row. ODD: the row may begin at
// an odd multiple of 2 bytes.
template <bool ODD>
struct RowWords {
  uint32_t at;  // the lane's first word
  bool odd;

  RowWords() = default;
  __device__ RowWords(uint32_t row, int first) : at((row & ~3) + first * 4), odd(row & 2) {}
  // Reads the word that lies `w` words behind the first.
  __device__ __forceinline__ uint32_t word(int w) const {
    const uint32_t x = ld_shared_4(at + w * 4);
    return ODD ? __funnelshift_r(x, ld_shared_4(at + w * 4 + 4), odd ? 16 : 0) : x;
  }
};

// Masks a word at the end of a row. From the word on, `left` bytes of the row exist.
__device__ __forceinline__ uint32_t row_mask(int left) { return left >= 4 ? 0xffffffff : left == 2 ? 0xffff : 0; }

}  // namespace tc
