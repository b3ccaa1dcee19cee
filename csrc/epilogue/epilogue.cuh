// From accumulators to D: the one place where alpha, beta, C and the activation act.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "../gemm/desc.h"
#include "../tile/copy.cuh"

namespace tc {

__device__ __forceinline__ float to_float(float x) { return x; }
__device__ __forceinline__ float to_float(__half x) { return __half2float(x); }
__device__ __forceinline__ float to_float(__nv_bfloat16 x) { return __bfloat162float(x); }

template <typename T>
__device__ __forceinline__ T from_float(float x);
template <>
__device__ __forceinline__ float from_float(float x) { return x; }
template <>
__device__ __forceinline__ __half from_float(float x) { return __float2half_rn(x); }
template <>
__device__ __forceinline__ __nv_bfloat16 from_float(float x) { return __float2bfloat16_rn(x); }

// In fp32, before the one rounding to D's dtype. This way round, so that a bias times beta is computed once for several rows.
__device__ __forceinline__ float combine(float product, float alpha, float c, float beta) {
  return fmaf(alpha, product, beta * c);
}

// x * sigmoid(x * g), as Activation says, with a g of at most DEGREE. Two of its instructions go to the unit for special functions,
// which takes 16 a cycle of an SM. Denormal results become 0: the power's does not show in the sum, the sigmoid's only below 1e-36.
template <int DEGREE>
__device__ __forceinline__ float gated(float x, const Activation& activation) {
  const float t = fminf(x * x, 36.f);
  float g = activation.gate[DEGREE], power, sigmoid;
#pragma unroll
  for (int i = DEGREE - 1; i >= 0; --i) g = fmaf(g, t, activation.gate[i]);
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(power) : "f"(x * g));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(sigmoid) : "f"(1.f + power));
  return x * sigmoid;
}

__device__ __forceinline__ float relu(float x) {
  asm("max.NaN.f32 %0, %0, 0f00000000;" : "+f"(x));  // NaN stays NaN
  return x;
}

// In place: one branch for all elements, not one for each. Two lengths of g, because instructions are what a tile waits for (gelu_tanh
// after 8192x3072x768 on an H200: 80.5 microseconds with six steps for all, 72 with one for those that have no more, 62 without).
template <int W>
__device__ __forceinline__ void activate(float* x, const Activation& activation) {
  const auto each = [&](auto&& act) {
#pragma unroll
    for (int e = 0; e < W; ++e) x[e] = act(x[e]);
  };
  if (activation.kind == Activation::Kind::none) return;
  if (activation.kind == Activation::Kind::relu) each([](float v) { return relu(v); });
  else if (activation.degree <= 1) each([&](float v) { return gated<1>(v, activation); });
  else each([&](float v) { return gated<Activation::kMostDegree>(v, activation); });
}

// Elements (i, j) .. (i, j + count - 1) of x, a matrix of T. `wide`: x allows 16-byte accesses along its rows.
template <typename T, int W>
__device__ __forceinline__ void load_run(const Matrix& x, int64_t i, int64_t j, int count, bool wide, float (&run)[W]) {
  const T* source = static_cast<const T*>(x.data) + i * x.row + j * x.col;
  if (wide && count == W) {
    const Vec<T, W> v = *reinterpret_cast<const Vec<T, W>*>(source);
#pragma unroll
    for (int e = 0; e < W; ++e) run[e] = to_float(v.x[e]);
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e) run[e] = e < count ? to_float(source[e * x.col]) : 0.f;
  }
}

template <typename T, int W>
__device__ __forceinline__ void store_run(const Matrix& x, int64_t i, int64_t j, int count, bool wide,
                                          const float (&run)[W], int64_t offset) {
  T* target = static_cast<T*>(x.data) + offset + i * x.row + j * x.col;
  if (wide && count == W) {
    Vec<T, W> v;
#pragma unroll
    for (int e = 0; e < W; ++e) v.x[e] = from_float<T>(run[e]);
    *reinterpret_cast<Vec<T, W>*>(target) = v;
  } else {
#pragma unroll
    for (int e = 0; e < W; ++e)
      if (e < count) target[e * x.col] = from_float<T>(run[e]);
  }
}

