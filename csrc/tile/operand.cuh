// An operand's tile in padded shared memory, for the WMMA rungs.
#pragma once

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "copy.cuh"

namespace tc {

// A or B in global memory. `outer` is M for A and N for B.
struct GmemOperand {
  const void* data;  // (outer, K), contiguous along either
  int64_t leading;   // the leading dimension, in elements
  int64_t outer, k;
  bool aligned;  // every contiguous row or column starts at a 16-byte boundary
};

// The tile keeps the operand's order in memory: (MN, PITCH) if K is contiguous, (BLK_K, PITCH) otherwise.
template <typename T, int MN, int BLK_K, bool K_CONTIGUOUS, int PAD, int THREADS>
struct PaddedTile {
  static constexpr int ROWS = K_CONTIGUOUS ? MN : BLK_K, COLS = K_CONTIGUOUS ? BLK_K : MN, PITCH = COLS + PAD;
  static constexpr int SIZE = ROWS * PITCH;  // elements
  using Registers = TileRegisters<ROWS, COLS, PITCH, THREADS, T>;

  static __device__ GmemOperand a_of(const GemmDesc& p, bool aligned) {
    return {p.a.data, K_CONTIGUOUS ? p.a.row : p.a.col, p.m, p.k, aligned};
  }
  static __device__ GmemOperand b_of(const GemmDesc& p, bool aligned) {
    return {p.b.data, K_CONTIGUOUS ? p.b.col : p.b.row, p.n, p.k, aligned};
  }

  static __device__ const T* at(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return static_cast<const T*>(x.data) + (K_CONTIGUOUS ? outer0 * x.leading + k0 : k0 * x.leading + outer0);
  }
  static __device__ int rows_left(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return int(min(int64_t(ROWS), K_CONTIGUOUS ? x.outer - outer0 : x.k - k0));
  }
  static __device__ int cols_left(const GmemOperand& x, int64_t outer0, int64_t k0) {
    return int(min(int64_t(COLS), K_CONTIGUOUS ? x.k - k0 : x.outer - outer0));
  }

  // Copies the tile at (outer0, k0) to shared memory.
  static __device__ void fill(T* smem, const GmemOperand& x, int64_t outer0, int64_t k0, int thread = threadIdx.x) {
    copy_tile<ROWS, COLS, PITCH, THREADS>(
        smem, at(x, outer0, k0), x.leading, rows_left(x, outer0, k0), cols_left(x, outer0, k0), x.aligned, thread);
  }
  // Loads the tile into registers. Registers::store() writes it to shared memory later.
  static __device__ void fetch(Registers& registers, const GmemOperand& x, int64_t outer0, int64_t k0) {
    registers.fetch(at(x, outer0, k0), x.leading, rows_left(x, outer0, k0), cols_left(x, outer0, k0), x.aligned);
  }
  // Copies the tile by cp.async (copy_tile_async).
  static __device__ void fill_async(T* smem, const GmemOperand& x, int64_t outer0, int64_t k0) {
    copy_tile_async<ROWS, COLS, PITCH, THREADS>(
        smem, at(x, outer0, k0), x.leading, rows_left(x, outer0, k0), cols_left(x, outer0, k0), x.aligned);
  }

  // The first element of the fragment at (outer, k). The fragment's rows lie PITCH elements apart.
  static __device__ const T* fragment(const T* smem, int outer, int k) {
    return smem + padded_offset(K_CONTIGUOUS ? outer : k, K_CONTIGUOUS ? k : outer, PITCH);
  }
};

}  // namespace tc
