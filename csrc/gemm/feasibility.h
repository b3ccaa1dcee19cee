// Whether a configuration may run a problem on a GPU.
#pragma once

#include "kernel.h"

namespace tc {

// Whether a configuration is compiled for a math.
inline bool multiplies(const KernelTraits& kernel, const Config& config, Math math) {
  return kernel.maths.has(math) && (math != Math::tf32 || config.tf32);
}

// Whether a configuration gives an element of D bits that depend on its row of A, its column of B and its C alone, as long as K
// is not divided.
inline bool is_batch_invariant(const KernelTraits& kernel, const Config& config, Math math) {
  return kernel.in_order.has(math) && config.warp_slices == 1;
}

// Why `config` cannot run the problem with `math`, or null if it can.
const char* unsupported_reason(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& key,
                               const DeviceSpec& device);

// Functions for KernelTraits::can_implement: for kernels without further demands, and for kernels with 32-bit coordinates.
const char* no_further_demands(const PlanKey& key, const Config& config, const DeviceSpec& device);
const char* needs_32_bit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device);

}  // namespace tc
