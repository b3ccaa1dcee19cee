// What the predictions of several kernels have in common. Microseconds and bytes, as in cost_model.h.
#pragma once

#include "kernel.h"

namespace tc {

inline constexpr double kExposed = 0.184;    // share of the shorter of arithmetic and memory, which the longer does not hide
inline constexpr double kLaunch = 2.5;       // an empty kernel
inline constexpr double kOverlap = 1.07;     // of kLaunch, hidden under the previous kernel by programmatic dependent launch
inline constexpr double kOddVectors = 1.15;  // the epilogue of a 16-bit D whose rows are not aligned to 16 bytes, in vectors

// A tile's size, in tiles of 128x256.
constexpr double large_tiles(const Config& config) { return double(config.tile_m * config.tile_n) / (128 * 256); }

// The time of an activation of a tile of 128x256.
double activation_us(Activation::Kind kind);

// The start of a kernel, as far as the previous kernel does not hide it.
double launch_us(const KernelTraits& kernel, const Config& config, const PlanKey& p, const Modes& modes,
                 const DeviceSpec& device);

// The bandwidth of a copy, in bytes per microsecond.
double bytes_per_us(const DeviceSpec& device);

// Whether every element of a product's D has an element of C of its own, and the bytes of C and of D.
bool has_full_c(const PlanKey& p);
double c_bytes(const PlanKey& p);
double d_bytes(const PlanKey& p);

// Whether tiles of `columns` tear sectors of D: two tiles write the halves of a sector, and L2 writes the first half to DRAM before it
// has the second. D is large then, and its rows begin within sectors.
bool tears_d(const PlanKey& p, int64_t columns);

// A kernel's rate with a math, relative to its rate with 16-bit operands. Tensor cores multiply TF32 half as fast. Fragments of
// mma.sync must also be rounded to TF32, whereas TMA rounds what it loads for wgmma. mma_skinny, which takes operands in any order,
// waits for its loads of twice the bytes.
double relative_rate(Math math, const KernelTraits& kernel);

// FLOPs per microsecond of an SM with this configuration.
double sm_rate(const KernelTraits& kernel, const Config& config, Math math, const DeviceSpec& device);

// A tile's time on its SM at the configuration's rate.
double tile_us(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
               const DeviceSpec& device);

// All bytes at copy bandwidth. `d_layers` counts a product's layers of D.
double dram_us(const PlanKey& p, int d_layers, const DeviceSpec& device);

// Whether rows of A, or columns of B, can be read in aligned vectors along K.
bool a_vectors_along_k(const PlanKey& p);
bool b_vectors_along_k(const PlanKey& p);

// What a small grid hides of the next kernel's launch.
double idle_us(int64_t blocks, const DeviceSpec& device);

// Of times that overlap: little more than the longest, and more if several are long.
double norm4(double x, double y, double z = 0);

}  // namespace tc
