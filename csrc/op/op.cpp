// The op as torch sees it: schemas, argument checks in torch.addmm's words, output allocation, the CPU implementation.
// LibTorch's stable ABI only, so that one binary serves torch 2.11 and later.
#include "backend.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

#include <array>
#include <stdexcept>
#include <string>

#include "../gemm/overlap.h"

namespace tc {
namespace {

using torch::headeronly::ScalarType;
using torch::stable::Tensor;

using Sizes = torch::headeronly::IntHeaderOnlyArrayRef;

// Parts of an error message. Strings, not streams: in a build that links libstdc++ statically, streams crash.
std::string text(const char* x) { return x; }
std::string text(const std::string& x) { return x; }
std::string text(ScalarType x) { return toString(x); }
template <typename Integer, std::enable_if_t<std::is_integral_v<Integer>, int> = 0>
std::string text(Integer x) { return std::to_string(x); }
std::string text(const Sizes& sizes) {
  std::string list = "[";
  for (size_t i = 0; i < sizes.size(); ++i) list += (i ? ", " : "") + std::to_string(sizes[i]);
  return list + "]";
}

// The message is put together only when the condition fails.
template <typename... Parts>
void check(bool condition, const Parts&... parts) {
  if (!condition) throw std::runtime_error((text(parts) + ...));
}

// A shim's only report is that it failed.
void require(AOTITorchError error, const char* what) { check(error == TORCH_SUCCESS, "tc::addmm: ", what, " failed"); }

template <typename... Args>
StableIValue call(const char* op, const char* overload, const Args&... args) {
  std::array<StableIValue, sizeof...(Args)> stack{torch::stable::detail::from(args)...};
  require(torch_call_dispatcher(op, overload, stack.data(), TORCH_ABI_VERSION), op);
  return stack[0];
}

// A tensor's metadata, read once.
struct Arg {
  const char* name;
  const Tensor& tensor;
  Sizes sizes, strides;
  ScalarType dtype;
  int32_t device_type, device_index;

  Arg(const char* name, const Tensor& tensor)
      : name(name), tensor(tensor), sizes(tensor.sizes()), strides(tensor.strides()), dtype(tensor.scalar_type()) {
    require(aoti_torch_get_device_type(tensor.get(), &device_type), "reading a device");
    require(aoti_torch_get_device_index(tensor.get(), &device_index), "reading a device");
  }

