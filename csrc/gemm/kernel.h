// The kernels and their instances. Adding a rung: one file in kernels/, one line in registry.cpp.
#pragma once

#include "desc.h"

namespace tc {

// What the planner and the launchers know of a GPU.
struct Device {
  int ordinal;
  int sm;                  // 10 * major + minor
  int num_sms;
  int64_t smem_per_block;  // bytes, after opting in
};

// One compiled configuration of a kernel.
struct Instance {
  int tile_m, tile_n, tile_k;
  int stages;         // K tiles on their way at once, in shared memory (mma_skinny: in registers)
  int threads;
  int smem_bytes;     // dynamic shared memory
  int blocks_per_sm;  // what __launch_bounds__ asks for
  float tflops;       // of an H200 while nothing but the product runs, fitted to measured times; scaled by the number of SMs
  float epilogue = 0;     // microseconds of a tile's epilogue on an H200 that no product hides; 0: what plan.cpp says of its size
  int slices = 1;         // mma_swizzle: groups of warps that multiply different k-steps of each K tile
  int boxes = 0;          // wgmma_tma: 8 KB boxes of C and D in shared memory per warpgroup that multiplies
  bool pingpong = false;  // wgmma_tma: its two warpgroups take whole tiles in turn instead of sharing each
};

// Whether an instance of an aligned kernel starts while the kernel before it still runs (tile/launch.h). Not two blocks to an SM:
// those then crowd together, and took 14.9 microseconds instead of 11.2 at 1024 cubed on an H200.
constexpr bool starts_early(const Instance& instance) { return instance.blocks_per_sm == 1; }

constexpr unsigned bit(DType t) { return 1u << unsigned(t); }
constexpr unsigned kTf32 = 1u << 3;  // fp32 operands too, rounded to TF32, for problems that allow it

// One launch: what crosses from the planner to a kernel.
struct Launch {
  const Problem& problem;  // canonical
  const Instance& tile;
  const Device& device;
  int splits;  // parts of K; above 1 for SplitK::workspace, D is fp32 partial products, (splits, M, N), and alpha, beta and C wait
               // for the reduction
  void* stream;
};

// What a kernel asks of A and B in memory.
enum class Access : uint8_t {
  any,         // any strides
  contiguous,  // a direction of stride 1
  aligned,     // a direction of stride 1 whose lines start at 16-byte boundaries; others are repacked first
};

// What blocks that multiply parts of K of the same tile do with their sums.
enum class SplitK : uint8_t {
  none,       // there are none
  workspace,  // partial products go there, and a second kernel adds them
  cluster,    // they are a cluster, and add them from each other's shared memory
};
constexpr int kLeastInCluster = 2, kMostInCluster = 4;  // parts of K

struct Kernel {
  const char* name;
  const char* idea;
  int min_sm, max_sm;
  unsigned operands;  // which dtypes of A and B, as bits, and kTf32
  Access access;
  SplitK split_k;
  const Instance* instances;
  int num_instances;
  Status (*launch)(const Launch&);  // null in a CPU-only build
};

struct Kernels {
  const Kernel* first;
  int count;
  const Kernel* begin() const { return first; }
  const Kernel* end() const { return first + count; }
};

// In ladder order.
Kernels kernels();

}  // namespace tc
