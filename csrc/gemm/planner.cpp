#include "planner.h"

#include <algorithm>

#include "ceil_div.h"
#include "cost_model.h"
#include "feasibility.h"

namespace tc {
namespace {

// The share of the SMs that clusters of more than two blocks can occupy. An H200 holds 30 clusters of four.
constexpr double kInClusters = 0.9;

// Chooses the number of K slices by predicted time, and records the number and the time.
void choose_k_slices(Candidate& x, const PlanKey& key, const DeviceSpec& device) {
  const KernelTraits& kernel = *x.kernel;
  const Config& config = *x.config;
  const int64_t tiles = ceil_div(key.m, config.tile_m) * ceil_div(key.n, config.tile_n);
  double best = 0;
  const auto try_slices = [&](int k_slices, double time) {
    if (best == 0 || time < best) best = time, x.k_slices = k_slices;
  };
  const auto product = [&](const PlanKey& p, int k_slices) {
    return kernel.estimate_us(kernel, config, x.math, p, k_slices, device);
  };
  switch (kernel.split_k) {
    case SplitK::none: try_slices(1, product(key, 1)); break;
    case SplitK::cluster:
      for (int slices = kLeastInCluster; slices <= kMostInCluster; ++slices)
        if (slices == kLeastInCluster || tiles * slices <= kInClusters * device.gpu.num_sms)
          try_slices(slices, product(key, slices));
      break;
    case SplitK::workspace: {
      try_slices(1, product(key, 1));
      if (tiles == 0 || tiles >= device.gpu.num_sms) break;
      const PlanKey partials = partial_products(key);
      const int64_t most = std::min<int64_t>({ceil_div(key.k, config.tile_k) / 4, 2 * device.gpu.num_sms / tiles, 64});
      for (int slices = 2; slices <= most; ++slices)
        try_slices(slices, product(partials, slices) + reduce_us(key, slices, device));
      break;
    }
  }
  x.microseconds = float(best);
}

// `key` is exchanged already if the candidate exchanges operands.
Candidate evaluate(const KernelTraits& kernel, const Config& config, Math math, bool exchanged, const PlanKey& key,
                   const DeviceSpec& device) {
  Candidate x{&kernel, &config, math, exchanged};
  x.reason = unsupported_reason(kernel, config, math, key, device);
  if (kernel.access == OperandAccess::aligned) {
    x.repack_a = needs_repack(key.a, key.m, key.k);
    x.repack_b = needs_repack(transpose(key.b), key.n, key.k);
  }
  choose_k_slices(x, key, device);
  if (x.repack_a) x.microseconds += float(repack_us(key.a, key.m, key.k, device));
  if (x.repack_b) x.microseconds += float(repack_us(key.b, key.n, key.k, device));
  return x;
}

// Whether a kernel has a math for operands of this dtype.
bool multiplies(const KernelTraits& kernel, DType dtype) {
  return std::any_of(
      std::begin(kMaths), std::end(kMaths), [&](Math math) { return operand_dtype(math) == dtype && kernel.maths.has(math); });
}

// Calls act(candidate) for every candidate in scope: each kernel, configuration, and math for the operands' dtype. A
// configuration without such a math is one candidate, which reports the reason.
template <typename F>
void for_each_candidate(const PlanKey& key, const DeviceSpec& device, const Scope& scope, F&& act) {
  // Kernels write rows of D faster than columns. If epilogues wrote columns as fast, both orders would be worth a try.
  const bool exchanged = order_of(key.d) == Order::col_major;
  const PlanKey p = exchanged ? exchange_operands(key) : key;
  for (const KernelTraits& kernel : kernels()) {
    const bool any = multiplies(kernel, p.a.dtype);
    for (const Config& config : kernel.configs) {
      if (!scope.holds(kernel, config)) continue;
      for (Math math : kMaths) {
        if (operand_dtype(math) != p.a.dtype || (any && !kernel.maths.has(math))) continue;
        act(evaluate(kernel, config, math, exchanged, p, device));
        if (!any) break;
      }
    }
  }
}

}  // namespace

Workspace workspace_of(const PlanKey& key, const Candidate& x) {
  const PlanKey p = x.exchanged ? exchange_operands(key) : key;
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  Workspace w{};
  w.b = x.repack_a ? aligned(repacked_bytes(p.a, p.m, p.k)) : 0;
  w.partials = w.b + (x.repack_b ? aligned(repacked_bytes(transpose(p.b), p.n, p.k)) : 0);
  w.size = w.partials + (x.layers() > 1 ? x.layers() * p.m * p.n * 4 : 0);
  return w;
}

std::optional<Scope> find_scope(const std::string& name) {
  if (name.empty()) return Scope{};
  const size_t slash = name.find('/');
  for (const KernelTraits& kernel : kernels()) {
    if (name.compare(0, slash, kernel.name) != 0) continue;
    if (slash == std::string::npos) return Scope{&kernel};
    for (int i = 0; i < kernel.configs.count; ++i)
      if (name.substr(slash + 1) == std::to_string(i)) return Scope{&kernel, &kernel.configs[i]};
  }
  return std::nullopt;
}

std::vector<Candidate> candidates(const PlanKey& key, const DeviceSpec& device, const Scope& scope) {
  std::vector<Candidate> all;
  for_each_candidate(key, device, scope, [&](const Candidate& x) { all.push_back(x); });
  return all;
}

Candidate plan(const PlanKey& key, const DeviceSpec& device, const Scope& scope) {
  Candidate best;
  for_each_candidate(key, device, scope, [&](const Candidate& x) {
    if (!x.reason && (!best.kernel || x.microseconds < best.microseconds)) best = x;
  });
  return best;
}

}  // namespace tc
