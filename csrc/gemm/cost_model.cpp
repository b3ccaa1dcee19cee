#include "cost_model.h"

#include <algorithm>
#include <cmath>

#include "ceil_div.h"

namespace tc {
namespace {

// Microseconds on an H200 unless a line names another unit. cost_model.h says how they were fitted.
constexpr double kCopyOfPeak = 4.1e6 / (kH200.dram_gb_per_s * 1e3);  // share of the data sheet's bandwidth that a copy reaches
constexpr double kReduce = 3.4;  // finish one kernel, start the reduction and read the first kernel's results
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

// The share of copy bandwidth at which a Hopper kernel reads the larger operand where fewer than kStreams tiles and K slices
// lie along it: 48x9216x16384 runs at 3.0 TB/s in 72 tiles and at 3.9 in 36 of three slices. The cause is not known.
constexpr double kFewStreams = 0.78, kStreams = 90;

// TMA's rows of 128 bytes, where the leading dimension is no multiple of 128 bytes. Fitted with wgmma_multicast's constants.
// Where both operands straddle lines, the median of wgmma_tma's times is 0.95 of the predicted time, and half of them are from
// 0.88 to 1.06.
constexpr double kStraddling = 2.3;  // lines that such a row takes
constexpr double kL2 = 115e3;        // bytes per microsecond from L2, for each SM; blocks that share by multicast read once

// wgmma_multicast, from its tile's size alone. Fitted to 2,700 times of 36 tiles in 6 clusters at 386 drawn problems on an H200
// (root mean square of the differences: 9 %; half of them are below 5 %). Most tiles wait for shared memory, which TMA writes
// and wgmma reads through the same port: every wgmma reads both operands anew.
constexpr double kWgmmaOfPeak = 0.83;        // share of the data sheet's peak that wgmma reaches
constexpr double kShared = 254e3;            // bytes per microsecond through an SM's shared memory, about 128 a cycle
constexpr double kTransposedReads = 1.44;    // of wgmma's M operand, if it is not contiguous along K
constexpr double kStageLatency = 1.27;       // from a stage's release to its next use
constexpr double kLeastKTile = 0.124;        // of one block, however many stages it has
constexpr double kTransposedEpilogue = 4.4;  // of a tile of 128x256, 16-bit with a full C
constexpr double kNextTile = 0.3;            // from a tile's epilogue to the next tile's products
constexpr double kInFours = 0.91;            // share of the SMs that clusters of four occupy: 30 clusters on an H200
constexpr double kSlowdown = 0.19, kSlowdownAfter = 200;  // share of a long run's time that lower clocks add; half of it
constexpr double kMulticastStart = 0.5;                   // barriers and tensor maps, beyond other kernels
constexpr double kLessHidden = 0.22;                      // kExposed of this kernel

// mma_guarded, fitted to 600 times of its configurations at drawn problems on an H200 (root mean square of the differences:
// 15 %). A small K tile takes as long as a large one: the code for every alignment and order is long and scattered.
constexpr double kGuardedKTile = 0.88;    // the least
constexpr double kGuardedTile = 0.93;     // the first K tile and the start
constexpr double kGuardedEpilogue = 1.1;  // of a tile of 64x64
constexpr double kGuardedLaunch = 1.8;
constexpr double kGuardedExposed = 0.26;                // kExposed of this kernel
constexpr double kOddResult = 1.64;                     // the epilogue of a D whose rows are not aligned to 16 bytes
constexpr double kBy8 = 1.47, kBy4 = 1.61, kBy2 = 2.3;  // copies of operands whose rows are aligned to 8, 4 and 2 bytes

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

// dram_us for the Hopper kernels, see kFewStreams.
double streamed_us(const Config& config, const PlanKey& p, int k_slices, int d_layers, const DeviceSpec& device) {
  const int64_t tiles = p.n > p.m ? ceil_div(p.n, config.tile_n) : ceil_div(p.m, config.tile_m);
  return dram_us(p, d_layers, device) / (tiles * k_slices < kStreams ? kFewStreams : 1);
}

// A kernel's time, launch included. Arithmetic and memory overlap but for a share of the shorter.
double launched_us(const KernelTraits& kernel, const Config& config, double arithmetic, double memory,
                   double exposed = kExposed) {
  const double overlap = repacks(kernel.access) && uses_pdl(config) ? kOverlap : 0;
  return std::max(arithmetic, memory) + exposed * std::min(arithmetic, memory) + kLaunch - overlap;
}

// The rows of A and B of a K tile that a cluster reads. A row that straddles lines counts `straddling` times.
double cluster_rows(const Config& config, const PlanKey& p, Cluster cluster, double straddling) {
  const double a = straddles_lines(p.a, p.m, p.k) ? straddling : 1, b = straddles_lines(p.b, p.k, p.n) ? straddling : 1;
  return a * std::min<int64_t>(config.tile_m, p.m) * cluster.m + b * std::min<int64_t>(config.tile_n, p.n) * cluster.n;
}

// The time in which L2 delivers `rows` rows of `k` elements to each SM, to all SMs at once.
double l2_us(const PlanKey& p, double rows, double k) { return rows * k * size_of(p.a.dtype) / kL2; }

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
    const double l2 = std::min(product, l2_us(p, whole, double(k_tiles) * config.tile_k)) * straddled / whole;
    product = waves_us(work, device.gpu.num_sms, product, l2) / per_sm;
  }
  const double arithmetic = sm_us(config, per_sm, product, epilogue + activation_us(p.activation) * large_tiles(config));
  // The ring of stages turns at most once per DRAM latency. This limits problems of few tiles with a long K.
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double ring = waves * double(k_tiles) / config.stages * kLatency;
  const double memory =
      kernel.unit == Unit::wgmma ? streamed_us(config, p, k_slices, d_layers, device) : dram_us(p, d_layers, device);
  return launched_us(kernel, config, arithmetic, std::max(ring, memory));
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

// A K tile takes as long as the slowest of tensor cores, shared memory and the ring of stages.
double estimate_multicast(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                          Cluster cluster, const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m * cluster.m) * ceil_div(p.n, config.tile_n * cluster.n) * k_slices;
  const double share = cluster.blocks() > 2 ? kInFours : 1;
  const int64_t at_once = std::max(1, int(device.gpu.num_sms * share) / cluster.blocks());
  const double per_sm = double(ceil_div(work, at_once)), tile_m = config.tile_m, tile_n = config.tile_n;
  const double peak = kWgmmaOfPeak * device.gpu.wgmma_tflops * 1e6 / device.gpu.num_sms * relative_rate(math, kernel.unit);
  const double products = 2 * tile_m * tile_n * config.tile_k / peak;
  // Rows of a K tile: written by TMA, and read by wgmma, which has 64 columns of B on its M.
  const double written = std::min(tile_m, double(p.m)) + std::min(tile_n, double(p.n));
  const double read = tile_n * (order_of(p.b) == Order::col_major ? 1 : kTransposedReads) + tile_n / 64 * tile_m;
  const double shared = (written + read) * config.tile_k * size_of(p.a.dtype) / kShared;
  const double least = std::max(kLeastKTile, kStageLatency / config.stages);
  const double l2 = l2_us(p, cluster_rows(config, p, cluster, kStraddling) / cluster.blocks(), double(p.k) / k_slices) * share;
  const double main_loops = waves_us(work, at_once, k_tiles * std::max({products, shared, least}), l2);
  const double slowdown = 1 + kSlowdown * main_loops / (main_loops + kSlowdownAfter);
  const double c_and_d = size_of(p.d.dtype) + (present(p.c) && p.c.row && p.c.col ? size_of(p.c.dtype) : 0);
  const double epilogue = large_tiles(config) * (kTransposedEpilogue * c_and_d / 4 + activation_us(p.activation));
  const double arithmetic = main_loops * slowdown + per_sm * (epilogue + kNextTile);
  return launched_us(kernel, config, arithmetic, streamed_us(config, p, k_slices, k_slices, device), kLessHidden) +
         kBoxStore * config.boxes + kMulticastStart;
}

