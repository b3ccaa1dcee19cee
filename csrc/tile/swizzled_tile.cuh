// An operand's tile in XOR-swizzled shared memory. cp.async writes it and ldmatrix reads it without bank conflicts.
#pragma once

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "../ptx/mma.cuh"
#include "copy.cuh"

namespace tc {

// The tile keeps the operand's order in memory: (MN, BLK_K) if K is contiguous, (BLK_K, MN) otherwise. The operand's base and
// leading dimension are 16-byte aligned. Each thread has one object per operand, which points at the thread's next vector.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int THREADS>
struct SwizzledTile {
  static constexpr int W = kChunk / int(sizeof(T));  // elements of a vector
  static constexpr int ROWS = K_CONTIGUOUS ? MN : BLK_K, COLS = K_CONTIGUOUS ? BLK_K : MN, PER_ROW = COLS / W;
  static constexpr int STEP = THREADS / PER_ROW, COUNT = ROWS / STEP;  // a thread's vectors lie STEP rows apart
  static constexpr int BYTES = ROWS * COLS * int(sizeof(T));
  static_assert(THREADS % PER_ROW == 0 && ROWS % STEP == 0 && STEP % 8 == 0, "all vectors of a thread share one swizzle");
  static_assert(K_CONTIGUOUS || sizeof(T) == 2, "ldmatrix.trans transposes 16-bit elements only");

  const T* next;  // the next vector that this thread copies
  int64_t leading;
  int outer_left;  // rows of A or columns of B from the tile's first to the matrix's edge

  static __device__ int row() { return threadIdx.x % THREADS / PER_ROW; }
  static __device__ int col() { return threadIdx.x % PER_ROW * W; }
  static __device__ uint32_t target() { return sizeof(T) * swizzled_offset(row(), col(), COLS, sizeof(T)); }

  __device__ SwizzledTile(const MatrixView& x, int64_t leading, int64_t outer0, int64_t outer, int64_t k0)
      : leading(leading), outer_left(int(min(int64_t(MN), outer - outer0))) {
    next = static_cast<const T*>(x.data) +
           (K_CONTIGUOUS ? (outer0 + row()) * leading + k0 + col() : (k0 + row()) * leading + outer0 + col());
  }

  // Prefetches (MN, k) elements of the operand into L2, from (outer0, k0) on. This block takes part `part` of `parts`.
  static __device__ void prefetch(const MatrixView& x, int64_t leading, int64_t outer0, int64_t outer, int64_t k0, int64_t k,
                                  int part, int parts) {
    const int64_t width = min(int64_t(MN), outer - outer0);
    const T* const first = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? outer0 * leading + k0 : k0 * leading + outer0);
    prefetch_lines(first, leading * sizeof(T), int(K_CONTIGUOUS ? width : k), (K_CONTIGUOUS ? k : width) * sizeof(T),
                   part * THREADS + threadIdx.x, parts * THREADS);
  }

  // Whether a vector reaches past the matrix's edge along `outer`. Such a vector reads into the next row, which exists except
  // after the last row.
  __device__ bool last_line_is_cut() const { return !K_CONTIGUOUS && outer_left < MN && outer_left % W != 0; }

  // Copies part `part` of PARTS equal parts of the next K tile and steps on. The copies of a tile thus spread over the products
  // of another. Elements beyond `outer` are not copied, or are copies of what follows in memory: they only reach elements of D
  // that are not stored. The loop copies whole vectors and steps a pointer, because every instruction here delays an mma.sync.
  template <int PARTS>
  __device__ void load_whole(bool wanted, uint32_t smem, int part) {
    static_assert(COUNT % PARTS == 0);
#pragma unroll
    for (int i = part * (COUNT / PARTS); i < (part + 1) * (COUNT / PARTS); ++i, next += STEP * leading)
      cp_async_16_if(wanted && (K_CONTIGUOUS ? i * STEP < outer_left - row() : col() < outer_left),
                     smem + target() + i * STEP * COLS * sizeof(T), next);
    if (K_CONTIGUOUS && part == PARTS - 1) next += BLK_K - ROWS * leading;
  }

