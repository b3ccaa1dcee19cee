// Writes a block's tile to a 16-bit D whose rows are contiguous but may begin anywhere. All code is short: the instructions
// of a small problem come from memory in every launch, and take longer to arrive than to run.
#pragma once

#include "../ptx/mma.cuh"
#include "staged.cuh"

namespace tc {

// This thread's element of a bias, from column j0 on, or null.
template <typename T, int COLS>
__device__ __forceinline__ const T* bias_element(const GemmDesc& p, int64_t j0) {
  const int64_t j = j0 + threadIdx.x;
  return has_bias(p) && threadIdx.x < COLS && j < p.n ? static_cast<const T*>(p.c.data) + j * p.c.col : nullptr;
}
template <typename T, int COLS>
__device__ __forceinline__ float load_bias(const GemmDesc& p, int64_t j0) {
  const T* const from = bias_element<T, COLS>(p, j0);
  return from ? to_float(*from) : 0.f;
}
template <typename T, int COLS>
__device__ __forceinline__ void prefetch_bias(const GemmDesc& p, int64_t j0) {
  const T* const from = bias_element<T, COLS>(p, j0);
  if (from) prefetch_l2(from);
}

// Turns a warp's products into elements of D. c(x, y, e) is C beside acc[x][y][e].
template <int MMAS_M, int MMAS_N, typename F>
__device__ __forceinline__ void finish_products(const EpilogueArgs& epilogue, float (&acc)[MMAS_M][MMAS_N][4], F&& c) {
#pragma unroll
  for (int x = 0; x < MMAS_M; ++x)
#pragma unroll
    for (int y = 0; y < MMAS_N; ++y)
#pragma unroll
      for (int e = 0; e < 4; ++e) acc[x][y][e] = combine(acc[x][y][e], epilogue.alpha, c(x, y, e), epilogue.beta);
  activate<MMAS_M * MMAS_N * 4>(&acc[0][0][0], epilogue.activation);
}

// finish_products for a bias in shared memory, from the warp's first column on, or for no C.
template <int MMAS_M, int MMAS_N>
__device__ __forceinline__ void finish_products(const GemmDesc& p, float (&acc)[MMAS_M][MMAS_N][4], const float* bias) {
  float2 pairs[MMAS_N] = {};
  if (p.c.data)
#pragma unroll
    for (int y = 0; y < MMAS_N; ++y) pairs[y] = *reinterpret_cast<const float2*>(bias + y * 8 + opaque_lane() % 4 * 2);
  finish_products(p.epilogue, acc, [&](int, int y, int e) { return e % 2 ? pairs[y].y : pairs[y].x; });
}

template <int COLS>
constexpr int kRowPitch = COLS + 8;  // of a staged row: its elements, and room for its shift

// Stages a warp's elements at (i, j) of the block's tile. Elements go one by one, because rows with an odd shift split the
// pairs of mma.sync.
template <int COLS, typename T, int MMAS_M, int MMAS_N>
__device__ __forceinline__ void stage_rows(const RowShift& shift, const float (&acc)[MMAS_M][MMAS_N][4], T* staged, int i,
                                           int j) {
  const int lane = opaque_lane();
#pragma unroll
  for (int x = 0; x < MMAS_M; ++x)
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = i + x * 16 + lane / 4 + h * 8;
      T* const to = staged + row * kRowPitch<COLS> + shift(row) + j + lane % 4 * 2;
#pragma unroll
      for (int y = 0; y < MMAS_N; ++y)
#pragma unroll
        for (int e = 0; e < 2; ++e) to[y * 8 + e] = from_float<T>(acc[x][y][h * 2 + e]);
    }
}

// The same for rows without odd shifts, in pairs.
template <int COLS, typename T, int MMAS_N>
__device__ __forceinline__ void stage_row_pairs(const RowShift& shift, const float (&acc)[1][MMAS_N][4], T* staged) {
  const int lane = opaque_lane();
#pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int row = lane / 4 + h * 8;
    T* const to = staged + row * kRowPitch<COLS> + shift(row) + lane % 4 * 2;
#pragma unroll
    for (int y = 0; y < MMAS_N; ++y)
      *reinterpret_cast<Vec<T, 2>*>(to + y * 8) = {from_float<T>(acc[0][y][h * 2]), from_float<T>(acc[0][y][h * 2 + 1])};
  }
}

