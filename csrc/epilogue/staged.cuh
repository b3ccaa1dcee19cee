// Products that a warp staged in shared memory, to D.
#pragma once

#include "vectors.cuh"

namespace tc {

// How many elements row i of a part of D, from (i0, j0) on, begins past a multiple of eight; none where D is wide. Staged rows
// begin as many elements late, so that eight elements which share a piece of D share two of shared memory.
template <bool SHIFTED>
struct RowShift {
  int first = 0, step = 0;
  __device__ RowShift(const GemmDesc& p, const VectorAccess& wide, int64_t i0, int64_t j0, int64_t d_offset) {
    if (SHIFTED) first = (wide.d_first + d_offset + i0 * p.d.row + j0) & 7, step = p.d.row & 7;
  }
  __device__ int operator()(int i) const { return SHIFTED ? (first + i * step) & 7 : 0; }
  __device__ int to_next(int i) const { return SHIFTED ? -(first + i * step) & 7 : 0; }  // elements up to the next multiple
};

template <bool SHIFTED>
__device__ __forceinline__ void store_pair(float* target, float x, float y) {
  if (SHIFTED) target[0] = x, target[1] = y;
  else *reinterpret_cast<float2*>(target) = make_float2(x, y);
}

// The lane, as a value that the compiler cannot know earlier: what follows from it holds no registers through the main loop.
__device__ __forceinline__ int lane_worked_out_here() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane;
}

// A warp's products, (ROWS, COLS) floats in rows PITCH apart, to a part of D that lies inside the matrix, C of type CElement and
// D of DElement: COLS / 8 lanes to a row, eight elements each. SHIFTED: whole pieces from each row's first multiple of eight
// on, one fewer, and by element the eight that lie before and after them. All of a batch's C is in flight before any of it is
// used: with a branch, or a store to D, which C may be, between two loads, each costs a latency of its own (16384x4096x128 on
// an H200: 216 microseconds a load at a time, 128 in batches of eight).
template <typename CElement, typename DElement, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_vectors(const GemmDesc& p, const RowShift<SHIFTED>& shift, float* staged, int64_t i0,
                                              int64_t j0, int64_t d_offset) {
  constexpr int LANES = COLS / 8, STEP = 32 / LANES, RUNS = ROWS / STEP, BATCH = RUNS < 8 ? RUNS : 8;  // STEP: rows at once
  constexpr int PIECES = LANES - SHIFTED, EDGES = SHIFTED ? 8 / LANES : 0;  // of a row; single elements of a lane
  static_assert(RUNS % BATCH == 0);
  const int lane = lane_worked_out_here();
  const int piece = min(lane % LANES, PIECES - 1);
  const CElement* c = static_cast<const CElement*>(p.c.data) + (i0 + lane / LANES) * p.c.row + j0;
  DElement* d = static_cast<DElement*>(p.d.data) + d_offset + (i0 + lane / LANES) * p.d.row + j0;
  const int64_t c_step = STEP * p.c.row, d_step = STEP * p.d.row;
#pragma unroll 1
  for (int first = lane / LANES; first < ROWS; first += BATCH * STEP) {
    Vec<CElement, 8> addend[BATCH] = {};
    CElement edge[BATCH][EDGES + 1] = {};
    const auto column_of_edge = [&](int i, int x) {
      const int e = lane % LANES + x * LANES;
      return e < shift.to_next(i) ? e : COLS - 8 + e;
    };
    const auto row_of = [&](int i) { return &staged[i * PITCH + shift(i)]; };
    const bool has_piece = !SHIFTED || lane % LANES < PIECES, active = p.epilogue.activation.kind != Activation::Kind::none;
    // The lane's piece of row i and its edges.
    const auto store = [&](int i, DElement* line, const Vec<float, 8>& of_piece, const float* of_edges) {
      Vec<DElement, 8> rounded;
#pragma unroll
      for (int e = 0; e < 8; ++e) rounded.x[e] = from_float<DElement>(of_piece.x[e]);
      if (has_piece) *reinterpret_cast<Vec<DElement, 8>*>(line + shift.to_next(i) + piece * 8) = rounded;
#pragma unroll
      for (int x = 0; x < EDGES; ++x) line[column_of_edge(i, x)] = from_float<DElement>(of_edges[x]);
    };
    if (p.c.data) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r, c += c_step) {
        const int i = first + r * STEP;
        addend[r] = *reinterpret_cast<const Vec<CElement, 8>*>(c + shift.to_next(i) + piece * 8);
#pragma unroll
        for (int x = 0; x < EDGES; ++x) edge[r][x] = c[column_of_edge(i, x)];
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = first + r * STEP;
      Vec<float, 8>* const at = reinterpret_cast<Vec<float, 8>*>(row_of(i) + shift.to_next(i) + piece * 8);
      Vec<float, 8> of_piece = *at;
      float of_edges[EDGES + 1];
#pragma unroll
      for (int e = 0; e < 8; ++e) of_piece.x[e] = combine(of_piece.x[e], p.epilogue.alpha, to_float(addend[r].x[e]), p.epilogue.beta);
#pragma unroll
      for (int x = 0; x < EDGES; ++x)
        of_edges[x] = combine(row_of(i)[column_of_edge(i, x)], p.epilogue.alpha, to_float(edge[r][x]), p.epilogue.beta);
      if (!active) {
        store(i, d + r * d_step, of_piece, of_edges);
        continue;
      }
      __syncwarp();  // lanes without a piece read another's
      if (has_piece) *at = of_piece;
#pragma unroll
      for (int x = 0; x < EDGES; ++x) row_of(i)[column_of_edge(i, x)] = of_edges[x];
    }
    __syncwarp();
    // One after another, because unrolled this took ptxas three times as long for all of mma_swizzle.
#pragma unroll 1
    for (int r = 0; active && r < BATCH; ++r) {
      const int i = first + r * STEP;
      Vec<float, 8> of_piece = *reinterpret_cast<const Vec<float, 8>*>(row_of(i) + shift.to_next(i) + piece * 8);
      float of_edges[EDGES + 1];
#pragma unroll
      for (int x = 0; x < EDGES; ++x) of_edges[x] = row_of(i)[column_of_edge(i, x)];
      activate<8>(of_piece.x, p.epilogue.activation);
      activate<EDGES>(of_edges, p.epilogue.activation);
      store(i, d + r * d_step, of_piece, of_edges);
    }
    d += BATCH * d_step;
  }
}

