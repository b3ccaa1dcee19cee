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
void run_cpu(const TensorMeta& mat1, const TensorMeta& mat2, const GemmDesc& p) {
  const auto fp32 = [](const TensorMeta& x) {
    return x.dtype == ScalarType::Float ? x.tensor() : torch::stable::to(x.tensor(), ScalarType::Float);
  };
  Tensor product;
  if (p.k > 0) {
    product = Tensor(empty(p.m, p.n, ScalarType::Float, mat1).release());
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
            const float scaled = products ? p.epilogue.alpha * products[i * p.n + j] : 0.f;
            const float sum = c ? scaled + p.epilogue.beta * float(c[i * p.c.row + j * p.c.col]) : scaled;
            d[i * p.d.row + j * p.d.col] = activate(sum, p.epilogue.activation);
          }
      });
    });
  });
}

}  // namespace tc
