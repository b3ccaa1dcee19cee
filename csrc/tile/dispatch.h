// Turns a call's math and layouts, which are known at run time, into the types that kernels are compiled for.
#pragma once

#include <type_traits>

#include "../gemm/access.h"
#include "../ptx/types.cuh"
#include "launch.h"

namespace tc {

// Operand is the operands' type in memory. Mma is the type that tensor core instructions name.
template <Math MATH>
struct MathTypes;
template <>
struct MathTypes<Math::f16> {
  using Operand = __half;
  using Mma = __half;
};
template <>
struct MathTypes<Math::bf16> {
  using Operand = __nv_bfloat16;
  using Mma = __nv_bfloat16;
};
template <>
struct MathTypes<Math::tf32> {
  using Operand = float;
  using Mma = Tf32;
};
template <>
struct MathTypes<Math::f32_emulated> {
  using Operand = float;
  using Mma = __nv_bfloat16;
};
template <>
struct MathTypes<Math::f32_simt> {
  using Operand = float;
};
template <Math MATH>
using Operand = typename MathTypes<MATH>::Operand;
template <Math MATH>
using MmaType = typename MathTypes<MATH>::Mma;

// Passes a type as a function argument.
template <typename T>
struct Type {
  using type = T;
};

// The maths of a kernel that a configuration is compiled for. `FP32` and `FP32_ALONE` are Config::fp32 and Config::fp32_alone.
template <Math... X, Math... Y>
Maths<X..., Y...> operator+(Maths<X...>, Maths<Y...>);
template <bool FP32, bool FP32_ALONE, Math... MATHS>
auto compiled_maths(Maths<MATHS...>)
    -> decltype((Maths<>() + ... +
                 std::conditional_t<is_f32(operand_dtype(MATHS)) ? FP32 : !FP32_ALONE, Maths<MATHS>, Maths<>>()));
template <typename MATHS, bool FP32, bool FP32_ALONE = false>
using ConfigMaths = decltype(compiled_maths<FP32, FP32_ALONE>(MATHS()));

// Calls act(math) with the call's math as a compile-time constant. A launcher compiles only the maths of its kernel.
template <Math... MATHS, typename F>
Status with_math(Maths<MATHS...>, Math math, F&& act) {
  Status status = status_of(cudaErrorNotSupported, "launching a kernel with a math that it does not have");
  ((math == MATHS ? void(status = act(std::integral_constant<Math, MATHS>())) : void()), ...);
  return status;
}

// Calls act(d) with the type of D: T, which is the operands', or fp32 if the configuration is compiled for it (Config::fp32_d).
template <typename T, bool FP32_D, typename F>
Status with_result(const GemmDesc& p, F&& act) {
  if (size_of(p.d.dtype) == int(sizeof(T))) return act(Type<T>());
  if constexpr (FP32_D) return act(Type<float>());
  return status_of(cudaErrorNotSupported, "launching a kernel with a D that it does not have");
}

// Calls act(b), which tells at compile time whether B is contiguous along K.
template <typename F>
Status with_b_layout(const GemmDesc& p, F&& act) {
  return order_of(p.b) == Order::col_major ? act(std::true_type()) : act(std::false_type());
}

// Calls act(a, b), which tell at compile time whether A and B are contiguous along K.
template <typename F>
Status with_layouts(const GemmDesc& p, F&& act) {
  const auto with_b = [&](auto a_k) { return with_b_layout(p, [&](auto b_k) { return act(a_k, b_k); }); };
  return order_of(p.a) == Order::row_major ? with_b(std::true_type()) : with_b(std::false_type());
}

// with_layouts for a kernel of OperandAccess::aligned_fp32_along_k.
template <Math MATH, typename F>
Status with_aligned_layouts(const GemmDesc& p, F&& act) {
  if constexpr (is_f32(operand_dtype(MATH))) return act(std::true_type(), std::true_type());
  else return with_layouts(p, act);
}

}  // namespace tc
