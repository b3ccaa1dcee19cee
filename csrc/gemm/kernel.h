// The description of a kernel for the planner, and the table through which its compiled code is launched.
#pragma once

#include <cstddef>

#include "ceil_div.h"
#include "desc.h"
#include "device.h"
#include "parts.h"
#include "plan_key.h"

namespace tc {

template <typename T>
struct Span {
  T* first = nullptr;
  int count = 0;

  Span() = default;
  Span(T* first, int count) : first(first), count(count) {}
  template <std::size_t N>
  constexpr Span(T (&array)[N]) : first(array), count(int(N)) {}

  T* begin() const { return first; }
  T* end() const { return first + count; }
  T& operator[](int i) const { return first[i]; }
};

// The GPU families that a configuration is compiled for: 9.0a, and every other entry of TORCH_CUDA_ARCH_LIST.
enum ArchSet : uint8_t { kAmpere = 1, kHopper = 2, kEverywhere = kAmpere | kHopper };

// A set of maths, as bits.
struct MathSet {
  unsigned bits = 0;
  constexpr bool has(Math math) const { return bits >> unsigned(math) & 1; }
};
template <Math... MATHS>
struct Maths {
  static constexpr MathSet set{(0u | ... | (1u << unsigned(MATHS)))};
};

// One configuration of a kernel. Times and rates are those of an H200, and the cost model scales them to other GPUs.
struct Config {
  int tile_m, tile_n, tile_k;
  int stages;  // K tiles in flight at once, in shared memory (mma_skinny: in registers)
  int threads;
  int smem_bytes;         // dynamic shared memory
  int blocks_per_sm;      // for __launch_bounds__
  float tflops;           // with 16-bit operands while only the product runs, fitted to measured times; 0: not used
  float epilogue_us = 0;  // what no product hides of a tile's epilogue; 0: the cost model derives it from the tile's size
  int warp_slices = 1;    // kernels of mma.sync: groups of warps that multiply different k-steps of each K tile (sliced K)
  int boxes = 0;          // wgmma_tma, wgmma_multicast: boxes of C and D in shared memory, per warpgroup that multiplies
  bool pingpong = false;  // wgmma_tma: two warpgroups take whole tiles in turn instead of sharing each tile
  ArchSet archs = kEverywhere;
  int alignment = 16;  // bytes, with OperandAccess::aligned: operands whose rows begin elsewhere are repacked
  // Whether TMA alone brings C and D. Where it cannot (tma_reaches_c_and_d in access.h), the kernel leaves its sums in workspace,
  // and the reduction finishes D.
  bool tma_only = false;
  bool fp32 = true;  // whether the configuration is compiled for fp32 operands, if the kernel multiplies them
  // Whether it is compiled for an fp32 D of 16-bit operands, which sums in workspace are too.
  bool fp32_d = true;
  bool fp32_alone = false;  // whether it is compiled for fp32 operands alone
};

// What a configuration of TMA kernels is compiled for, beside 16-bit operands, C and D that TMA brings. Few problems need these, and each
// takes as long to build as the rest of a configuration, or longer: by predicted time, drawn problems whose C or D TMA does not reach
// lose 0.1 % to 0.5 % because few sizes go via registers.
enum Variants : int { kTf32 = 1, kFp32D = 2, kFp32 = kTf32 | kFp32D, kViaRegisters = 4 };

// Whether a configuration of an aligned kernel uses programmatic dependent launch (ptx/pdl.cuh). Two blocks per SM would
// crowd together: 1024 cubed on an H200 took 14.9 microseconds with PDL and 11.2 without. mma_guarded and mma_short, whose
// tiles are small, use PDL with more blocks too, if the SMs hold all tiles at once (tile/launch.h).
constexpr bool uses_pdl(const Config& config) { return config.blocks_per_sm == 1; }

// A cluster of m x n x k blocks. m x n blocks have neighbouring tiles: blocks with the same rows of A, and those with the
// same columns of B, read them once and share them by multicast. k blocks multiply the K slices of one tile, and add their
// sums through distributed shared memory.
struct Cluster {
  int m = 1, n = 1, k = 1;
  TC_HOST_DEVICE constexpr int blocks() const { return m * n * k; }
};
constexpr bool operator==(const Cluster& x, const Cluster& y) { return x.m == y.m && x.n == y.n && x.k == y.k; }

inline constexpr Cluster kSingleBlock[] = {{1, 1}};

// How a configuration runs a problem.
struct Modes {
  int k_slices = 1;  // the cluster's k, unless that is 1
  Cluster cluster;
  int columns = 0;  // of D that a tile covers: the configuration's tile_n, or fewer (KernelTraits::narrower)
  // Layers of D, each the sum of some K slices. If there are several, a second kernel adds them.
  constexpr int layers() const { return k_slices / cluster.k; }
};
constexpr bool operator==(const Modes& x, const Modes& y) {
  return x.k_slices == y.k_slices && x.cluster == y.cluster && x.columns == y.columns;
}

// The blocks of a grid that has one for each output tile and K slice of all products. P is a GemmDesc or a PlanKey.
template <typename P>
int64_t blocks_of(const P& p, const Config& config, const Modes& modes) {
  const Cluster& cluster = modes.cluster;
  const int64_t clusters = ceil_div(p.m, config.tile_m * cluster.m) * ceil_div(p.n, modes.columns * cluster.n);
  return p.batch * clusters * modes.layers() * cluster.blocks();
}

// Whether a grid must launch without programmatic dependent launch (PDL), so that its blocks lie in order on the GPU. Without PDL a
// grid of single blocks fills one GPC after another, and L2 merges the reads of a GPC's SMs. With PDL a block starts on any SM that
// falls free, and L2 merges fewer reads. PDL saves 0.5 us. L2 costs more than that if tiles lie side by side in both directions, a
// block reads more than 32 K tiles, and a tile's loads take as long as its products: on an H200 128x8192x7168 in tiles of 64x128
// takes 39.0 us with PDL and 33.5 without (bench/results/h200-tried.md, "The order of blocks on the GPU"). The GPU spreads clusters
// over its GPCs with and without PDL. P is a GemmDesc or a PlanKey.
template <typename P>
bool needs_order(const P& p, const Config& config, const Modes& modes) {
  const int64_t k_tiles = p.k * size_of(p.a.dtype) / (config.tile_k * 2 * modes.k_slices);
  return modes.cluster.blocks() == 1 && p.m > config.tile_m && p.n > config.tile_n && k_tiles > 32 &&
         config.tile_m * config.tile_n < 128 * 128;
}

// Whether the blocks of a TMA kernel copy their first K tiles to L2 before the previous kernel has ended (PDL). This pays if the
// grid takes at most half of the SMs, so that two such kernels find room side by side: grids of up to 66 blocks gain 4 to 14 % on
// an H200. Grids of more than 132 blocks lose 13 %: a block then starts just before its own loads, and the same bytes are asked
// for twice (bench/results/h200-tried.md, "What small grids prefetch"). P is a GemmDesc or a PlanKey.
template <typename P>
bool prefetches_k_tiles(const P& p, const Config& config, const Modes& modes, int num_sms) {
  return 2 * blocks_of(p, config, modes) <= num_sms && !needs_order(p, config, modes);
}

// Whether a grid of simt_kstage or simt_short must launch without PDL, because it fills a good half of the GPU. The next grid finds
// room for a part of its blocks, and the others take the places that fall free first, all on a few SMs: 12544x64x147 in 64x32 of
// simt_kstage, three blocks to an SM, takes 23.9 us with PDL and 16.9 without. A grid that fills nearly all places has none to crowd
// on: 12544x64x147 in 32x32 takes 15.4 us with PDL and 16.0 without (H200; bench/results/h200-tried.md, "Grids that fill half of the
// GPU"). P is a GemmDesc or a PlanKey.
template <typename P>
bool would_crowd(const P& p, const Config& config, const Modes& modes, int num_sms) {
  const double filled = double(blocks_of(p, config, modes)) / (num_sms * config.blocks_per_sm);
  return 0.5 < filled && filled < 0.85;
}

// The most products of a launch: as many rows as a grid may have.
inline constexpr int64_t kMostProducts = 65535;

// The arguments of a launch. With several layers D holds fp32 partial products (partial_products), and the reduction applies alpha,
// beta and C.
struct Launch {
  const GemmDesc& desc;  // canonical
  const Config& config;
  Math math;
  Modes modes;
  const DeviceSpec& device;
  void* stream;
  // With OperandAccess::parts: the operands of `desc`, which are fp32, in workspace.
  struct Parts {
    OperandParts a, b;
  } parts = {};
};
using Launcher = Status (*)(const Launch&);

// The compiled code of one configuration. The configuration's object file fills it in while the extension is loaded
// (tile/launch.h). It stays empty if the build is for other GPUs or for the CPU alone.
struct Code {
  static constexpr int kMostArchs = 16;
  Launcher launch = nullptr;
  int archs[kMostArchs] = {};  // 10 times KnownGpu::sm, as in nvcc's __CUDA_ARCH_LIST__
};
template <auto& CONFIGS>
inline Code kCode[sizeof(CONFIGS) / sizeof(CONFIGS[0])];

// The layouts of A and B that a kernel can read.
enum class OperandAccess : uint8_t {
  any,                   // any strides
  contiguous,            // a direction of stride 1
  along_k,               // K is contiguous, and rows of A and columns of B begin at multiples of Config::alignment
  b_along_n,             // B has N contiguous, A any direction; rows of A and B begin at multiples of Config::alignment
  aligned,               // a direction of stride 1 in 16-byte vectors (access.h); planner.cpp has other operands repacked
  aligned_fp32_along_k,  // `aligned`, and fp32 operands have K contiguous: ldmatrix and wgmma transpose only 16-bit elements
  aligned_a_along_k,     // `aligned`, and A has K contiguous
  dense_a_along_k,       // `aligned_a_along_k`, and little lies between A's rows (StreamedShape::is_dense)
  aligned_a_alone,       // A as before; B has a direction of stride 1, and its rows begin anywhere
  // B `aligned`. A has K contiguous and numbered rows (numbers_rows), which begin anywhere if B is contiguous along N.
  aligned_b_alone,
  parts  // fp32 operands of any strides, whose parts are written to workspace first (parts.h)
};
constexpr bool repacks(OperandAccess access) { return access >= OperandAccess::along_k; }
constexpr bool repacks_a_along_k(OperandAccess access, Math math) {
  return access == OperandAccess::along_k || access >= OperandAccess::aligned_a_along_k ||
         (access == OperandAccess::aligned_fp32_along_k && is_f32(operand_dtype(math)));
}
constexpr bool repacks_b_along_k(OperandAccess access, Math math) {
  return access == OperandAccess::along_k || (access == OperandAccess::aligned_fp32_along_k && is_f32(operand_dtype(math)));
}
constexpr bool repacks_b_along_n(OperandAccess access) { return access == OperandAccess::b_along_n; }

// The bytes that divide the start of each row of B as a kernel reads it.
constexpr int b_alignment(OperandAccess access, const Config& config) {
  return access == OperandAccess::aligned_a_alone ? 2 : config.alignment;
}

struct KernelTraits {
  const char* name;
  const char* idea;
  int min_sm, max_sm;
  Unit unit;
  MathSet maths;
  // The maths under which a block adds products in the order of K. An element of D then has the same bits in all kernels with the
  // math here, whatever the tiles; TF32's are the same within a unit. Batch-invariant calls use these kernels (feasibility.h).
  MathSet in_order;
  OperandAccess access;
  bool split_k;                  // whether blocks can write the partial products of K slices to workspace
  bool by_element;               // whether the epilogue writes columns of D as fast as rows
  Span<const Cluster> clusters;  // the shapes that every configuration can be launched with
  Span<const int> narrower;      // how many columns fewer than tile_n a tile may cover, in equal steps
  Span<const Config> configs;
  Span<Code> code;  // of each configuration
  // Why the configuration cannot run, or null if it can. feasibility.cpp checks what holds for every kernel.
  const char* (*can_implement)(const PlanKey&, const Config&, const DeviceSpec&);
  // Predicted microseconds of the product and its epilogue.
  double (*estimate_us)(const KernelTraits&, const Config&, Math, const PlanKey&, const Modes&, const DeviceSpec&);
};

// In ladder order; kernels/registry.cpp has the list.
Span<const KernelTraits> kernels();

}  // namespace tc
