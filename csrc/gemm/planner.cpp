#include "planner.h"

#include <algorithm>

namespace tc {
namespace {

constexpr int64_t ceil_div(int64_t a, int64_t b) { return (a + b - 1) / b; }

bool multiplies_tf32(const Kernel& kernel, const Problem& p) {
  return p.a.dtype == DType::f32 && kernel.operands & kTf32;
}

bool by_tma(const Kernel& kernel) { return kernel.min_sm >= 90; }  // and wgmma

const char* rejection(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device) {
  if (device.sm < kernel.min_sm) return "the GPU is too old for it";
  if (device.sm > kernel.max_sm)
    return kernel.max_sm ? "the GPU no longer has its instructions" : "this build has no machine code for it";
  if (by_tma(kernel) && std::max({p.m, p.n, p.k}) > INT32_MAX - 255) return "coordinates of its tiles do not fit 32 bits";
  if (multiplies_tf32(kernel, p) && !p.allow_tf32) return "fp32 operands need allow_tf32";
  if (!(kernel.operands & bit(p.a.dtype)) && !multiplies_tf32(kernel, p))
    return "it does not multiply operands of this dtype";
  if (kernel.access == Access::contiguous &&
      (order_of(p.a) == Order::strided || order_of(p.b) == Order::strided))
    return "an operand has no direction of stride 1";
  if (instance.smem_bytes > device.smem_per_block) return "its tiles do not fit the GPU's shared memory";
  return nullptr;
}

// Whether an aligned kernel cannot read x, (outer, K), as it lies. TF32 wants K contiguous: ldmatrix transposes halves only.
bool needs_repack(const Matrix& x, int64_t outer, int64_t k) {
  const Order order = order_of(x);
  const bool k_contiguous = order == Order::row_major;
  const int64_t leading = k_contiguous ? x.row : x.col, lines = k_contiguous ? outer : k, extent = k_contiguous ? k : outer;
  const bool overlapping = lines > 1 && leading < extent;  // expanded: a tensor map has no stride 0
  return k > 0 && (order == Order::strided || alignment(x, outer, k) < 16 || overlapping ||
                   (x.dtype == DType::f32 && !k_contiguous));
}

int64_t repacked_bytes(const Matrix& x, int64_t outer, int64_t k) {
  const Matrix r = repacked(x, outer, k);
  return (order_of(r) == Order::row_major ? outer * r.row : k * r.col) * size_of(r.dtype);
}

// Of an H200. These and the instances' rates and epilogues were fitted to the times of every instance of wgmma_tma on 25 shapes in
// three forms, the last few percent by hand (bench.sweep --regret shows how well they hold).
constexpr double kMeasuredSms = 132;
constexpr double kBytesPerMicrosecond = 4.1e6;
constexpr double kReduce = 4.2;              // microseconds to finish one kernel, start the next and read what the first left
constexpr double kEpilogue = 6;              // microseconds for a tile of 128x256, where an instance does not say
constexpr double kDByHand = 1.35, kCByHand = 1.4;  // microseconds for 32 KB of a tile that two warpgroups bring where TMA cannot, ...
constexpr double kEndsOfRow = 64;            // ... a row of D's ends being as dear as so many columns, ...
constexpr double kAlone = 2, kInTurns = 3;   // ... and how much longer it takes one warpgroup, and two that take turns
constexpr double kRelu = 0.4, kGated = 2.8;  // microseconds that an activation takes of a tile of 128x256
constexpr double kLeaving = 0.3;             // microseconds after the last product for each box that a warpgroup fills at once, ...
constexpr double kBoxesElsewhere = 4;        // ... and what other kernels' tiles of 128x256 count as
constexpr double kTurn = 0.6;                // microseconds between the products of two warpgroups that take turns
constexpr double kExposed = 0.07;            // of arithmetic and memory, the part of the shorter that the longer does not hide
constexpr double kLatency = 1.2;             // microseconds from DRAM under load
constexpr double kLaunch = 2.5;              // microseconds that an empty kernel takes, ...
constexpr double kInClusters = 0.9;          // of the SMs, what clusters of more than two blocks can hold (30 of four on an H200)
constexpr double kOverlap = 1.0;             // ... and how many of them lie under the kernel before (tile/launch.h)

double activation_of_large_tile(const Problem& p) {
  return p.activation.kind == Activation::Kind::none ? 0 : p.activation.kind == Activation::Kind::relu ? kRelu : kGated;
}

double bytes_of_c(const Problem& p) {
  return !p.c.data ? 0 : (p.c.row ? double(p.m) : 1.0) * (p.c.col ? double(p.n) : 1.0) * size_of(p.c.dtype);
}

// Microseconds of wgmma_tma's epilogue. An instance states those for a tile of halves with a full C; others follow their bytes.
// What TMA cannot reach goes through registers, in addition.
double epilogue_by_tma(const Instance& instance, const Problem& p) {
  const bool full_c = p.c.data && p.c.row && p.c.col;
  const double bytes = size_of(p.d.dtype) + (full_c ? size_of(p.c.dtype) : 0);
  const double by_hand = (d_path_of(p) == DPath::tma ? 0 : kDByHand * (1 + kEndsOfRow / instance.tile_n)) +
                         (c_path_of(p) < CPath::pieces ? 0 : kCByHand);
  const double longer = instance.pingpong ? kInTurns : instance.threads > 256 ? 1 : kAlone;
  return instance.epilogue * bytes / 4 + longer * by_hand * instance.tile_m * instance.tile_n * size_of(p.d.dtype) / 32768;
}

// One SM's time for `tiles` tiles, `product` and `epilogue` microseconds each. Warpgroups that take turns hide the shorter of the
// two behind the longer.
double time_of_tiles(const Instance& instance, double tiles, double product, double epilogue) {
  if (!instance.pingpong || tiles < 2) return tiles * (product + epilogue);
  return tiles * std::max(product + kTurn, (product + epilogue) / 2) + epilogue;
}

// The busiest SM's share of the work at the instance's rate, or the bytes at copy bandwidth, whichever takes longer.
// Rates are those of halves. Tensor cores multiply TF32 half as fast, and mma.sync's fragments, unlike what TMA brings, have to be
// rounded first.
double predict_product(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device, int splits) {
  const double tf32 = !multiplies_tf32(kernel, p) ? 1.0 : by_tma(kernel) ? 0.5 : 0.3;
  const double rate = instance.tflops * 1e6 / kMeasuredSms * tf32;
  const int64_t k_tiles = ceil_div(ceil_div(p.k, instance.tile_k), splits);
  const int64_t work = ceil_div(p.m, instance.tile_m) * ceil_div(p.n, instance.tile_n) * splits;
  const double per_sm = double(ceil_div(work, device.num_sms));
  // An SM with fewer blocks than it could hold hides less latency.
  const double filled = std::min(1.0, per_sm / instance.blocks_per_sm);
  const double flops = 2.0 * instance.tile_m * instance.tile_n * k_tiles * instance.tile_k;
  const double of_large_tile = double(instance.tile_m * instance.tile_n) / (128 * 256);
  const bool in_cluster = kernel.split_k == SplitK::cluster;  // its blocks have no other tile that hides the epilogue
  const double of_its_own = in_cluster               ? 0
                            : instance.boxes         ? epilogue_by_tma(instance, p)
                            : instance.epilogue > 0  ? instance.epilogue
                                                     : kEpilogue * of_large_tile;
  const double epilogue = activation_of_large_tile(p) * of_large_tile + of_its_own;
  const double math = time_of_tiles(instance, per_sm, flops / (rate * (0.4 + 0.6 * filled)), epilogue);
  // The ring turns once per DRAM latency at best, which is what limits few tiles with a long K.
  const double waves = double(ceil_div(work, int64_t(device.num_sms) * instance.blocks_per_sm));
  const double turns = waves * double(k_tiles) / instance.stages * kLatency;
  const double bytes = (double(p.m) + double(p.n)) * p.k * size_of(p.a.dtype) +
                       double(p.m) * p.n * size_of(p.d.dtype) * (in_cluster ? 1 : splits) + bytes_of_c(p);
  const bool overlaps = kernel.access == Access::aligned && starts_early(instance);
  const double waiting = std::max(turns, bytes / kBytesPerMicrosecond);
  const double leaving = in_cluster ? waves * (instance.epilogue + kLaunch) - kLaunch
                                    : kLeaving * (instance.boxes ? instance.boxes : kBoxesElsewhere * of_large_tile);
  return std::max(math, waiting) + kExposed * std::min(math, waiting) + leaving + kLaunch - (overlaps ? kOverlap : 0);
}

}  // namespace

Verdict judge(const Kernel& kernel, const Instance& instance, const Problem& p, const Device& device) {
  Verdict v{&kernel, &instance, rejection(kernel, instance, p, device)};
  double repacking = 0;
  if (kernel.access == Access::aligned) {
    v.repack_a = needs_repack(p.a, p.m, p.k);
    v.repack_b = needs_repack(transpose(p.b), p.n, p.k);
    if (v.repack_a) repacking += 2.0 * p.m * p.k * size_of(p.a.dtype) / kBytesPerMicrosecond + kLaunch;
    if (v.repack_b) repacking += 2.0 * p.n * p.k * size_of(p.b.dtype) / kBytesPerMicrosecond + kLaunch;
  }
  const int64_t tiles = ceil_div(p.m, instance.tile_m) * ceil_div(p.n, instance.tile_n);
  if (kernel.split_k == SplitK::cluster) v.splits = kLeastInCluster;
  double best = predict_product(kernel, instance, p, device, v.splits);
  if (kernel.split_k == SplitK::cluster)
    for (int parts = kLeastInCluster + 1; parts <= kMostInCluster && tiles * parts <= kInClusters * device.num_sms; ++parts) {
      const double time = predict_product(kernel, instance, p, device, parts);
      if (time < best) best = time, v.splits = parts;
    }
  if (kernel.split_k == SplitK::workspace && tiles > 0 && tiles < device.num_sms) {
    const Problem parts = partial_products(p, nullptr);
    const int64_t most = std::min<int64_t>({ceil_div(p.k, instance.tile_k) / 4, 2 * device.num_sms / tiles, 64});
    for (int splits = 2; splits <= most; ++splits) {
      // The partial sums are read back, mostly from L2.
      const double reduced = (splits * 4.0 + size_of(p.d.dtype)) * p.m * p.n + bytes_of_c(p);
      const double reducing = reduced / kBytesPerMicrosecond + kReduce;
      const double time = predict_product(kernel, instance, parts, device, splits) + reducing;
      if (time < best) best = time, v.splits = splits;
    }
  }
  v.microseconds = float(best + repacking);
  return v;
}

Workspace workspace_of(const Problem& p, const Verdict& v) {
  const auto aligned = [](int64_t bytes) { return (bytes + 255) / 256 * 256; };
  Workspace w{};
  w.b = v.repack_a ? aligned(repacked_bytes(p.a, p.m, p.k)) : 0;
  w.partials = w.b + (v.repack_b ? aligned(repacked_bytes(transpose(p.b), p.n, p.k)) : 0);
  w.size = w.partials + (v.layers() > 1 ? v.layers() * p.m * p.n * 4 : 0);
  return w;
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
