// The op on the CPU, in three ways. ATen's addmm computes 16-bit operands where it is right and fast. ATen's mm and one pass
// over D compute fp32. Everything else is converted to fp32 tile by tile.
#include "cpu.h"

#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/inductor/aoti_torch/generated/c_shim_cpu.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <algorithm>
#include <cmath>

#include "../gemm/access.h"
#include "../gemm/ceil_div.h"
#include "../gemm/overlap.h"
#include "tensor.h"

namespace tc {
namespace {

using torch::stable::Tensor;

int32_t aten_dtype(DType t) {
  switch (t) {
    case DType::f16: return aoti_torch_dtype_float16();
    case DType::bf16: return aoti_torch_dtype_bfloat16();
    case DType::f32: return aoti_torch_dtype_float32();
  }
  __builtin_unreachable();
}

// A tensor over x's memory, which it does not own.
Tensor view(const MatrixView& x, int64_t rows, int64_t cols) {
  const int64_t sizes[] = {rows, cols}, strides[] = {x.row, x.col};
  AtenTensorHandle result;
  require(aoti_torch_create_tensor_from_blob(
              x.data, 2, sizes, strides, 0, aten_dtype(x.dtype), aoti_torch_device_type_cpu(), 0, &result),
          "viewing a matrix");
  return Tensor(result);
}

// x from element (i, j) on.
MatrixView from(MatrixView x, int64_t i, int64_t j) {
  x.data = static_cast<char*>(x.data) + (i * x.row + j * x.col) * size_of(x.dtype);
  return x;
}

void copy(const MatrixView& to, const MatrixView& from, int64_t rows, int64_t cols) {
  require(aoti_torch_copy_(view(to, rows, cols).get(), view(from, rows, cols).get(), false), "aten::copy_");
}

// Memory for fp32 numbers, aligned as ATen aligns its own. A BLAS adds in an order that depends on the alignment, and results
// have to repeat bitwise.
class Scratch {
 public:
  explicit Scratch(int64_t count) {
    const int64_t stride = 1;
    AtenTensorHandle result;
    require(aoti_torch_empty_strided(1, &count, &stride, aoti_torch_dtype_float32(), aoti_torch_device_type_cpu(), 0, &result),
            "allocating memory");
    memory_ = Tensor(result);
  }
  float* data() const { return static_cast<float*>(memory_.data_ptr()); }
  MatrixView row_major(int64_t cols) const { return {data(), cols, 1, 0, DType::f32}; }
  MatrixView col_major(int64_t rows) const { return {data(), 1, rows, 0, DType::f32}; }
  MatrixView like(const MatrixView& x, int64_t rows, int64_t cols) const {
    return order_of(x) == Order::col_major ? col_major(rows) : row_major(cols);
  }

