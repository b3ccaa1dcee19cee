// Copies of C and D through registers, between memory and the boxes of a TmaEpilogue. A warp copies the rows whose sums it holds.
#pragma once

#include "../gemm/access.h"
#include "../layout/swizzle.h"
#include "../tile/copy.cuh"
#include "../tile/tma_operand.cuh"
#include "formula.cuh"

namespace tc {

constexpr int kBoxRows = 64;  // rows of a box of C or D: the M of one wgmma

// BUFFERS boxes of (64, 128 bytes) lie in shared memory. `i` numbers a box, and m and n are its first row and column in the matrix.
template <typename D, int BUFFERS>
struct BoxCopies {
  static constexpr int WIDTH = kBoxBytes / int(sizeof(D)), BOX_BYTES = kBoxRows * kBoxBytes, OWN_ROWS = kBoxRows / 4;
  static constexpr bool IS_16_BIT = sizeof(D) == 2;

  const GemmDesc& p;
  char* const boxes;
  const int thread;  // in the warpgroup

  __device__ int own_row() const { return thread / 32 * OWN_ROWS; }  // the first of the warp's rows in a box

  __device__ D* element(int i, int row, int col) const {
    constexpr int W = 16 / int(sizeof(D));
    return reinterpret_cast<D*>(boxes + i % BUFFERS * BOX_BYTES + box_offset(row, col / W)) + col % W;
  }

  // Copies box i of C by 16-byte vectors of the box, which may begin at any even address of C.
  __device__ __forceinline__ void copy_c_vectors(int i, int m, int n, const D* c) const {
    constexpr int BATCH = OWN_ROWS / 4;  // vectors of a lane, four rows apart
    const uintptr_t begin = reinterpret_cast<uintptr_t>(c), end = begin + ((p.m - 1) * p.c.row + p.n) * sizeof(D);
    const int first = own_row() + thread % 32 / 8;
    const int count = max(0, min(16, int(min(int64_t(WIDTH), p.n - n)) * int(sizeof(D)) - thread % 8 * 16));
    const auto from = [&](int r) { return begin + ((m + first + r * 4) * p.c.row + n) * sizeof(D) + thread % 8 * 16; };
    ShiftedVector vectors[BATCH];
#pragma unroll
    for (int r = 0; r < BATCH; ++r) vectors[r].fetch(from(r), m + first + r * 4 < p.m ? count : 0, begin, end);
#pragma unroll
    for (int r = 0; r < BATCH; ++r)
      *reinterpret_cast<uint4*>(boxes + i % BUFFERS * BOX_BYTES + box_offset(first + r * 4, thread % 8)) =
          vectors[r].value(from(r));
  }

  // Vector x of a row of the boxes that lie side by side from box i on.
  __device__ char* vector_at(int i, int row, int x) const {
    return boxes + (i + x / 8) % BUFFERS * BOX_BYTES + box_offset(row, x % 8);
  }

  // Copies D by 16-byte vectors from ACROSS boxes side by side. The aligned vectors of a row of D begin at any column, so each
  // is made of two vectors of the boxes. The elements before and after the aligned vectors go one by one.
  template <int ACROSS>
  __device__ __forceinline__ void copy_d_vectors(int i, int m, int n, D* to) const {
    constexpr int VECTORS = ACROSS * 8, LANES = ACROSS == 3 ? 32 : VECTORS, W = 16 / int(sizeof(D));  // LANES: of a row
    D* const d = to + m * p.d.row + n;
    const int rows = int(min(int64_t(kBoxRows), p.m - m)), cols = int(min(int64_t(ACROSS * WIDTH), p.n - n));
    const auto before = [](const D* row) { return int(-(reinterpret_cast<uintptr_t>(row) / sizeof(D)) % W); };
    const int lane = thread % 32, own = own_row(), end = min(own + OWN_ROWS, rows);
    const int x = lane % LANES, next = min(x + 1, VECTORS - 1);
#pragma unroll 2
    for (int row = own + lane / LANES; row < end; row += 32 / LANES) {
      D* const target = d + row * p.d.row;
      const int skipped = before(target), col = skipped + x * W;
      if (col + W > cols) continue;
      const uint4 lo = *reinterpret_cast<const uint4*>(vector_at(i, row, x)),
                  hi = *reinterpret_cast<const uint4*>(vector_at(i, row, next));
      store_whole(target + col, funnel(lo, hi, skipped * int(sizeof(D))));
    }
#pragma unroll 2
    for (int rest = lane; rest < OWN_ROWS * 2 * W; rest += 32) {
      const int row = own + rest / (2 * W), e = rest % W;
      if (row >= end) break;
      D* const target = d + row * p.d.row;
      const int skipped = before(target);
      const bool after = rest % (2 * W) >= W;
      const int col = after ? skipped + max(0, cols - skipped) / W * W + e : e;
      if (col < (after ? cols : min(skipped, cols)))
        target[col] = *reinterpret_cast<const D*>(vector_at(i, row, col / W) + col % W * sizeof(D));
    }
  }

