// An operand's tile in XOR-swizzled shared memory: filled by cp.async, read by ldmatrix, without a bank conflict on either side.
#pragma once

#include "../gemm/problem.h"
#include "mma.cuh"
#include "swizzle.h"

namespace tc {

// (MN, BLK_K) when K is contiguous in memory, (BLK_K, MN) otherwise. Bases and leading dimensions are 16-byte aligned.
// One object per thread and operand: it remembers which 16-byte chunks this thread copies.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int THREADS>
struct SwizzledTile {
  static constexpr int W = kChunk / int(sizeof(T));  // elements of a chunk
  static constexpr int LINES = K_CONTIGUOUS ? MN : BLK_K, EXTENT = K_CONTIGUOUS ? BLK_K : MN, CHUNKS = EXTENT / W;
  static constexpr int STEP = THREADS / CHUNKS, PIECES = LINES / STEP;  // a thread's pieces lie STEP lines apart
  static constexpr int BYTES = LINES * EXTENT * int(sizeof(T));
  static_assert(THREADS % CHUNKS == 0 && LINES % STEP == 0 && STEP % 8 == 0, "all pieces share one swizzle");
  static_assert(K_CONTIGUOUS || sizeof(T) == 2, "ldmatrix.trans transposes 16-bit elements only");

  const T* source;  // this thread's first chunk of the next tile
  int64_t leading;
  int outer_left;   // rows of A or columns of B from the tile's first on

  static __device__ int line() { return threadIdx.x / CHUNKS; }
  static __device__ int col() { return threadIdx.x % CHUNKS * W; }

  __device__ SwizzledTile(const Matrix& x, int64_t leading, int64_t outer0, int64_t outer, int64_t k0)
      : leading(leading), outer_left(int(min(int64_t(MN), outer - outer0))) {
    source = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? (outer0 + line()) * leading + k0 + col()
                                                           : (k0 + line()) * leading + outer0 + col());
  }

  // Starts copying the next tile; what lies beyond outer_left and k_left becomes zeros.
  __device__ void load(uint32_t smem, int k_left) {
    const int lines = K_CONTIGUOUS ? outer_left : k_left, extent = K_CONTIGUOUS ? k_left : outer_left;
    const int bytes = max(0, min(W, extent - col())) * int(sizeof(T));
    const uint32_t target = smem + sizeof(T) * swizzled_offset(line(), col(), EXTENT, sizeof(T));
    const T* piece = source;  // stepped, not indexed: eight 64-bit offsets would cost sixteen registers
#pragma unroll
    for (int i = 0; i < PIECES; ++i, piece += STEP * leading)
      cp_async_16(target + i * STEP * EXTENT * sizeof(T), piece, line() + i * STEP < lines ? bytes : 0);
    source += K_CONTIGUOUS ? BLK_K : BLK_K * leading;
  }

  // The chunk that lane `lane` names for ldmatrix: row `row` (of MN) and 8-element, 16-byte chunk `k_chunk` of K.
  static __device__ uint32_t address(uint32_t smem, int mn, int k) {
    const int line = K_CONTIGUOUS ? mn : k, col = K_CONTIGUOUS ? k : mn;
    return smem + sizeof(T) * swizzled_offset(line, col, EXTENT, sizeof(T));
  }
};

// The 16x(32 bytes) fragment of A at (m, k), from the four 8x8 matrices (m, k), (m + 8, k), (m, k + half), (m + 8, k + half).
template <typename Tile, typename T, bool K_CONTIGUOUS>
__device__ __forceinline__ void load_a_fragment(uint32_t (&a)[4], uint32_t smem, int m, int k, int lane) {
  constexpr int HALF = kChunk / int(sizeof(T));
  if constexpr (K_CONTIGUOUS) ldmatrix_x4(a, Tile::address(smem, m + lane % 16, k + lane / 16 * HALF));
  else ldmatrix_x4_trans(a, Tile::address(smem, m + lane / 8 % 2 * 8, k + lane % 8 + lane / 16 * 8));
  if constexpr (sizeof(T) == 4)
#pragma unroll
    for (uint32_t& x : a) x = to_tf32(x);
}

// Two fragments of B, (32 bytes)x8 each, at columns n and n + 8: b[0], b[1] and b[2], b[3].
template <typename Tile, typename T, bool K_CONTIGUOUS>
__device__ __forceinline__ void load_b_fragments(uint32_t (&b)[4], uint32_t smem, int n, int k, int lane) {
  constexpr int HALF = kChunk / int(sizeof(T));
  if constexpr (K_CONTIGUOUS) ldmatrix_x4(b, Tile::address(smem, n + lane % 8 + lane / 16 * 8, k + lane / 8 % 2 * HALF));
  else ldmatrix_x4_trans(b, Tile::address(smem, n + lane / 16 * 8, k + lane % 16));
  if constexpr (sizeof(T) == 4)
#pragma unroll
    for (uint32_t& x : b) x = to_tf32(x);
}

}  // namespace tc
