// A warpgroup's way from accumulators to D: boxes of C come to shared memory by TMA while the product runs, each is turned into
// a box of D where it lies, and leaves by TMA while the next one is computed.
#pragma once

#include "barrier.cuh"
#include "epilogue.cuh"
#include "mma.cuh"
#include "tma.cuh"

namespace tc {

constexpr int kBoxRows = 64;  // of C and D: those of one wgmma

// How a kernel reaches C and D: by TMA where it can, otherwise element by element, side by side.
enum class CPath : uint8_t { none, tma, row, copy };  // row: one row for all, as a 1-D bias is

struct TmaPaths {
  CUtensorMap c, d;
  CPath c_path;
  bool d_by_tma;
};

inline bool reachable_by_tma(const Matrix& x, int64_t rows, int64_t cols) {
  return order_of(x) == Order::row_major && alignment(x, rows, cols) == 16 && (rows == 1 || x.row >= cols);
}

// D has `splits` layers of (M, N).
inline Status make_tma_paths(TmaPaths& paths, const Problem& p, int splits) {
  const bool full_c = p.c.data && p.c.dtype == p.d.dtype && reachable_by_tma(p.c, p.m, p.n);
  paths.c_path = !p.c.data ? CPath::none : full_c ? CPath::tma : p.c.row == 0 && p.c.col <= 1 ? CPath::row : CPath::copy;
  // Rows that end within a 16-byte chunk: test_result_layouts[row_pitched] failed on an H200 when TMA stored them.
  paths.d_by_tma = reachable_by_tma(p.d, p.m, p.n) && p.n * size_of(p.d.dtype) % 16 == 0;
  if (full_c) {
    const Status status = make_tensor_map(paths.c, p.c.data, p.c.dtype, p.m, p.n, p.c.row, kBoxRows);
    if (!status.ok()) return status;
  }
  if (!paths.d_by_tma) return {};
  return make_tensor_map(paths.d, p.d.data, p.d.dtype, p.m, p.n, p.d.row, kBoxRows, splits, p.m * p.n);
}

__device__ __forceinline__ uint32_t pack(float x, float y, __half) {
  const __half2 r = __floats2half2_rn(x, y);
  return reinterpret_cast<const uint32_t&>(r);
}
__device__ __forceinline__ uint32_t pack(float x, float y, __nv_bfloat16) {
  const __nv_bfloat162 r = __floats2bfloat162_rn(x, y);
  return reinterpret_cast<const uint32_t&>(r);
}
__device__ __forceinline__ float2 unpack(uint32_t x, __half) { return __half22float2(reinterpret_cast<const __half2&>(x)); }
__device__ __forceinline__ float2 unpack(uint32_t x, __nv_bfloat16) {
  return __bfloat1622float2(reinterpret_cast<const __nv_bfloat162&>(x));
}

// The epilogue of a warpgroup for tiles of (ROWS, COLS) and D of type D. T is the operands' type, which C may have as well.
// Boxes are (64, 128 bytes), walked down the tile's 64-row blocks last; the tile has COUNT of them, of which BUFFERS at a time
// lie in shared memory. One thread, the warpgroup's first, speaks to TMA.
template <typename T, typename D, int ROWS, int COLS, int MOST_BUFFERS>
struct TmaEpilogue {
  static constexpr int WIDTH = kBoxBytes / int(sizeof(D)), PER_BLOCK = COLS / WIDTH, COUNT = ROWS / kBoxRows * PER_BLOCK;
  static constexpr int BUFFERS = COUNT < MOST_BUFFERS ? COUNT : MOST_BUFFERS, BOX_BYTES = kBoxRows * kBoxBytes;
  static_assert(COUNT % BUFFERS == 0);

  const Problem& p;
  const TmaPaths& paths;
  char* const boxes;       // (BUFFERS, 64, 128 bytes)
  const uint32_t arrived;  // (BUFFERS) barriers: C is there
  const int name;          // of the warpgroup's named barrier
  const int thread;        // of the warpgroup

