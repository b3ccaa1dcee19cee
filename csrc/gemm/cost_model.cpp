#include "cost_model.h"

#include <algorithm>

#include "ceil_div.h"

namespace tc {
namespace {

// Microseconds on an H200, unless a line says otherwise.
constexpr double kCopyOfPeak = 4.1e6 / (kH200.dram_gb_per_s * 1e3);  // what a copy reaches of the data sheet's bandwidth
constexpr double kReduce = 4.2;       // finish one kernel, start the next and read what the first left
constexpr double kEpilogue = 6;       // a tile of 128x256, where a configuration does not say
constexpr double kDViaRegisters = 1.35, kCViaRegisters = 1.4;  // 32 KB of a tile that two warpgroups bring where TMA cannot
constexpr double kRowEnds = 64;       // columns: the ends of a row of D cost as much as so many of them
constexpr double kOneWarpgroup = 2, kInTurns = 3;  // times two warpgroups' on one tile: a single one's, and that of two in turn
constexpr double kRelu = 0.4, kGated = 2.8;        // what an activation takes of a tile of 128x256
constexpr double kBoxLeaves = 0.3;    // after the last product, for each box that a warpgroup fills at once
constexpr double kBoxesElsewhere = 4; // what a tile of 128x256 of other kernels counts as
constexpr double kTurn = 0.6;         // between the products of two warpgroups that take turns
constexpr double kExposed = 0.07;     // share: of arithmetic and memory, what the longer does not hide of the shorter
constexpr double kLatency = 1.2;      // from DRAM under load
constexpr double kLaunch = 2.5;       // an empty kernel
constexpr double kOverlap = 1.0;      // what of it programmatic dependent launch hides under the kernel before

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

// A unit's rate with a math over its rate with 16-bit operands. Tensor cores multiply TF32 half as fast, and mma.sync's fragments have
// to be rounded first, unlike what TMA brings.
double relative_rate(Math math, Unit unit) {
  switch (math) {
    case Math::f16:
    case Math::bf16:
    case Math::f32_simt: return 1;
    case Math::tf32: return unit == Unit::wgmma ? 0.5 : 0.3;
  }
  __builtin_unreachable();
}

// FLOPs that an SM does in a microsecond with this configuration.
double sm_rate(const KernelTraits& kernel, const Config& config, Math math, const DeviceSpec& device) {
  const double scale = device.gpu.peak_tflops(kernel.unit) / kH200.peak_tflops(kernel.unit);
  return config.tflops * 1e6 * scale / device.gpu.num_sms * relative_rate(math, kernel.unit);
}

// wgmma_tma's epilogue of a tile. Configurations state the time of 16-bit elements with a full C; others follow their bytes. What TMA
// cannot reach goes through registers, in addition.
double tma_epilogue_us(const Config& config, const PlanKey& p) {
  const bool full_c = present(p.c) && p.c.row && p.c.col;
  const double bytes = size_of(p.d.dtype) + (full_c ? size_of(p.c.dtype) : 0);
  const double via_registers = (d_path_of(p) == DPath::tma ? 0 : kDViaRegisters * (1 + kRowEnds / config.tile_n)) +
                               (c_path_of(p) < CPath::vectors ? 0 : kCViaRegisters);
  const double longer = config.pingpong ? kInTurns : config.threads > 256 ? 1 : kOneWarpgroup;
  return config.epilogue_us * bytes / 4 +
         longer * via_registers * config.tile_m * config.tile_n * size_of(p.d.dtype) / 32768;
}

// One SM's time for `tiles` tiles. Warpgroups that take turns hide the shorter of product and epilogue behind the longer.
double sm_us(const Config& config, double tiles, double product, double epilogue) {
  if (!config.pingpong || tiles < 2) return tiles * (product + epilogue);
  return tiles * std::max(product + kTurn, (product + epilogue) / 2) + epilogue;
}

// The busiest SM's tiles at the configuration's rate, or the bytes at copy bandwidth, whichever takes longer. `epilogue`: of a tile,
// where a product of the same SM may hide it. `d_layers`: fp32 layers that D is written in.
double product_us(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices, int d_layers,
                  double epilogue, const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), k_slices);
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double per_sm = double(ceil_div(work, device.gpu.num_sms));
  // An SM with fewer blocks than it could hold hides less latency.
  const double filled = std::min(1.0, per_sm / config.blocks_per_sm);
  const double flops = 2.0 * config.tile_m * config.tile_n * k_tiles * config.tile_k;
  const double rate = sm_rate(kernel, config, math, device) * (0.4 + 0.6 * filled);
  const double arithmetic = sm_us(config, per_sm, flops / rate, epilogue + activation_us(p.activation) * large_tiles(config));
  // The ring of stages turns once per DRAM latency at best, which limits few tiles with a long K.
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double turns = waves * double(k_tiles) / config.stages * kLatency;
  const double bytes = (double(p.m) + double(p.n)) * p.k * size_of(p.a.dtype) +
                       double(p.m) * p.n * size_of(p.d.dtype) * d_layers + c_bytes(p);
  const double memory = std::max(turns, bytes / bytes_per_us(device));
  const double overlap = kernel.access == OperandAccess::aligned && uses_pdl(config) ? kOverlap : 0;
  return std::max(arithmetic, memory) + kExposed * std::min(arithmetic, memory) + kLaunch - overlap;
}

}  // namespace

double estimate_tiles(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                      const DeviceSpec& device) {
  const double epilogue = config.epilogue_us > 0 ? config.epilogue_us : kEpilogue * large_tiles(config);
  return product_us(kernel, config, math, p, k_slices, k_slices, epilogue, device) +
         kBoxLeaves * kBoxesElsewhere * large_tiles(config);
}

double estimate_tma_epilogue(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                             const DeviceSpec& device) {
  return product_us(kernel, config, math, p, k_slices, k_slices, tma_epilogue_us(config, p), device) +
         kBoxLeaves * config.boxes;
}

// A block of a cluster has no other tile whose product hides its epilogue, and D is written once.
double estimate_cluster(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, int k_slices,
                        const DeviceSpec& device) {
  const int64_t work = ceil_div(p.m, config.tile_m) * ceil_div(p.n, config.tile_n) * k_slices;
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  return product_us(kernel, config, math, p, k_slices, 1, 0, device) + waves * (config.epilogue_us + kLaunch) - kLaunch;
}

double repack_us(const MatrixKey& x, int64_t outer, int64_t k, const DeviceSpec& device) {
  return 2.0 * outer * k * size_of(x.dtype) / bytes_per_us(device) + kLaunch;
}

// The partial sums are read back, mostly from L2.
double reduce_us(const PlanKey& p, int k_slices, const DeviceSpec& device) {
  const double bytes = (k_slices * 4.0 + size_of(p.d.dtype)) * p.m * p.n + c_bytes(p);
  return bytes / bytes_per_us(device) + kReduce;
}

}  // namespace tc
