#include "cost_parts.h"

#include <algorithm>
#include <cmath>

#include "ceil_div.h"

namespace tc {
namespace {

constexpr double kCopyOfPeak = 4.1e6 / (kH200.dram_gb_per_s * 1e3);  // share of the data sheet's bandwidth that a copy reaches
constexpr double kIdle = 0.452;  // of the launch, hidden if nearly all SMs are idle: the next kernel's blocks start on them

constexpr double kPrefetches = 0.396;        // of the launch, hidden by what small grids prefetch (prefetches_k_tiles)
constexpr double kFreshGrid = 0.52;          // of kOverlap, lost by a grid without PDL (needs_order)
constexpr double kSimtStart = 1;             // by hand, for simt
constexpr double kTornD = 20e6;              // bytes from which a D is large for tears_d, by hand
constexpr double kRelu = 0.4, kGated = 2.8;  // the activation of a tile of 128x256

double fourth(double x) { return x * x * (x * x); }

}  // namespace

double relative_rate(Math math, const KernelTraits& kernel) {
  switch (math) {
    case Math::f16:
    case Math::bf16:
    case Math::f32_emulated:
    case Math::f32_simt: return 1;
    case Math::tf32: return kernel.unit == Unit::wgmma || kernel.access == OperandAccess::aligned ? 0.5 : 0.3;
  }
  __builtin_unreachable();
}

double bytes_per_us(const DeviceSpec& device) { return kCopyOfPeak * device.gpu.dram_gb_per_s * 1e3; }

bool has_full_c(const PlanKey& p) { return present(p.c) && p.c.row && p.c.col; }

double d_bytes(const PlanKey& p) { return double(p.batch) * double(p.m) * double(p.n) * size_of(p.d.dtype); }

bool tears_d(const PlanKey& p, int64_t columns) { return p.n > columns && straddles(32, p.d, p.m, p.n) && d_bytes(p) > kTornD; }

double c_bytes(const PlanKey& p) {
  return !present(p.c) ? 0
                       : (p.c.row ? double(p.m) : 1.0) * (p.c.col ? double(p.n) : 1.0) * double(matrices_of(p.c, p.batch)) *
                             size_of(p.c.dtype);
}

double sm_rate(const KernelTraits& kernel, const Config& config, Math math, const DeviceSpec& device) {
  const double scale = device.gpu.peak_tflops(kernel.unit) / kH200.peak_tflops(kernel.unit);
  return config.tflops * 1e6 * scale / device.gpu.num_sms * relative_rate(math, kernel);
}

double tile_us(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
               const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  return 2.0 * config.tile_m * config.tile_n * k_tiles * config.tile_k / sm_rate(kernel, config, math, device);
}

bool a_vectors_along_k(const PlanKey& p) { return order_of(p.a) == Order::row_major && alignment(p.a, p.m, p.k) == 16; }
bool b_vectors_along_k(const PlanKey& p) { return order_of(p.b) == Order::col_major && alignment(p.b, p.k, p.n) == 16; }

double dram_us(const PlanKey& p, int d_layers, const DeviceSpec& device) {
  const double of_a = double(p.m) * double(matrices_of(p.a, p.batch)), of_b = double(p.n) * double(matrices_of(p.b, p.batch));
  return ((of_a + of_b) * double(p.k) * size_of(p.a.dtype) + d_bytes(p) * d_layers + c_bytes(p)) / bytes_per_us(device);
}

double idle_us(int64_t blocks, const DeviceSpec& device) {
  return kIdle * std::max(0.0, 1 - double(blocks) / device.gpu.num_sms);
}

double activation_us(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none: return 0;
    case Activation::Kind::relu: return kRelu;
    case Activation::Kind::gated: return kGated;
  }
  __builtin_unreachable();
}

double launch_us(const KernelTraits& kernel, const Config& config, const PlanKey& p, const Modes& modes,
                 const DeviceSpec& device) {
  if (kernel.access == OperandAccess::any) return kLaunch + kSimtStart;
  if (!repacks(kernel.access) || !uses_pdl(config)) return kLaunch;
  const bool prefetches = kernel.unit == Unit::wgmma && prefetches_k_tiles(p, config, modes, device.gpu.num_sms);
  return kLaunch - kOverlap + (needs_order(p, config, modes) ? kFreshGrid : 0) - (prefetches ? kPrefetches : 0) -
         idle_us(blocks_of(p, config, modes), device);
}

double norm4(double x, double y, double z) { return std::sqrt(std::sqrt(fourth(x) + fourth(y) + fourth(z))); }

}  // namespace tc
