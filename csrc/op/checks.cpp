#include "checks.h"

#include "../gemm/overlap.h"

namespace tc {
namespace {

const Activation& activation_named(std::string_view name) {
  for (const NamedActivation& x : kActivations)
    if (name == x.name) return x.activation;
  std::string names;
  for (const NamedActivation& x : kActivations) names += std::string(names.empty() ? "" : ", ") + x.name;
  fail(message::activation_unknown, {names, text(name)});
}

Precision precision_named(std::string_view name) {
  if (name == "ieee") return Precision::ieee;
  check(name == "tf32", message::precision_unknown, name);
  return Precision::tf32;
}

// `self` seen as a result of the shape `target`, with strides of 0 where it broadcasts.
MatrixView expand(const TensorMeta& self, const Sizes& target) {
  const size_t rank = self.sizes.size(), result = target.size();
  check(rank <= result, message::expand_rank, self.sizes, target, int64_t(result), int64_t(rank));
  MatrixView c{self.data(), 0, 0, 0, dtype_of(self)};
  for (size_t d = 0; d < rank; ++d) {
    const size_t into = d + result - rank;
    const int64_t size = self.sizes[d];
    check(size == target[into] || size == 1, message::expand_size, target[into], size, int64_t(into), target, self.sizes);
    if (size == target[into]) (into + 1 == result ? c.col : into + 2 == result ? c.row : c.batch) = self.strides[d];
  }
  return c;
}

// Of (M, N), or (batch, M, N).
MatrixView matrix(const TensorMeta& x) {
  const size_t rank = x.strides.size();
  return {x.data(), x.strides[rank - 2], x.strides[rank - 1], rank > 2 ? x.strides[0] : 0, dtype_of(x)};
}

}  // namespace

GemmDesc describe(const TensorMeta* self, const TensorMeta& mat1, const TensorMeta& mat2, size_t rank, ScalarType out_dtype,
                  const Options& options) {
  const Activation& activation = activation_named(options.activation);
  const Precision precision = precision_named(options.precision);
  const bool batch_invariant = options.batch_invariant || BatchInvariantBlocks::of_this_thread > 0;
  check(!batch_invariant || !mat1.is_cpu(), message::batch_invariant_on_cpu);
  const bool batched = rank == 3;
  for (const TensorMeta* x : {&mat1, &mat2})
    check(x->sizes.size() == rank, batched ? message::not_a_batch : message::not_a_matrix, x->name, int64_t(x->sizes.size()));
  const int64_t batch = batched ? mat1.sizes[0] : 1, m = mat1.sizes[rank - 2], k = mat1.sizes[rank - 1],
                n = mat2.sizes[rank - 1];
  if (batched)
    check(batch == mat2.sizes[0] && k == mat2.sizes[1], message::batch_sizes_differ, batch, k, mat2.sizes[0], mat2.sizes[1]);
  check(k == mat2.sizes[rank - 2], message::inner_sizes_differ, m, k, mat2.sizes[rank - 2], n);
  const TensorMeta* tensors[] = {self, &mat1, &mat2};
  for (const TensorMeta* x : tensors)
    if (x && !x->shares_device(mat1)) fail(message::devices_differ, {x->name, x->device(), mat1.device()});
  check(!self || self->dtype == mat2.dtype || (out_dtype != mat1.dtype && self->dtype == out_dtype),
        message::self_dtype_differs, mat2.name, self ? self->dtype : mat2.dtype, mat2.dtype);
  check(mat1.dtype == mat2.dtype, message::mat_dtypes_differ, mat1.name, mat2.name, mat1.dtype, mat2.dtype);
  const MatrixView a = matrix(mat1), b = matrix(mat2);
  const int64_t shape[] = {batch, m, n};
  const MatrixView c = self ? expand(*self, Sizes(shape + 3 - rank, rank)) : MatrixView{nullptr, 0, 0, 0, a.dtype};
  const EpilogueArgs epilogue{float(options.alpha), self ? float(options.beta) : 0.f, activation};
  GemmDesc p{batch, m, n, k, a, b, c, {}, precision, batch_invariant, false, epilogue};
  check(out_dtype == mat1.dtype || out_dtype == ScalarType::Float, message::out_dtype_unsupported, out_dtype, mat1.dtype);
  p.d.dtype = out_dtype == ScalarType::Float ? DType::f32 : p.a.dtype;
  if (aoti_torch_grad_mode_is_enabled())
    for (const TensorMeta* x : tensors)
      if (x) check(!autograd_would_record(x->handle), message::forward_only, x->name, x->name);
  return p;
}

void check_out_dtype(const TensorMeta& out, const TensorMeta& mat1) {
  if (out.dtype != mat1.dtype && out.dtype != ScalarType::Float)
    fail(message::out_dtype_differs, {text(mat1.dtype) + " or Float", text(out.dtype)});
}

void check_out(const TensorMeta& out, const TensorMeta& mat1) {
  if (!out.shares_device(mat1)) fail(message::out_device_differs, {out.device(), mat1.device()});
  check(!aoti_torch_grad_mode_is_enabled() || !autograd_would_record(out.handle), message::out_requires_grad);
}

void check_overlap(const GemmDesc& p) {
  check(!overlaps_itself(p.d, p.m, p.n, p.batch), message::out_overlaps_itself);
  check(!overlap(p.d, p.m, p.n, p.a, p.m, p.k, p.batch) && !overlap(p.d, p.m, p.n, p.b, p.k, p.n, p.batch),
        message::out_overlaps_input);
  check(p.epilogue.beta == 0.f || same_elements(p.d, p.c, p.m, p.n, p.batch) || !overlap(p.d, p.m, p.n, p.c, p.m, p.n, p.batch),
        message::out_overlaps_input);
}

}  // namespace tc