  bool shares_device(const Arg& other) const {
    return device_type == other.device_type && device_index == other.device_index;
  }
};

struct DeviceOf {
  const Arg& x;
};
std::string text(const DeviceOf& device) {
  const Arg& x = device.x;
  return x.device_type == aoti_torch_device_type_cpu()    ? "cpu"
         : x.device_type == aoti_torch_device_type_cuda() ? "cuda:" + std::to_string(x.device_index)
                                                          : "another device type";
}

DType dtype_of(const Arg& x) {
  switch (x.dtype) {
    case ScalarType::Half: return DType::f16;
    case ScalarType::BFloat16: return DType::bf16;
    case ScalarType::Float: return DType::f32;
    default:
      check(false, "tc::addmm supports float16, bfloat16 and float32 tensors, but ", x.name, " has dtype ",
            x.dtype);
      return DType::f32;
  }
}

// True when autograd would record an operation on x here and now. The stable ABI has no requires_grad getter; a view
// taken through the dispatcher is a leaf unless autograd recorded it.
bool recorded(const Tensor& x) {
  const Tensor view = torch::stable::detail::to<Tensor>(call("aten::alias", "", x));
  return !torch::stable::detail::to<bool>(call("aten::is_leaf", "", view));
}

void check_forward_only(const Arg& x) {
  check(!recorded(x.tensor), "tc::addmm is forward-only, but ", x.name,
        " requires grad and grad mode is on, so its gradient would be lost. Call it under torch.no_grad() or "
        "torch.inference_mode(), or pass ", x.name, ".detach(); to train, use torch.addmm.");
}

// `self` seen as (M, N): strides of 0 where it broadcasts.
Matrix expand(const Arg& self, int64_t m, int64_t n) {
  const int64_t rank = int64_t(self.sizes.size()), target[2] = {m, n};
  check(rank <= 2, "expand(", self.sizes, ", size=[", m, ", ", n, "]): the number of sizes provided (2) must be ",
        "greater or equal to the number of dimensions in the tensor (", rank, ")");
  Matrix c{self.tensor.data_ptr(), 0, 0, dtype_of(self)};
  for (int64_t d = 0; d < rank; ++d) {
    const int64_t into = d + 2 - rank, size = self.sizes[d];
    check(size == target[into] || size == 1, "The expanded size of the tensor (", target[into],
          ") must match the existing size (", size, ") at non-singleton dimension ", into, ".  Target sizes: [", m,
          ", ", n, "].  Tensor sizes: ", self.sizes);
    if (size == target[into]) (into == 0 ? c.row : c.col) = self.strides[d];
  }
  return c;
}

Matrix matrix(const Arg& x) { return {x.tensor.data_ptr(), x.strides[0], x.strides[1], dtype_of(x)}; }

// Checks everything but the result. D is left for the caller to fill in; its dtype is set. No `self`: the plain product.
Problem checked_problem(const Arg* self, const Arg& mat1, const Arg& mat2, ScalarType out_dtype, double beta,
                        double alpha, bool allow_tf32) {
  for (const Arg* x : {&mat1, &mat2})
    check(x->sizes.size() == 2, x->name, " must be a matrix, got ", x->sizes.size(), "-D tensor");
  check(mat1.sizes[1] == mat2.sizes[0], "mat1 and mat2 shapes cannot be multiplied (", mat1.sizes[0], "x",
        mat1.sizes[1], " and ", mat2.sizes[0], "x", mat2.sizes[1], ")");
  const Arg& addend = self ? *self : mat2;  // mat2 is then checked twice
  for (const Arg* x : {&addend, &mat2})
    check(x->shares_device(mat1), "Expected all tensors to be on the same device, but got ", x->name, " is on ",
          DeviceOf{*x}, ", different from other tensors on ", DeviceOf{mat1});
  check(addend.dtype == mat2.dtype || (out_dtype != mat1.dtype && addend.dtype == out_dtype),
        "self and mat2 must have the same dtype, but got ", addend.dtype, " and ", mat2.dtype);
  check(mat1.dtype == mat2.dtype, "mat1 and mat2 must have the same dtype, but got ", mat1.dtype, " and ",
        mat2.dtype);
  const int64_t m = mat1.sizes[0], k = mat1.sizes[1], n = mat2.sizes[1];
  Problem p{m, n, k, matrix(mat1), matrix(mat2), self ? expand(*self, m, n) : Matrix{nullptr, 0, 0, dtype_of(mat1)}, {},
            float(alpha), float(beta), allow_tf32};
  check(out_dtype == mat1.dtype || out_dtype == ScalarType::Float,
        "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs, but got ", out_dtype, " for ",
        mat1.dtype, " inputs");
  p.d.dtype = out_dtype == ScalarType::Float ? DType::f32 : p.a.dtype;
  if (aoti_torch_grad_mode_is_enabled())
    for (const Arg* x : {&addend, &mat1, &mat2}) check_forward_only(*x);
  return p;
}

const Activation& activation_named(const std::string& name) {
  if (const Activation* found = find_activation(name)) return *found;
  std::string names;
  for (const NamedActivation& x : kActivations) names += std::string(names.empty() ? "" : ", ") + x.name;
  throw std::runtime_error("tc::addmm: there is no activation '" + name + "'; there are " + names);
}

Tensor empty(int64_t m, int64_t n, ScalarType dtype, const Arg& like) {
  const int64_t sizes[] = {m, n}, strides[] = {n > 1 ? n : 1, 1};
  AtenTensorHandle result;
  const auto shim_dtype = torch::stable::detail::to<int32_t>(torch::stable::detail::from(dtype));
  require(aoti_torch_empty_strided(2, sizes, strides, shim_dtype, like.device_type, like.device_index, &result),
          "allocating the result");
  return Tensor(result);
}

template <typename F>
void with_type(DType t, F&& body) {
  if (t == DType::f16) body(torch::headeronly::Half());
  else if (t == DType::bf16) body(torch::headeronly::BFloat16());
  else body(0.f);
}

// ATen's product in fp32, then alpha, beta, C and the activation as on the GPU: in fp32, rounded once.
void run_cpu(const Arg& mat1, const Arg& mat2, const Problem& p) {
  const auto fp32 = [](const Arg& x) {
    return x.dtype == ScalarType::Float ? x.tensor : torch::stable::to(x.tensor, ScalarType::Float);
  };
  Tensor product;
  if (p.k > 0) {
    product = empty(p.m, p.n, ScalarType::Float, mat1);
    require(aoti_torch_cpu_mm_out(product.get(), fp32(mat1).get(), fp32(mat2).get()), "aten::mm.out");
  }
  const float* products = p.k > 0 ? static_cast<const float*>(product.data_ptr()) : nullptr;  // (M, N)
  with_type(p.c.dtype, [&](auto c_type) {
    with_type(p.d.dtype, [&](auto d_type) {
      const auto* c = static_cast<const decltype(c_type)*>(p.c.data);
      auto* d = static_cast<decltype(d_type)*>(p.d.data);
      torch::stable::parallel_for(0, p.m, 1 + 16384 / p.n, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          for (int64_t j = 0; j < p.n; ++j) {
            const float scaled = products ? p.alpha * products[i * p.n + j] : 0.f;
            const float sum = c ? scaled + p.beta * float(c[i * p.c.row + j * p.c.col]) : scaled;
            d[i * p.d.row + j * p.d.col] = activate(sum, p.activation);
          }
      });
    });
  });
}

void run(const Arg& mat1, const Arg& mat2, Problem p, const Tensor& out, const std::string& kernel) {
  const auto strides = out.strides();
  p.d = {out.data_ptr(), strides[0], strides[1], p.d.dtype};
  if (p.m == 0 || p.n == 0) return;
  p = without_unread(p);
  if (mat1.device_type == aoti_torch_device_type_cpu()) {
    check(kernel.empty(), "kernel '", kernel, "' runs on CUDA tensors, but got tensors on the CPU");
    run_cpu(mat1, mat2, p);
  } else {
    run_cuda(p, mat1.device_index, kernel);
  }
}

Tensor addmm_dtype(const Tensor& self_, const Tensor& mat1_, const Tensor& mat2_, ScalarType out_dtype, double beta,
                   double alpha, bool allow_tf32) {
  const Arg self("self", self_), mat1("mat1", mat1_), mat2("mat2", mat2_);
  const Problem p = checked_problem(&self, mat1, mat2, out_dtype, beta, alpha, allow_tf32);
  const Tensor out = empty(p.m, p.n, out_dtype, mat1);
  run(mat1, mat2, p, out, {});
  return out;
}

Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, double beta, double alpha, bool allow_tf32) {
  return addmm_dtype(self, mat1, mat2, mat1.scalar_type(), beta, alpha, allow_tf32);
}

