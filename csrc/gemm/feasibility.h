// Whether a configuration may run a problem on a GPU.
#pragma once

#include "kernel.h"

namespace tc {

// Why `config` cannot run the problem with `math`, or null where it can.
const char* unsupported_reason(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& key,
                               const DeviceSpec& device);

// For KernelTraits::can_implement: kernels without further demands, and those whose tiles have 32-bit coordinates.
const char* no_further_demands(const PlanKey& key, const Config& config, const DeviceSpec& device);
const char* needs_32_bit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device);

}  // namespace tc
