// A fp32 operand's K tiles in padded shared memory, copied one after the other by cp.async from rows that begin anywhere.
#pragma once

#include "../gemm/desc.h"
#include "../layout/swizzle.h"
#include "copy.cuh"

namespace tc {

// A or B in global memory, (outer, K), contiguous along either. `outer` is M for A and N for B.
struct RingOperand {
  const float* data;
  int64_t leading;  // the leading dimension, in elements
  int64_t batch;    // elements from a product's to the next one's
  int64_t outer;
  bool vectors;  // rows consist of whole 16-byte vectors
};

// A K tile keeps the operand's order in memory: (MN, PITCH) if K is contiguous, (BLK_K, PITCH) otherwise.
template <int MN, int BLK_K, bool K_CONTIGUOUS, int THREADS>
struct PaddedRing {
  static constexpr int ROWS = K_CONTIGUOUS ? MN : BLK_K, COLS = K_CONTIGUOUS ? BLK_K : MN, PITCH = COLS + kSlabPad;

  const RingOperand& x;
  const float* next;  // this thread's first copy of the next K tile
  int outer_left;     // rows of A or columns of B from the tile's first to the matrix's edge

  // A thread's copies of W elements each.
  template <int W>
  struct Copies {
    static constexpr int PER_ROW = COLS / W, COPIERS = THREADS < ROWS * PER_ROW ? THREADS : ROWS * PER_ROW;
    static constexpr int STEP = COPIERS / PER_ROW, COUNT = ROWS / STEP;
    static_assert(COPIERS % PER_ROW == 0 && ROWS % STEP == 0);
    static __device__ int row() { return threadIdx.x / PER_ROW; }
    static __device__ int col() { return threadIdx.x % PER_ROW * W; }
  };

  __device__ explicit PaddedRing(const RingOperand& x) : x(x) {}

  // Goes to the K tiles of the output tile at outer0 of the block's product, from k0 on.
  __device__ __forceinline__ void go_to(int64_t outer0, int64_t k0) {
    const int row = x.vectors ? Copies<4>::row() : Copies<1>::row(), col = x.vectors ? Copies<4>::col() : Copies<1>::col();
    next =
        x.data + blockIdx.y * x.batch + ((K_CONTIGUOUS ? outer0 : k0) + row) * x.leading + (K_CONTIGUOUS ? k0 : outer0) + col;
    outer_left = int(min(int64_t(MN), x.outer - outer0));
  }

  // Copies the next K tile, of which k_left elements of K exist. What lies beyond the matrix's edges becomes zeros.
  template <int W>
  __device__ __forceinline__ void copy_by(uint32_t smem, int k_left) const {
    using C = Copies<W>;
    if (C::COPIERS < THREADS && threadIdx.x >= C::COPIERS) return;
    const int row = C::row(), col = C::col(), rows = K_CONTIGUOUS ? outer_left : k_left;
    const bool inside = col < (K_CONTIGUOUS ? k_left : outer_left);
    const float* from = next;
    const uint32_t to = smem + (row * PITCH + col) * 4;
#pragma unroll(C::COUNT <= 4 ? C::COUNT : 4)
    for (int i = 0; i < C::COUNT; ++i, from += C::STEP * x.leading) {
      const bool exists = inside && row + i * C::STEP < rows;
      cp_async<W * 4>(to + i * C::STEP * PITCH * 4, exists ? from : x.data, exists);
    }
  }
  __device__ __forceinline__ void copy(uint32_t smem, int k_left) {
    if (x.vectors) copy_by<4>(smem, k_left);
    else copy_by<1>(smem, k_left);
    next += K_CONTIGUOUS ? BLK_K : BLK_K * x.leading;
  }
};

// What a lane multiplies of a K tile: COUNT rows of A or columns of B, for a warp whose lanes lie LANES abreast along them. Groups of
// G neighbouring rows lie LANES * G apart. A group's four k are read at once, in vectors along the contiguous direction.
template <int COUNT, int LANES, int PITCH, bool K_CONTIGUOUS>
struct LaneRows {
  static constexpr int G = K_CONTIGUOUS ? 1 : COUNT < 4 ? COUNT : 4, GROUPS = COUNT / G;

  // The row that lane `lane` of LANES has as its `i`-th.
  static __device__ constexpr int row(int lane, int i) { return (i / G * LANES + lane) * G + i % G; }

  // Where row(lane, 0) begins.
  static __device__ int first(int lane) { return row(lane, 0) * (K_CONTIGUOUS ? PITCH : 1); }

  // Loads x[i][k], the group's rows at k0 to k0 + 3.
  static __device__ __forceinline__ void load(float (&x)[G][4], const float* first, int group, int k0) {
    if constexpr (K_CONTIGUOUS) {
      const Vec<float, 4> v = *reinterpret_cast<const Vec<float, 4>*>(first + group * LANES * PITCH + k0);
#pragma unroll
      for (int k = 0; k < 4; ++k) x[0][k] = v.x[k];
    } else {
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const Vec<float, G> v = *reinterpret_cast<const Vec<float, G>*>(first + (k0 + k) * PITCH + group * LANES * G);
#pragma unroll
        for (int i = 0; i < G; ++i) x[i][k] = v.x[i];
      }
    }
  }
};

}  // namespace tc