// Which accesses may be 16 bytes wide, decided once per launch.
struct Wide {
  bool a, b, c, d;  // all along the contiguous lines
  bool d_shifted;   // D's rows are contiguous but begin anywhere: their 16-byte pieces start at other columns in each row
  bool c_shifted;   // and so do C's pieces, at the same columns
  uint8_t d_first;  // elements of D, modulo 8, before its first
};

// D has `splits` layers of (M, N).
inline Wide wide_accesses(const Problem& p, int splits = 1) {
  const auto elements = [](const Matrix& x) { return int64_t(reinterpret_cast<uintptr_t>(x.data) / size_of(x.dtype)); };
  const bool rows = order_of(p.d) == Order::row_major, c_rows = order_of(p.c) == Order::row_major;
  const bool d_wide = rows && alignment(p.d, p.m, p.n) == 16 && (splits == 1 || p.m * p.n * size_of(p.d.dtype) % 16 == 0);
  return {alignment(p.a, p.m, p.k) == 16, alignment(p.b, p.k, p.n) == 16,
          c_rows && alignment(p.c, p.m, p.n) == 16, d_wide, rows && !d_wide,
          c_rows && (elements(p.c) - elements(p.d)) % 8 == 0 && (p.c.row - p.d.row) % 8 == 0,
          uint8_t(elements(p.d) % 8)};
}

// How many of the W elements from (i, j) on lie in D.
template <int W>
__device__ __forceinline__ int count_in(const Problem& p, int64_t i, int64_t j) {
  return i < p.m && j < p.n ? int(min(int64_t(W), p.n - j)) : 0;
}

// C for finish_run, as fp32. C and D hold T, the operands' dtype, or fp32.
template <typename T, int W>
__device__ __forceinline__ void read_c(const Problem& p, const Wide& wide, int64_t i, int64_t j, float (&c)[W]) {
  const int count = count_in<W>(p, i, j);
#pragma unroll
  for (int e = 0; e < W; ++e) c[e] = 0.f;
  if (!count || !p.c.data) return;
  if (p.c.dtype == DType::f32) load_run<float>(p.c, i, j, count, wide.c, c);
  else load_run<T>(p.c, i, j, count, wide.c, c);
}

// The same for several runs, the rows and first columns of which the functions tell: all loads before the first use.
template <typename T, int W, int COUNT, typename Rows, typename Cols>
__device__ __forceinline__ void read_c(const Problem& p, const Wide& wide, Rows&& row_of, Cols&& col_of, float (&c)[COUNT][W]) {
  const auto read_wide = [&](auto type) {
    using C = decltype(type);
    Vec<C, W> runs[COUNT];
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const C* const from = static_cast<const C*>(p.c.data) + row_of(i) * p.c.row + col_of(i);
      runs[i] = count_in<W>(p, row_of(i), col_of(i)) == W ? *reinterpret_cast<const Vec<C, W>*>(from) : Vec<C, W>{};
    }
#pragma unroll
    for (int i = 0; i < COUNT; ++i)
#pragma unroll
      for (int e = 0; e < W; ++e) c[i][e] = to_float(runs[i].x[e]);
  };
  if (p.c.data && wide.c && p.n % W == 0) {
    if (p.c.dtype == DType::f32) read_wide(float());
    else read_wide(T());
    return;
  }
#pragma unroll
  for (int i = 0; i < COUNT; ++i) read_c<T>(p, wide, row_of(i), col_of(i), c[i]);
}

// D = activation(alpha * product + beta * C) for the W elements of row i from column j on, cut off at the matrix's edge.
// D begins `d_offset` elements into p.d: the part of a split K.
template <typename T, int W>
__device__ __forceinline__ void finish_run(const Problem& p, const Wide& wide, int64_t i, int64_t j,
                                           float (&product)[W], const float (&c)[W], int64_t d_offset) {
  const int count = count_in<W>(p, i, j);
  if (!count) return;
#pragma unroll
  for (int e = 0; e < W; ++e) product[e] = combine(product[e], p.alpha, c[e], p.beta);
  activate<W>(product, p.activation);
  if (p.d.dtype == DType::f32) store_run<float>(p.d, i, j, count, wide.d, product, d_offset);
  else store_run<T>(p.d, i, j, count, wide.d, product, d_offset);
}

