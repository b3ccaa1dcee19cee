// What a call must satisfy before anything runs: names, shapes, dtypes, devices, gradients, overlap.
#pragma once

#include "tensor.h"

namespace tc {

// The arguments of one call that are not tensors.
struct Options {
  double beta, alpha;
  std::string_view activation, precision;
  bool batch_invariant;
};

// The blocks of torch_addmm_tc.batch_invariant() that this thread is in. Inside one every call is batch-invariant.
struct BatchInvariantBlocks {
  inline static thread_local int of_this_thread = 0;
};

// Checks everything but the result, and describes the product, or the products of a batch. D's dtype is set; its memory is the
// caller's to fill in. self: null for the plain product. rank: the operands' dimensions, 2 or 3.
GemmDesc describe(const TensorMeta* self, const TensorMeta& mat1, const TensorMeta& mat2, size_t rank, ScalarType out_dtype,
                  const Options& options);

// Checks what can be said of `out` before the product is described.
void check_out_dtype(const TensorMeta& out, const TensorMeta& mat1);
void check_out(const TensorMeta& out, const TensorMeta& mat1);

// `out` may be `self` element for element; it may share no other element with what is read.
void check_overlap(const GemmDesc& problem);

}  // namespace tc
