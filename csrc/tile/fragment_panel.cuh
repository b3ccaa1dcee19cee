// A panel of B in shared memory, in the order of the fragments of mma.sync.
#pragma once

#include "../ptx/cp_async.cuh"
#include "panel.cuh"
#include "words.cuh"

namespace tc {

// Loads `columns` columns of B from column n0 on, any strides, `depth` steps of K. store(step, column, q, vector) takes each of their
// 16-byte vectors. Zeros stand for what lies beyond B's edges. WIDTH: columns are contiguous, and begin at multiples of it; 0: element
// by element.
template <typename T, int THREADS, int WIDTH, typename F>
__device__ __forceinline__ void load_columns_as(const MatrixView& b, int64_t n0, int64_t n, int64_t k, int columns, int depth,
                                                F&& store) {
  // Neighbouring lanes take the vectors of a column if those follow each other in memory, and columns otherwise.
  constexpr int W = 16 / sizeof(T);  // elements of a vector
  constexpr bool ALONG_K = WIDTH > 0;
  constexpr int BATCH = ALONG_K ? 4 : 2, LANES = ALONG_K ? 4 : 1;  // vectors that a thread has in flight; lanes of a column
  const int vectors = depth * 4;
  const int first_column = ALONG_K ? threadIdx.x / 4 : threadIdx.x % 32,
            first_vector = ALONG_K ? threadIdx.x % 4 : threadIdx.x / 32;
  constexpr int STEP_COLUMN = ALONG_K ? THREADS / 4 : 32 * BATCH, STEP_VECTOR = ALONG_K ? 4 * BATCH : THREADS / 32;
#pragma unroll 1
  for (int column0 = first_column; column0 < columns; column0 += STEP_COLUMN)
#pragma unroll 1
    for (int vector0 = first_vector; vector0 < vectors; vector0 += STEP_VECTOR) {
      const auto column = [&](int x) { return column0 + (ALONG_K ? 0 : x * 32); };
      const auto vector = [&](int x) { return vector0 + (ALONG_K ? x * LANES : 0); };
      const auto from = [&](int x) {
        return static_cast<const T*>(b.data) + min(n0 + column(x), n - 1) * b.col + int64_t(vector(x)) * W * b.row;
      };
      const auto left = [&](int x) {  // elements
        return n0 + column(x) < n ? int(min(k - int64_t(vector(x)) * W, int64_t(W))) : 0;
      };
      const auto whole = [&](int x) { return ALONG_K && left(x) == W; };
      Words<4, ALONG_K ? WIDTH : 16> words[BATCH];
#pragma unroll
      for (int x = 0; x < BATCH; ++x) {
        if (whole(x)) words[x].load(from(x));
        else words[x].load_elements(from(x), b.row, left(x));
      }
#pragma unroll
      for (int x = 0; x < BATCH; ++x) {
        uint32_t word[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          word[i] = words[x].word(i, WIDTH == 2 && whole(x) && is_odd(from(x)));
        }
        if (column(x) < columns && vector(x) < vectors)
          store(vector(x) / 4, column(x), vector(x) % 4, make_uint4(word[0], word[1], word[2], word[3]));
      }
    }
}

template <typename T, int THREADS, typename F>
__device__ __forceinline__ void load_columns(const MatrixView& b, int64_t n0, int64_t n, int64_t k, int columns, int depth,
                                             F&& store) {
  const auto load = [&](auto width) { load_columns_as<T, THREADS, width>(b, n0, n, k, columns, depth, store); };
  if (b.row != 1) load(std::integral_constant<int, 0>());
  else if (const int by = int((b.col * sizeof(T) | reinterpret_cast<uintptr_t>(b.data)) % 16); by == 0)
    load(std::integral_constant<int, 16>());
  else if (by % 8 == 0) load(std::integral_constant<int, 8>());
  else load(std::integral_constant<int, 2>());
}

// A panel whose columns lie in order. Lane q takes the q-th 16 bytes of a step.
template <typename T, int THREADS>
struct FragmentPanel : Panel {
  // Copies columns n0 and on of B through registers.
  __device__ __forceinline__ void load(const MatrixView& b, int64_t n0, int64_t n, int64_t k) const {
    load_columns<T, THREADS>(b, n0, n, k, columns, depth, [&](int step, int column, int q, const uint4& vector) {
      st_shared_16(smem + step * columns * kStepBytes + offset(column, q), vector);
    });
  }
};

// A warp's rows of A in registers: ROWS rows and at most STEPS steps, from global memory without a detour.
template <typename T, int ROWS, int STEPS>
struct RowFragments {
  static_assert(sizeof(T) == 2);
  static constexpr int MMAS_M = ROWS / 16, W = 16 / sizeof(T), STEP_K = kStepBytes / sizeof(T);
  // Of mma.sync i and step s: this lane's 16 bytes of rows lane / 4 and lane / 4 + 8. The last step's words are last_step.
  uint32_t steps[STEPS - 1][MMAS_M][2][4], last_step[MMAS_M][2][4];

  // Loads `count` steps of rows m0 and on, from element k0 on. Zeros stand for what lies beyond K; rows beyond A repeat its last.
  __device__ __forceinline__ void load(const MatrixView& a, int64_t m0, int64_t m, int64_t k0, int64_t k, int count) {
    const int by = int((a.row * sizeof(T) | reinterpret_cast<uintptr_t>(a.data)) % 16);
    if (by == 0) load_as<16>(a, m0, m, k0, k, count);
    else if (by % 8 == 0) load_as<8>(a, m0, m, k0, k, count);
    else load_as<2>(a, m0, m, k0, k, count);
  }

 private:
  template <int WIDTH>
  __device__ __forceinline__ void load_as(const MatrixView& a, int64_t m0, int64_t m, int64_t k0, int64_t k, int count) {
    const int lane = threadIdx.x % 32;
    const int64_t last_k = k0 + (count - 1) * STEP_K + lane % 4 * W;  // of this lane in the last step
    const int left = int(min(k - last_k, int64_t(W)));
    const T* const end = static_cast<const T*>(a.data) + (m - 1) * a.row + k;
    const auto row = [&](int i, int h) {
      return static_cast<const T*>(a.data) + min(m0 + i * 16 + h * 8 + lane / 4, m - 1) * a.row;
    };
    // The words of a row's last vector also hold elements of the next row. No row follows A's last.
    const auto by_words = [&](const T* from) { return from + W <= end; };
    Words<4, WIDTH> words[STEPS - 1][MMAS_M][2], last[MMAS_M][2];
#pragma unroll
    for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const T* const from = row(i, h) + k0 + lane % 4 * W;
#pragma unroll
        for (int s = 0; s < STEPS - 1; ++s)
          if (s + 1 < count) words[s][i][h].load(from + s * STEP_K);
        const T* const at = row(i, h) + last_k;
        if (left > 0 && by_words(at)) last[i][h].load(at);
        else last[i][h].load_elements(at, 1, left);
      }
#pragma unroll
    for (int i = 0; i < MMAS_M; ++i)
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const bool odd = is_odd(row(i, h));
#pragma unroll
        for (int w = 0; w < 4; ++w) {
#pragma unroll
          for (int s = 0; s < STEPS - 1; ++s) steps[s][i][h][w] = words[s][i][h].word(w, odd);
          const int bytes = left * int(sizeof(T)) - w * 4;
          const uint32_t x = last[i][h].word(w, odd && by_words(row(i, h) + last_k));
          last_step[i][h][w] = bytes >= 4 ? x : bytes == 2 ? x & 0xffff : 0;
        }
      }
  }
};

}  // namespace tc
