// Writes products that a warp staged in shared memory to D.
#pragma once

#include "vectors.cuh"

namespace tc {

// operator()(i): how many elements past a multiple of eight row i of a part of D begins, for the part at (i0, j0); 0 unless `shifted`,
// VectorAccess::d_shifted. Staged rows begin as many elements late, so that the eight elements of an aligned vector of D lie in
// two aligned vectors of shared memory.
struct RowShift {
  bool shifted = false;
  int first = 0, step = 0;
  __device__ RowShift() {}
  __device__ RowShift(const GemmDesc& p, int64_t i0, int64_t j0, int64_t d_offset, bool shifted = true) : shifted(shifted) {
    if (!shifted) return;
    first = (int(reinterpret_cast<uintptr_t>(p.d.data) / 2) + d_offset + i0 * p.d.row + j0) & 7;
    step = p.d.row & 7;
  }
  __device__ int operator()(int i) const { return (first + i * step) & 7; }
  __device__ bool even() const { return (first | step) % 2 == 0; }
  __device__ int to_next(int i) const { return -(first + i * step) & 7; }  // to the next multiple of eight
};

// Stages row `h` of 0 and 1 of a lane's mma.sync sums: pairs eight columns apart. Shifted rows may begin at an odd column.
template <int MMAS_N>
__device__ __forceinline__ void stage_pairs(bool shifted, float* target, const float (&acc)[MMAS_N][4], int h) {
  const auto each = [&](auto&& act) {
#pragma unroll
    for (int j = 0; j < MMAS_N; ++j) act(target + j * 8, acc[j][h * 2], acc[j][h * 2 + 1]);
  };
  if (shifted) each([](float* to, float x, float y) { to[0] = x, to[1] = y; });
  else each([](float* to, float x, float y) { *reinterpret_cast<float2*>(to) = make_float2(x, y); });
}

// The lane, hidden from the compiler until this point: values computed from it hold no registers during the main loop.
__device__ __forceinline__ int opaque_lane() {
  int lane = threadIdx.x % 32;
  asm volatile("" : "+r"(lane));
  return lane;
}

// Writes a warp's products, (ROWS, COLS) floats in rows PITCH apart, to a part of D that lies inside the matrix. C has elements
// of type CElement and D of type DElement. COLS / 8 lanes share a row, with a vector of eight elements each. SHIFTED: the
// vectors start at each row's first multiple of eight, so a row has one vector fewer, and the eight elements before and after
// the vectors go one by one. All loads of C in a batch are issued before the first use. A branch or a store to D, which may be
// C, between two loads would cost each load a latency of its own. 16384x4096x128 on an H200: 216 microseconds with one load at
// a time, 128 in batches of eight.
template <typename CElement, typename DElement, int ROWS, int COLS, int PITCH, bool SHIFTED>
__device__ __forceinline__ void finish_vectors(const GemmDesc& p, const RowShift& shift, float* staged, int64_t i0, int64_t j0,
                                               int64_t d_offset) {
  constexpr int LANES = COLS / 8, STEP = 32 / LANES;                         // lanes of a row; rows at once
  constexpr int VECTORS = ROWS / STEP, BATCH = VECTORS < 8 ? VECTORS : 8;    // vectors of a lane; of them in a batch
  constexpr int PER_ROW = LANES - SHIFTED, EDGES = SHIFTED ? 8 / LANES : 0;  // vectors of a row; single elements of a lane
  static_assert(VECTORS % BATCH == 0);
  const int lane = opaque_lane();
  const int vector = min(lane % LANES, PER_ROW - 1);
  const CElement* c = static_cast<const CElement*>(p.c.data) + (i0 + lane / LANES) * p.c.row + j0;
  DElement* d = static_cast<DElement*>(p.d.data) + d_offset + (i0 + lane / LANES) * p.d.row + j0;
  const int64_t c_step = STEP * p.c.row, d_step = STEP * p.d.row;
#pragma unroll 1
  for (int first = lane / LANES; first < ROWS; first += BATCH * STEP) {
    Vec<CElement, 8> addend[BATCH] = {};
    CElement edge[BATCH][EDGES + 1] = {};
    const auto to_next = [&](int i) { return SHIFTED ? shift.to_next(i) : 0; };
    const auto column_of_edge = [&](int i, int x) {
      const int e = lane % LANES + x * LANES;
      return e < to_next(i) ? e : COLS - 8 + e;
    };
    const auto row_of = [&](int i) { return &staged[i * PITCH + (SHIFTED ? shift(i) : 0)]; };
    const bool has_vector = !SHIFTED || lane % LANES < PER_ROW, active = p.epilogue.activation.kind != Activation::Kind::none;
    // Writes the lane's vector of row i and its single elements.
    const auto store = [&](int i, DElement* row, const Vec<float, 8>& values, const float* edge_values) {
      Vec<DElement, 8> rounded;
#pragma unroll
      for (int e = 0; e < 8; ++e) rounded.x[e] = from_float<DElement>(values.x[e]);
      if (has_vector) store_whole(row + to_next(i) + vector * 8, rounded);
#pragma unroll
      for (int x = 0; x < EDGES; ++x) row[column_of_edge(i, x)] = from_float<DElement>(edge_values[x]);
    };
    if (p.c.data) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r, c += c_step) {
        const int i = first + r * STEP;
        addend[r] = *reinterpret_cast<const Vec<CElement, 8>*>(c + to_next(i) + vector * 8);
#pragma unroll
        for (int x = 0; x < EDGES; ++x) edge[r][x] = c[column_of_edge(i, x)];
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = first + r * STEP;
      Vec<float, 8>* const at = reinterpret_cast<Vec<float, 8>*>(row_of(i) + to_next(i) + vector * 8);
      Vec<float, 8> values = *at;
      float edge_values[EDGES + 1];
#pragma unroll
      for (int e = 0; e < 8; ++e)
        values.x[e] = combine(values.x[e], p.epilogue.alpha, to_float(addend[r].x[e]), p.epilogue.beta);
#pragma unroll
      for (int x = 0; x < EDGES; ++x)
        edge_values[x] = combine(row_of(i)[column_of_edge(i, x)], p.epilogue.alpha, to_float(edge[r][x]), p.epilogue.beta);
      if (!active) {
        store(i, d + r * d_step, values, edge_values);
        continue;
      }
      __syncwarp();  // a lane without a vector has read another lane's
      if (has_vector) *at = values;
#pragma unroll
      for (int x = 0; x < EDGES; ++x) row_of(i)[column_of_edge(i, x)] = edge_values[x];
    }
    __syncwarp();
    // Not unrolled: unrolled, ptxas took three times as long for all of mma_swizzle.
#pragma unroll 1
    for (int r = 0; active && r < BATCH; ++r) {
      const int i = first + r * STEP;
      Vec<float, 8> values = *reinterpret_cast<const Vec<float, 8>*>(row_of(i) + to_next(i) + vector * 8);
      float edge_values[EDGES + 1];
#pragma unroll
      for (int x = 0; x < EDGES; ++x) edge_values[x] = row_of(i)[column_of_edge(i, x)];
      activate<8>(values.x, p.epilogue.activation);
      activate<EDGES>(edge_values, p.epilogue.activation);
      store(i, d + r * d_step, values, edge_values);
    }
    d += BATCH * d_step;
  }
}

