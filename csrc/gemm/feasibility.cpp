#include "feasibility.h"

#include <algorithm>

namespace tc {
namespace {

bool contains(const int* archs, int arch) {
  return std::find(archs, archs + Code::kMostArchs, arch) != archs + Code::kMostArchs;
}

// The architectures for which this build has machine code of any kernel. A build for the CPU alone has none.
const Code& build() {
  static const Code all = [] {
    Code sum;
    int count = 0;
    for (const KernelTraits& kernel : kernels())
      for (const Code& code : kernel.code)
        for (int arch : code.archs)
          if (arch && !contains(sum.archs, arch) && count < Code::kMostArchs) sum.archs[count++] = arch;
    return sum;
  }();
  return all;
}

// Whether the build has code of this configuration for the GPU. PTX serves the GPUs for which the build has no machine code at
// all, and 9.0a has no PTX. A build for the CPU alone plans like a build for all architectures.
bool has_code(const KernelTraits& kernel, const Config& config, int sm) {
  if (!build().archs[0]) return config.archs & (sm == 90 ? kHopper : kAmpere);
  const Code& code = kernel.code[int(&config - kernel.configs.first)];
  if (contains(build().archs, 10 * sm)) return contains(code.archs, 10 * sm);
  return code.launch && config.archs & kAmpere;
}

// Whether kernels of wgmma run on the GPU.
bool has_wgmma(const DeviceSpec& device) { return device.gpu.sm == 90 && (!build().archs[0] || contains(build().archs, 900)); }

// Whether a math on a kernel's unit is the one for batch-invariant products of fp32: it must follow from K and the GPU alone, because
// bits differ between maths, and TF32's between wgmma and mma.sync. Parts of operands pay where K is longer than kShortK.
constexpr int kShortK = 64;
bool is_batch_invariant_math(const KernelTraits& kernel, Math math, const PlanKey& key, const DeviceSpec& device) {
  if (key.precision == Precision::tf32) return math == Math::tf32 && (kernel.unit == Unit::wgmma) == has_wgmma(device);
  return math == (has_wgmma(device) && key.k > kShortK ? Math::f32_emulated : Math::f32_simt);
}

}  // namespace

const char* unsupported_reason(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& key,
                               const DeviceSpec& device) {
  if (device.gpu.sm < kernel.min_sm) return "the GPU is too old for it";
  if (device.gpu.sm > kernel.max_sm) return "the GPU no longer has its instructions";
  if (!multiplies(kernel, config, math)) return "it does not multiply operands of this dtype";
  if (is_f32(key.d.dtype) && !writes_fp32(config, key.a.dtype)) return "it writes no fp32 D of 16-bit operands";
  if (!keeps(math, key.precision))
    return math == Math::tf32 ? "its TF32 needs precision=\"tf32\"" : "it keeps more bits than precision=\"tf32\" asks for";
  if (key.batch_invariant) {
    if (!is_batch_invariant(kernel, config, math)) return "its bits depend on the batch";
    if (is_f32(key.a.dtype) && !is_batch_invariant_math(kernel, math, key, device))
      return "batch-invariant products of this K have another math";
  }
  if (!has_code(kernel, config, device.gpu.sm)) return "this build has no machine code for it";
  if (key.batch > kMostProducts) return "its grid does not hold so many products";
  if (kernel.access == OperandAccess::contiguous && (order_of(key.a) == Order::strided || order_of(key.b) == Order::strided))
    return "an operand has no direction of stride 1";
  if (config.smem_bytes > device.smem_per_block) return "its tiles do not fit the GPU's shared memory";
  return kernel.can_implement(key, config, device);
}

int batch_invariant_slices(const PlanKey& key, int64_t n, const DeviceSpec& device) {
  constexpr int kFewColumns = 1024, kShort = 2048;
  const bool halves = n <= kFewColumns && key.k > kShort && (!is_f32(key.a.dtype) || key.precision == Precision::tf32);
  return halves && has_wgmma(device) ? 2 : 1;
}

const char* no_further_demands(const PlanKey&, const Config&, const DeviceSpec&) { return nullptr; }

const char* needs_32_bit_numbers(const PlanKey& key, const Config& config, const DeviceSpec&) {
  const bool fit = blocks_of(key, config, Modes{1, {}, config.tile_n}) <= INT32_MAX - (1 << 20);
  return fit ? nullptr : "the numbers of its tiles do not fit 32 bits";
}

const char* needs_32_bit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  if (std::max({key.m, key.n, key.k}) > INT32_MAX - 1023) return "coordinates of its tiles do not fit 32 bits";
  return needs_32_bit_numbers(key, config, device);
}

}  // namespace tc
