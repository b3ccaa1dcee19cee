// wgmma_multicast: tiles of 8 to 256 rows in multiples of 8, and clusters whose blocks share operands.
//
// What changed from wgmma_tma: wgmma's M comes in steps of 64 and its N in steps of 8. The rows of a linear layer's input are the
// size that fits badly, so the kernel computes D^T = B^T A^T: columns of D lie on wgmma's M, rows of D on its N, and stmatrix
// transposes the result on its way out (epilogue/tma_transposed.cuh). Narrow tiles leave room for up to 24 stages.
//
// The blocks of a cluster have neighbouring tiles. Blocks in a row of the cluster share their rows of A, and blocks in a column
// share their columns of B. One of the sharers loads a K tile for all by multicast, each in its turn. A block fills a stage once
// the consumers of all blocks have left it. Those of its sharers would not do: in 2x2 blocks a sharer that has its turn with both
// operands may leave the same stage twice before the fourth block, which waits for neither, has left it once.
//
// Where tiles are few, a cluster may also share K: each of its blocks multiplies one K slice of a tile, sends the sums of the
// parts of the tile that other blocks finish to their shared memory, and finishes every k-th part itself. A block of K slices
// loads fewer bytes for a product than a block of smaller tiles: 128x128 and half of K take two thirds of 128x64 and all of
// K.
//
// A launch may narrow all tiles, so that they fill a wave: TMA loads fewer columns of B, wgmma multiplies what lies beyond them
// too, and D's tensor map ends with the tile. Weights of few rows then stream at a copy's speed: 48x9216x16384 takes 77.4 us in
// 128 tiles of 72 columns, and 93.8 in 72 of 128 (two runs).
//
// wgmma does not transpose fp32. A TF32 B that is not contiguous along K goes through registers (transposed_fragment), which wgmma
// takes for its M operand. 176x65024x4544 with a full C took 969 us with a repack of B, and takes 387.
//
// Measured gain (H200, bench/results/h200-candidates.json and 12 more tiles): the fastest candidate at 386 drawn problems is 2.5 %
// faster in the mean, and by more than 3 % at 23 % of them. 97x8192x8192 takes 38.1 us, wgmma_tma 43.7 at best; 100352x240x40
// 25.5 and 31.6. Clusters that share K: 192x1024x4096 takes 8.2 us, and 9.2 in the fastest other way; 224x1008x2152 takes 6.8
// and 8.9, 608x480x5712 10.8 and 12.9 (bench/results/h200-candidates-20280311.json).
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o multicast.cubin csrc/kernels/11_wgmma_multicast.cu
// Run:   python -m bench.sweep --kernel wgmma_multicast
#include "11_wgmma_multicast.h"

#include "../epilogue/tma_transposed.cuh"
#include "../ptx/cluster.cuh"
#include "../ptx/pdl.cuh"
#include "../ptx/warp.cuh"
#include "../ptx/wgmma.cuh"
#include "../tile/main_loop.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

// Eight k by 64 columns of B, as wgmma's M operand, from a tile of fp32 without K contiguous at `smem`: two boxes, whose 128-byte
// rows hold 32 columns of one k (tma_operand.cuh).
__device__ __forceinline__ Tf32Fragment transposed_fragment(uint32_t smem, int thread) {
  const int warp = thread / 32, g = thread % 32 / 4, q = thread % 4;
  const uint32_t at = warp / 2 * 32 * kBoxBytes + q * kBoxBytes + ((warp % 2 * 4 + g / 4) ^ q) * 16 + g % 4 * 4;
  return {ld_shared_4(smem + at), ld_shared_4(smem + (at ^ 32)), ld_shared_4(smem + 4 * kBoxBytes + (at ^ 64)),
          ld_shared_4(smem + 4 * kBoxBytes + (at ^ 96))};
}

