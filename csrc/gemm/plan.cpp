#include "plan.h"

#include <algorithm>

namespace tc {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool multiplies_tf32(const Kernel& kernel, const Problem& p) {
  return p.a.dtype == DType::f32 && kernel.operands & kTf32;
}

const char* rejection(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device) {
  if (device.sm < kernel.min_sm) return "the GPU is too old for it";
  if (multiplies_tf32(kernel, p) && !p.allow_tf32) return "fp32 operands need allow_tf32";
  if (!(kernel.operands & bit(p.a.dtype)) && !multiplies_tf32(kernel, p))
    return "it does not multiply operands of this dtype";
  if (kernel.access == Access::contiguous &&
      (order_of(p.a) == Order::strided || order_of(p.b) == Order::strided))
    return "an operand has no direction of stride 1";
  if (instance.smem_bytes > device.smem_per_block) return "its tiles do not fit the GPU's shared memory";
  return nullptr;
}

// The busiest SM's share of the tiles at the instance's measured rate, or the bytes at the H200's measured
// copy bandwidth, whichever takes longer; plus the microseconds that an empty kernel takes. Rates are those of halves;
// tensor cores multiply TF32 half as fast.
float predict(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device) {
  constexpr double kMeasuredSms = 132, kBytesPerMicrosecond = 4.1e6, kLaunch = 2.5;
  const double tiles_per_sm =
      double(ceil_div(ceil_div(p.m, instance.tile_m) * ceil_div(p.n, instance.tile_n), device.num_sms));
  const double flops = 2.0 * instance.tile_m * instance.tile_n * ceil_div(p.k, instance.tile_k) * instance.tile_k;
  const double tflops = multiplies_tf32(kernel, p) ? instance.tflops / 2 : instance.tflops;
  const double math = tiles_per_sm * flops / (tflops * 1e6 / kMeasuredSms);
  const double bytes = double(p.m) * p.k * size_of(p.a.dtype) + double(p.k) * p.n * size_of(p.b.dtype) +
                       double(p.m) * p.n * (size_of(p.d.dtype) + (p.c.data ? size_of(p.c.dtype) : 0));
  return float(std::max(math, bytes / kBytesPerMicrosecond) + kLaunch);
}

}  // namespace

Verdict judge(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device) {
  return {&kernel, &instance, rejection(kernel, instance, p, device), predict(kernel, instance, p, device)};
}

std::optional<Scope> find_scope(const std::string& name) {
  if (name.empty()) return Scope{};
  const size_t slash = name.find('/');
  for (const Kernel& kernel : kernels()) {
    if (name.compare(0, slash, kernel.name) != 0) continue;
    if (slash == std::string::npos) return Scope{&kernel};
    for (int i = 0; i < kernel.num_instances; ++i)
      if (name.substr(slash + 1) == std::to_string(i)) return Scope{&kernel, &kernel.instances[i]};
  }
  return std::nullopt;
}

Verdict plan(const Problem& problem, const Device& device, const Scope& scope) {
  Verdict best;
  for (const Kernel& kernel : kernels())
    for (int i = 0; i < kernel.num_instances; ++i) {
      if (!scope.holds(kernel, kernel.instances[i])) continue;
      const Verdict verdict = judge(kernel, kernel.instances[i], problem, device);
      if (verdict.rejection) continue;
      if (!best.kernel || verdict.microseconds < best.microseconds) best = verdict;
    }
  return best;
}

}  // namespace tc