// The same for any part of any D and C, element by element.
template <typename CElement, typename DElement, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_elements(const GemmDesc& p, const RowShift<SHIFTED>& shift, float* staged, int64_t i0,
                                                int64_t j0, int64_t d_offset) {
  constexpr int BATCH = 16;
  static_assert(ROWS * COLS % (BATCH * 32) == 0);
  const CElement* const c = static_cast<const CElement*>(p.c.data) + i0 * p.c.row + j0 * p.c.col;
  DElement* const d = static_cast<DElement*>(p.d.data) + d_offset + i0 * p.d.row + j0 * p.d.col;
  const int rows = int(min(int64_t(ROWS), p.m - i0)), cols = int(min(int64_t(COLS), p.n - j0));
  const int lane = lane_worked_out_here();
#pragma unroll 1
  for (int first = lane; first < rows * COLS; first += BATCH * 32) {
    CElement addend[BATCH] = {};
    if (p.c.data) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r) {
        const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
        // Beyond the matrix its last row or column again, and nothing is stored: a branch would wait for the load.
        addend[r] = c[min(i, rows - 1) * p.c.row + min(j, cols - 1) * p.c.col];
      }
    }
    const bool active = p.epilogue.activation.kind != Activation::Kind::none;
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
      float* const at = &staged[i * PITCH + shift(i) + j];
      const float result = combine(*at, p.epilogue.alpha, to_float(addend[r]), p.epilogue.beta);
      if (active) *at = result;
      else if (i < rows && j < cols) d[i * p.d.row + j * p.d.col] = from_float<DElement>(result);
    }
#pragma unroll 1
    for (int r = 0; active && r < BATCH; ++r) {
      const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
      float result = staged[i * PITCH + shift(i) + j];
      activate<1>(&result, p.epilogue.activation);
      if (i < rows && j < cols) d[i * p.d.row + j * p.d.col] = from_float<DElement>(result);
    }
  }
}

// A warp finishes (ROWS, COLS) products that it staged in shared memory, rows PITCH floats apart and shifted by `shift`, at
// (i0, j0) of D: in 16-byte pieces wherever D and C have them, single elements side by side otherwise.
template <typename T, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_staged(const GemmDesc& p, const VectorAccess& wide, const RowShift<SHIFTED>& shift,
                                              float* staged, int64_t i0, int64_t j0, int64_t d_offset) {
  if (i0 >= p.m || j0 >= p.n) return;
  const bool inside = i0 + ROWS <= p.m && j0 + COLS <= p.n;
  const bool pieces = SHIFTED ? wide.c_shifted || !p.c.data : wide.d && (wide.c || !p.c.data);
  const auto finish = [&](auto c_type, auto d_type) {
    using C = decltype(c_type);
    using D = decltype(d_type);
    if (inside && pieces) finish_vectors<C, D, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
    else finish_elements<C, D, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
  };
  if (!is_f32(p.d.dtype)) finish(T(), T());
  else if (is_f32(p.c.dtype)) finish(float(), float());
  else finish(T(), float());
}

}  // namespace tc