// Elements of a matrix whose type is asked at run time: T, the operands' type, or fp32. Compiled for each pair of types of C and D,
// what is not written by vectors took two fifths of mma_swizzle's compilation.
template <typename T>
struct Elements {
  char* at;
  bool f32;
  __device__ Elements(const MatrixView& x, int64_t offset) : f32(sizeof(T) == 4 || is_f32(x.dtype)) {
    at = static_cast<char*>(x.data) + offset * size();
  }
  __device__ int size() const { return f32 ? 4 : 2; }
  __device__ float load(int64_t offset) const {
    return f32 ? *reinterpret_cast<const float*>(at + offset * 4) : to_float(*reinterpret_cast<const T*>(at + offset * 2));
  }
  __device__ void store(int64_t offset, float x) const {
    if (f32) *reinterpret_cast<float*>(at + offset * 4) = x;
    else *reinterpret_cast<T*>(at + offset * 2) = from_float<T>(x);
  }
};

// Like finish_vectors, for rows of D and C that are contiguous and begin anywhere, and for parts that reach beyond the matrix. A lane
// has a column, so that a C with one row is read once.
template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_rows(const GemmDesc& p, const RowShift& shift, float* staged, int64_t i0, int64_t j0,
                                            int64_t d_offset) {
  constexpr int LANES = COLS < 32 ? COLS : 32, STEP = 32 / LANES;  // lanes of a row; rows at once
  constexpr int BATCH = ROWS / STEP < 8 ? ROWS / STEP : 8;         // elements of a lane
  static_assert(COLS % LANES == 0 && ROWS % (BATCH * STEP) == 0);
  const int rows = int(min(int64_t(ROWS), p.m - i0)), lane = opaque_lane();
  const bool active = p.epilogue.activation.kind != Activation::Kind::none;
#pragma unroll 1
  for (int j = lane % LANES; j < min(int64_t(COLS), p.n - j0); j += LANES) {
    const Elements<T> c(p.c, i0 * p.c.row + j0 + j), d(p.d, d_offset + i0 * p.d.row + j0 + j);
    float addend[BATCH] = {};
    if (p.c.data && p.c.row == 0) {
      const float of_all = c.load(0);
#pragma unroll
      for (int r = 0; r < BATCH; ++r) addend[r] = of_all;
    }
#pragma unroll 1
    for (int first = lane / LANES; first < rows; first += BATCH * STEP) {
      if (p.c.data && p.c.row != 0) {
#pragma unroll
        for (int r = 0; r < BATCH; ++r)
          if (first + r * STEP < rows) addend[r] = c.load((first + r * STEP) * p.c.row);
      }
#pragma unroll
      for (int r = 0; r < BATCH; ++r) {
        const int i = first + r * STEP;
        float* const at = &staged[i * PITCH + shift(i) + j];
        const float result = combine(*at, p.epilogue.alpha, addend[r], p.epilogue.beta);
        if (active) *at = result;
        else if (i < rows) d.store(i * p.d.row, result);
      }
#pragma unroll 1
      for (int i = first; active && i < min(rows, first + BATCH * STEP); i += STEP) {
        float result = staged[i * PITCH + shift(i) + j];
        activate<1>(&result, p.epilogue.activation);
        d.store(i * p.d.row, result);
      }
    }
  }
}