Tensor mm_dtype(const Tensor& mat1_, const Tensor& mat2_, ScalarType out_dtype, bool allow_tf32) {
  const Arg mat1("mat1", mat1_), mat2("mat2", mat2_);
  const Problem p = checked_problem(nullptr, mat1, mat2, out_dtype, 0, 1, allow_tf32);
  const Tensor out = empty(p.m, p.n, out_dtype, mat1);
  run(mat1, mat2, p, out, {});
  return out;
}

Tensor mm(const Tensor& mat1, const Tensor& mat2, bool allow_tf32) {
  return mm_dtype(mat1, mat2, mat1.scalar_type(), allow_tf32);
}

// self: null for the plain product.
Tensor activated(const Arg* self, const Arg& mat1, const Arg& mat2, ScalarType out_dtype, const std::string& activation,
                 double beta, double alpha, bool allow_tf32) {
  const Activation& found = activation_named(activation);
  Problem p = checked_problem(self, mat1, mat2, out_dtype, beta, alpha, allow_tf32);
  p.activation = found;
  const Tensor out = empty(p.m, p.n, out_dtype, mat1);
  run(mat1, mat2, p, out, {});
  return out;
}

Tensor addmm_activation_dtype(const Tensor& self_, const Tensor& mat1_, const Tensor& mat2_, ScalarType out_dtype,
                              std::string activation, double beta, double alpha, bool allow_tf32) {
  const Arg self("self", self_), mat1("mat1", mat1_), mat2("mat2", mat2_);
  return activated(&self, mat1, mat2, out_dtype, activation, beta, alpha, allow_tf32);
}