  // Copies the next K tile if the matrix's edge cuts it, without stepping on. Elements beyond outer_left and k_left are 0.
  __device__ void load_cut(const MatrixView& x, uint32_t smem, int k_left) const {
    const int rows = K_CONTIGUOUS ? outer_left : k_left, cols = K_CONTIGUOUS ? k_left : outer_left;
    const int left = cols - col();
#pragma unroll 1
    for (int i = 0; i < COUNT; ++i) {
      const bool exists = row() + i * STEP < rows && left > 0;
      const T* const from = exists ? next + i * STEP * leading : static_cast<const T*>(x.data);
      const uint32_t to = smem + target() + i * STEP * COLS * sizeof(T);
      if (exists && left < W) {
        Vec<T, W> v;
#pragma unroll
        for (int e = 0; e < W; ++e) v.x[e] = e < left ? from[e] : T{};
        st_shared_16(to, *reinterpret_cast<const uint4*>(&v));
      } else {
        cp_async_16(to, from, exists);
      }
    }
  }

  // A fragment is 16 elements of MN by 32 bytes of K. lane_offset() is where this lane's ldmatrix row begins in the fragment at
  // (mn, 0). address() finds the row of the fragment that lies `block` fragments further along MN and `step` along K. An XOR
  // and an addition suffice, because the swizzle only permutes the vectors of a row and a fragment spans two of them.
  static __device__ uint32_t lane_offset(int mn, int k) {
    return sizeof(T) * swizzled_offset(K_CONTIGUOUS ? mn : k, K_CONTIGUOUS ? k : mn, COLS, sizeof(T));
  }
  static __device__ uint32_t address(uint32_t smem, uint32_t lane_offset, int block, int step) {
    constexpr int SIXTEEN_ROWS = 16 * COLS * int(sizeof(T));
    return smem + (lane_offset ^ ((K_CONTIGUOUS ? step : block) * 32)) + (K_CONTIGUOUS ? block : step) * SIXTEEN_ROWS;
  }
};

// A fragment of A is 16 rows by 32 bytes of K. ldmatrix loads its 8x8 matrices in the order (m, k), (m + 8, k),
// (m, k + 16 bytes), (m + 8, k + 16 bytes).
template <typename Tile, bool K_CONTIGUOUS>
__device__ __forceinline__ uint32_t a_lane_offset(int m, int lane) {
  return K_CONTIGUOUS ? Tile::lane_offset(m + lane % 16, lane / 16 * Tile::W)
                      : Tile::lane_offset(m + lane / 8 % 2 * 8, lane % 8 + lane / 16 * 8);
}

// One ldmatrix loads two fragments of B, at columns n and n + 8. Its 8x8 matrices are (n, k), (n, k + 16 bytes), (n + 8, k),
// (n + 8, k + 16 bytes).
template <typename Tile, bool K_CONTIGUOUS>
__device__ __forceinline__ uint32_t b_lane_offset(int n, int lane) {
  return K_CONTIGUOUS ? Tile::lane_offset(n + lane % 8 + lane / 16 * 8, lane / 8 % 2 * Tile::W)
                      : Tile::lane_offset(n + lane / 16 * 8, lane % 16);
}

template <Math MATH, bool K_CONTIGUOUS>
__device__ __forceinline__ void load_fragment(uint32_t (&r)[4], uint32_t address) {
  if constexpr (K_CONTIGUOUS) ldmatrix_x4(r, address);
  else ldmatrix_x4_trans(r, address);
  if constexpr (MATH == Math::tf32)
#pragma unroll
    for (uint32_t& x : r) x = to_tf32(x);
}

}  // namespace tc
