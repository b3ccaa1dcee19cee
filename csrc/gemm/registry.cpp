#include "registry.h"

#include "instances.h"

namespace tc {

#ifdef TC_WITH_CUDA
using Launcher = Status(const Launch&);
Launcher launch_simt, launch_wmma_block, launch_mma_swizzle;
#else
// The planner works without a GPU or nvcc; only the launchers are missing.
constexpr decltype(Kernel::launch) launch_simt = nullptr, launch_wmma_block = nullptr, launch_mma_swizzle = nullptr;
#endif

namespace {

constexpr unsigned kHalf = bit(DType::f16) | bit(DType::bf16);

template <int N>
constexpr Kernel row(const char* name, int min_sm, unsigned operands, Access access, bool split_k,
                     const Instance (&instances)[N], decltype(Kernel::launch) launch, const char* idea) {
  return {name, idea, min_sm, operands, access, split_k, instances, N, launch};
}

const Kernel kKernels[] = {
    row("simt", 80, kHalf | bit(DType::f32), Access::any, false, kSimt, launch_simt,
        "8x8 register tiles on CUDA cores, any strides"),
    row("wmma_block", 80, kHalf, Access::contiguous, false, kWmmaBlock, launch_wmma_block,
        "128x128 WMMA block tiles, skewed shared memory"),
    row("mma_swizzle", 80, kHalf | kTf32, Access::aligned, true, kMmaSwizzle, launch_mma_swizzle,
        "ldmatrix and mma.sync on XOR-swizzled shared memory, multi-stage cp.async"),
};

}  // namespace

Kernels kernels() { return {kKernels, int(sizeof(kKernels) / sizeof(kKernels[0]))}; }

}  // namespace tc
