// Tells which matrices share memory, from pointers and strides alone. `batch` counts each operand's matrices.
#pragma once

#include <algorithm>
#include <iterator>
#include <numeric>

#include "desc.h"

namespace tc {

// Whether two indices of x name the same element. A batch of several matrices counts as overlapping unless its strides nest: each
// steps past all that the smaller ones reach.
inline bool overlaps_itself(const MatrixView& x, int64_t rows, int64_t cols, int64_t batch = 1) {
  if (rows == 0 || cols == 0 || batch == 0) return false;
  if (batch > 1) {
    struct Extent {
      int64_t stride, size;
    } extents[] = {{x.row, rows}, {x.col, cols}, {x.batch, batch}};
    std::sort(std::begin(extents), std::end(extents), [](const Extent& a, const Extent& b) { return a.stride < b.stride; });
    int64_t reached = 0;  // the offset of the last element
    for (const Extent& e : extents) {
      if (e.size > 1 && e.stride <= reached) return true;
      reached += (e.size - 1) * e.stride;
    }
    return false;
  }
  // A stride is 0, or i * row == j * col for some 0 < i < rows and 0 < j < cols.
  if ((rows > 1 && x.row == 0) || (cols > 1 && x.col == 0)) return true;
  if (rows == 1 || cols == 1) return false;
  const int64_t common = std::gcd(x.row, x.col);
  return x.col / common < rows && x.row / common < cols;
}

inline bool same_elements(const MatrixView& x, const MatrixView& y, int64_t rows, int64_t cols, int64_t batch = 1) {
  return x.data == y.data && x.dtype == y.dtype && (rows <= 1 || x.row == y.row) && (cols <= 1 || x.col == y.col) &&
         (batch <= 1 || x.batch == y.batch);
}

// Whether x and y share memory. The answer is exact for matrices side by side in one row- or column-major buffer, such as
// slices of a fused projection. Other matrices count as overlapping if their address ranges meet.
inline bool overlap(const MatrixView& x, int64_t x_rows, int64_t x_cols, const MatrixView& y, int64_t y_rows, int64_t y_cols,
                    int64_t batch = 1) {
  if (x_rows == 0 || x_cols == 0 || y_rows == 0 || y_cols == 0 || batch == 0 || !x.data || !y.data) return false;
  const int64_t x_size = size_of(x.dtype), y_size = size_of(y.dtype);
  const int64_t x_begin = reinterpret_cast<intptr_t>(x.data), y_begin = reinterpret_cast<intptr_t>(y.data);
  const auto bytes = [&](const MatrixView& of, int64_t rows, int64_t cols) {
    return ((batch - 1) * of.batch + (rows - 1) * of.row + (cols - 1) * of.col + 1) * size_of(of.dtype);
  };
  const int64_t x_end = x_begin + bytes(x, x_rows, x_cols), y_end = y_begin + bytes(y, y_rows, y_cols);
  if (x_end <= y_begin || y_end <= x_begin) return false;

  // x and y have contiguous rows (or columns) and the same leading dimension, of which matrices of a batch are multiples apart. They
  // overlap if the bytes that their rows cover, modulo the leading dimension, meet.
  const bool by_row = x.col == 1 && y.col == 1, by_col = x.row == 1 && y.row == 1;
  const int64_t leading = (by_row ? x.row : x.col) * x_size;  // bytes
  if ((!by_row && !by_col) || leading != (by_row ? y.row : y.col) * y_size) return true;
  const int64_t x_width = (by_row ? x_cols : x_rows) * x_size, y_width = (by_row ? y_cols : y_rows) * y_size;
  if (leading < x_width || leading < y_width) return true;
  if (batch > 1 && (x.batch * x_size % leading != 0 || y.batch * y_size % leading != 0)) return true;
  const int64_t offset = ((y_begin - x_begin) % leading + leading) % leading;  // where y's rows begin in x's
  return offset < x_width || offset + y_width > leading;
}

}  // namespace tc