// The blocks of an SM hide each other's latency, until the SM is busy.
double estimate_guarded(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices, Cluster,
                        const DeviceSpec& device) {
  const auto narrow = [](int bytes) { return bytes == 16 ? 1 : bytes == 8 ? kBy8 : bytes == 4 ? kBy4 : kBy2; };
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double resident = double(std::min<int64_t>(config.blocks_per_sm, ceil_div(work, device.gpu.num_sms)));
  const double copies = (narrow(alignment(p.a, p.m, p.k)) * config.tile_m + narrow(alignment(p.b, p.k, p.n)) * config.tile_n) /
                        (config.tile_m + config.tile_n);
  const double flops = 2.0 * config.tile_m * config.tile_n * config.tile_k;
  const double busy = flops / sm_rate(kernel, config, math, device) * resident * copies;
  const double epilogue = kGuardedEpilogue * config.tile_m * config.tile_n / (64 * 64) * resident *
                          (alignment(p.d, p.m, p.n) == 16 ? 1 : kOddResult);
  const double arithmetic = waves * (k_tiles * std::max(kGuardedKTile * std::sqrt(copies), busy) + kGuardedTile + epilogue);
  const double memory = dram_us(p, k_slices, device);
  return std::max(arithmetic, memory) + kGuardedExposed * std::min(arithmetic, memory) + kGuardedLaunch;
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