// Like finish_vectors, but element by element, for any part of any D and C.
template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_elements(const GemmDesc& p, const RowShift& shift, float* staged, int64_t i0, int64_t j0,
                                                int64_t d_offset) {
  constexpr int BATCH = ROWS * COLS < 256 ? ROWS * COLS / 32 : 8;
  static_assert(ROWS * COLS % (BATCH * 32) == 0);
  const Elements<T> c(p.c, i0 * p.c.row + j0 * p.c.col), d(p.d, d_offset + i0 * p.d.row + j0 * p.d.col);
  const int rows = int(min(int64_t(ROWS), p.m - i0)), cols = int(min(int64_t(COLS), p.n - j0));
  const int lane = opaque_lane();
#pragma unroll 1
  for (int first = lane; first < rows * COLS; first += BATCH * 32) {
    float addend[BATCH] = {};
    if (p.c.data) {
#pragma unroll
      for (int r = 0; r < BATCH; ++r) {
        const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
        // Beyond the matrix a lane loads the last row or column again and stores nothing: a branch would wait for the load.
        addend[r] = c.load(min(i, rows - 1) * p.c.row + min(j, cols - 1) * p.c.col);
      }
    }
#pragma unroll
    for (int r = 0; r < BATCH; ++r) {
      const int i = (first + r * 32) / COLS, j = (first + r * 32) % COLS;
      float result = combine(staged[i * PITCH + shift(i) + j], p.epilogue.alpha, addend[r], p.epilogue.beta);
      activate<1>(&result, p.epilogue.activation);
      if (i < rows && j < cols) d.store(i * p.d.row + j * p.d.col, result);
    }
  }
}

// Calls act(c, d) with an element of C's type and one of D's. D is fp32 or, like C then, the operands' type T.
template <typename T, typename F>
__device__ __forceinline__ void with_types(const GemmDesc& p, F&& act) {
  if constexpr (std::is_same_v<T, float>) act(float(), float());
  else if (!is_f32(p.d.dtype)) act(T(), T());
  else if (is_f32(p.c.dtype)) act(float(), float());
  else act(T(), float());
}

// Finishes a warp's (ROWS, COLS) products at (i0, j0) of D, staged in shared memory in rows PITCH floats apart, element by element.
template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_staged_elements(const GemmDesc& p, float* staged, int64_t i0, int64_t j0) {
  if (i0 < p.m && j0 < p.n) finish_elements<T, ROWS, COLS, PITCH>(p, RowShift(), staged, i0, j0, 0);
}

// Finishes a warp's (ROWS, COLS) products at (i0, j0) of D. The products are staged in shared memory, in rows PITCH floats
// apart and shifted by `shift`. The warp writes 16-byte vectors if D and C allow them, and single elements side by side
// otherwise.
template <typename T, int ROWS, int COLS, int PITCH>
__device__ __forceinline__ void finish_staged(const GemmDesc& p, const VectorAccess& access, const RowShift& shift,
                                              float* staged, int64_t i0, int64_t j0, int64_t d_offset) {
  if (i0 >= p.m || j0 >= p.n) return;
  const bool inside = i0 + ROWS <= p.m && j0 + COLS <= p.n, no_c = !p.c.data;
  if (inside && access.d && (no_c || access.c)) {
    return with_types<T>(p, [&](auto c, auto d) {
      finish_vectors<decltype(c), decltype(d), ROWS, COLS, PITCH, false>(p, shift, staged, i0, j0, d_offset);
    });
  }
  if constexpr (sizeof(T) == 2) {
    if (inside && shift.shifted && (no_c || access.c_shifted))
      return finish_vectors<T, T, ROWS, COLS, PITCH, true>(p, shift, staged, i0, j0, d_offset);
  }
  if (p.d.col == 1 && (no_c || p.c.col == 1)) finish_rows<T, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
  else finish_elements<T, ROWS, COLS, PITCH>(p, shift, staged, i0, j0, d_offset);
}

}  // namespace tc
