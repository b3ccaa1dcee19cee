// Predicted times. Rates and constants were fitted on an H200 to every configuration of wgmma_tma on 25 shapes in three forms, the
// last few percent by hand (`python -m bench.sweep --regret` shows how well they hold); DeviceSpec scales them to other GPUs.
#pragma once

#include "kernel.h"

namespace tc {

// For KernelTraits::estimate_us. How the kernel's epilogue runs tells them apart.
double estimate_tiles(const KernelTraits&, const Config&, Math, const PlanKey&, int k_slices, const DeviceSpec&);
double estimate_tma_epilogue(const KernelTraits&, const Config&, Math, const PlanKey&, int k_slices, const DeviceSpec&);
double estimate_cluster(const KernelTraits&, const Config&, Math, const PlanKey&, int k_slices, const DeviceSpec&);

// To copy an operand of `outer` rows and `k` columns into workspace.
double repack_us(const MatrixKey& x, int64_t outer, int64_t k, const DeviceSpec&);

// To add the partial products of k_slices and finish D.
double reduce_us(const PlanKey&, int k_slices, const DeviceSpec&);

}  // namespace tc
