#include "tensor.h"

#include <dlfcn.h>
#include <torch/csrc/stable/ops.h>

#include <array>
#include <stdexcept>
#include <vector>

namespace tc {
namespace {

using torch::stable::Tensor;

// torch's numbers for these, asked for once: each is a call into libtorch.
const int32_t kFloat16 = aoti_torch_dtype_float16(), kBFloat16 = aoti_torch_dtype_bfloat16(),
              kFloat32 = aoti_torch_dtype_float32(), kCpu = aoti_torch_device_type_cpu(), kCuda = aoti_torch_device_type_cuda(),
              kStrided = aoti_torch_layout_strided();

AtenTensorHandle new_reference(AtenTensorHandle x) {
  AtenTensorHandle result;
  require(aoti_torch_new_tensor_handle(x, &result), "copying a handle");
  return result;
}

// The words of the exception in torch's last failed call. Null before torch 2.13, which does not tell them.
const char* words_of_torch() {
  static const auto words =
      reinterpret_cast<const char* (*)()>(dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
  return words ? words() : nullptr;
}

// Calls an operator of torch; `stack` holds its arguments, and then its result.
void call(const char* op, StableIValue* stack) { require(torch_call_dispatcher(op, "", stack, TORCH_ABI_VERSION), op); }

std::string layout_name(int32_t layout) {
  const std::pair<int32_t, const char*> names[] = {
      {aoti_torch_layout_sparse_coo(), "torch.sparse_coo"}, {aoti_torch_layout_sparse_csr(), "torch.sparse_csr"},
      {aoti_torch_layout_sparse_csc(), "torch.sparse_csc"}, {aoti_torch_layout_sparse_bsr(), "torch.sparse_bsr"},
      {aoti_torch_layout_sparse_bsc(), "torch.sparse_bsc"}, {aoti_torch_layout__mkldnn(), "torch._mkldnn"},
      {aoti_torch_layout_jagged(), "torch.jagged"}};
  for (const auto& [known, name] : names)
    if (layout == known) return name;
  return "number " + std::to_string(layout);
}

std::string device_name(int32_t type, int32_t index) {
  if (type == kCpu) return "cpu";
  if (type == kCuda) return "cuda:" + std::to_string(index);
  if (type == aoti_torch_device_type_meta()) return "meta";
  return "another device type";
}

}  // namespace

// Strings, not streams: in a build that links libstdc++ statically, streams crash.
std::string text(const char* x) { return x; }
std::string text(std::string_view x) { return std::string(x); }
std::string text(const std::string& x) { return x; }
std::string text(ScalarType x) { return toString(x); }
std::string text(int64_t x) { return std::to_string(x); }
std::string text(const Sizes& sizes) {
  std::string list = "[";
  for (size_t i = 0; i < sizes.size(); ++i) list += (i ? ", " : "") + std::to_string(sizes[i]);
  return list + "]";
}

void fail(const char* message, std::initializer_list<std::string> values) {
  std::string result;
  auto value = values.begin();
  for (const char* c = message; *c; ++c)
    if (c[0] == '{' && c[1] == '}' && value != values.end()) {
      result += *value++;
      ++c;
    } else {
      result += *c;
    }
  throw std::runtime_error(result);
}

void require(AOTITorchError error, const char* what) {
  if (error == TORCH_SUCCESS) return;
  const char* words = words_of_torch();
  if (words && *words) fail(words, {});
  fail(message::torch_failed, {what});
}

std::string_view OwnedString::view() const {
  const char* data;
  size_t size;
  require(torch_string_c_str(handle_, &data), "reading a string");
  require(torch_string_length(handle_, &size), "reading a string");
  return {data, size};
}

ScalarType scalar_type(int32_t code) {
  if (code == kFloat16) return ScalarType::Half;
  if (code == kBFloat16) return ScalarType::BFloat16;
  if (code == kFloat32) return ScalarType::Float;
  try {
    return abi::to<ScalarType>(abi::from(code));
  } catch (const std::exception&) {
    return ScalarType::Undefined;
  }
}

int32_t dtype_code(ScalarType dtype) {
  return dtype == ScalarType::Half ? kFloat16 : dtype == ScalarType::BFloat16 ? kBFloat16 : kFloat32;
}

TensorMeta::TensorMeta(const char* name, AtenTensorHandle handle) : name(name), handle(handle) {
  int32_t code;
  int64_t *size, *stride, rank;
  require(aoti_torch_get_dtype(handle, &code), "reading a dtype");
  dtype = scalar_type(code);
  if (dtype == ScalarType::Undefined) check_backend(name, handle);
  require(aoti_torch_get_dim(handle, &rank), "reading a shape");
  require(aoti_torch_get_sizes(handle, &size), "reading a shape");
  require(aoti_torch_get_strides(handle, &stride), "reading strides");
  require(aoti_torch_get_device_type(handle, &device_type), "reading a device");
  device_index = 0;  // there is one CPU
  if (device_type != kCpu) require(aoti_torch_get_device_index(handle, &device_index), "reading a device");
  sizes = Sizes(size, rank);
  strides = Sizes(stride, rank);
}

bool TensorMeta::is_cpu() const { return device_type == kCpu; }
bool TensorMeta::is_cuda() const { return device_type == kCuda; }
std::string TensorMeta::device() const { return device_name(device_type, device_index); }

void* address(AtenTensorHandle x) {
  void* data;
  require(aoti_torch_get_data_ptr(x, &data), "reading an address");
  return data;
}

Tensor TensorMeta::tensor() const { return Tensor(new_reference(handle)); }

void check_backend(const char* name, AtenTensorHandle x) {
  bool defined;
  require(aoti_torch_is_defined(x, &defined), "reading a tensor");
  check(defined, message::not_a_tensor, name);
  int32_t layout, device_type, device_index;
  require(aoti_torch_get_layout(x, &layout), "reading a layout");
  if (layout != kStrided) fail(message::not_strided, {name, layout_name(layout), name});
  require(aoti_torch_get_device_type(x, &device_type), "reading a device");
  require(aoti_torch_get_device_index(x, &device_index), "reading a device");
  if (device_type != kCpu && device_type != kCuda)
    fail(message::not_on_cpu_or_cuda, {name, device_name(device_type, device_index)});
}

DType dtype_of(const TensorMeta& x) {
  switch (x.dtype) {
    case ScalarType::Half: return DType::f16;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Float: return DType::f32;
    default: fail(message::dtype_unsupported, {x.name, text(x.dtype)});
  }
}

OwnedTensor empty(const Sizes& sizes, ScalarType dtype, const TensorMeta& like) {
  constexpr int kMost = 3;
  int64_t strides[kMost], stride = 1;
  for (size_t d = sizes.size(); d-- > 0; stride *= std::max<int64_t>(1, sizes[d])) strides[d] = stride;
  AtenTensorHandle result;
  require(aoti_torch_empty_strided(
              int64_t(sizes.size()), sizes.data(), strides, dtype_code(dtype), like.device_type, like.device_index, &result),
          like.is_cuda() ? "allocating the result (CUDA out of memory?)" : "allocating the result");
  return OwnedTensor(result);
}

// The stable ABI has no requires_grad getter. A view taken through the dispatcher is a leaf unless autograd recorded it.
bool autograd_would_record(AtenTensorHandle x) {
  StableIValue stack[1] = {abi::from(new_reference(x))};
  call("aten::alias", stack);
  call("aten::is_leaf", stack);
  return !abi::to<bool>(stack[0]);
}

// The stable ABI has no accessor for storages. aten::is_set_to compares storages, shapes and offsets. It is asked about two
// empty views, each at the beginning of its storage.
bool same_storage(const TensorMeta& x, const TensorMeta& y) {
  const auto empty_view = [](const TensorMeta& of) {
    std::array<StableIValue, 4> stack{abi::from(new_reference(of.handle)), abi::from(std::vector<int64_t>{0}),
                                      abi::from(std::vector<int64_t>{1}), abi::from(std::optional<int64_t>(0))};
    call("aten::as_strided", stack.data());
    return stack[0];
  };
  std::array<StableIValue, 2> stack{empty_view(x), empty_view(y)};
  call("aten::is_set_to", stack.data());
  return abi::to<bool>(stack[0]);
}

void resize(AtenTensorHandle x, const Sizes& sizes) {
  std::array<StableIValue, 3> stack{abi::from(new_reference(x)), abi::from(std::vector<int64_t>(sizes.begin(), sizes.end())),
                                    abi::from(std::optional<torch::headeronly::MemoryFormat>())};
  call("aten::resize_", stack.data());
  OwnedTensor{stack[0]};
}

// The stable ABI has no accessor for versions. A dimension's exchange with itself counts as a write and changes nothing.
void count_write(AtenTensorHandle x) {
  std::array<StableIValue, 3> stack{abi::from(new_reference(x)), abi::from(int64_t(0)), abi::from(int64_t(0))};
  call("aten::transpose_", stack.data());
  OwnedTensor{stack[0]};
}

}  // namespace tc
