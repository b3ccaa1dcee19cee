#include "../gemm/kernel.h"

#include "configs.h"

namespace tc {

#ifdef TC_WITH_CUDA
using Launcher = Status(const Launch&);
Launcher launch_simt, launch_wmma_naive, launch_wmma_block, launch_wmma_double_buffer, launch_wmma_kstage,
    launch_mma_swizzle, launch_wgmma_tma, launch_mma_skinny, launch_wgmma_cluster;
#else
// The planner works without a GPU or nvcc; only the launchers are missing.
constexpr decltype(Kernel::launch) launch_simt = nullptr, launch_wmma_naive = nullptr, launch_wmma_block = nullptr,
                                   launch_wmma_double_buffer = nullptr, launch_wmma_kstage = nullptr,
                                   launch_mma_swizzle = nullptr, launch_wgmma_tma = nullptr, launch_mma_skinny = nullptr,
                                   launch_wgmma_cluster = nullptr;
#endif

namespace {

constexpr int kAnySm = 999;
#ifdef TC_WITHOUT_HOPPER  // setup.py: TORCH_CUDA_ARCH_LIST lacks 9.0a
constexpr int kHopperOnly = 0;
#else
constexpr int kHopperOnly = 90;
#endif
constexpr unsigned kHalf = bit(DType::f16) | bit(DType::bf16);

template <int N>
constexpr Kernel row(const char* name, int min_sm, int max_sm, unsigned operands, Access access, SplitK split_k,
                     const Instance (&instances)[N], decltype(Kernel::launch) launch, const char* idea) {
  return {name, idea, min_sm, max_sm, operands, access, split_k, instances, N, launch};
}

const Kernel kKernels[] = {
    row("simt", 80, kAnySm, kHalf | bit(DType::f32), Access::any, SplitK::none, kSimt, launch_simt,
        "8x8 register tiles on CUDA cores, any strides"),
    row("wmma_naive", 80, kAnySm, kHalf, Access::contiguous, SplitK::none, kWmmaNaive, launch_wmma_naive,
        "one 16x16 WMMA tile a warp, fragments straight from global memory"),
    row("wmma_block", 80, kAnySm, kHalf, Access::contiguous, SplitK::none, kWmmaBlock, launch_wmma_block,
        "128x128 WMMA block tiles, skewed shared memory"),
    row("wmma_double_buffer", 80, kAnySm, kHalf, Access::contiguous, SplitK::none, kWmmaDoubleBuffer, launch_wmma_double_buffer,
        "64x64 warp tiles; the next K tile is loaded into registers during the current one's product"),
    row("wmma_kstage", 80, kAnySm, kHalf | kTf32, Access::contiguous, SplitK::none, kWmmaKstage, launch_wmma_kstage,
        "a ring of K tiles filled by cp.async, TF32"),
    row("mma_swizzle", 80, kAnySm, kHalf | kTf32, Access::aligned, SplitK::workspace, kMmaSwizzle, launch_mma_swizzle,
        "ldmatrix and mma.sync on XOR-swizzled shared memory, multi-stage cp.async"),
    row("wgmma_tma", 90, kHopperOnly, kHalf | kTf32, Access::aligned, SplitK::workspace, kWgmmaTma, launch_wgmma_tma,
        "TMA and wgmma, warp-specialised; C arrives and D leaves while other tiles are multiplied"),
    row("mma_skinny", 80, kAnySm, kHalf, Access::aligned, SplitK::workspace, kMmaSkinny, launch_mma_skinny,
        "for a few rows: B from global memory straight into mma.sync, a block's warps share K"),
    row("wgmma_cluster", 90, kHopperOnly, kHalf | kTf32, Access::aligned, SplitK::cluster, kWgmmaCluster, launch_wgmma_cluster,
        "for a few tiles: the blocks of a cluster share K, and add their sums from each other's shared memory"),
};

}  // namespace

Kernels kernels() { return {kKernels, int(sizeof(kKernels) / sizeof(kKernels[0]))}; }

}  // namespace tc