// Both: C is read before D is written, so that D may be C itself.
template <typename T, int W>
__device__ __forceinline__ void finish_run(const Problem& p, const Wide& wide, int64_t i, int64_t j,
                                           float (&product)[W]) {
  float c[W];
  read_c<T>(p, wide, i, j, c);
  finish_run<T>(p, wide, i, j, product, c, 0);
}

// How many elements row i of a part of D, from (i0, j0) on, begins past a multiple of eight; none where D is wide. Staged rows
// begin as many elements late, so that eight elements which share a piece of D share two of shared memory.
template <bool SHIFTED>
struct RowShift {
  int first = 0, step = 0;
  __device__ RowShift(const Problem& p, const Wide& wide, int64_t i0, int64_t j0, int64_t d_offset) {
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
__device__ __forceinline__ void finish_pieces(const Problem& p, const RowShift<SHIFTED>& shift, float* staged, int64_t i0,
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
    const bool has_piece = !SHIFTED || lane % LANES < PIECES, active = p.activation.kind != Activation::Kind::none;
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
      for (int e = 0; e < 8; ++e) of_piece.x[e] = combine(of_piece.x[e], p.alpha, to_float(addend[r].x[e]), p.beta);
#pragma unroll
      for (int x = 0; x < EDGES; ++x)
        of_edges[x] = combine(row_of(i)[column_of_edge(i, x)], p.alpha, to_float(edge[r][x]), p.beta);
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
      activate<8>(of_piece.x, p.activation);
      activate<EDGES>(of_edges, p.activation);
      store(i, d + r * d_step, of_piece, of_edges);
    }
    d += BATCH * d_step;
  }
}

// The same for any part of any D and C, element by element.
template <typename CElement, typename DElement, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_elements(const Problem& p, const RowShift<SHIFTED>& shift, float* staged, int64_t i0,
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
    const bool active = p.activation.kind != Activation::Kind::none;
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
      float* const at = &staged[i * PITCH + shift(i) + j];
      const float result = combine(*at, p.alpha, to_float(addend[r]), p.beta);
      if (active) *at = result;
      else if (i < rows && j < cols) d[i * p.d.row + j * p.d.col] = from_float<DElement>(result);
    }
#pragma unroll 1
    for (int r = 0; active && r < BATCH; ++r) {
      const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
      float result = staged[i * PITCH + shift(i) + j];
      activate<1>(&result, p.activation);
      if (i < rows && j < cols) d[i * p.d.row + j * p.d.col] = from_float<DElement>(result);
    }
  }
}

// A warp finishes (ROWS, COLS) products that it staged in shared memory, rows PITCH floats apart and shifted by `shift`, at
// (i0, j0) of D: in 16-byte pieces wherever D and C have them, single elements side by side otherwise.
template <typename T, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_staged(const Problem& p, const Wide& wide, const RowShift<SHIFTED>& shift,
                                              float* staged, int64_t i0, int64_t j0, int64_t d_offset) {
  if (i0 >= p.m || j0 >= p.n) return;
  const bool inside = i0 + ROWS <= p.m && j0 + COLS <= p.n;
  const bool pieces = SHIFTED ? wide.c_shifted || !p.c.data : wide.d && (wide.c || !p.c.data);
  const auto finish = [&](auto c_type, auto d_type) {
    using C = decltype(c_type);
    using D = decltype(d_type);
    if (inside && pieces) finish_pieces<C, D, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
    else finish_elements<C, D, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
  };
  if (p.d.dtype != DType::f32) finish(T(), T());
  else if (p.c.dtype == DType::f32) finish(float(), float());
  else finish(T(), float());
}

// Asks L2 for the (BLK_M, BLK_N) tile of a full, row-major C at (i0, j0), so that the epilogue finds it there.
template <int BLK_M, int BLK_N, int THREADS>
__device__ __forceinline__ void prefetch_c(const Problem& p, int64_t i0, int64_t j0) {
  if (!p.c.data || p.c.col != 1 || p.c.row == 0) return;
  const int bytes = p.c.dtype == DType::f32 ? 4 : 2;
  prefetch_lines(static_cast<const char*>(p.c.data) + (i0 * p.c.row + j0) * bytes, p.c.row * bytes,
                 int(min(int64_t(BLK_M), p.m - i0)), min(int64_t(BLK_N), p.n - j0) * bytes, threadIdx.x, THREADS);
}

}  // namespace tc
