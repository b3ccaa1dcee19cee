// The ops as torch sees them: schemas, and kernels that take their arguments from the dispatcher's stack.
#include "backend.h"
#include "checks.h"
#include "cpu.h"

#include <torch/csrc/stable/library.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

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
  if (given.batch == 0 || given.m == 0 || given.n == 0) return;
  const GemmDesc p = without_unread(given);
  if (mat1.is_cpu()) {
    check(kernel.empty(), message::kernel_on_cpu, kernel);
    run_cpu(p);
  } else {
    run_cuda(p, mat1.device_index, std::string(kernel));
  }
}

// What a kernel is registered for. A call with a sparse, mkldnn or quantized tensor, or one on another device, arrives at the
// kernel for `any`. It refuses the first tensor that is not strided, or not on the CPU or CUDA. Dtypes are checked afterwards.
enum class Backend { cpu_or_cuda, any };

template <Backend backend>
void check_backend_of(std::initializer_list<std::pair<const char*, const OwnedTensor*>> tensors) {
  if (backend == Backend::any)
    for (const auto& [name, tensor] : tensors)
      if (tensor->get()) check_backend(name, tensor->get());
}

// The names of the operands by their dimensions: addmm's, and baddbmm's.
template <size_t RANK>
constexpr const char* kNameOfA = RANK == 2 ? "mat1" : "batch1";
template <size_t RANK>
constexpr const char* kNameOfB = RANK == 2 ? "mat2" : "batch2";

// A result's sizes, (M, N) or (batch, M, N).
template <size_t RANK>
struct ResultShape {
  int64_t all[3];
  explicit ResultShape(const GemmDesc& p) : all{p.batch, p.m, p.n} {}
  Sizes sizes() const { return Sizes(all + 3 - RANK, RANK); }
};

// D in memory with these strides.
template <size_t RANK>
MatrixView result_of(void* data, const int64_t* strides, DType dtype) {
  return {data, strides[RANK - 2], strides[RANK - 1], RANK > 2 ? strides[0] : 0, dtype};
}

// Kernels take their arguments off the stack, in the schema's order, and own them.
template <size_t RANK, Backend backend>
void product(StableIValue* stack, uint64_t, uint64_t) {
  const OwnedTensor owned_self = take_optional_tensor(stack[0]), owned_mat1(stack[1]), owned_mat2(stack[2]);
  const double beta = abi::to<double>(stack[3]), alpha = abi::to<double>(stack[4]);
  const OwnedString activation(stack[5]);
  const std::optional<StableIValue> out_dtype = take_optional(stack[6]);
  const OwnedString precision(stack[7]);
  const Options options{beta, alpha, activation.view(), precision.view(), abi::to<bool>(stack[8])};
  check_backend_of<backend>({{"self", &owned_self}, {kNameOfA<RANK>, &owned_mat1}, {kNameOfB<RANK>, &owned_mat2}});

  const std::optional<TensorMeta> self = optional_meta("self", owned_self);
  const TensorMeta mat1(kNameOfA<RANK>, owned_mat1.get()), mat2(kNameOfB<RANK>, owned_mat2.get());
  const ScalarType dtype = out_dtype ? scalar_type(abi::to<int32_t>(*out_dtype)) : mat1.dtype;
  GemmDesc p = describe(self ? &*self : nullptr, mat1, mat2, RANK, dtype, options);
  OwnedTensor out = empty(ResultShape<RANK>(p).sizes(), dtype, mat1);
  p.d = {address(out.get()), p.n, 1, p.m * p.n, p.d.dtype};
  run(mat1, mat2, p, {});
  stack[0] = abi::from(out.release());
}

template <size_t RANK, Backend backend>
void product_out(StableIValue* stack, uint64_t, uint64_t) {
  const OwnedTensor owned_self = take_optional_tensor(stack[0]), owned_mat1(stack[1]), owned_mat2(stack[2]);
  const double beta = abi::to<double>(stack[3]), alpha = abi::to<double>(stack[4]);
  const OwnedString activation(stack[5]), precision(stack[6]);
  const OwnedString kernel(stack[8]);
  const OwnedTensor owned_out(stack[9]);
  const Options options{beta, alpha, activation.view(), precision.view(), abi::to<bool>(stack[7])};
  check_backend_of<backend>(
      {{"self", &owned_self}, {kNameOfA<RANK>, &owned_mat1}, {kNameOfB<RANK>, &owned_mat2}, {"out", &owned_out}});

  const std::optional<TensorMeta> self = optional_meta("self", owned_self);
  const TensorMeta mat1(kNameOfA<RANK>, owned_mat1.get()), mat2(kNameOfB<RANK>, owned_mat2.get()), out("out", owned_out.get());
  check_out_dtype(out, mat1);
  GemmDesc p = describe(self ? &*self : nullptr, mat1, mat2, RANK, out.dtype, options);
  check_out(out, mat1);
  const ResultShape<RANK> shape(p);
  if (!std::equal(out.sizes.begin(), out.sizes.end(), shape.all + 3 - RANK, shape.all + 3)) {
    const TensorMeta* inputs[] = {self ? &*self : nullptr, &mat1, &mat2};
    for (const TensorMeta* x : inputs)  // resizing may move the storage that an input lies in
      if (x) check(!same_storage(out, *x), message::out_shares_storage, out.sizes, x->name, shape.sizes());
    resize(out.handle, shape.sizes());
  }
  int64_t* strides;  // anew: a resized tensor has others
  require(aoti_torch_get_strides(out.handle, &strides), "reading strides");
  p.d = result_of<RANK>(address(out.handle), strides, p.d.dtype);
  check_overlap(p);
  count_write(out.handle);
  run(mat1, mat2, p, kernel.view());
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
  library.def(
      "baddbmm(Tensor? self, Tensor batch1, Tensor batch2, *, float beta=1, float alpha=1, str activation=\"none\", "
      "ScalarType? out_dtype=None, str precision=\"ieee\", bool batch_invariant=False) -> Tensor");
  library.def(
      "baddbmm_out(Tensor? self, Tensor batch1, Tensor batch2, *, float beta=1, float alpha=1, str activation=\"none\", "
      "str precision=\"ieee\", bool batch_invariant=False, str kernel_name=\"\", Tensor(a!) out) -> ()");
}

template <Backend backend>
void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("addmm", &product<2, backend>);
  library.impl("addmm_out", &product_out<2, backend>);
  library.impl("baddbmm", &product<3, backend>);
  library.impl("baddbmm_out", &product_out<3, backend>);
}

STABLE_TORCH_LIBRARY_IMPL(tc, CPU, library) { implement<Backend::cpu_or_cuda>(library); }
STABLE_TORCH_LIBRARY_IMPL(tc, CUDA, library) { implement<Backend::cpu_or_cuda>(library); }
STABLE_TORCH_LIBRARY_IMPL(tc, CompositeExplicitAutograd, library) { implement<Backend::any>(library); }

}  // namespace tc
