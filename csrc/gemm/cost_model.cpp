#include "cost_model.h"

#include <algorithm>

#include "ceil_div.h"

namespace tc {
namespace {

// Microseconds on an H200 unless a line names another unit. cost_model.h says how they were fitted.
constexpr double kCopyOfPeak = 4.1e6 / (kH200.dram_gb_per_s * 1e3);  // share of the data sheet's bandwidth that a copy reaches
constexpr double kReduce = 4.2;  // finish one kernel, start the reduction and read the first kernel's results
constexpr double kEpilogue = 6;  // of a tile of 128x256, if the configuration gives no time
constexpr double kDViaRegisters = 1.35, kCViaRegisters = 1.4;  // 32 KB of a tile, copied by two warpgroups
constexpr double kRowEnds = 64;                                // columns: the ends of a row of D cost as much as 64 columns
constexpr double kSingle = 2, kPingpong = 3;  // factors of one warpgroup and of pingpong, over two cooperative warpgroups
constexpr double kRelu = 0.4, kGated = 2.8;   // the activation of a tile of 128x256
constexpr double kBoxStore = 0.3;             // after the last product, for each box that a warpgroup fills at once
constexpr double kOtherBoxes = 4;             // boxes: a tile of 128x256 of other kernels counts as four
constexpr double kPingpongOrder = 0.6;        // between the products of two pingpong warpgroups
constexpr double kExposed = 0.07;             // share of the shorter of arithmetic and memory, which the longer does not hide
constexpr double kLatency = 1.2;              // of DRAM under load
constexpr double kLaunch = 2.5;               // an empty kernel
constexpr double kOverlap = 1.0;              // of kLaunch, hidden under the previous kernel by programmatic dependent launch

// TMA's rows of 128 bytes, where the leading dimension is no multiple of 128 bytes. At 14 such shapes, with a bias on an H200,
// wgmma_tma took 1.2 to 2.3 times the predicted time without these two constants. With them it takes 0.9 to 1.1 times at the
// larger shapes, 1.2 to 1.5 where it runs under 15 us, and 1.2 to 2.2 where N <= 64: something else counts there.
constexpr double kStraddling = 1.75;  // lines that such a row takes
constexpr double kL2 = 87e3;          // bytes per microsecond from L2, for each SM; blocks that share by multicast read once

// wgmma_multicast, from its tile's size alone. Fitted, with the two above, to the times of cuBLAS's Hopper kernels with such
// tiles and clusters at 58 shapes with a bias on an H200 (root mean square of the differences: 8 %). The kernel's own times are
// not measured yet.
constexpr double kWgmmaOfPeak = 0.845;       // share of the data sheet's peak that wgmma reaches
constexpr double kFill = 150e3;              // bytes per microsecond into an SM's shared memory
constexpr double kLeastKTile = 0.06;         // of one block, however many stages it has
constexpr double kTransposedEpilogue = 3.5;  // of a tile of 128x256, 16-bit with a full C
constexpr double kInFours = 0.91;            // share of the SMs that clusters of four occupy: 30 clusters on an H200

// A guess, for mma_guarded, which has not been measured: an SM's time to issue 32 copies of an alignment's bytes.
constexpr double kNarrowCopies = 0.003;

constexpr double large_tiles(const Config& config) { return double(config.tile_m * config.tile_n) / (128 * 256); }

double activation_us(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none: return 0;
    case Activation::Kind::relu: return kRelu;
    case Activation::Kind::gated: return kGated;
  }
  __builtin_unreachable();
}

double bytes_per_us(const DeviceSpec& device) { return kCopyOfPeak * device.gpu.dram_gb_per_s * 1e3; }

double c_bytes(const PlanKey& p) {
  return !present(p.c) ? 0 : (p.c.row ? double(p.m) : 1.0) * (p.c.col ? double(p.n) : 1.0) * size_of(p.c.dtype);
}

// A unit's rate with a math, relative to its rate with 16-bit operands. Tensor cores multiply TF32 half as fast. Fragments of
// mma.sync must also be rounded to TF32, whereas TMA rounds what it loads for wgmma.
double relative_rate(Math math, Unit unit) {
  switch (math) {
    case Math::f16:
    case Math::bf16:
    case Math::f32_simt: return 1;
    case Math::tf32: return unit == Unit::wgmma ? 0.5 : 0.3;
  }
  __builtin_unreachable();
}

// FLOPs per microsecond of an SM with this configuration.
double sm_rate(const KernelTraits& kernel, const Config& config, Math math, const DeviceSpec& device) {
  const double scale = device.gpu.peak_tflops(kernel.unit) / kH200.peak_tflops(kernel.unit);
  return config.tflops * 1e6 * scale / device.gpu.num_sms * relative_rate(math, kernel.unit);
}

// The epilogue of a tile of wgmma_tma. Configurations give the time for 16-bit elements with a full C, and the time of other
// epilogues is proportional to their bytes. If TMA cannot reach C or D, copies through registers come on top.
double tma_epilogue_us(const Config& config, const PlanKey& p) {
  const bool full_c = present(p.c) && p.c.row && p.c.col;
  const double bytes = size_of(p.d.dtype) + (full_c ? size_of(p.c.dtype) : 0);
  const double via_registers = (d_path_of(p) == DPath::tma ? 0 : kDViaRegisters * (1 + kRowEnds / config.tile_n)) +
                               (c_path_of(p) < CPath::vectors ? 0 : kCViaRegisters);
  const double longer = config.pingpong ? kPingpong : config.threads > 256 ? 1 : kSingle;
  return config.epilogue_us * bytes / 4 + longer * via_registers * config.tile_m * config.tile_n * size_of(p.d.dtype) / 32768;
}

// One SM's time for `tiles` tiles. Pingpong warpgroups hide the shorter of product and epilogue behind the longer.
double sm_us(const Config& config, double tiles, double product, double epilogue) {
  if (!config.pingpong || tiles < 2) return tiles * (product + epilogue);
  return tiles * std::max(product + kPingpongOrder, (product + epilogue) / 2) + epilogue;
}

// All bytes at copy bandwidth. `d_layers` counts the layers of D.
double dram_us(const PlanKey& p, int d_layers, const DeviceSpec& device) {
  const double operands = (double(p.m) + double(p.n)) * p.k * size_of(p.a.dtype);
  return (operands + double(p.m) * p.n * size_of(p.d.dtype) * d_layers + c_bytes(p)) / bytes_per_us(device);
}

// A kernel's time, launch included. Arithmetic and memory overlap but for a share of the shorter.
double launched_us(const KernelTraits& kernel, const Config& config, double arithmetic, double memory) {
  const double overlap = repacks(kernel.access) && uses_pdl(config) ? kOverlap : 0;
  return std::max(arithmetic, memory) + kExposed * std::min(arithmetic, memory) + kLaunch - overlap;
}

// The rows of A and B of a K tile that a cluster reads. A row that straddles lines counts `straddling` times.
double cluster_rows(const Config& config, const PlanKey& p, Cluster cluster, double straddling) {
  const double a = straddles_lines(p.a, p.m, p.k) ? straddling : 1, b = straddles_lines(p.b, p.k, p.n) ? straddling : 1;
  return a * std::min<int64_t>(config.tile_m, p.m) * cluster.m + b * std::min<int64_t>(config.tile_n, p.n) * cluster.n;
}

// The time in which L2 delivers `rows` rows of each of `k_tiles` K tiles to each SM, to all SMs at once.
double l2_us(const Config& config, const PlanKey& p, double rows, int64_t k_tiles) {
  return rows * k_tiles * config.tile_k * size_of(p.a.dtype) / kL2;
}

// The time of `work` tiles in waves of `at_once`. A wave takes the longer of `product` and L2's time, which is `l2` for a full
// wave and in proportion less for the last.
double waves_us(int64_t work, int64_t at_once, double product, double l2) {
  const int64_t full = work / at_once, rest = work % at_once;
  return full * std::max(product, l2) + (rest > 0 ? std::max(product, l2 * rest / at_once) : 0);
}

// The longer of two times: the busiest SM's tiles at the configuration's rate, and all bytes at copy bandwidth. `epilogue` is
// the time of a tile's epilogue, which a product of the same SM may hide. `straddling` counts the lines of a row of 128 bytes that
// begins within a line. The rates include L2's time for whole lines.
double product_us(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices, int d_layers,
                  double epilogue, const DeviceSpec& device, double straddling = 1) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double per_sm = double(ceil_div(work, device.gpu.num_sms));
  // An SM with fewer blocks than it could hold hides less latency.
  const double filled = std::min(1.0, per_sm / config.blocks_per_sm);
  const double flops = 2.0 * config.tile_m * config.tile_n * k_tiles * config.tile_k;
  const double rate = sm_rate(kernel, config, math, device) * (0.4 + 0.6 * filled);
  double product = flops / rate;
  const double whole = cluster_rows(config, p, {}, 1), straddled = cluster_rows(config, p, {}, straddling);
  if (work > 0 && straddled > whole) {
    const double l2 = std::min(product, l2_us(config, p, whole, k_tiles)) * straddled / whole;
    product = waves_us(work, device.gpu.num_sms, product, l2) / per_sm;
  }
  const double arithmetic = sm_us(config, per_sm, product, epilogue + activation_us(p.activation) * large_tiles(config));
  // The ring of stages turns at most once per DRAM latency. This limits problems of few tiles with a long K.
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double ring = waves * double(k_tiles) / config.stages * kLatency;
  return launched_us(kernel, config, arithmetic, std::max(ring, dram_us(p, d_layers, device)));
}

}  // namespace

