// From what a call says at run time to what kernels are compiled for: a table's entry, a dtype and layouts, as types.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <type_traits>
#include <utility>

#include "launch.h"

namespace tc {

template <typename T>
struct Type {
  using type = T;
};

template <typename F, int... I>
Status with_instance(const Launch& call, const Instance* table, std::integer_sequence<int, I...>, F&& act) {
  Status status = status_of(cudaErrorNotSupported, "launching another kernel's instance");
  const auto attempt = [&](auto index) {
    if (&call.tile == &table[index]) status = act(index);
  };
  (attempt(std::integral_constant<int, I>()), ...);
  return status;
}

// act(I), I being the place of the call's instance in its kernel's table.
template <int COUNT, typename F>
Status with_instance(const Launch& call, const Instance (&table)[COUNT], F&& act) {
  return with_instance(call, table, std::make_integer_sequence<int, COUNT>(), act);
}

// act(Type<T>()), T being the operands' type.
template <typename F>
Status with_halves(const Problem& p, F&& act) {
  if (p.a.dtype == DType::f16) return act(Type<__half>());
  if (p.a.dtype == DType::bf16) return act(Type<__nv_bfloat16>());
  return status_of(cudaErrorNotSupported, "launching a kernel for halves with fp32 operands");
}
template <typename F>
Status with_dtype(const Problem& p, F&& act) {
  return p.a.dtype == DType::f32 ? act(Type<float>()) : with_halves(p, act);
}

// act(A, B): whether each operand lies contiguous along K.
template <typename F>
Status with_layouts(const Problem& p, F&& act) {
  const auto with_b = [&](auto a_k) {
    return order_of(p.b) == Order::col_major ? act(a_k, std::true_type()) : act(a_k, std::false_type());
  };
  return order_of(p.a) == Order::row_major ? with_b(std::true_type()) : with_b(std::false_type());
}

// The same for a kernel of Access::aligned, T being the operands' type: fp32 ones come with K contiguous, repacked if need be.
template <typename T, typename F>
Status with_aligned_layouts(const Problem& p, F&& act) {
  if constexpr (sizeof(T) == 4) return act(std::true_type(), std::true_type());
  else return with_layouts(p, act);
}

}  // namespace tc
