#include "cpu.h"

#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Half.h>

namespace tc {
namespace {

using torch::stable::Tensor;

template <typename F>
void with_type(DType t, F&& body) {
  if (t == DType::f16) body(torch::headeronly::Half());
  else if (t == DType::bf16) body(torch::headeronly::BFloat16());
  else body(0.f);
}

}  // namespace

// ATen's product in fp32, then alpha, beta, C and the activation as on the GPU: in fp32, rounded once.
void run_cpu(const TensorMeta& mat1, const TensorMeta& mat2, const Problem& p) {
  std::optional<OwnedTensor> product;
  const float* products = nullptr;  // (M, N)
  if (p.k > 0) {
    product.emplace(empty(p.m, p.n, ScalarType::Float, mat1));
    if (mat1.dtype == ScalarType::Float) {
      require(aoti_torch_cpu_mm_out(product->get(), mat1.handle, mat2.handle), "aten::mm.out");
    } else {
      const Tensor a = torch::stable::to(mat1.tensor(), ScalarType::Float);
      const Tensor b = torch::stable::to(mat2.tensor(), ScalarType::Float);
      require(aoti_torch_cpu_mm_out(product->get(), a.get(), b.get()), "aten::mm.out");
    }
    products = static_cast<const float*>(address(product->get()));
  }
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

}  // namespace tc