double estimate_tiles(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices, Cluster,
                      const DeviceSpec& device) {
  const double epilogue = config.epilogue_us > 0 ? config.epilogue_us : kEpilogue * large_tiles(config);
  return product_us(kernel, config, math, p, k_slices, k_slices, epilogue, device) +
         kBoxStore * kOtherBoxes * large_tiles(config);
}

double estimate_tma_epilogue(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                             Cluster, const DeviceSpec& device) {
  const double epilogue = tma_epilogue_us(config, p);
  return product_us(kernel, config, math, p, k_slices, k_slices, epilogue, device, kStraddling) + kBoxStore * config.boxes;
}

// A block of a cluster has one tile, so that no product hides its epilogue. D is written once.
double estimate_cluster(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices, Cluster,
                        const DeviceSpec& device) {
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  return product_us(kernel, config, math, p, k_slices, 1, 0, device, kStraddling) + waves * (config.epilogue_us + kLaunch) -
         kLaunch;
}

// A K tile takes as long as the slower of its products and its copies into shared memory.
double estimate_multicast(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                          Cluster cluster, const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m * cluster.m) * ceil_div(p.n, config.tile_n * cluster.n) * k_slices;
  const double share = cluster.blocks() > 2 ? kInFours : 1;
  const int64_t at_once = std::max(1, int(device.gpu.num_sms * share) / cluster.blocks());
  const double per_sm = double(ceil_div(work, at_once));
  const double peak = kWgmmaOfPeak * device.gpu.wgmma_tflops * 1e6 / device.gpu.num_sms * relative_rate(math, kernel.unit);
  const double products = 2.0 * config.tile_m * config.tile_n * config.tile_k / peak;
  const double rows = double(std::min<int64_t>(config.tile_m, p.m) + std::min<int64_t>(config.tile_n, p.n));
  const double copies = rows * config.tile_k * size_of(p.a.dtype) / kFill;
  const double resident = std::max(1.0, std::min<double>(config.blocks_per_sm, per_sm));
  const double least = std::max(kLeastKTile, kLatency / config.stages) / resident;
  const double k_tile = std::max({products, copies, least});
  const double c_and_d = size_of(p.d.dtype) + (present(p.c) && p.c.row && p.c.col ? size_of(p.c.dtype) : 0);
  const double epilogue = large_tiles(config) * (kTransposedEpilogue * c_and_d / 4 + activation_us(p.activation));
  const double l2 = l2_us(config, p, cluster_rows(config, p, cluster, kStraddling) / cluster.blocks(), k_tiles) * share;
  const double arithmetic = waves_us(work, at_once, k_tiles * k_tile, l2) + per_sm * epilogue;
  return launched_us(kernel, config, arithmetic, dram_us(p, k_slices, device)) + kBoxStore * config.boxes;
}

// Narrow copies are instructions: they come on top of the product, and do not wait for memory.
double estimate_guarded(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                        Cluster cluster, const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double per_sm = double(ceil_div(work, device.gpu.num_sms)) * k_tiles;
  const double bytes = double(config.tile_m) / alignment(p.a, p.m, p.k) + double(config.tile_n) / alignment(p.b, p.k, p.n);
  const double copies = per_sm * bytes * config.tile_k * size_of(p.a.dtype) / 32 * kNarrowCopies;
  return estimate_tiles(kernel, config, math, p, k_slices, cluster, device) + copies - (uses_pdl(config) ? kOverlap : 0);
}

double repack_us(const MatrixKey& x, int64_t outer, int64_t k, const DeviceSpec& device) {
  return 2.0 * outer * k * size_of(x.dtype) / bytes_per_us(device) + kLaunch;
}

// The reduction reads the partial sums, mostly from L2.
double reduce_us(const PlanKey& p, int k_slices, const DeviceSpec& device) {
  const double bytes = (k_slices * 4.0 + size_of(p.d.dtype)) * p.m * p.n + c_bytes(p);
  return bytes / bytes_per_us(device) + kReduce;
}

}  // namespace tc
