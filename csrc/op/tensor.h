// Tensors and strings as they cross the stable ABI, and a tensor's metadata, read once. Much of an eager call's host time goes
// here. Handles are used as they come, because torch::stable::Tensor and std::string allocate memory for each argument.
#pragma once

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/c/shim.h>
#include <torch/csrc/stable/stableivalue_conversions.h>
#include <torch/csrc/stable/tensor.h>

#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>

#include "../gemm/desc.h"
#include "messages.h"

namespace tc {

namespace abi = torch::stable::detail;  // from() and to(), between values and a stack's entries
using torch::headeronly::ScalarType;
using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// ---- errors ----

std::string text(const char* x);
std::string text(std::string_view x);
std::string text(const std::string& x);
std::string text(ScalarType x);
std::string text(int64_t x);
std::string text(const Sizes& sizes);

// Throws `message` (messages.h) with its {} replaced in order.
[[noreturn]] void fail(const char* message, std::initializer_list<std::string> values);

template <typename... Values>
void check(bool condition, const char* message, const Values&... values) {
  if (!condition) fail(message, {text(values)...});
}

// Throws what torch's failed call said. Before torch 2.13 a shim reports only that it failed, which `what` then names.
void require(AOTITorchError error, const char* what);

// ---- arguments that the kernel owns ----

class OwnedTensor {
 public:
  explicit OwnedTensor(AtenTensorHandle handle) : handle_(handle) {}
  explicit OwnedTensor(StableIValue value) : handle_(abi::to<AtenTensorHandle>(value)) {}
  OwnedTensor(OwnedTensor&& other) noexcept : handle_(other.release()) {}
  ~OwnedTensor() {
    if (handle_) aoti_torch_delete_tensor_object(handle_);
  }
  AtenTensorHandle get() const { return handle_; }
  AtenTensorHandle release() {
    const AtenTensorHandle handle = handle_;
    handle_ = nullptr;
    return handle;
  }

 private:
  AtenTensorHandle handle_;  // may be null: an optional tensor that is None
};

class OwnedString {
 public:
  explicit OwnedString(StableIValue value) : handle_(abi::to<StringHandle>(value)) {}
  OwnedString(const OwnedString&) = delete;
  ~OwnedString() { torch_delete_string(handle_); }
  std::string_view view() const;

 private:
  StringHandle handle_;
};

// An optional argument arrives as a pointer to its value, which the kernel deletes, or as null.
inline std::optional<StableIValue> take_optional(StableIValue value) {
  const auto* boxed = abi::to<StableIValue*>(value);
  if (!boxed) return {};
  const StableIValue inner = *boxed;
  delete boxed;
  return inner;
}

// ---- metadata ----

void* address(AtenTensorHandle x);  // of its first element

ScalarType scalar_type(int32_t code);  // of a dtype code of the shims; Undefined for those that the stable ABI does not know
int32_t dtype_code(ScalarType dtype);  // float16, bfloat16 or float32

struct TensorMeta {
  const char* name;         // in error texts
  AtenTensorHandle handle;  // borrowed
  ScalarType dtype;
  Sizes sizes, strides;
  int32_t device_type, device_index;

  // The tensor is strided, or this throws.
  TensorMeta(const char* name, AtenTensorHandle handle);

  bool shares_device(const TensorMeta& other) const {
    return device_type == other.device_type && device_index == other.device_index;
  }
  bool is_cpu() const;
  bool is_cuda() const;
  std::string device() const;  // "cuda:0"
  void* data() const { return address(handle); }
  torch::stable::Tensor tensor() const;  // a new reference to the tensor
};

// Throws where `x` is None, is not strided or is neither on the CPU nor on a CUDA device. The kernels for the CPU and CUDA
// need not ask, because the dispatcher sends calls with such tensors to another kernel (Backend::any in op.cpp).
void check_backend(const char* name, AtenTensorHandle x);

DType dtype_of(const TensorMeta& x);

// A contiguous tensor, on the device of `like`.
OwnedTensor empty(const Sizes& sizes, ScalarType dtype, const TensorMeta& like);

// Whether autograd would record an operation on x here and now.
bool autograd_would_record(AtenTensorHandle x);

bool same_storage(const TensorMeta& x, const TensorMeta& y);

// Resizes x, as aten::resize_ does.
void resize(AtenTensorHandle x, const Sizes& sizes);

// Raises x's version, by which autograd finds that a tensor that it saved was overwritten. Throws, as torch does, if x is an
// inference tensor and this is no inference mode.
void count_write(AtenTensorHandle x);

}  // namespace tc
