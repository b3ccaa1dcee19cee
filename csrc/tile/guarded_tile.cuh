// An operand's tile in XOR-swizzled shared memory, copied from rows that begin at any element.
#pragma once

#include "../gemm/access.h"
#include "../layout/swizzle.h"
#include "copy.cuh"

namespace tc {

// A or B in global memory, (outer, K), 16-bit elements, contiguous along either. `outer` is M for A and N for B. A row is a row
// of the tile: one row or column of the operand. GuardedTile::operand() computes the steps on the host, where they cost a kernel
// neither registers nor instructions. Sizes, strides and steps are bytes unless a line names another unit.
struct GuardedOperand {
  const char* data;
  int64_t size;      // from the first element to the end of the last
  int64_t leading;   // the leading dimension
  int64_t row_step;  // between the rows of a thread's copies
  int64_t k_step;    // between two K tiles
  int64_t batch;     // from a product's to the next one's
  int width;         // the largest of 16, 8, 4 and 2 that divides the address of every row
  int copy;          // what a thread copies at once: 16 if the width is 2, and the width otherwise
  int row_bytes;     // of a row in shared memory
  int lanes_shift;   // log2 of the threads that copy a row
  bool k_contiguous;

  __device__ const char* of_product() const { return data + opaque_product() * batch; }  // the data of the block's product
};

// The tile keeps the operand's order in memory, as SwizzledTile does, which reads it: (MN, BLK_K) if K is contiguous, (BLK_K,
// MN) otherwise. Order and width are known at run time and uniform over the grid. One kernel thus serves all of them, with a few
// branches per K tile. Neighbouring threads copy neighbouring bytes.
//
// Widths of 4, 8 and 16 go by cp.async. It cannot copy 2 bytes, so that rows which begin at odd elements go through registers:
// fetch() loads the aligned 16-byte words that hold the thread's vectors, and store() shifts the vectors into place.
//
// A copy that a row's end cuts, and a vector whose words reach beyond the matrix, are read by element. Nothing reads past the
// last element of an allocation.
template <int MN, int BLK_K, int THREADS>
struct GuardedTile {
  static constexpr int BYTES = MN * BLK_K * 2, VECTORS = BYTES / kChunk / THREADS;  // vectors of a thread
  static_assert(BYTES == VECTORS * kChunk * THREADS);
  // Threads that copy vectors: their rows lie a multiple of 8 apart, and share a swizzle.
  static_assert(THREADS * kChunk / (MN * 2) % 8 == 0 && THREADS * kChunk / (BLK_K * 2) % 8 == 0);

  const GuardedOperand& x;
  const char* next;                // this thread's first copy of the next K tile
  int outer_left;                  // rows of A or columns of B from the tile's first to the matrix's edge
  uint32_t by_element;             // bit i: copy i of the K tile is read by element
  uint4 lo[VECTORS], hi[VECTORS];  // what fetch() loaded

  static GuardedOperand operand(const MatrixView& view, int64_t outer, int64_t k) {
    const bool k_contiguous = order_of(view) == Order::row_major;
    const int64_t leading = (k_contiguous ? view.row : view.col) * 2;
    const int64_t rows = k_contiguous ? outer : k, length = k_contiguous ? k : outer;
    const int width = alignment(view, outer, k), copy = width == 2 ? kChunk : width,
              row_bytes = (k_contiguous ? BLK_K : MN) * 2;
    int lanes_shift = 0;
    while (copy << lanes_shift < row_bytes) ++lanes_shift;
    return {static_cast<const char*>(view.data),
            (rows - 1) * leading + length * 2,
            leading,
            (THREADS >> lanes_shift) * leading,
            k_contiguous ? BLK_K * 2 : BLK_K * leading,
            view.batch * 2,
            width,
            copy,
            row_bytes,
            lanes_shift,
            k_contiguous};
  }

  // Prefetches (MN, k) elements into L2, from (outer0, k0) on. This block takes part `part` of `parts`.
  static __device__ void prefetch(const GuardedOperand& x, int64_t outer0, int64_t outer, int64_t k0, int64_t k, int part,
                                  int parts) {
    const int64_t mn = min(int64_t(MN), outer - outer0);
    prefetch_lines(x.of_product() + (x.k_contiguous ? outer0 * x.leading + k0 * 2 : k0 * x.leading + outer0 * 2), x.leading,
                   int(x.k_contiguous ? mn : k), (x.k_contiguous ? k : mn) * 2, part * THREADS + threadIdx.x, parts * THREADS);
  }

  __device__ GuardedTile(const GuardedOperand& x, int64_t outer0, int64_t outer, int64_t k0)
      : x(x), outer_left(int(min(int64_t(MN), outer - outer0))) {
    const Place place(x);
    next = x.of_product() + ((x.k_contiguous ? outer0 : k0) + place.row) * x.leading + (x.k_contiguous ? k0 : outer0) * 2 +
           place.col;
  }

  __device__ bool via_registers() const { return x.width == 2; }

