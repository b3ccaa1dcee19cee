// The two ops as torch sees them: schemas, and kernels that take their arguments from the dispatcher's stack.
#include "backend.h"
#include "checks.h"
#include "cpu.h"

#include <torch/csrc/stable/library.h>

namespace tc {
namespace {

// The optional self of a stack: null for None.
OwnedTensor take_optional_tensor(StableIValue value) {
  const std::optional<StableIValue> inner = take_optional(value);
  return OwnedTensor(inner ? abi::to<AtenTensorHandle>(*inner) : nullptr);
}

std::optional<TensorMeta> optional_meta(const char* name, const OwnedTensor& x) {
  if (!x.get()) return {};
  return TensorMeta(name, x.get());
}

void run(const TensorMeta& mat1, const TensorMeta& mat2, const GemmDesc& given, std::string_view kernel) {
  if (given.m == 0 || given.n == 0) return;
  const GemmDesc p = without_unread(given);
  if (mat1.is_cpu()) {
    check(kernel.empty(), message::kernel_on_cpu, kernel);
    run_cpu(p);
  } else {
    run_cuda(p, mat1.device_index, std::string(kernel));
  }
}

// Kernels take their arguments off the stack, in the schema's order, and own them.
void addmm(StableIValue* stack, uint64_t, uint64_t) {
  const OwnedTensor owned_self = take_optional_tensor(stack[0]), owned_mat1(stack[1]), owned_mat2(stack[2]);
  const double beta = abi::to<double>(stack[3]), alpha = abi::to<double>(stack[4]);
  const OwnedString activation(stack[5]);
  const std::optional<StableIValue> out_dtype = take_optional(stack[6]);
  const OwnedString precision(stack[7]);
  const Options options{beta, alpha, activation.view(), precision.view(), abi::to<bool>(stack[8])};

  const std::optional<TensorMeta> self = optional_meta("self", owned_self);
  const TensorMeta mat1("mat1", owned_mat1.get()), mat2("mat2", owned_mat2.get());
  const ScalarType dtype = out_dtype ? scalar_type(abi::to<int32_t>(*out_dtype)) : mat1.dtype;
  GemmDesc p = describe(self ? &*self : nullptr, mat1, mat2, dtype, options);
  OwnedTensor out = empty(p.m, p.n, dtype, mat1);
  p.d = {address(out.get()), p.n, 1, 0, p.d.dtype};
  run(mat1, mat2, p, {});
  stack[0] = abi::from(out.release());
}

void addmm_out(StableIValue* stack, uint64_t, uint64_t) {
  const OwnedTensor owned_self = take_optional_tensor(stack[0]), owned_mat1(stack[1]), owned_mat2(stack[2]);
  const double beta = abi::to<double>(stack[3]), alpha = abi::to<double>(stack[4]);
  const OwnedString activation(stack[5]), precision(stack[6]);
  const OwnedString kernel(stack[8]);
  const OwnedTensor owned_out(stack[9]);
  const Options options{beta, alpha, activation.view(), precision.view(), abi::to<bool>(stack[7])};

  const std::optional<TensorMeta> self = optional_meta("self", owned_self);
  const TensorMeta mat1("mat1", owned_mat1.get()), mat2("mat2", owned_mat2.get()), out("out", owned_out.get());
  check_out_dtype(out, mat1);
  GemmDesc p = describe(self ? &*self : nullptr, mat1, mat2, out.dtype, options);
  check_out(out, mat1);
  const bool has_shape = out.sizes.size() == 2 && out.sizes[0] == p.m && out.sizes[1] == p.n;
  if (!has_shape) {
    const TensorMeta* inputs[] = {self ? &*self : nullptr, &mat1, &mat2};
    for (const TensorMeta* x : inputs)  // resizing may move the storage that an input lies in
      if (x) check(!same_storage(out, *x), message::out_shares_storage, out.sizes, x->name, p.m, p.n);
    resize(out.handle, p.m, p.n);
  }
  int64_t* strides;  // anew: a resized tensor has others
  require(aoti_torch_get_strides(out.handle, &strides), "reading strides");
  p.d = {address(out.handle), strides[0], strides[1], 0, p.d.dtype};
  check_overlap(p);
  run(mat1, mat2, p, kernel.view());
}

// For every backend but the CPU and CUDA (sparse, mkldnn and quantized tensors, other devices): the first tensor that does not
// belong gets a sentence. A tensor that passes has a dtype of its own kind, which the kernels themselves refuse.
template <auto kernel, int kOut>
void refuse_backend(StableIValue* stack, uint64_t num_arguments, uint64_t num_outputs) {
  const auto* self = abi::to<StableIValue*>(stack[0]);
  const std::pair<const char*, AtenTensorHandle> tensors[] = {
      {"self", self ? abi::to<AtenTensorHandle>(*self) : nullptr},
      {"mat1", abi::to<AtenTensorHandle>(stack[1])},
      {"mat2", abi::to<AtenTensorHandle>(stack[2])},
      {"out", kOut ? abi::to<AtenTensorHandle>(stack[kOut]) : nullptr}};
  for (const auto& [name, tensor] : tensors)
    if (tensor) check_backend(name, tensor);
  kernel(stack, num_arguments, num_outputs);
}

}  // namespace

#ifndef TC_WITH_CUDA
void run_cuda(const GemmDesc&, int32_t, const std::string&) { fail(message::no_cuda_kernels, {}); }
#endif

STABLE_TORCH_LIBRARY(tc, library) {
  library.def(
      "addmm(Tensor? self, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, str activation=\"none\", "
      "ScalarType? out_dtype=None, str precision=\"ieee\", bool batch_invariant=False) -> Tensor");
  // An op of its own name, not an overload: one tagged `out` makes Inductor (torch 2.13 to 2.15) mis-lower the functional op.
  // `kernel_name`, not `kernel`: Inductor passes keywords to FallbackKernel.create, which has a parameter `kernel` of its own.
  library.def(
      "addmm_out(Tensor? self, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, str activation=\"none\", "
      "str precision=\"ieee\", bool batch_invariant=False, str kernel_name=\"\", Tensor(a!) out) -> ()");
}

void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("addmm", &addmm);
  library.impl("addmm_out", &addmm_out);
}

STABLE_TORCH_LIBRARY_IMPL(tc, CPU, library) { implement(library); }
STABLE_TORCH_LIBRARY_IMPL(tc, CUDA, library) { implement(library); }
STABLE_TORCH_LIBRARY_IMPL(tc, CompositeExplicitAutograd, library) {  // every other backend
  library.impl("addmm", &refuse_backend<&addmm, 0>);
  library.impl("addmm_out", &refuse_backend<&addmm_out, 9>);
}

}  // namespace tc