Tensor addmm_activation(const Tensor& self, const Tensor& mat1, const Tensor& mat2, std::string activation, double beta,
                        double alpha, bool allow_tf32) {
  return addmm_activation_dtype(self, mat1, mat2, mat1.scalar_type(), activation, beta, alpha, allow_tf32);
}

Tensor mm_activation_dtype(const Tensor& mat1_, const Tensor& mat2_, ScalarType out_dtype, std::string activation,
                           bool allow_tf32) {
  const Arg mat1("mat1", mat1_), mat2("mat2", mat2_);
  return activated(nullptr, mat1, mat2, out_dtype, activation, 0, 1, allow_tf32);
}

Tensor mm_activation(const Tensor& mat1, const Tensor& mat2, std::string activation, bool allow_tf32) {
  return mm_activation_dtype(mat1, mat2, mat1.scalar_type(), activation, allow_tf32);
}

// As no accessor of the stable ABI tells: views of nothing at each storage's beginning are one and the same.
bool same_storage(const Tensor& x, const Tensor& y) {
  const auto nothing = [](const Tensor& of) {
    return torch::stable::detail::to<Tensor>(call("aten::as_strided", "", of, std::vector<int64_t>{0},
                                                  std::vector<int64_t>{1}, std::optional<int64_t>(0)));
  };
  return torch::stable::detail::to<bool>(call("aten::is_set_to", "", nothing(x), nothing(y)));
}

constexpr char kShared[] =
    "unsupported operation: some elements of the input tensor and the written-to tensor refer to a single memory "
    "location. Please clone() the tensor before performing the operation.";

// `out` may be `self` element for element; it may share no other element with what is read.
void check_overlap(const Problem& p) {
  check(!overlaps_itself(p.d, p.m, p.n), "unsupported operation: more than one element of the written-to tensor refers ",
        "to a single memory location. Please clone() the tensor before performing the operation.");
  check(!overlap(p.d, p.m, p.n, p.a, p.m, p.k) && !overlap(p.d, p.m, p.n, p.b, p.k, p.n), kShared);
  check(p.beta == 0.f || same_elements(p.d, p.c, p.m, p.n) || !overlap(p.d, p.m, p.n, p.c, p.m, p.n), kShared);
}

void addmm_by_kernel_out(const Tensor& self_, const Tensor& mat1_, const Tensor& mat2_, double beta, double alpha,
                         bool allow_tf32, std::string activation, std::string kernel, Tensor& out_) {
  const Activation& activated = activation_named(activation);
  const Arg self("self", self_), mat1("mat1", mat1_), mat2("mat2", mat2_), out("out", out_);
  check(out.dtype == mat1.dtype || out.dtype == ScalarType::Float, "Expected out tensor to have dtype ",
        mat1.dtype, " or Float, but got ", out.dtype, " instead");
  Problem p = checked_problem(&self, mat1, mat2, out.dtype, beta, alpha, allow_tf32);
  p.activation = activated;
  check(out.shares_device(mat1), "Expected out tensor to be on the same device, but got out is on ", DeviceOf{out},
        ", different from other tensors on ", DeviceOf{mat1});
  check(!aoti_torch_grad_mode_is_enabled() || !recorded(out_),
        "addmm(): functions with out=... arguments don't support automatic differentiation, but one of the arguments "
        "requires grad.");

  const bool fits = out.sizes.size() == 2 && out.sizes[0] == p.m && out.sizes[1] == p.n;
  if (!fits) {
    for (const Arg* x : {&self, &mat1, &mat2})  // resizing may move the storage from under it
      check(!same_storage(out_, x->tensor), "tc::addmm: out of shape ", out.sizes, " shares its storage with ", x->name,
            ", so it cannot be resized to [", p.m, ", ", p.n, "]. Pass an out of that shape, or one with its own storage.");
    call("aten::resize_", "", out_, std::vector<int64_t>{p.m, p.n}, std::optional<torch::headeronly::MemoryFormat>());
  }
  const auto strides = out_.strides();
  p.d = {out_.data_ptr(), strides[0], strides[1], p.d.dtype};
  check_overlap(p);
  run(mat1, mat2, p, out_, kernel);
}

void addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, double beta, double alpha, bool allow_tf32,
               Tensor& out) {
  addmm_by_kernel_out(self, mat1, mat2, beta, alpha, allow_tf32, "none", {}, out);
}

}  // namespace

#ifndef TC_WITH_CUDA
void run_cuda(const Problem&, int32_t, const std::string&) {
  throw std::runtime_error(
      "tc::addmm: this build of torch_addmm_tc has no CUDA kernels, because no nvcc was found or torch was a CPU-only "
      "build when it was installed. Install a CUDA build of torch and nvcc, then reinstall torch_addmm_tc.");
}
#endif

STABLE_TORCH_LIBRARY(tc, library) {
  library.def(
      "addmm(Tensor self, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, bool allow_tf32=False) -> Tensor");
  library.def(
      "addmm.dtype(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, float beta=1, float alpha=1, "
      "bool allow_tf32=False) -> Tensor");
  library.def("mm(Tensor mat1, Tensor mat2, *, bool allow_tf32=False) -> Tensor");
  library.def("mm.dtype(Tensor mat1, Tensor mat2, ScalarType out_dtype, *, bool allow_tf32=False) -> Tensor");
  library.def(
      "addmm_out(Tensor self, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, bool allow_tf32=False, "
      "Tensor(a!) out) -> ()");
  library.def(
      "addmm_by_kernel_out(Tensor self, Tensor mat1, Tensor mat2, *, float beta=1, float alpha=1, "
      "bool allow_tf32=False, str activation='none', str kernel, Tensor(a!) out) -> ()");
  library.def(
      "addmm_activation(Tensor self, Tensor mat1, Tensor mat2, *, str activation, float beta=1, float alpha=1, "
      "bool allow_tf32=False) -> Tensor");
  library.def(
      "addmm_activation.dtype(Tensor self, Tensor mat1, Tensor mat2, ScalarType out_dtype, *, str activation, float beta=1, "
      "float alpha=1, bool allow_tf32=False) -> Tensor");
  library.def("mm_activation(Tensor mat1, Tensor mat2, *, str activation, bool allow_tf32=False) -> Tensor");
  library.def(
      "mm_activation.dtype(Tensor mat1, Tensor mat2, ScalarType out_dtype, *, str activation, bool allow_tf32=False) -> Tensor");
}

void implement(torch::stable::detail::StableLibrary& library) {
  library.impl("addmm", TORCH_BOX(&addmm));
  library.impl("addmm.dtype", TORCH_BOX(&addmm_dtype));
  library.impl("mm", TORCH_BOX(&mm));
  library.impl("mm.dtype", TORCH_BOX(&mm_dtype));
  library.impl("addmm_activation", TORCH_BOX(&addmm_activation));
  library.impl("addmm_activation.dtype", TORCH_BOX(&addmm_activation_dtype));
  library.impl("mm_activation", TORCH_BOX(&mm_activation));
  library.impl("mm_activation.dtype", TORCH_BOX(&mm_activation_dtype));
  library.impl("addmm_out", TORCH_BOX(&addmm_out));
  library.impl("addmm_by_kernel_out", TORCH_BOX(&addmm_by_kernel_out));
}

STABLE_TORCH_LIBRARY_IMPL(tc, CPU, library) { implement(library); }
STABLE_TORCH_LIBRARY_IMPL(tc, CUDA, library) { implement(library); }

}  // namespace tc