  // The row of this thread's first copy, and the copy's place in the row in bytes. Its other copies lie step() rows apart.
  struct Place {
    unsigned row, col;
    // The thread is hidden from the compiler: a place that is computed again takes no registers from the product.
    __device__ explicit Place(const GuardedOperand& x) {
      unsigned thread = threadIdx.x;
      asm volatile("" : "+r"(thread));
      row = thread >> x.lanes_shift;
      col = (thread & ((1u << x.lanes_shift) - 1)) * x.copy;
    }
  };
  __device__ int step() const { return THREADS >> x.lanes_shift; }

  // Where a copy of row `row` goes.
  __device__ uint32_t target(int row, int col) const {
    return row * x.row_bytes + swizzled_chunk(row, col / kChunk, x.row_bytes / kChunk) * kChunk + col % kChunk;
  }
  // How many bytes of a copy in row `row` exist, from its first on. `k_left` elements of K remain in the K tile.
  __device__ int exist(int row, int col, int k_left) const {
    const int rows = x.k_contiguous ? outer_left : k_left, length = (x.k_contiguous ? k_left : outer_left) * 2;
    return row < rows ? max(0, min(x.copy, length - col)) : 0;
  }

  // Copies the next K tile by cp.async. What lies beyond the matrix's edges becomes zeros.
  template <int COPY>
  __device__ __forceinline__ void copy_by(uint32_t smem, int k_left) {
    constexpr int COUNT = VECTORS * kChunk / COPY;
    const Place place(x);
    const int rows = x.k_contiguous ? outer_left : k_left, col = int(place.col);
    const int bytes = exist(0, col, k_left);  // of each of the thread's copies, as far as the rows exist
    by_element = bytes % COPY ? (1u << COUNT) - 1 : 0;
    if (by_element) return;
    const char* from = next;
#pragma unroll 2  // the copies wait for memory, but a short K also waits for these instructions
    for (int i = 0, row = int(place.row); i < COUNT; ++i, row += step(), from += x.row_step) {
      const bool exists = bytes > 0 && row < rows;
      cp_async<COPY>(smem + target(row, col), exists ? from : x.data, exists);
    }
  }
  __device__ __forceinline__ void copy_async(uint32_t smem, int k_left) {
    if (x.width == 16) copy_by<16>(smem, k_left);
    else if (x.width == 8) copy_by<8>(smem, k_left);
    else copy_by<4>(smem, k_left);
    copy_by_element(smem, k_left);
  }

  // Loads the next K tile into registers.
  __device__ __forceinline__ void fetch(int k_left) {
    const Place place(x);
    const char *from = next, *const begin = x.of_product();
    by_element = 0;
#pragma unroll
    for (int i = 0; i < VECTORS; ++i, from += x.row_step) {
      const int bytes = exist(int(place.row) + i * step(), int(place.col), k_left),
                shift = int(reinterpret_cast<uintptr_t>(from) % kChunk);
      const char* const first = from - shift;
      const bool two = shift + bytes > kChunk;
      const bool inside = first >= begin && first + (two ? 2 : 1) * kChunk <= begin + x.size;
      lo[i] = hi[i] = make_uint4(0, 0, 0, 0);
      if (bytes > 0 && inside) lo[i] = *reinterpret_cast<const uint4*>(first);
      if (bytes > 0 && inside && two) hi[i] = *reinterpret_cast<const uint4*>(first + kChunk);
      by_element |= uint32_t(bytes > 0 && !inside) << i;
    }
  }
  // Stores the K tile that fetch() loaded.
  __device__ __forceinline__ void store(uint32_t smem, int k_left) {
    const Place place(x);
    const char* from = next;
    const uint32_t to = smem + target(int(place.row), int(place.col));
#pragma unroll
    for (int i = 0; i < VECTORS; ++i, from += x.row_step)
      st_shared_16(to + i * step() * x.row_bytes, cut(funnel(lo[i], hi[i], int(reinterpret_cast<uintptr_t>(from) % kChunk)),
                                                      exist(int(place.row) + i * step(), int(place.col), k_left)));
    copy_by_element(smem, k_left);
  }

  // Copies what the functions above left over, and steps on to the next K tile.
  __device__ __forceinline__ void copy_by_element(uint32_t smem, int k_left) {
    const char* from = next;
    next += x.k_step;
    const Place place(x);
    int row = int(place.row);
    const int col = int(place.col);
#pragma unroll 1
    for (uint32_t left = by_element; left; left >>= 1, row += step(), from += x.row_step) {
      if (left % 2 == 0) continue;
      const int bytes = exist(row, col, k_left);
      uint16_t elements[8];
#pragma unroll
      for (int e = 0; e < 8; ++e) elements[e] = e * 2 < bytes ? reinterpret_cast<const uint16_t*>(from)[e] : 0;
#pragma unroll
      for (int e = 0; e < 8; ++e)
        if (e * 2 < x.copy) st_shared_2(smem + target(row, col) + e * 2, elements[e]);
    }
  }
};

}  // namespace tc
