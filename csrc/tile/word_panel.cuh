// A panel of B in shared memory, in the order of the fragments of mma.sync.
#pragma once

#include "../ptx/mma.cuh"
#include "panel.cuh"
#include "streamed_rows.cuh"

namespace tc {

// Two mma.sync multiply a step, and lane q of a column needs its words q, q + 4, q + 8 and q + 12. The panel holds them in one vector of
// 16 bytes.
//
// Two mma.sync multiply 16 columns. The panel orders the columns so that lane q gets the sums of columns 4q to 4q + 3. TF32: the panel
// holds rounded words.
template <typename T, bool TF32>
struct WordPanel : Panel {
  // The bytes from a step's first word to word w of column `column`, which counts from the panel's first.
  static __device__ uint32_t word_offset(int column, int w) {
    const int place = column / 16 * 16 + column % 4 / 2 * 8 + column % 16 / 4 * 2 + column % 2;
    return offset(place, w % 4) + w / 4 * 4;
  }

  // Copies a tile of columns, which lies at `from`, to the panel's columns from column0 on. The lanes of a warp call it, and 16 of them
  // share a column.
  template <bool ODD>
  __device__ __forceinline__ void put(const StreamedRows& tile, uint32_t from, int column0, int lane) const {
    const int w = lane % 16;
#pragma unroll 1
    for (int r = lane / 16; r < tile.rows; r += 2) {
      const RowWords<ODD> row(from + tile.offset(r), w);
      uint32_t to = smem + word_offset(column0 + r, w);
#pragma unroll 4
      for (int step = 0; step < depth; ++step, to += columns * kStepBytes)
        st_shared_4(to, rounded(row.word(step * 16) & row_mask(tile.bytes - step * kStepBytes - w * 4)));
    }
  }

  // Copies columns of B from n0 on, of any strides, by element. Neighbouring threads take the words of a column if those follow each other
  // in memory, and columns otherwise. Zeros fill the panel beyond B's edges.
  template <int THREADS>
  __device__ __forceinline__ void load(const MatrixView& b, int64_t n0, int64_t n, int64_t k) const {
    constexpr int PER_WORD = 4 / sizeof(T);  // elements
    const bool along_k = b.row == 1;
    const int words = depth * 16, thread = threadIdx.x;
#pragma unroll 1
    for (int column = along_k ? thread / 32 : thread % 32; column < columns; column += along_k ? THREADS / 32 : 32) {
      const bool inside = n0 + column < n;
      const T* const first = static_cast<const T*>(b.data) + (inside ? n0 + column : 0) * b.col;
#pragma unroll 4
      for (int w = along_k ? thread % 32 : thread / 32; w < words; w += along_k ? 32 : THREADS / 32) {
        const T* const from = first + int64_t(w) * PER_WORD * b.row;
        const auto bits = [&](int e) -> uint32_t {
          if (!inside || w * PER_WORD + e >= k) return 0;
          if constexpr (sizeof(T) == 4) return *reinterpret_cast<const uint32_t*>(from);
          else return reinterpret_cast<const uint16_t&>(from[e * b.row]);
        };
        const uint32_t x = sizeof(T) == 4 ? bits(0) : bits(0) | bits(1) << 16;
        st_shared_4(smem + w / 16 * columns * kStepBytes + word_offset(column, w % 16), rounded(x));
      }
    }
  }

 private:
  static __device__ uint32_t rounded(uint32_t x) { return TF32 ? to_tf32(x) : x; }
};

}  // namespace tc
