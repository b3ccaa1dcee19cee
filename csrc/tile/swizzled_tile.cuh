// An operand's tile in XOR-swizzled shared memory: filled by cp.async, read by ldmatrix, no bank conflict on either side.
#pragma once

#include "../gemm/problem.h"
#include "copy.cuh"
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

  const T* next = nullptr;  // this thread's next chunk to copy
  int outer_left = 0;       // rows of A or columns of B from the tile's first on

  static __device__ int line(int thread = threadIdx.x) { return thread / CHUNKS; }
  static __device__ int col(int thread = threadIdx.x) { return thread % CHUNKS * W; }
  static __device__ uint32_t target(int thread = threadIdx.x) {
    return sizeof(T) * swizzled_offset(line(thread), col(thread), EXTENT, sizeof(T));
  }

  // Elements from line to line of x, (outer, K).
  static __device__ int64_t leading(const Matrix& x) { return K_CONTIGUOUS ? x.row : x.col; }

  // The tiles from (outer0, k0) on come next, of `outer` rows of A or columns of B.
  __device__ void move_to(const Matrix& x, int64_t outer0, int64_t outer, int64_t k0) {
    outer_left = int(min(int64_t(MN), outer - outer0));
    next = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? (outer0 + line()) * leading(x) + k0 + col()
                                                         : (k0 + line()) * leading(x) + outer0 + col());
  }

  // Asks L2 for part `part` of `parts` of the k deep strip of tiles from (outer0, k0) on.
  static __device__ void prefetch(const Matrix& x, int64_t outer0, int64_t outer, int64_t k0, int64_t k, int part, int parts) {
    const int64_t lines = min(int64_t(MN), outer - outer0);
    const T* const first = static_cast<const T*>(x.data) + outer0 * x.row + k0 * x.col;
    if (K_CONTIGUOUS) prefetch_lines<THREADS>(first, leading(x) * sizeof(T), int(lines), k * sizeof(T), part, parts);
    else prefetch_lines<THREADS>(first, leading(x) * sizeof(T), int(k), lines * sizeof(T), part, parts);
  }

  // Whether K tiles that are whole may be copied by load_whole: no chunk of theirs is cut off.
  __device__ bool whole() const { return K_CONTIGUOUS || outer_left >= MN; }

  // Copies the PART-th of PARTS equal parts of the next K tile and steps on, so that the copies of a tile spread over the
  // products of another. Whole chunks and pointers that are stepped, not computed: each instruction here delays an mma.sync.
  template <int PARTS>
  __device__ void load_whole(const Matrix& x, bool wanted, uint32_t smem, int part) {
    static_assert(PIECES % PARTS == 0);
#pragma unroll
    for (int i = part * (PIECES / PARTS); i < (part + 1) * (PIECES / PARTS); ++i, next += STEP * leading(x))
      cp_async_16_if(wanted, smem + target() + i * STEP * EXTENT * sizeof(T), next);
    if (K_CONTIGUOUS && part == PARTS - 1) next += BLK_K - LINES * leading(x);
  }

  // Copies the next K tile when it is cut off, without stepping on; what lies beyond the matrix becomes zeros.
  __device__ void load_cut(const Matrix& x, uint32_t smem, int k_left) const {
    const int thread = anew(threadIdx.x) & (THREADS - 1);
    const int lines = K_CONTIGUOUS ? outer_left : k_left, extent = K_CONTIGUOUS ? k_left : outer_left;
    const int bytes = max(0, min(W, extent - col(thread))) * int(sizeof(T));
    const T* source = next;
    smem += target(thread);
#pragma unroll 1
    for (int l = line(thread); l < LINES; l += STEP, source += STEP * leading(x), smem += STEP * EXTENT * sizeof(T))
      cp_async_16(smem, source, l < lines ? bytes : 0);
  }

  // Fragments are 16 elements of MN by 32 bytes of K. `lane_offset` is where this lane's ldmatrix row begins in the fragment
  // at (mn, 0); the one `block` fragments further along MN and `step` along K is then an XOR and an addition away, because
  // the swizzle only permutes chunks and a fragment spans two of them.
  static __device__ uint32_t lane_offset(int mn, int k) {
    return sizeof(T) * swizzled_offset(K_CONTIGUOUS ? mn : k, K_CONTIGUOUS ? k : mn, EXTENT, sizeof(T));
  }
  static __device__ uint32_t address(uint32_t smem, uint32_t lane_offset, int block, int step) {
    constexpr int SIXTEEN_LINES = 16 * EXTENT * int(sizeof(T));
    return smem + (lane_offset ^ ((K_CONTIGUOUS ? step : block) * 32)) + (K_CONTIGUOUS ? block : step) * SIXTEEN_LINES;
  }
};

// A fragment of A is 16 rows by 32 bytes of K: matrices (m, k), (m + 8, k), (m, k + 16 bytes), (m + 8, k + 16 bytes).
template <typename Tile, typename T, bool K_CONTIGUOUS>
__device__ __forceinline__ uint32_t a_lane_offset(int m, int lane) {
  return K_CONTIGUOUS ? Tile::lane_offset(m + lane % 16, lane / 16 * Tile::W)
                      : Tile::lane_offset(m + lane / 8 % 2 * 8, lane % 8 + lane / 16 * 8);
}

// Two fragments of B, columns n and n + 8: matrices (n, k), (n, k + 16 bytes), (n + 8, k), (n + 8, k + 16 bytes).
template <typename Tile, typename T, bool K_CONTIGUOUS>
__device__ __forceinline__ uint32_t b_lane_offset(int n, int lane) {
  return K_CONTIGUOUS ? Tile::lane_offset(n + lane % 8 + lane / 16 * 8, lane / 8 % 2 * Tile::W)
                      : Tile::lane_offset(n + lane / 16 * 8, lane % 16);
}

template <typename T, bool K_CONTIGUOUS>
__device__ __forceinline__ void load_fragment(uint32_t (&r)[4], uint32_t address) {
  if constexpr (K_CONTIGUOUS) ldmatrix_x4(r, address);
  else ldmatrix_x4_trans(r, address);
  if constexpr (sizeof(T) == 4)
#pragma unroll
    for (uint32_t& x : r) x = to_tf32(x);
}

}  // namespace tc
