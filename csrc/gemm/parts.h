// The three bf16 parts of fp32 operands: how they lie in workspace. kernels/00_parts.cu writes them, kernels/15_wgmma_bf16x6.cu
// reads them.
#pragma once

#include <algorithm>

#include "access.h"
#include "ceil_div.h"

namespace tc {

// An operand x, (outer, K), becomes rows of 3 x padded() bf16 elements: the first parts of the row's elements, the second, the third,
// each with zeros from K on. The part of a K tile is then a box like any other. A batch has `products` such operands: one if
// all products share it.
struct PartsLayout {
  static constexpr int kParts = 3;
  static constexpr int kBlock = 64;       // of outer and of K
  static constexpr int kMostStrips = 32;  // a warp reads the marks of 64 rows at once
  int64_t outer, k, products = 1;

  int64_t padded() const { return ceil_div(k, kBlock) * kBlock; }
  int64_t pitch() const { return kParts * padded(); }
  // A strip of K of 64 rows has a mark: a bound of the magnitudes in it, with the sign bit set if its parts do not hold an element exactly.
  int64_t strip_tiles() const { return ceil_div(ceil_div(k, kBlock), kMostStrips); }  // K tiles of a strip
  int64_t strips() const { return ceil_div(ceil_div(k, kBlock), strip_tiles()); }
  int64_t marks() const { return ceil_div(outer, kBlock) * kMostStrips; }  // of an operand

  // The parts of all products, then their marks.
  int64_t parts_bytes() const { return products * outer * pitch() * 2; }
  int64_t bytes() const { return parts_bytes() + products * marks() * 4; }
};

// An operand in workspace. Parts and marks are null if K is 0.
struct OperandParts {
  MatrixView parts;
  float* marks;
  int64_t marks_batch;  // marks from a product's to the next one's; 0 if all share the operand

  static OperandParts at(void* memory, const PartsLayout& layout) {
    const bool many = layout.products > 1;
    return {{memory, layout.pitch(), 1, many ? layout.outer * layout.pitch() : 0, DType::bf16},
            reinterpret_cast<float*>(static_cast<char*>(memory) + layout.parts_bytes()),
            many ? layout.marks() : 0};
  }
};

}  // namespace tc
