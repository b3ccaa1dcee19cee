// What is asked: D = activation(alpha * (A @ B) + beta * C), as plain data.
// Torch-free and CUDA-free, so that planner, kernels and tests share one description.
#pragma once

#include <cstdint>
#include <tuple>

#include "activation.h"

namespace tc {

enum class DType : uint8_t { f16, bf16, f32 };

constexpr int size_of(DType t) { return t == DType::f32 ? 4 : 2; }
constexpr const char* name_of(DType t) {
  return t == DType::f16 ? "float16" : t == DType::bf16 ? "bfloat16" : "float32";
}

// Element (i, j) lies at data[i * row + j * col]; strides count elements, 0 broadcasts.
struct Matrix {
  void* data;
  int64_t row, col;
  DType dtype;
};

inline bool operator==(const Matrix& x, const Matrix& y) {
  return std::tie(x.data, x.row, x.col, x.dtype) == std::tie(y.data, y.row, y.col, y.dtype);
}

struct Problem {
  int64_t m, n, k;
  Matrix a;  // (M, K), f16, bf16 or f32
  Matrix b;  // (K, N), dtype of A
  Matrix c;  // (M, N), dtype of A or f32; data is null when beta = 0, so that nothing can read it
  Matrix d;  // (M, N), dtype of A or f32
  float alpha, beta;
  bool allow_tf32;
  Activation activation;
};

// Which index of a matrix runs through consecutive addresses.
enum class Order : uint8_t { row_major, col_major, strided };

inline Order order_of(const Matrix& x) {
  return x.col == 1 ? Order::row_major : x.row == 1 ? Order::col_major : Order::strided;
}

inline Matrix transpose(Matrix x) { return {x.data, x.col, x.row, x.dtype}; }

// How an operand x, (outer, K), lies once it is repacked, without its data: lines start at 16-byte boundaries, long ones
// at those of 128-byte cache lines, because TMA and cp.async fetch 128 bytes of a line at a time. Halves keep the
// direction that was contiguous. It is K for TF32, because ldmatrix transposes halves only, for what had no direction of
// stride 1, and for a single row, whose lines across K would hold one element and padding.
inline Matrix repacked(const Matrix& x, int64_t outer, int64_t k) {
  const bool along_outer = size_of(x.dtype) == 2 && order_of(x) == Order::col_major && outer > 1;
  const int64_t extent = along_outer ? outer : k, unit = (extent * size_of(x.dtype) < 1024 ? 16 : 128) / size_of(x.dtype);
  const int64_t leading = (extent + unit - 1) / unit * unit;
  return along_outer ? Matrix{nullptr, 1, leading, x.dtype} : Matrix{nullptr, leading, 1, x.dtype};
}

// D^T = B^T A^T: the same memory, described from the other side.
inline Problem transpose(const Problem& p) {
  return {p.n, p.m, p.k, transpose(p.b), transpose(p.a), transpose(p.c), transpose(p.d), p.alpha, p.beta, p.allow_tf32,
          p.activation};
}

// The stride of an extent of 1 is never used, so it may be chosen: a single row or column then counts as contiguous along its
// length, whichever way it was sliced, and never along its extent of 1.
inline Matrix canonical(Matrix x, int64_t rows, int64_t cols) {
  if (cols == 1) x.col = x.row == 1 ? rows : 1;
  else if (rows == 1) x.row = x.col == 1 ? cols : 1;
  return x;
}

// BLAS's rule: beta = 0 does not read C, alpha = 0 does not read A and B. Without a product (K = 0 too) alpha, which
// may be inf or nan, has nothing to act on.
inline Problem without_unread(Problem p) {
  if (p.alpha == 0.f) p.k = 0;
  if (p.k == 0) p.alpha = 0.f;
  if (p.beta == 0.f) p.c.data = nullptr;
  return p;
}

// The problem whose result is `splits` layers of (M, N): the partial products of K in parts, before alpha, beta, C and activation.
inline Problem partial_products(Problem p, void* layers) {
  p.c.data = nullptr;
  p.d = {layers, p.n, 1, DType::f32};
  p.alpha = 1.f;
  p.beta = 0.f;
  p.activation = {};
  return p;
}

// One description per problem for the kernels: free strides settled, and a column-major D computed as the row-major D^T.
inline Problem canonical(Problem p) {
  p = without_unread(p);
  p.a = canonical(p.a, p.m, p.k);
  p.b = canonical(p.b, p.k, p.n);
  p.c = canonical(p.c, p.m, p.n);
  p.d = canonical(p.d, p.m, p.n);
  return order_of(p.d) == Order::col_major ? transpose(p) : p;
}

// Largest of 16, 8, 4, 2 that divides the address at which every contiguous line of x starts, in bytes.
inline int alignment(const Matrix& x, int64_t rows, int64_t cols) {
  const Order order = order_of(x);
  if (order == Order::strided) return size_of(x.dtype);
  const int64_t lines = order == Order::row_major ? rows : cols;
  const int64_t leading = order == Order::row_major ? x.row : x.col;
  const uint64_t bits = reinterpret_cast<uintptr_t>(x.data) | (lines > 1 ? uint64_t(leading) * size_of(x.dtype) : 0);
  return bits % 16 == 0 ? 16 : bits % 8 == 0 ? 8 : bits % 4 == 0 ? 4 : 2;
}

// Whether TMA can read x as it lies: rows at 16-byte boundaries. What it writes also has rows that end at one: with others
// test_result_layouts[row_pitched] failed on an H200.
inline bool tma_loads(const Matrix& x, int64_t rows, int64_t cols) {
  return order_of(x) == Order::row_major && alignment(x, rows, cols) == 16 && (rows == 1 || x.row >= cols);
}
inline bool tma_stores(const Matrix& x, int64_t rows, int64_t cols) {
  return tma_loads(x, rows, cols) && cols * size_of(x.dtype) % 16 == 0;
}

// How a kernel with TMA reaches C and D: by it where it can; in 16-byte pieces where rows of halves are contiguous but begin
// anywhere; otherwise element by element, side by side. row: one row for all, as a 1-D bias is, by cp.async.
enum class CPath : uint8_t { none, tma, row, pieces, elements };
enum class DPath : uint8_t { tma, pieces, elements };

inline CPath c_path_of(const Problem& p) {
  const bool rows_of_d = order_of(p.c) == Order::row_major && p.c.dtype == p.d.dtype;
  if (!p.c.data) return CPath::none;
  if (rows_of_d && tma_loads(p.c, p.m, p.n)) return CPath::tma;
  if (p.c.row == 0 && tma_loads(p.c, 1, p.n)) return CPath::row;  // cp.async wants the same alignment
  return rows_of_d && size_of(p.c.dtype) == 2 ? CPath::pieces : CPath::elements;
}
inline DPath d_path_of(const Problem& p) {
  if (tma_stores(p.d, p.m, p.n)) return DPath::tma;
  return order_of(p.d) == Order::row_major && size_of(p.d.dtype) == 2 ? DPath::pieces : DPath::elements;
}

// What a launcher reports; op_cuda.cpp turns it into an exception.
struct Status {
  int cuda_error = 0;      // a cudaError_t
  const char* call = "";   // the call that returned it
  bool ok() const { return cuda_error == 0; }
};

}  // namespace tc