 private:
  Tensor memory_;
};

int64_t round_up(int64_t x, int64_t unit) { return ceil_div(x, unit) * unit; }

// Whether a BLAS can read x as it lies.
bool blas_reads(const MatrixView& x) { return is_f32(x.dtype) && order_of(x) != Order::strided; }

// Applies alpha, beta, C and the activation to `count` products in d, as epilogue/formula.cuh does on the GPU. c is null where
// there is no C. The compiler makes vectors of loops of constant length.
void finish(float* __restrict d, const float* __restrict c, const GemmDesc& p, int64_t count) {
  constexpr int kLanes = 16;
  const float alpha = p.epilogue.alpha, beta = p.epilogue.beta;
  int64_t i = 0;
  if (p.k > 0 && c && p.epilogue.activation.kind == Activation::Kind::none)
    for (; i + kLanes <= count; i += kLanes)
      for (int lane = 0; lane < kLanes; ++lane) d[i + lane] = alpha * d[i + lane] + beta * c[i + lane];
  for (; i < count; ++i) {
    const float scaled = p.k > 0 ? alpha * d[i] : 0.f;
    d[i] = activate(c ? scaled + beta * c[i] : scaled, p.epilogue.activation);
  }
}

// ---- 16-bit operands by ATen ----

bool is_ordinary(float x) { return x == 0.f || (std::fabs(x) >= 0x1p-40f && std::fabs(x) <= 0x1p40f); }

// ATen computes what the op promises where all matrices have one dtype: the sum in fp32, rounded once. An alpha or beta that is
// infinite, NaN or extreme is left to run_tiles, because oneDNN flushes subnormal numbers to 0.
bool aten_agrees(const GemmDesc& p) {
  const bool one_dtype = p.d.dtype == p.a.dtype && (!p.c.data || p.c.dtype == p.a.dtype);
  return p.k > 0 && one_dtype && p.epilogue.activation.kind == Activation::Kind::none && is_ordinary(p.epilogue.alpha) &&
         is_ordinary(p.epilogue.beta);
}

// Whether oneDNN multiplies operands of this dtype on this CPU, as ATen itself asks. ATen's own loops serve the other CPUs.
bool onednn_multiplies(DType t) {
  const auto ask = [](const char* op) {
    StableIValue answer = 0;
    return torch_call_dispatcher(op, "", &answer, TORCH_ABI_VERSION) == TORCH_SUCCESS &&
           torch::stable::detail::to<bool>(answer);
  };
  static const bool f16 = ask("mkldnn::_is_mkldnn_fp16_supported"), bf16 = ask("mkldnn::_is_mkldnn_bf16_supported");
  switch (t) {
    case DType::f16: return f16;
    case DType::bf16: return bf16;
    case DType::f32: return true;
  }
  __builtin_unreachable();
}

// ATen's own loops over 16-bit elements are dot products. They need no conversion and are good where both operands are
// contiguous along K, but they run at a quarter of sgemm's speed. Converting pays where an element takes part in 3 products
// (4x2304x768 in fp16: 0.50 ms converted, 0.62 by ATen's loops).
bool too_few_products_to_convert(const GemmDesc& p) {
  return (p.a.col == 1 || p.k == 1) && (p.b.row == 1 || p.k == 1) && p.m * p.n < 3 * (p.m + p.n);
}

bool suits_aten(const GemmDesc& p) {
  return !is_f32(p.a.dtype) && aten_agrees(p) && (onednn_multiplies(p.a.dtype) || too_few_products_to_convert(p));
}

void run_aten(const GemmDesc& p) {
  const Tensor d = view(p.d, p.m, p.n);
  const bool reads_d = !p.c.data || same_elements(p.c, p.d, p.m, p.n);
  const Tensor c = reads_d ? d : view(p.c, p.m, p.n);
  require(aoti_torch_cpu_addmm_out(
              d.get(), c.get(), view(p.a, p.m, p.k).get(), view(p.b, p.k, p.n).get(), p.epilogue.beta, p.epilogue.alpha),
          "aten::addmm.out");
}

// ---- fp32 in place of D ----

// Whether A, B and C are fp32, the rows of C and D are contiguous, and D's memory is free for the product. ATen's addmm would
// not do: MKL multiplies an operand by alpha, which overflows at 3e38, and adds K in slices to beta * C, with a rounding for
// each. A C of 1e6 in a product of 1x2048x2048 gave 19 times the allowed error, and 0.3 times this way.
bool suits_fp32(const GemmDesc& p) {
  const bool rows_of_c = !p.c.data || (is_f32(p.c.dtype) && (p.c.col == 1 || p.n == 1));
  return p.k > 0 && is_f32(p.a.dtype) && p.d.col == 1 && rows_of_c && !same_elements(p.c, p.d, p.m, p.n);
}

void run_fp32(const GemmDesc& p) {
  require(
      aoti_torch_cpu_mm_out(view(p.d, p.m, p.n).get(), view(p.a, p.m, p.k).get(), view(p.b, p.k, p.n).get()), "aten::mm.out");
  if (!p.c.data && p.epilogue.alpha == 1.f && p.epilogue.activation.kind == Activation::Kind::none) return;
  torch::stable::parallel_for(0, p.m, 1 + 32768 / p.n, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      finish(static_cast<float*>(from(p.d, i, 0).data), p.c.data ? static_cast<const float*>(from(p.c, i, 0).data) : nullptr, p,
             p.n);
  });
}

// ---- the rest by tiles, converted to fp32 ----

// Each thread converts a panel of B's columns, which then stays in its cache, and makes the tiles of D in these columns. A
// panel holds at most 2 MiB of fp32, but at least 64 columns, because copying shorter rows is slow. The number of panels
// divides among the threads. Tiles have 128 rows; tiles of 256 were 3 % faster only where there are enough of them for all
// threads.
void run_tiles(const GemmDesc& p) {
  constexpr int64_t kPanel = 1 << 19, kLeastCols = 64, kUnit = 16, kRows = 128;
  const int64_t threads = torch::stable::get_num_threads();
  const int64_t panels = round_up(ceil_div(p.n * p.k + 1, kPanel), threads);
  const int64_t rows = std::min(p.m, kRows), cols = std::min(p.n, std::max(kLeastCols, round_up(ceil_div(p.n, panels), kUnit)));
  const int64_t down = ceil_div(p.m, rows), across = ceil_div(p.n, cols);

  const bool a_as_it_lies = p.k == 0 || blas_reads(p.a), b_as_it_lies = p.k == 0 || blas_reads(p.b);
  const Scratch a_memory(a_as_it_lies ? 0 : p.m * p.k);
  const MatrixView a = a_as_it_lies ? p.a : a_memory.like(p.a, p.m, p.k);
  if (!a_as_it_lies) copy(a, p.a, p.m, p.k);

  torch::stable::parallel_for(0, down * across, 1, [&](int64_t begin, int64_t end) {
    const Scratch b_memory(b_as_it_lies ? 0 : p.k * cols), c_memory(p.c.data ? rows * cols : 0), d_memory(rows * cols);
    int64_t converted = -1;  // the panel in b_memory
    for (int64_t tile = begin; tile < end; ++tile) {
      const int64_t panel = tile / down, i = tile % down * rows, j = panel * cols;
      const int64_t m = std::min(rows, p.m - i), n = std::min(cols, p.n - j);
      const MatrixView d = d_memory.row_major(n), c = c_memory.row_major(n);
      if (p.k > 0) {
        const MatrixView b = b_as_it_lies ? from(p.b, 0, j) : b_memory.like(p.b, p.k, n);
        if (!b_as_it_lies && converted != panel) copy(b, from(p.b, 0, j), p.k, n);
        converted = panel;
        require(aoti_torch_cpu_mm_out(view(d, m, n).get(), view(from(a, i, 0), m, p.k).get(), view(b, p.k, n).get()),
                "aten::mm.out");
      }
      if (p.c.data) copy(c, from(p.c, i, j), m, n);
      finish(d_memory.data(), p.c.data ? c_memory.data() : nullptr, p, m * n);
      copy(from(p.d, i, j), d, m, n);
    }
  });
}

void run_product(const GemmDesc& p) {
  if (suits_aten(p)) run_aten(p);
  else if (suits_fp32(p)) run_fp32(p);
  else run_tiles(p);
}

}  // namespace

// Where there is a product for each thread, each thread computes whole products.
void run_cpu(const GemmDesc& given) {
  const GemmDesc p = fold_batch(given);
  const int64_t grain = p.batch >= int64_t(torch::stable::get_num_threads()) ? 1 : p.batch;
  torch::stable::parallel_for(0, p.batch, grain, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      GemmDesc product = product_of(p, i);
      product.batch = 1;
      run_product(product);
    }
  });
}

}  // namespace tc