// Writes the staged tile to D at (i0, j0), cut off at the matrix's edges. THREADS threads take part, of which this is `thread`.
// Eight lanes share a row. Each writes at most one aligned vector, one of the elements before the first vector, and one of
// those after the last.
template <int ROWS, int COLS, int THREADS, typename T>
__device__ __forceinline__ void store_rows(const GemmDesc& p, const RowShift& shift, const T* staged, int64_t i0, int64_t j0,
                                           unsigned thread = threadIdx.x) {
  static_assert(COLS <= 64);
  const int rows = int(min(int64_t(ROWS), p.m - i0)), cols = int(min(int64_t(COLS), p.n - j0)), lane = thread % 8;
  T* d = static_cast<T*>(p.d.data) + (i0 + thread / 8) * p.d.row + j0;
#pragma unroll 2
  for (int i = thread / 8; i < rows; i += THREADS / 8, d += THREADS / 8 * p.d.row) {
    // In elements of the staged row, whose vectors are those of D.
    const int begin = shift(i), end = begin + cols, first = (begin + 7) & ~7, last = end & ~7;
    const int vector = first + lane * 8, after = last + lane;
    const T* const from = staged + i * kRowPitch<COLS>;
    T* const to = d - begin;
    if (vector < last) *reinterpret_cast<uint4*>(to + vector) = *reinterpret_cast<const uint4*>(from + vector);
    if (begin <= lane && lane < min(first, end)) to[lane] = from[lane];
    if (first <= after && after < end) to[after] = from[after];
  }
}

// How a warp's lanes share 16 rows of `width` columns, a multiple of 16, that are whole 16-byte vectors in memory: 2, 4 or 8 lanes a
// row, so that a lane has 1, 2 or 4 vectors.
struct WarpVectors {
  int lanes;     // of a row
  int row, col;  // of this lane's first vector
  __device__ explicit WarpVectors(int width) : lanes(width <= 16 ? 2 : width <= 32 ? 4 : 8) {
    const int lane = opaque_lane();
    row = lane / lanes, col = lane % lanes * 8;
  }
  // Calls act(row) for each of this lane's vectors inside (rows, cols).
  template <typename F>
  __device__ __forceinline__ void each(int rows, int cols, F&& act) const {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (const int r = row + i * (32 / lanes); i < lanes / 2 && r < rows && col < cols) act(r);
  }
};

// Turns 16x16 products into elements of D and stages them at this lane's address `at` of ldmatrix and stmatrix. A full C is staged
// there already. Otherwise `bias` is a row in shared memory, from the products' first column on.
template <typename T>
__device__ __forceinline__ void finish_matrices(const GemmDesc& p, float (&acc)[1][2][4], uint32_t at, bool full_c,
                                                const float* bias) {
  uint32_t x[4];
  if (full_c) {
    ldmatrix_x4(x, at);
    finish_products(p.epilogue, acc, [&](int, int y, int e) {
      const float2 c = unpack(x[y * 2 + e / 2], T());
      return e % 2 ? c.y : c.x;
    });
  } else {
    finish_products(p, acc, bias);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = pack(acc[0][i / 2][i % 2 * 2], acc[0][i / 2][i % 2 * 2 + 1], T());
  stmatrix_x4(at, x);
}

// Stages the (ROWS, COLS) part of a full C at (i0, j0), where its vectors start at the columns of D's (VectorAccess::c_shifted).
template <int ROWS, int COLS, int THREADS, typename T>
__device__ __forceinline__ void load_rows(const GemmDesc& p, const RowShift& shift, T* staged, int64_t i0, int64_t j0,
                                          int thread) {
  static_assert(COLS <= 64);
  const int rows = int(min(int64_t(ROWS), p.m - i0)), cols = int(min(int64_t(COLS), p.n - j0)), lane = thread % 8;
  const T* c = static_cast<const T*>(p.c.data) + (i0 + thread / 8) * p.c.row + j0;
#pragma unroll
  for (int i = thread / 8; i < ROWS; i += THREADS / 8, c += THREADS / 8 * p.c.row) {
    const int begin = shift(i), end = i < rows ? begin + cols : 0, first = (begin + 7) & ~7, last = end & ~7;
    const int vector = first + lane * 8, after = last + lane;
    const T* const from = c - begin;
    T* const to = staged + i * kRowPitch<COLS>;
    if (vector < last) *reinterpret_cast<uint4*>(to + vector) = *reinterpret_cast<const uint4*>(from + vector);
    if (begin <= lane && lane < min(first, end)) to[lane] = from[lane];
    if (first <= after && after < end) to[after] = from[after];
  }
}

}  // namespace tc