  // Copies box i of C element by element. Consecutive lanes take consecutive columns. All loads of a batch are issued before
  // the first use. Beyond the matrix a lane loads the last row or column again, because a branch would wait for each load.
  template <typename C>
  __device__ __forceinline__ void copy_c(int i, int m, int n, const C* c) const {
    constexpr int ACROSS = WIDTH / 32, BATCH = 16 / ACROSS;  // rows: 16 loads under way
    const int64_t rows = p.m - 1, cols = p.n - 1;
#pragma unroll 1
    for (int first = own_row(), end = first + OWN_ROWS; first < end; first += BATCH) {
      C values[BATCH][ACROSS];
#pragma unroll
      for (int r = 0; r < BATCH; ++r)
#pragma unroll
        for (int x = 0; x < ACROSS; ++x)
          values[r][x] =
              c[min(int64_t(m + first + r), rows) * p.c.row + min(int64_t(n + thread % 32 + x * 32), cols) * p.c.col];
#pragma unroll
      for (int r = 0; r < BATCH; ++r)
#pragma unroll
        for (int x = 0; x < ACROSS; ++x) *element(i, first + r, thread % 32 + x * 32) = from_float<D>(to_float(values[r][x]));
    }
  }

  // Whether ACROSS boxes of x from column n on may be copied by rows: contiguous fp32 elements, all of them inside the matrix.
  template <int ACROSS>
  __device__ bool has_rows(const MatrixView& x, int n) const {
    return !IS_16_BIT && is_f32(x.dtype) && x.col == 1 && n + ACROSS * WIDTH <= p.n;
  }

  // Copies such boxes, 128 bytes of a row at a time. All loads of a batch are issued before the first store. Beyond a row's, addresses
  // are constants: 4096x50257x768 with a bias takes 2709 us on an H200, and 2962 where each element of D takes 30 instructions of copy_d.
  template <int ACROSS>
  __device__ __forceinline__ void copy_c_rows(int i, int m, int n, const float* c) const {
    copy_rows<ACROSS>(
        i, m, n, p.c.row, [&](const float*, int64_t at) { return c[at]; },
        [&](float* in_box, int64_t, float value) { *in_box = value; });
  }
  template <int ACROSS>
  __device__ __forceinline__ void copy_d_rows(int i, int m, int n, float* d) const {
    copy_rows<ACROSS>(
        i, m, n, p.d.row, [&](const float* in_box, int64_t) { return *in_box; },
        [&](float*, int64_t at, float value) { d[at] = value; });
  }
  template <int ACROSS, typename Load, typename Store>
  __device__ __forceinline__ void copy_rows(int i, int m, int n, int64_t pitch, Load&& load, Store&& store) const {
    constexpr int BATCH = 4;  // rows; with eight, wgmma_bf16x6 spills
    const int lane = thread % 32, own = own_row(), rows = int(min(int64_t(OWN_ROWS), p.m - m - own));
    char* const first_row = boxes + i % BUFFERS * BOX_BYTES + own * kBoxBytes + lane % 4 * 4;
    int64_t at = (m + own) * pitch + n + lane;
#pragma unroll
    for (int first = 0; first < OWN_ROWS; first += BATCH, at += BATCH * pitch) {
      float values[BATCH][ACROSS];
      const auto each = [&](auto&& act) {
#pragma unroll
        for (int r = 0; r < BATCH; ++r)
#pragma unroll
          for (int x = 0; x < ACROSS; ++x)
            if (first + r < rows)
              act(values[r][x],
                  reinterpret_cast<float*>(
                      first_row + x * BOX_BYTES + (first + r) * kBoxBytes + (lane / 4 ^ (first + r) % 8) * kChunk),
                  at + r * pitch + x * WIDTH);
      };
      each([&](float& value, float* in_box, int64_t at) { value = load(in_box, at); });
      each([&](float value, float* in_box, int64_t at) { store(in_box, at, value); });
    }
  }

  __device__ __forceinline__ void copy_d(int i, int m, int n, D* to) const {
    D* const d = to + m * p.d.row + n * p.d.col;
    const int rows = int(min(int64_t(kBoxRows), p.m - m)), cols = int(min(int64_t(WIDTH), p.n - n));
#pragma unroll 4
    for (int row = own_row(); row < min(own_row() + OWN_ROWS, rows); ++row)
#pragma unroll
      for (int col = thread % 32; col < WIDTH; col += 32)
        if (col < cols) d[row * p.d.row + col * p.d.col] = *element(i, row, col);
  }
};

}  // namespace tc
