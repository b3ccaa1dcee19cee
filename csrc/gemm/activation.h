// Activations: the last step of the epilogue, in fp32, before D's one rounding.
#pragma once

#include <cmath>
#include <cstdint>
#include <string>

namespace tc {

// x itself, relu(x), or a gated x: x * sigmoid(x * g(min(x^2, 36))) with a polynomial g. For |x| > 6 the sigmoid is 0 or 1 to
// fp32's precision, whatever g is.
struct Activation {
  static constexpr int kMostDegree = 6;
  enum class Kind : uint8_t { none, relu, gated } kind = Kind::none;
  int degree = 0;                    // of g
  float gate[kMostDegree + 1] = {};  // the coefficients of -log2(e) * g, the constant first
};

constexpr const char* name_of(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none: return "none";
    case Activation::Kind::relu: return "relu";
    case Activation::Kind::gated: return "gated";
  }
  __builtin_unreachable();
}

struct NamedActivation {
  const char* name;
  Activation activation;
};

// silu: g is 1. gelu_tanh is exactly a gated x, because (1 + tanh(y)) / 2 = sigmoid(2 y); the factor 1.595769 is sqrt(8 / pi).
// gelu: g is a minimax fit of the normal distribution's logit, ln(Phi(x) / Phi(-x)) / x, weighted by the effect of g's error on
// gelu. The fit's error in gelu is at most 7e-8, and 6e-7 with fp32's rounding; 0.5 x (1 + erf(x / sqrt(2))) in fp32 has
// 1.2e-6.
constexpr float kLog2E = 1.44269504f;
inline constexpr NamedActivation kActivations[] = {
    {"none", {}},
    {"relu", {Activation::Kind::relu}},
    {"gelu",
     {Activation::Kind::gated,
      6,
      {-2.30220723f, -0.10483858f, 9.55929863e-05f, 1.59389398e-04f, -1.14524282e-05f, 3.85044871e-07f, -5.20990584e-09f}}},
    {"gelu_tanh", {Activation::Kind::gated, 1, {-kLog2E * 1.59576912f, -kLog2E * 1.59576912f * 0.044715f}}},
    {"silu", {Activation::Kind::gated, 0, {-kLog2E}}},
};

// Null if no activation has this name.
inline const Activation* find_activation(const std::string& name) {
  for (const NamedActivation& x : kActivations)
    if (name == x.name) return &x.activation;
  return nullptr;
}

// The activation on the CPU. epilogue/formula.cuh has the GPU's.
inline float activate(float x, const Activation& activation) {
  if (activation.kind == Activation::Kind::none) return x;
  if (activation.kind == Activation::Kind::relu) return x < 0.f ? 0.f : x;  // NaN stays NaN
  const float t = std::fmin(x * x, 36.f);
  float g = activation.gate[activation.degree];
  for (int i = activation.degree - 1; i >= 0; --i) g = g * t + activation.gate[i];
  return x / (1.f + std::exp2(x * g));
}

}  // namespace tc
