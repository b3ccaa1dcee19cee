// An operand's tile in padded shared memory, for the WMMA rungs.
#pragma once

#include "../gemm/desc.h"
#include "copy.cuh"
#include "../layout/swizzle.h"

namespace tc {

// An operand as its tiles see it: outer is M for A and N for B.
struct GmemOperand {
  const void* data;  // (outer, K), whichever of the two lies contiguous
  int64_t leading;   // elements from one contiguous line to the next
  int64_t outer, k;
  bool wide;         // every line starts at a 16-byte boundary
};

// (MN, PITCH) when K is contiguous in memory, (BLK_K, PITCH) otherwise: the order in which the operand lies in memory.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int PAD, int THREADS>
struct PaddedTile {
  static constexpr int LINES = K_CONTIGUOUS ? MN : BLK_K, EXTENT = K_CONTIGUOUS ? BLK_K : MN, PITCH = EXTENT + PAD;
  static constexpr int SIZE = LINES * PITCH;  // elements
  using Registers = TileRegisters<LINES, EXTENT, PITCH, THREADS, T>;

  static __device__ GmemOperand a_of(const GemmDesc& p, bool wide) {
    return {p.a.data, K_CONTIGUOUS ? p.a.row : p.a.col, p.m, p.k, wide};
  }
  static __device__ GmemOperand b_of(const GemmDesc& p, bool wide) {
    return {p.b.data, K_CONTIGUOUS ? p.b.col : p.b.row, p.n, p.k, wide};
  }

  static __device__ const T* at(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return static_cast<const T*>(x.data) + (K_CONTIGUOUS ? outer0 * x.leading + k0 : k0 * x.leading + outer0);
  }
  static __device__ int lines_left(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return int(min(int64_t(LINES), K_CONTIGUOUS ? x.outer - outer0 : x.k - k0));
  }
  static __device__ int extent_left(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return int(min(int64_t(EXTENT), K_CONTIGUOUS ? x.k - k0 : x.outer - outer0));
  }

  // The tile at (outer0, k0), straight into shared memory, ...
  static __device__ void fill(T* smem, const GmemOperand& x, int64_t outer0, int64_t k0, int thread = threadIdx.x) {
    copy_tile<LINES, EXTENT, PITCH, THREADS>(smem, at(x, outer0, k0), x.leading, lines_left(x, outer0, k0),
                                             extent_left(x, outer0, k0), x.wide, thread);
  }
  // ... into registers first, ...
  static __device__ void fetch(Registers& registers, const GmemOperand& x, int64_t outer0, int64_t k0) {
    registers.fetch(at(x, outer0, k0), x.leading, lines_left(x, outer0, k0), extent_left(x, outer0, k0), x.wide);
  }
  // ... or by cp.async.
  static __device__ void fill_async(T* smem, const GmemOperand& x, int64_t outer0, int64_t k0) {
    copy_tile_async<LINES, EXTENT, PITCH, THREADS>(smem, at(x, outer0, k0), x.leading, lines_left(x, outer0, k0),
                                                   extent_left(x, outer0, k0), x.wide);
  }

  // Where the fragment at (outer, k) begins; its rows are PITCH elements apart.
  static __device__ const T* fragment(const T* smem, int outer, int k) {
    return smem + padded_offset(K_CONTIGUOUS ? outer : k, K_CONTIGUOUS ? k : outer, PITCH);
  }
};

}  // namespace tc
