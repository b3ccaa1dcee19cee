#include "planner.h"

#include <algorithm>

#include "ceil_div.h"
#include "cost_model.h"
#include "cost_waves.h"
#include "feasibility.h"
#include "streamed_shape.h"

namespace tc {
namespace {

constexpr int kMostSlices = 64;  // of K, in workspace
constexpr int kSlicesOfWaves =
    8;                         // the same where tiles fill a wave and a part of the next: 140 tiles are 8.5 waves of eighths
constexpr int kMostWaves = 3;  // of narrower tiles

// Calls act(columns) for each number of columns of a tile to try: the configuration's, and the fewest with which all tiles run in
// one to kMostWaves waves. Evenly filled waves matter where weights stream from DRAM: 48x9216x16384 has 144 tiles of 64 columns,
// which a ring of TMA loads alone takes 95.3 us to read on an H200. 128 tiles of 72 columns take 72.4, a copy's time.
template <typename F>
void each_width(const KernelTraits& kernel, const Config& config, const PlanKey& key, const Modes& modes,
                const DeviceSpec& device, const Scope& scope, F&& act) {
  if (scope.columns || scope.cluster) return act(scope.columns.value_or(config.tile_n));
  act(config.tile_n);
  if (kernel.narrower.count == 0 || modes.k_slices > 1) return;  // K slices fill waves too
  if (order_of(key.b) != Order::col_major) return;               // other tiles of B consist of 64 columns
  const Cluster& cluster = modes.cluster;
  const int64_t rows = std::max<int64_t>(1, key.batch * ceil_div(key.m, config.tile_m * cluster.m));
  const int step = kernel.narrower[0], least = config.tile_n - kernel.narrower[kernel.narrower.count - 1];
  int last = config.tile_n;
  for (int waves = 1; waves <= kMostWaves; ++waves) {
    const int64_t across = clusters_at_once(config, cluster, device) * waves / rows * cluster.n;
    if (across == 0) continue;
    const int64_t columns = ceil_div(ceil_div(key.n, across), step) * step;
    if (columns < least) return;
    if (columns < last) act(last = int(columns));
  }
}

// Chooses the modes by predicted time, and records them and the time. A scope's number of K slices must be one that the planner
// would consider: no other was ever run. `slices`: the number of K slices that the product must have; 0: any.
void choose_modes(Candidate& x, const PlanKey& key, int slices, const DeviceSpec& device, const Scope& scope) {
  const KernelTraits& kernel = *x.kernel;
  const Config& config = *x.config;
  const int64_t tiles_m = ceil_div(key.m, config.tile_m), tiles_n = ceil_div(key.n, config.tile_n);
  const int64_t tiles = key.batch * tiles_m * tiles_n;
  double best = 0;
  bool any = false;
  x.modes.columns = config.tile_n;
  const PlanKey partials = partial_products(key, x.partials_pitch(key.n));
  const auto try_modes = [&](int k_slices, Cluster cluster) {
    if (scope.k_slices && *scope.k_slices != k_slices) return;
    if (slices && slices != k_slices) return;
    if (k_slices > cluster.k && !writes_fp32(config, key.a.dtype)) return;
    each_width(kernel, config, key, {k_slices, cluster}, device, scope, [&](int columns) {
      const Modes modes{k_slices, cluster, columns};
      const bool in_layers = x.finish_apart || modes.layers() > 1;
      const double time = kernel.estimate_us(kernel, config, x.math, in_layers ? partials : key, modes, device) +
                          (in_layers ? reduce_us(key, modes.layers(), device) : 0);
      if (!any || time < best) best = time, x.modes = modes;
      any = true;
    });
  };
  for (const Cluster& cluster : kernel.clusters) {
    const bool filled = cluster.m <= std::max<int64_t>(tiles_m, 1) && cluster.n <= std::max<int64_t>(tiles_n, 1);
    if (!(scope.cluster ? *scope.cluster == cluster : filled)) continue;
    if (cluster.k > 1) {  // blocks that share K have one tile each, so that a second wave would wait for everything again
      const bool one_wave =
          key.batch * ceil_div(tiles_m, cluster.m) * ceil_div(tiles_n, cluster.n) <= clusters_at_once(config, cluster, device);
      if (one_wave || slices || scope.cluster || &cluster == kernel.clusters.begin()) try_modes(cluster.k, cluster);
      continue;
    }
    try_modes(1, cluster);
    if (slices > 1 && kernel.split_k) try_modes(slices, cluster);
    if (slices || !kernel.split_k || tiles == 0 || tiles >= 2 * device.gpu.num_sms) continue;
    const int64_t sms = device.gpu.num_sms, of_grid = tiles < sms ? 2 * sms / tiles : kSlicesOfWaves;
    const int64_t most = std::min<int64_t>({ceil_div(key.k, config.tile_k) / 4, of_grid, kMostSlices});
    for (int slices = 2; slices <= most; ++slices) try_modes(slices, cluster);
  }
  x.microseconds = float(best);
  if (!any && !x.reason) x.reason = "it does not split this problem's K into that many slices";
}

// Whether a kernel that reads vectors needs A repacked. With aligned_b_alone it finds rows by their numbers, and they may begin anywhere
// if B's K tiles may.
bool must_repack_a(const Candidate& x, const PlanKey& key) {
  const bool by_number = x.kernel->access == OperandAccess::aligned_b_alone;
  if (by_number && key.k > 0 && !numbers_rows(key.a)) return true;
  if (x.kernel->access == OperandAccess::dense_a_along_k) return StreamedShape::must_repack(key.a, key.m, key.k, *x.config);
  const bool anywhere = by_number && order_of(key.b) == Order::row_major;
  const auto a = x.copied_a(key);
  return needs_repack(a.x, a.rows, a.length, a.along, anywhere ? 2 : x.config->alignment);
}

// Whether a kernel that reads vectors needs B repacked.
bool must_repack_b(const Candidate& x, const PlanKey& key) {
  if (x.copies_b_along_n() && key.k == 0) return false;
  const auto b = x.copied_b(key);
  return needs_repack(b.x, b.rows, b.length, b.along, b_alignment(x.kernel->access, *x.config));
}

// Whether a kernel has a math for operands of this dtype.
bool multiplies(const KernelTraits& kernel, DType dtype) {
  return std::any_of(
      std::begin(kMaths), std::end(kMaths), [&](Math math) { return operand_dtype(math) == dtype && kernel.maths.has(math); });
}

// Chooses the modes. `key` is exchanged already if the candidate exchanges operands.
Candidate evaluate(const KernelTraits& kernel, const Config& config, Math math, bool exchanged, const PlanKey& key,
                   const DeviceSpec& device, const Scope& scope) {
  Candidate x{&kernel, &config, math, exchanged};
  x.reason = unsupported_reason(kernel, config, math, key, device);
  const int slices = key.batch_invariant ? batch_invariant_slices(key, exchanged ? key.m : key.n, device) : 0;
  if (slices > 1 && !x.reason && kernel.unit != Unit::wgmma) x.reason = "its bits depend on the batch";
  x.finish_apart = config.tma_only && !tma_reaches_c_and_d(key);
  if (x.finish_apart && !x.reason && !writes_fp32(config, key.a.dtype))
    x.reason = "TMA does not reach C or D, and it leaves no sums in workspace";
  const bool copies = repacks(kernel.access) && multiplies(kernel, key.a.dtype);
  x.repack_a = copies && must_repack_a(x, key);
  x.repack_b = copies && must_repack_b(x, key);
  if (x.writes_parts()) x.repack_a = x.repack_b = key.k > 0 && is_f32(key.a.dtype);
  choose_modes(x, after_repacks(key, x), slices, device, scope);
  if (x.writes_parts()) {
    x.microseconds += key.k > 0 ? float(parts_us(key, device)) : 0;
    return x;
  }
  const auto copy_us = [&](const Copied<MatrixKey>& from) {
    return float(repack_us(from.x, key.batch, from.rows, from.length, from.along, device));
  };
  if (x.repack_a) x.microseconds += copy_us(x.copied_a(key));
  if (x.repack_b) x.microseconds += copy_us(x.copied_b(key));
  return x;
}

// Calls act(candidate) for every candidate in scope: each kernel, configuration, and math for the operands' dtype. A
// configuration without such a math is one candidate, which reports the reason.
template <typename F>
void for_each_candidate(const PlanKey& key, const DeviceSpec& device, const Scope& scope, F&& act) {
  // Most kernels write rows of D faster than columns. If all epilogues wrote columns as fast, both orders would be worth a try.
  const bool by_columns = order_of(key.d) == Order::col_major;
  const PlanKey of_transpose = exchange_operands(key);
  for (const KernelTraits& kernel : kernels()) {
    const bool exchanges = kernel.by_element ? key.n < key.m : by_columns;
    const bool any = multiplies(kernel, key.a.dtype);
    for (const Config& config : kernel.configs) {
      if (!scope.holds(kernel, config)) continue;
      for (Math math : kMaths) {
        if (operand_dtype(math) != key.a.dtype || (any && !kernel.maths.has(math))) continue;
        // An exchange changes the order in which products of parts are added.
        const bool exchanged = exchanges && !(key.batch_invariant && math == Math::f32_emulated);
        act(evaluate(kernel, config, math, exchanged, exchanged ? of_transpose : key, device, scope));
        if (!any) break;
      }
    }
  }
}

// As names spell it: "4x1", and "1x1x2" where blocks share K.
std::string name_of(const Cluster& x) {
  return std::to_string(x.m) + "x" + std::to_string(x.n) + (x.k > 1 ? "x" + std::to_string(x.k) : "");
}

}  // namespace

PlanKey after_repacks(PlanKey key, const Candidate& x) {
  const auto copy_of = [](const Copied<MatrixKey>& from) {
    MatrixKey copy = repacked(from.x, from.rows, from.length, from.along);
    copy.alignment = 16;
    return copy;
  };
  if (x.repack_a) key.a = copy_of(x.copied_a(key));
  if (x.repack_b) key.b = x.b_of_copy(copy_of(x.copied_b(key)));
  return key;
}

Workspace workspace_of(const PlanKey& key, const Candidate& x) {
  const PlanKey p = x.exchanged ? exchange_operands(key) : key;
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  Workspace w{};
  const auto copy = [&](const Copied<MatrixKey>& from) {
    return aligned(x.writes_parts() ? PartsLayout{from.rows, from.length, matrices_of(from.x, p.batch)}.bytes()
                                    : repacked_bytes(from.x, p.batch, from.rows, from.length, from.along));
  };
  w.b = x.repack_a ? copy(x.copied_a(p)) : 0;
  w.partials = w.b + (x.repack_b ? copy(x.copied_b(p)) : 0);
  w.size = w.partials + x.layers() * p.batch * p.m * x.partials_pitch(p.n) * 4;
  return w;
}

std::optional<Scope> find_scope(const std::string& name) {
  if (name.empty()) return Scope{};
  std::vector<std::string> parts;
  for (size_t from = 0, to; from <= name.size(); from = to + 1) {
    to = std::min(name.find('/', from), name.size());
    parts.push_back(name.substr(from, to - from));
  }
  size_t used = 0;
  // Uses the next part if it is one of `count` spellings, and returns which; -1 if it is none of them.
  const auto take = [&](int count, auto&& spelling) {
    for (int i = 0; used < parts.size() && i < count; ++i)
      if (parts[used] == spelling(i)) return ++used, i;
    return -1;
  };
  const int index = take(kernels().count, [](int i) { return std::string(kernels()[i].name); });
  if (index < 0) return std::nullopt;
  const KernelTraits& kernel = kernels()[index];
  Scope scope{&kernel};
  const int config = take(kernel.configs.count, [](int i) { return std::to_string(i); });
  if (config >= 0) {
    scope.config = &kernel.configs[config];
    const Span<const Cluster>& clusters = kernel.clusters;
    const int cluster = take(clusters.count, [&](int i) { return name_of(clusters[i]); });
    if (cluster >= 0) scope.cluster = clusters[cluster];
    const auto columns_of = [&](int i) { return scope.config->tile_n - kernel.narrower[i]; };
    const int narrower = take(kernel.narrower.count, [&](int i) { return "n" + std::to_string(columns_of(i)); });
    if (narrower >= 0) scope.columns = columns_of(narrower);
    const int slices = take(kernel.split_k ? kMostSlices : 0, [](int i) { return "k" + std::to_string(i + 1); });
    if (slices >= 0) scope.k_slices = slices + 1;
  }
  return used == parts.size() ? std::optional<Scope>(scope) : std::nullopt;
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
