// Predicts times in microseconds. Rates and constants are those of an H200, and were fitted to the times of drawn problems
// (`python -m bench.candidates` measures, `python -m bench.fit` compares, `python -m bench.refit` fits). DeviceSpec scales them to
// other GPUs; rates of L2 and shared memory are taken to be the same on every Hopper.
#pragma once

#include "kernel.h"

namespace tc {

// Functions for KernelTraits::estimate_us, one for each kind of epilogue: after each tile, overlapped by TMA, and in a
// cluster; one each for few rows, for blocks that share operands by multicast, for rows that begin anywhere, for a short K with such
// rows, for wgmma with such rows of B, for a B that stays in shared memory, and for fp32 on CUDA cores; and estimate_tiles for the others.
double estimate_tiles(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_tma_epilogue(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_skinny(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_cluster(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_multicast(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_guarded(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_short(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_stationary(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_streamed(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_direct(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_shifted(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_bf16x6_rs(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_interleaved(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_rows(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_columns(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_kstage(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_walked(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
double estimate_simt_short(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);

// The time to copy an operand of `batch` products, (outer, K) each, into workspace.
double repack_us(const MatrixKey& x, int64_t batch, int64_t outer, int64_t k, bool along_k, const DeviceSpec&);

// The time to write the parts of fp32 operands into workspace.
double parts_us(const PlanKey&, const DeviceSpec&);

// The time to add `layers` layers of partial products and finish D.
double reduce_us(const PlanKey&, int layers, const DeviceSpec&);

}  // namespace tc