// A has K contiguous. D is 16-bit or fp32. The launch decides the cluster, and its operands which layout B has (with_tma_layouts).
template <int I, Math MATH, typename D>
__global__ __launch_bounds__(kWgmmaMulticast[I].threads, kWgmmaMulticast[I].blocks_per_sm) void wgmma_multicast(
    const GemmDesc p, const Schedule schedule, const ClusterShape cluster, const __grid_constant__ TmaOperands operands,
    const __grid_constant__ TransposedPaths paths) {
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
  using T = Operand<MATH>;
  constexpr Config CONFIG = kWgmmaMulticast[I];
  constexpr int BLK_M = CONFIG.tile_m, BLK_N = CONFIG.tile_n, STAGES = CONFIG.stages;
  constexpr int BLK_K = kBoxBytes / int(sizeof(T)), STEPS = 4, GROUPS = CONFIG.threads / 128 - 1;
  constexpr bool REALLOCATES = GROUPS > 1;                    // moves registers from the producer to the consumers (setmaxnreg)
  constexpr int COLS = BLK_N / GROUPS, BLOCKS_N = COLS / 64;  // of a consumer warpgroup's tile of D
  constexpr int A_BYTES = BLK_M * 128, B_BYTES = BLK_N * 128, STAGE_BYTES = A_BYTES + B_BYTES;
  constexpr int BLOCK = 64 * 128;  // bytes of 64 columns of B in a stage, whichever direction is contiguous
  constexpr bool D_IS_F32 = sizeof(D) == 4;
  constexpr int PARTS_BYTES = multicast_parts_bytes(BLK_M, COLS, CONFIG.boxes, CONFIG.fp32_d);
  constexpr int BUFFERS = multicast_buffers(BLK_M, COLS, D_IS_F32, CONFIG.boxes);
  static_assert(STAGES * (STAGE_BYTES + 16) + multicast_epilogue_bytes(BLK_M, BLK_N, GROUPS, CONFIG.boxes, CONFIG.fp32_d) ==
                CONFIG.smem_bytes);
  using Epilogue = TransposedEpilogue<T, D, BLK_M, COLS, multicast_most_rows(D_IS_F32), BUFFERS>;
  static_assert(GROUPS * Epilogue::ALL_SUMS_BYTES <= STAGES * STAGE_BYTES);

  // ---- prologue ----
  extern __shared__ __align__(1024) char smem[];
  const uint32_t stages = smem_address(smem);                  // (STAGES, B tile then A tile)
  char* const parts = smem + STAGES * STAGE_BYTES;             // (GROUPS, PARTS_BYTES) of C and D
  char* const rows = parts + GROUPS * PARTS_BYTES;             // (BLK_N) of a C that is one row, up to 4 bytes each
  const uint32_t full = smem_address(rows + BLK_N * 4);        // (STAGES) barriers: the stage holds a K tile
  const uint32_t empty = full + STAGES * 8;                    // (STAGES) barriers: the stage may be filled
  const uint32_t c_full = empty + STAGES * 8;                  // (GROUPS, BUFFERS) barriers: the part of C has arrived
  const uint32_t may_send = c_full + GROUPS * BUFFERS * 8;     // barrier: the blocks that share K have multiplied their stages
  const uint32_t received = may_send + 8;                      // (GROUPS) barriers: their sums have arrived
  const int group = warp_uniform(int(threadIdx.x) / 128) - 1;  // consumer warpgroup; -1 is the producer
  const int blocks = cluster.blocks(), rank = blocks > 1 ? cluster_rank() : 0;
  const int row = cluster.row(rank), column = cluster.column(rank), slice = cluster.slice(rank);  // its place in the cluster
  if (threadIdx.x == 0) {
    for (int s = 0; s < STAGES; ++s) {
      mbarrier_init(full + s * 8, 1);
      mbarrier_init(empty + s * 8, GROUPS * cluster.sharers());
    }
    for (int i = 0; i < GROUPS * BUFFERS; ++i) mbarrier_init(c_full + i * 8, 1);
    if (cluster.k > 1) mbarrier_init(may_send, cluster.k - 1);
    for (int i = 0; cluster.k > 1 && i < GROUPS; ++i) mbarrier_init(received + i * 8, 1);
    fence_mbarrier_init();
    if (p.k > 0) prefetch_tensor_map(operands.a.tile), prefetch_tensor_map(operands.b.tile);
    if (paths.c_path == CPath::tma) prefetch_tensor_map(paths.parts.c);
    prefetch_tensor_map(paths.parts.d);
  }
  __syncthreads();
  if (blocks > 1) cluster_arrive_relaxed(), cluster_wait();  // the other blocks' barriers are ready
  const int clusters = cluster_count();
  // Hidden from the compiler, which would otherwise compute the first tile before the branch and spill it.
  const auto first_work = [&] {
    int work = cluster_id();
    asm volatile("" : "+r"(work));
    return warp_uniform(work);
  };
  // The block's share of the cluster's work tile.
  const auto share_of = [&](int work) {
    WorkTile share = schedule[work];
    share.tile = {share.tile.m * cluster.m + row, share.tile.n * cluster.n + column};
    share.first += slice * schedule.per_slice, share.count = schedule.count_from(share.first);
    return share;
  };
  if (schedule.prefetched > 0 && threadIdx.x == 0) {  // each sharer prefetches what it loads
    const WorkTile first = share_of(cluster_id());
    with_tma_layouts<false, true>(operands, [&](auto a_k, auto b_k) {
      const TmaOperandTile<decltype(a_k)::value> a{operands.a, first.tile.m * BLK_M, first.product};
      const TmaOperandTile<decltype(b_k)::value, BLK_K> b{operands.b, first.tile.n * paths.columns, first.product};
      for (int t = 0; t < min(first.count, schedule.prefetched); ++t) {
        if ((t & (cluster.m - 1)) == row) b.prefetch((first.first + t) * BLK_K);
        if ((t & (cluster.n - 1)) == column) a.prefetch((first.first + t) * BLK_K);
      }
    });
  }
  wait_on_dependencies();

  if (group < 0) {  // producer warpgroup
    // ---- main loop: copies ----
    if (REALLOCATES) warpgroup_reg_dealloc<40>();
    // Two warps load K tiles in turn, because one takes longer to issue the copies of a small K tile than wgmma takes to multiply
    // it. Four were up to 27 % slower than two where L2 is the limit.
    constexpr int WARPS = 2;
    static_assert(WARPS <= STAGES);  // a warp two laps ahead of another would mistake the phase of a barrier
    const int warp = warp_uniform(int(threadIdx.x) / 32);
    int work = first_work();
    if (warp < WARPS) {
      const bool issues = elect_one();
      // The blocks that share this block's columns of B, and those that share its rows of A.
      const int first_sharer = slice << cluster.log2_sharers;
      const uint16_t b_sharers = uint16_t(((1 << cluster.m) - 1) << (first_sharer + (column << cluster.log2_m)));
      uint16_t a_sharers = 0;
      for (int i = 0; i < cluster.n; ++i) a_sharers |= uint16_t(1 << (first_sharer + (i << cluster.log2_m) + row));
      with_tma_layouts<false, true>(operands, [&](auto a_k, auto b_k) {
        RingPosition<STAGES> at;
        at.advance(warp);
        int turn = warp, begun = 0;  // counts of K tiles, over all work tiles; the sharers load K tiles in turn
        for (; work < schedule.size; work += clusters) {
          const WorkTile work_tile = share_of(work);
          const TmaOperandTile<decltype(a_k)::value> a{operands.a, work_tile.tile.m * BLK_M, work_tile.product};
          const TmaOperandTile<decltype(b_k)::value, BLK_K> b{operands.b, work_tile.tile.n * paths.columns, work_tile.product};
          for (; turn < begun + work_tile.count; turn += WARPS, at.template advance_by<WARPS>()) {
            const uint32_t stage = stages + at.stage * STAGE_BYTES, barrier = full + at.stage * 8;
            const int k0 = (work_tile.first + turn - begun) * BLK_K;
            mbarrier_wait(empty + at.stage * 8, at.parity ^ 1);
            if (!issues) continue;
            mbarrier_arrive_expect(barrier, (a.lines + b.lines) * kBoxBytes);
            if (b.lines > 0 && (turn & (cluster.m - 1)) == row) {
              if (cluster.m > 1) b.load_multicast(stage, barrier, k0, b_sharers);
              else b.load(stage, barrier, k0);
            }
            if (a.lines > 0 && (turn & (cluster.n - 1)) == column) {
              if (cluster.n > 1) a.load_multicast(stage + B_BYTES, barrier, k0, a_sharers);
              else a.load(stage + B_BYTES, barrier, k0);
            }
          }
          begun += work_tile.count;
        }
      });
    }
  } else {  // consumer warpgroups
    // ---- main loop: products ----
    if (REALLOCATES) warpgroup_reg_alloc<GROUPS == 2 ? 232 : 152>();
    const int thread = threadIdx.x % 128;
    char* const own_parts = parts + group * PARTS_BYTES;
    const Epilogue epilogue{
        p, paths, own_parts, rows + group * COLS * 4, c_full + group * BUFFERS * 8, group, thread, {cluster.k, slice}};
    const int sharers = cluster.sharers();
    const bool tells = thread < sharers;  // thread i tells the i-th sharer that a stage is empty
    const uint32_t its_empty = sharers > 1 && tells ? address_in_block(empty, (slice << cluster.log2_sharers) + thread) : empty;
    const auto leave = [&](int stage) {
      mbarrier_arrive_in_block_if(tells && sharers > 1, its_empty + stage * 8);
      mbarrier_arrive_if(tells && sharers == 1, empty + stage * 8);
    };
    // Descriptors of the first stage, which the compiler thus does not compute again for each K tile.
    const uint64_t first_a = warp_uniform(tile_descriptor<true>(stages + B_BYTES, BLOCK));
    const uint32_t its_b = stages + group * COLS * 128;
    const uint64_t first_b =
        warp_uniform(operands.b.k_contiguous ? tile_descriptor<true>(its_b, BLOCK) : tile_descriptor<false>(its_b, BLOCK));
    RingPosition<STAGES> at;
    uint32_t use = 0;  // tiles that this warpgroup has finished
    for (int work = first_work(); work < schedule.size; work += clusters) {
      if (work + clusters >= schedule.size) launch_dependents();  // see wgmma_tma
      const WorkTile work_tile = share_of(work);
      const TransposedPlace place{work_tile.tile.m * BLK_M, work_tile.tile.n, work_tile.layer};
      const auto inside = [&] { return place.m0 < p.m && epilogue.first_col_of(place.tile) < p.n; };
      float acc[BLOCKS_N][BLK_M / 2];  // (COLS, BLK_M) over the warpgroup: D^T
      const auto clear = [&] {
#pragma unroll
        for (int n = 0; n < BLOCKS_N; ++n)
#pragma unroll
          for (float& x : acc[n]) x = 0.f;
      };
      const auto multiply = [&](auto b_k, bool accumulate) {                                // the K tile in stage `at`
        constexpr bool B_K = decltype(b_k)::value, VIA_REGISTERS = sizeof(T) == 4 && !B_K;  // wgmma does not transpose fp32
        const uint32_t offset = warp_uniform(at.stage * STAGE_BYTES);
        const uint64_t a = first_a + (offset >> 4), b = first_b + (offset >> 4);
        mbarrier_wait(full + at.stage * 8, at.parity);
        if constexpr (VIA_REGISTERS) {
          wgmma_wait<0>();  // the last K tile's fragments
          Tf32Fragment fragments[STEPS][BLOCKS_N];
          const auto load = [&](int k) {
#pragma unroll
            for (int n = 0; n < BLOCKS_N; ++n)
              fragments[k][n] = transposed_fragment(stages + offset + (group * COLS + n * 64) * 128 + k * 8 * 128, thread);
          };
          load(0);
#pragma unroll
          for (int k = 0; k < STEPS; ++k) {
            wgmma_fence();
#pragma unroll
            for (int n = 0; n < BLOCKS_N; ++n)
              wgmma<MmaType<MATH>, BLK_M, true, true>(acc[n], fragments[k][n], a + k * kNextK<true>, accumulate || k > 0);
            if (k + 1 < STEPS) load(k + 1);
          }
        } else {
          wgmma_fence();
          // A block's products follow each other: alternating blocks of sums took 0.5 % longer (h200-tried.md, "Alone, after a rest").
#pragma unroll
          for (int n = 0; n < BLOCKS_N; ++n)
#pragma unroll
            for (int k = 0; k < STEPS; ++k)
              wgmma<MmaType<MATH>, BLK_M, B_K, true>(
                  acc[n], b + k * kNextK<B_K> + n * (BLOCK >> 4), a + k * kNextK<true>, accumulate || k > 0);
        }
        wgmma_commit();
      };
      const auto prefetch = [&] {
        if (inside()) epilogue.prefetch(place);
      };
      if (work_tile.count > 0) {
        with_tma_layouts<false, true>(operands, [&](auto, auto b_k) {
          const auto multiply_in = [&](bool accumulate) { multiply(b_k, accumulate); };
          multiply_k_tiles(at, work_tile.count, multiply_in, prefetch, leave);
          wgmma_wait<0>();
        });
        leave(at.stage);
        at.advance();
      } else {
        clear();
        prefetch();
      }

      // ---- epilogue ----
      if (cluster.k > 1) {  // such a block has no further tile, so that the sums may take the memory of the stages
        const uint32_t sums = stages + group * Epilogue::ALL_SUMS_BYTES, its_received = received + group * 8;
        const int first_rank = cluster_rank() - (slice << cluster.log2_sharers);
        if (thread == 0) mbarrier_arrive_expect(its_received, epilogue.received_bytes());
        named_barrier<GROUPS * 128>(1 + GROUPS);
        int other = thread;              // thread i of the first warpgroup tells the i-th of these blocks that it may send
        asm volatile("" : "+r"(other));  // hidden from the compiler, which would compute the address before the main loop
        if (group == 0 && other < cluster.k)
          mbarrier_arrive_in_block_if(other != slice, address_in_block(may_send, first_rank + (other << cluster.log2_sharers)));
        mbarrier_wait(may_send, 0);
        epilogue.send_sums(acc, sums, its_received, first_rank, cluster.log2_sharers);
        mbarrier_wait(its_received, 0);
        epilogue.add_sums(acc, sums);
      }
      if (!inside()) continue;
      epilogue.finish(acc, place, use);
      ++use;
    }
    tma_store_wait_read<0>();  // TMA still reads the block's shared memory; the kernel's end completes its writes
    __syncwarp();
  }
  // The other blocks may still arrive at this block's barriers. This arrive orders those before it: a relaxed one does not.
  if (blocks > 1) cluster_arrive(), cluster_wait();
#else
  asm("trap;");  // only sm_90a has wgmma
#endif
}

constexpr bool shares_k_with_at_most(int blocks) {
  for (const Cluster& cluster : kMulticastClusters)
    if (cluster.k > blocks) return false;
  return true;
}
static_assert(shares_k_with_at_most(PartOwners::kMost));

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  TransposedPaths paths = {};
  const TileParts parts = multicast_parts(call.config.tile_m, is_f32(p.d.dtype));
  const Status status = make_transposed_paths(paths, p, parts, call.modes);
  if (!status.ok()) return status;
  const Schedule schedule(call, kBoxBytes / size_of(p.a.dtype), p.batch);
  TmaOperands operands = {};
  const Status made = make_tma_operands(operands, call, true, order_of(p.b) == Order::col_major);
  if (!made.ok()) return made;
  return with_math(ConfigMaths<WgmmaMulticastMaths, kWgmmaMulticast[I].fp32>(), call.math, [&](auto math) {
    return with_result<Operand<math>, kWgmmaMulticast[I].fp32_d>(p, [&](auto d) {
      return launch_clusters<wgmma_multicast<I, math, typename decltype(d)::type>, true>(
          call, schedule.size, 1, p, schedule, ClusterShape(call.modes.cluster), operands, paths);
    });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kWgmmaMulticast>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
