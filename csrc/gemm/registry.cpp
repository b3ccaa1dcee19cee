#include "registry.h"

#include "instances.h"

namespace tc {

#ifdef TC_WITH_CUDA
using Launcher = Status(const Problem&, const Instance&, const Device&, void* stream);
Launcher launch_simt, launch_wmma_block;
#else
// The planner works without a GPU or nvcc; only the launchers are missing.
constexpr decltype(Kernel::launch) launch_simt = nullptr, launch_wmma_block = nullptr;
#endif

namespace {

constexpr unsigned kHalf = bit(DType::f16) | bit(DType::bf16);

template <int N>
constexpr Kernel row(const char* name, const char* idea, int min_sm, unsigned operands, bool contiguous_operands,
                     const Instance (&instances)[N], decltype(Kernel::launch) launch) {
  return {name, idea, min_sm, operands, contiguous_operands, instances, N, launch};
}

const Kernel kKernels[] = {
    row("simt", "8x8 register tiles on CUDA cores, any strides", 80, kHalf | bit(DType::f32), false, kSimt, launch_simt),
    row("wmma_block", "128x128 WMMA block tiles, skewed shared memory", 80, kHalf, true, kWmmaBlock, launch_wmma_block),
};

}  // namespace

Kernels kernels() { return {kKernels, int(sizeof(kKernels) / sizeof(kKernels[0]))}; }

}  // namespace tc