  __device__ uint32_t box(int i) const { return smem_address(boxes) + i % BUFFERS * BOX_BYTES; }
  __device__ void sync() const { named_barrier<128>(name); }

  __device__ void load_c(int i, int m0, int n0) const {
    mbarrier_arrive_expect(arrived + i % BUFFERS * 8, BOX_BYTES);
    tma_load(box(i), paths.c, arrived + i % BUFFERS * 8, n0 + i % PER_BLOCK * WIDTH, m0 + i / PER_BLOCK * kBoxRows);
  }

  // While the product runs: asks for the tile's first boxes of C, into which the last tile's D no longer lies.
  __device__ void prefetch(int m0, int n0) const {
    if (paths.c_path == CPath::copy && p.c.col == 1 && p.c.row != 0) {
      const int bytes = p.c.dtype == DType::f32 ? 4 : 2;
      if (m0 < p.m && n0 < p.n)
        prefetch_lines(static_cast<const char*>(p.c.data) + (m0 * p.c.row + n0) * bytes, p.c.row * bytes,
                            int(min(int64_t(ROWS), p.m - m0)), min(int64_t(COLS), p.n - n0) * bytes, thread, 128);
    }
    if (paths.c_path != CPath::tma || thread != 0) return;
    tma_store_wait_read<0>();
#pragma unroll
    for (int i = 0; i < BUFFERS; ++i) load_c(i, m0, n0);
  }

  __device__ D* element(int i, int row, int col) const {
    constexpr int W = 16 / int(sizeof(D));
    return reinterpret_cast<D*>(boxes + i % BUFFERS * BOX_BYTES + box_offset(row, col / W)) + col % W;
  }

  // Box i of C, element by element: consecutive lanes on consecutive columns, a batch of loads before its first use. Beyond the
  // matrix its last element again, because a branch would wait for each load.
  template <typename C>
  __device__ __forceinline__ void copy_c(int i, int m, int n) const {
    constexpr int ACROSS = WIDTH / 32, BATCH = 8;
    const C* const c = static_cast<const C*>(p.c.data);
    const int64_t rows = p.m - 1, cols = p.n - 1;
#pragma unroll 1
    for (int first = thread / 32; first < kBoxRows; first += 4 * BATCH) {
      C values[BATCH][ACROSS];
#pragma unroll
      for (int r = 0; r < BATCH; ++r)
#pragma unroll
        for (int x = 0; x < ACROSS; ++x)
          values[r][x] = c[min(int64_t(m + first + r * 4), rows) * p.c.row +
                           min(int64_t(n + thread % 32 + x * 32), cols) * p.c.col];
#pragma unroll
      for (int r = 0; r < BATCH; ++r)
#pragma unroll
        for (int x = 0; x < ACROSS; ++x)
          *element(i, first + r * 4, thread % 32 + x * 32) = from_float<D>(to_float(values[r][x]));
    }
  }
  __device__ __forceinline__ void copy_d(int i, int m, int n, int split) const {
    D* const d = static_cast<D*>(p.d.data) + split * p.m * p.n + m * p.d.row + n * p.d.col;
    const int rows = int(min(int64_t(kBoxRows), p.m - m)), cols = int(min(int64_t(WIDTH), p.n - n));
#pragma unroll 4
    for (int row = thread / 32; row < rows; row += 4)
#pragma unroll
      for (int col = thread % 32; col < WIDTH; col += 32)
        if (col < cols) d[row * p.d.row + col * p.d.col] = *element(i, row, col);
  }

  // C's row at columns n and n + 1.
  __device__ float2 row_c(int64_t n) const {
    const auto at = [&](int64_t j) {
      j = min(j, p.n - 1) * p.c.col;
      return p.c.dtype == DType::f32 ? static_cast<const float*>(p.c.data)[j] : to_float(static_cast<const T*>(p.c.data)[j]);
    };
    return make_float2(at(n), at(n + 1));
  }

