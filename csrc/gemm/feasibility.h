// Whether a configuration may run a problem on a GPU.
#pragma once

#include "kernel.h"

namespace tc {

// Whether a configuration is compiled for a math.
inline bool multiplies(const KernelTraits& kernel, const Config& config, Math math) {
  return kernel.maths.has(math) && (is_f32(operand_dtype(math)) ? config.fp32 : !config.fp32_alone);
}

// Whether a configuration is compiled for a D or sums of fp32 from such operands.
inline bool writes_fp32(const Config& config, DType operands) { return config.fp32_d || is_f32(operands); }

// Whether a configuration gives an element of D bits that depend on its row of A, its column of B and its C alone, as long as K
// is not divided.
inline bool is_batch_invariant(const KernelTraits& kernel, const Config& config, Math math) {
  return kernel.in_order.has(math) && config.warp_slices == 1;
}

// The slices of K in a batch-invariant product with n columns of D, as the caller sees it: they may follow from N, K and the GPU
// alone. With few columns and a long K, few blocks would add for long, however many rows there are. Two halves have one sum, whoever
// adds them; the configurations of wgmma agree where K's halves meet.
int batch_invariant_slices(const PlanKey& key, int64_t n, const DeviceSpec& device);

// Why `config` cannot run the problem with `math`, or null if it can.
const char* unsupported_reason(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& key,
                               const DeviceSpec& device);

// Functions for KernelTraits::can_implement. needs_32_bit_numbers is for kernels with tiles so small that a result in a GPU's memory may have
// more of them than 32 bits count; a block's next tile may be as many further as the GPU has warps.
const char* no_further_demands(const PlanKey& key, const Config& config, const DeviceSpec& device);
const char* needs_32_bit_numbers(const PlanKey& key, const Config& config, const DeviceSpec& device);
const char* needs_32_bit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device);

}  // namespace tc
