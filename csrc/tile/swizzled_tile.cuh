// An operand's tile in XOR-swizzled shared memory: filled by cp.async, read by ldmatrix, without bank conflicts.
#pragma once

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "../ptx/mma.cuh"
#include "copy.cuh"

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

  const T* next;    // this thread's next chunk to copy
  int64_t leading;
  int outer_left;   // rows of A or columns of B from the tile's first on

  static __device__ int line() { return threadIdx.x / CHUNKS; }
  static __device__ int col() { return threadIdx.x % CHUNKS * W; }
  static __device__ uint32_t target() { return sizeof(T) * swizzled_offset(line(), col(), EXTENT, sizeof(T)); }

  __device__ SwizzledTile(const MatrixView& x, int64_t leading, int64_t outer0, int64_t outer, int64_t k0)
      : leading(leading), outer_left(int(min(int64_t(MN), outer - outer0))) {
    next = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? (outer0 + line()) * leading + k0 + col()
                                                         : (k0 + line()) * leading + outer0 + col());
  }

  // Asks L2 for part `part` of `parts` of the tiles that follow one another along K from (outer0, k0) on, k deep.
  static __device__ void prefetch(const MatrixView& x, int64_t leading, int64_t outer0, int64_t outer, int64_t k0,
                                  int64_t k, int part, int parts) {
    const int64_t width = min(int64_t(MN), outer - outer0);
    const T* const first = static_cast<const T*>(x.data) + (K_CONTIGUOUS ? outer0 * leading + k0 : k0 * leading + outer0);
    prefetch_lines(first, leading * sizeof(T), int(K_CONTIGUOUS ? width : k), (K_CONTIGUOUS ? k : width) * sizeof(T),
                   part * THREADS + threadIdx.x, parts * THREADS);
  }

  // Whether a chunk reaches past the matrix's edge in `outer`. The next line is there to be read, except after the last.
  __device__ bool last_line_is_cut() const { return !K_CONTIGUOUS && outer_left < MN && outer_left % W != 0; }

  // Copies part `part` of PARTS equal parts of the next K tile and steps on, so that the copies of a tile spread over
  // the products of another. What lies beyond `outer` is not copied, or is what follows in memory: it only reaches elements
  // of D that are not stored. Whole chunks and stepped pointers, because every instruction here delays an mma.sync.
  template <int PARTS>
  __device__ void load_whole(bool wanted, uint32_t smem, int part) {
    static_assert(PIECES % PARTS == 0);
#pragma unroll
    for (int i = part * (PIECES / PARTS); i < (part + 1) * (PIECES / PARTS); ++i, next += STEP * leading)
      cp_async_16_if(wanted && (K_CONTIGUOUS ? i * STEP < outer_left - line() : col() < outer_left),
                     smem + target() + i * STEP * EXTENT * sizeof(T), next);
    if (K_CONTIGUOUS && part == PARTS - 1) next += BLK_K - LINES * leading;
  }

  // Copies the next K tile when it is cut off, without stepping on; beyond outer_left and k_left it becomes zeros.
  __device__ void load_cut(const MatrixView& x, uint32_t smem, int k_left) const {
    const int lines = K_CONTIGUOUS ? outer_left : k_left, extent = K_CONTIGUOUS ? k_left : outer_left;
    const int left = extent - col();
#pragma unroll 1
    for (int i = 0; i < PIECES; ++i) {
      const bool exists = line() + i * STEP < lines && left > 0;
      const T* const from = exists ? next + i * STEP * leading : static_cast<const T*>(x.data);
      const uint32_t to = smem + target() + i * STEP * EXTENT * sizeof(T);
      if (exists && left < W) st_shared_16(to, load_vector(from, left, true));
      else cp_async_16(to, from, exists);
    }
  }

  // Fragments are 16 elements of MN by 32 bytes of K. `lane_offset` is where this lane's ldmatrix row begins in the
  // fragment at (mn, 0); the one `block` fragments further along MN and `step` along K is then an XOR and an addition
  // away, because the swizzle only permutes chunks and a fragment spans two of them.
  static __device__ uint32_t lane_offset(int mn, int k) {
    return sizeof(T) * swizzled_offset(K_CONTIGUOUS ? mn : k, K_CONTIGUOUS ? k : mn, EXTENT, sizeof(T));
  }
  static __device__ uint32_t address(uint32_t smem, uint32_t lane_offset, int block, int step) {
    constexpr int SIXTEEN_LINES = 16 * EXTENT * int(sizeof(T));
    return smem + (lane_offset ^ ((K_CONTIGUOUS ? step : block) * 32)) + (K_CONTIGUOUS ? block : step) * SIXTEEN_LINES;
  }
};

// A fragment of A is 16 rows by 32 bytes of K: matrices (m, k), (m + 8, k), (m, k + 16 bytes), (m + 8, k + 16 bytes).
template <typename Tile, bool K_CONTIGUOUS>
__device__ __forceinline__ uint32_t a_lane_offset(int m, int lane) {
  return K_CONTIGUOUS ? Tile::lane_offset(m + lane % 16, lane / 16 * Tile::W)
                      : Tile::lane_offset(m + lane / 8 % 2 * 8, lane % 8 + lane / 16 * 8);
}

// Two fragments of B, columns n and n + 8: matrices (n, k), (n, k + 16 bytes), (n + 8, k), (n + 8, k + 16 bytes).
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
