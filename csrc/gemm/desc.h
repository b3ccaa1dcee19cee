// The description of a GEMM, D = activation(alpha * (A @ B) + beta * C), as plain data without torch or CUDA. The op, the
// planner and the kernels share it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>

#include "activation.h"

namespace tc {

enum class DType : uint8_t { f16, bf16, f32 };

// How products are formed. Every math accumulates in fp32.
enum class Math : uint8_t {
  f16,           // fp16 operands, whose products are exact in fp32
  bf16,          // bf16 operands, whose products are exact in fp32
  tf32,          // fp32 operands rounded to TF32's 11 significant bits
  f32_emulated,  // fp32 operands as three bf16 parts each, of which six products are formed
  f32_simt,      // fp32 operands, multiplied in fp32 on CUDA cores
};

constexpr Math kMaths[] = {Math::f16, Math::bf16, Math::tf32, Math::f32_emulated, Math::f32_simt};

// The precision that the caller asks for, in torch.backends' words. This limits the maths that the planner may choose for fp32.
enum class Precision : uint8_t { ieee, tf32 };

#if defined(__CUDACC__)
#define TC_HOST_DEVICE __host__ __device__
#else
#define TC_HOST_DEVICE
#endif

// The switches have no default, and the build makes -Wswitch an error: every switch must handle a new enumerator.
TC_HOST_DEVICE constexpr bool is_f32(DType t) {
  switch (t) {
    case DType::f16:
    case DType::bf16: return false;
    case DType::f32: return true;
  }
  __builtin_unreachable();
}
TC_HOST_DEVICE constexpr int size_of(DType t) { return is_f32(t) ? 4 : 2; }

constexpr const char* name_of(DType t) {
  switch (t) {
    case DType::f16: return "float16";
    case DType::bf16: return "bfloat16";
    case DType::f32: return "float32";
  }
  __builtin_unreachable();
}

constexpr const char* name_of(Math math) {
  switch (math) {
    case Math::f16: return "float16";
    case Math::bf16: return "bfloat16";
    case Math::tf32: return "tf32";
    case Math::f32_emulated: return "bf16x6";
    case Math::f32_simt: return "float32";
  }
  __builtin_unreachable();
}

constexpr const char* name_of(Precision x) {
  switch (x) {
    case Precision::ieee: return "ieee";
    case Precision::tf32: return "tf32";
  }
  __builtin_unreachable();
}

// The dtype of A and B under a math.
constexpr DType operand_dtype(Math math) {
  switch (math) {
    case Math::f16: return DType::f16;
    case Math::bf16: return DType::bf16;
    case Math::tf32:
    case Math::f32_emulated:
    case Math::f32_simt: return DType::f32;
  }
  __builtin_unreachable();
}

// Whether a math is one for `precision`: it keeps what that promises, and TF32 takes the place of emulation where it suffices.
constexpr bool keeps(Math math, Precision precision) {
  switch (math) {
    case Math::f16:
    case Math::bf16:
    case Math::f32_simt: return true;
    case Math::tf32: return precision == Precision::tf32;
    case Math::f32_emulated: return precision == Precision::ieee;
  }
  __builtin_unreachable();
}

// Element (b, i, j) lies at data[b * batch + i * row + j * col]. Strides count elements; a stride of 0 broadcasts. A matrix that is
// absent has null data and a batch stride of 0.
struct MatrixView {
  void* data;
  int64_t row, col, batch;
  DType dtype;
};

struct EpilogueArgs {
  float alpha, beta;
  Activation activation;
};

struct GemmDesc {
  int64_t batch, m, n, k;  // `batch` products, each of the sizes below
  MatrixView a;            // (M, K), f16, bf16 or f32
  MatrixView b;            // (K, N), A's dtype
  MatrixView c;            // (M, N), A's dtype or f32; data is null if beta is 0, so that nothing can read C
  MatrixView d;            // (M, N), A's dtype or f32
  Precision precision;
  bool batch_invariant;  // whether a row of D has the same bits in every batch (feasibility.h)
  bool d_is_partial;     // whether D is layers of partial products (partial_products)
  EpilogueArgs epilogue;
};

template <typename X>
X transpose(X x) {
  std::swap(x.row, x.col);
  return x;
}

// D^T = B^T A^T: the same memory with M and N exchanged. P is a GemmDesc or its PlanKey.
template <typename P>
P exchange_operands(P p) {
  std::swap(p.m, p.n);
  p.a = transpose(std::exchange(p.b, transpose(p.a)));
  p.c = transpose(p.c);
  p.d = transpose(p.d);
  return p;
}

// The view of a batch's matrix number `product`.
TC_HOST_DEVICE inline MatrixView matrix_of(MatrixView x, int64_t product) {
  x.data = static_cast<char*>(x.data) + product * x.batch * size_of(x.dtype);
  return x;
}

// The problem with the addresses of product number `product` of its batch. A kernel whose grid has a row of blocks for each product
// begins with this.
TC_HOST_DEVICE inline GemmDesc product_of(GemmDesc p, int64_t product) {
  p.a = matrix_of(p.a, product);
  p.b = matrix_of(p.b, product);
  p.c = matrix_of(p.c, product);
  p.d = matrix_of(p.d, product);
  return p;
}

// How many matrices x stands for in a batch: one if all products share it. X is a MatrixView or a MatrixKey.
template <typename X>
int64_t matrices_of(const X& x, int64_t batch) {
  return x.batch == 0 ? std::min<int64_t>(batch, 1) : batch;
}

// BLAS's rule: beta = 0 does not read C, and alpha = 0 does not read A and B. Without a product (K = 0) alpha has no effect
// either, even if alpha is infinite or NaN. A beta of -0 would show in the sign of a result of 0.
inline GemmDesc without_unread(GemmDesc p) {
  if (p.epilogue.alpha == 0.f) p.k = 0;
  if (p.k == 0) p.epilogue.alpha = 0.f;
  if (p.epilogue.beta == 0.f) p.c = {nullptr, 0, 0, 0, p.a.dtype}, p.epilogue.beta = 0.f;
  return p;
}

// Chooses the strides of extents of 1, which are never used. A single row or column then counts as contiguous along its length,
// however it was sliced, and never along its extent of 1.
inline MatrixView canonical(MatrixView x, int64_t rows, int64_t cols) {
  if (cols == 1) x.col = x.row == 1 ? rows : 1;
  else if (rows == 1) x.row = x.col == 1 ? cols : 1;
  return x;
}

// Turns a batch whose products share B into one product, if the rows of each product follow those of the product before. A batch with more
// than kMostRows rows stays a batch, because kernels with TMA number rows in 32 bits.
inline GemmDesc fold_rows(GemmDesc p) {
  constexpr int64_t kMostRows = int64_t(1) << 30;
  const auto rows_follow = [&](const MatrixView& x) { return p.m == 1 || x.batch == p.m * x.row; };
  if (p.batch == 1 || p.b.batch != 0 || p.m * p.batch > kMostRows || !rows_follow(p.a) || !rows_follow(p.d) ||
      !(rows_follow(p.c) || !p.c.data))
    return p;
  if (p.m == 1)
    for (MatrixView* x : {&p.a, &p.c, &p.d}) x->row = x->batch;
  p.m *= std::exchange(p.batch, 1);
  return p;
}

// The same, or for products that share A and whose columns follow each other. Columns of a batch-invariant product stay apart,
// because its bits may follow from N.
inline GemmDesc fold_batch(const GemmDesc& p) {
  if (p.batch == 1) return p;
  const GemmDesc rows = fold_rows(p);
  return p.batch_invariant ? rows : exchange_operands(fold_rows(exchange_operands(rows)));
}

// Gives a problem one description, whatever strides the caller's tensors have along extents of 1.
inline GemmDesc canonical(GemmDesc p) {
  p = fold_batch(without_unread(p));
  if (!is_f32(p.a.dtype)) p.precision = Precision::ieee;  // precision concerns fp32 operands alone
  if (p.batch == 1)
    for (MatrixView* x : {&p.a, &p.b, &p.c, &p.d}) x->batch = 0;
  p.a = canonical(p.a, p.m, p.k);
  p.b = canonical(p.b, p.k, p.n);
  p.c = canonical(p.c, p.m, p.n);
  p.d = canonical(p.d, p.m, p.n);
  return p;
}

// The product that writes fp32 layers, (K slices, batch, M, N) with rows `pitch` elements apart. The reduction applies alpha, beta,
// C and the activation.
inline GemmDesc partial_products(GemmDesc p, void* layers, int64_t pitch) {
  p.c.data = nullptr, p.c.batch = 0;
  p.d = {layers, pitch, 1, p.m * pitch, DType::f32};
  p.d_is_partial = true;
  p.epilogue = {1.f, 0.f, {}};
  return p;
}

// The result of a launch. op/cuda.cpp turns an error into an exception.
struct Status {
  int cuda_error = 0;     // a cudaError_t
  const char* call = "";  // the call that returned it
  bool ok() const { return cuda_error == 0; }
};

}  // namespace tc