  // Columns 8 j .. 8 j + 15 of the box: 16-bit D by ldmatrix and stmatrix, fp32 two floats at a time. acc is wgmma's.
  __device__ __forceinline__ void finish_16(int i, int j, const float* acc, float2 row0, float2 row1) const {
    const int warp = thread / 32, lane = thread % 32;
    const bool reads = paths.c_path == CPath::tma || paths.c_path == CPath::copy;
    if constexpr (sizeof(D) == 2) {
      const uint32_t at = box(i) + box_offset(warp * 16 + lane % 16, j + lane / 16);
      uint32_t c[4] = {}, d[4];  // (rows, columns): (0, 0), (8, 0), (0, 8), (8, 8)
      if (reads) ldmatrix_x4(c, at);
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const float2 addend = reads ? unpack(c[q], D()) : q < 2 ? row0 : row1;
        d[q] = pack(combine(acc[q * 2], p.alpha, addend.x, p.beta), combine(acc[q * 2 + 1], p.alpha, addend.y, p.beta), D());
      }
      stmatrix_x4(at, d);
    } else {
#pragma unroll
      for (int q = 0; q < 4; ++q) {
        const int row = warp * 16 + lane / 4 + q % 2 * 8, col = (j + q / 2) * 8 + lane % 4 * 2;
        float2* const at = reinterpret_cast<float2*>(element(i, row, col));
        const float2 addend = reads ? *at : q < 2 ? row0 : row1;
        *at = make_float2(combine(acc[q * 2], p.alpha, addend.x, p.beta), combine(acc[q * 2 + 1], p.alpha, addend.y, p.beta));
      }
    }
  }

  // `use` counts this warpgroup's tiles: the parity of `arrived`.
  __device__ __forceinline__ void finish(const float (&acc)[ROWS / kBoxRows][COLS / 2], int m0, int n0, int split,
                                         uint32_t use) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      const int m = m0 + i / PER_BLOCK * kBoxRows, n = n0 + i % PER_BLOCK * WIDTH;
      if (paths.c_path == CPath::tma) {
        mbarrier_wait(arrived + i % BUFFERS * 8, (use * (COUNT / BUFFERS) + i / BUFFERS) & 1);
      } else {
        if (thread == 0) tma_store_wait_read<BUFFERS - 1>();
        sync();
        if (paths.c_path == CPath::copy) {
          if (p.c.dtype == DType::f32) copy_c<float>(i, m, n);
          else copy_c<T>(i, m, n);
          sync();
        }
      }
#pragma unroll
      for (int half = 0; half < WIDTH / 8; half += 4) {
        float2 row[4] = {};  // of a C that is one row for all, two columns of every eight: read together, used together
        if (paths.c_path == CPath::row) {
#pragma unroll
          for (int j = 0; j < 4; ++j) row[j] = row_c(n + (half + j) * 8 + thread % 4 * 2);
        }
#pragma unroll
        for (int j = 0; j < 4; j += 2)
          finish_16(i, half + j, &acc[i / PER_BLOCK][(i % PER_BLOCK * WIDTH / 8 + half + j) * 4], row[j], row[j + 1]);
      }
      if (paths.d_by_tma) {
        fence_before_tma();
        sync();
        if (thread == 0) {
          tma_store(paths.d, box(i), n, m, split);
          tma_store_commit();
          constexpr int LATER = BUFFERS > 1;  // C comes into the box that left before this one, so that this one may take time
          if (paths.c_path == CPath::tma && i >= LATER && i - LATER + BUFFERS < COUNT) {
            tma_store_wait_read<LATER>();
            load_c(i - LATER + BUFFERS, m0, n0);
          }
        }
      } else {
        sync();
        copy_d(i, m, n, split);
        fence_before_tma();
        sync();
        if (thread == 0 && paths.c_path == CPath::tma && i + BUFFERS < COUNT) load_c(i + BUFFERS, m0, n0);
      }
    }
  }
};

}  // namespace tc
