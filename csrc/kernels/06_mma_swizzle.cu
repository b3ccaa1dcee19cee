// mma_swizzle: mma.sync and ldmatrix by hand, on shared memory that needs no padding.
//
// What changed from wmma_kstage: the XOR swizzle places every 16-byte chunk so that neither cp.async's stores nor ldmatrix's
// reads meet in a bank, without spending shared memory on padding; fragments are loaded with ldmatrix (.trans where K is not
// the contiguous direction) one k-step ahead of the mma.sync that use them, so that the tensor cores do not wait for shared
// memory; the warp tile is walked in serpentine order, which reuses the B fragment at each turn. One barrier per K tile.
// Operands that are not 16-byte aligned are repacked first (00_workspace.cu), at memory speed. When there are fewer tiles than
// SMs and K is long, blocks share a tile's K and a second kernel adds their fp32 sums in a fixed order.
//
// Measured gain (H200): 431 TFLOP/s at 4096 cubed and 453 at 8192, 1.6x wmma_kstage, 71 % of the mma.sync ceiling of that run.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o mma_swizzle.cubin csrc/kernels/06_mma_swizzle.cu
// Run:   python -m bench.sweep --kernel mma_swizzle
#include <iterator>
#include <utility>

#include "../gemm/instances.h"
#include "../tile/barrier.cuh"
#include "../tile/epilogue.cuh"
#include "../tile/launch.h"
#include "../tile/scheduler.cuh"
#include "../tile/swizzled_tile.cuh"

namespace tc {
namespace {

constexpr int64_t kSmallOperands = 16 << 20;  // bytes of A and B: well inside the L2 of every GPU from sm_80 on, 32 MB or more

template <int I, typename T, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kMmaSwizzle[I].threads, kMmaSwizzle[I].blocks_per_sm) void mma_swizzle(
    const Problem p, const Wide wide, const Schedule schedule) {
  constexpr int BLK_M = kMmaSwizzle[I].tile_m, BLK_N = kMmaSwizzle[I].tile_n, STAGES = kMmaSwizzle[I].stages;
  constexpr int BLK_K = kMmaSwizzle[I].tile_k * 2 / int(sizeof(T)), MMA_K = 32 / int(sizeof(T)), STEPS = BLK_K / MMA_K;
  constexpr int THREADS = kMmaSwizzle[I].threads, WARPS = THREADS / 32;
  constexpr int WARPS_N = BLK_N >= 256 ? 4 : 2, WARPS_M = WARPS / WARPS_N;
  constexpr int WARP_M = BLK_M / WARPS_M, WARP_N = BLK_N / WARPS_N, MMAS_M = WARP_M / 16, MMAS_N = WARP_N / 8;
  using ATile = SwizzledTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, THREADS>;
  using BTile = SwizzledTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, THREADS>;
  constexpr int STAGE_BYTES = ATile::BYTES + BTile::BYTES, STAGED = kPassRows * WARP_N;  // STAGED: floats of a warp
  static_assert(STAGES * (STAGE_BYTES + 16) + WARPS * STAGED * 4 == kMmaSwizzle[I].smem_bytes && STEPS >= 2 && STAGES >= 3);

  // ---- prologue ----
  extern __shared__ __align__(128) char smem[];
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const uint32_t stages = smem_address(smem);                                                   // (STAGES, A then B tile)
  const uint32_t filled = stages + STAGES * STAGE_BYTES + WARPS * STAGED * 4;  // (STAGES) barriers: every warp's copies are in
  const uint32_t read = filled + STAGES * 8;                                   // (STAGES) barriers: every warp has read it
  if (threadIdx.x < 2 * STAGES) mbarrier_init(filled + threadIdx.x * 8, WARPS);
  __syncthreads();
  const auto arrive = [&](uint32_t barrier) {
    __syncwarp();
    if (lane == 0) mbarrier_arrive(barrier);
  };

  const Matrix b_by_k{p.b.data, p.b.col, p.b.row, p.b.dtype};           // (N, K)
  // A small problem is over before the ring has hidden DRAM's latency: its blocks ask for all of A and B at once.
  if (schedule.size <= gridDim.x && (p.m + p.n) * p.k * sizeof(T) <= kSmallOperands) {
    const Share share = schedule[blockIdx.x];
    const int64_t k0 = int64_t(share.first) * BLK_K, k = min(int64_t(share.count) * BLK_K, p.k - k0);
    ATile::prefetch(p.a, int64_t(share.tile.m) * BLK_M, p.m, k0, k, share.tile.n, schedule.tiles_n);
    BTile::prefetch(b_by_k, int64_t(share.tile.n) * BLK_N, p.n, k0, k, share.tile.m, schedule.tiles_m);
  }
  wait_for_previous_kernel();

  const int k_last = int(p.k - int64_t(schedule.k_tiles - 1) * BLK_K);  // of the last K tile, which may be cut off
  ATile a_tile;
  BTile b_tile;
  int count = 0, whole = 0;  // K tiles of the share; those of them before the one that is cut off
  // Part `part` of the share's K tile t, to `stage`. A group per K tile, empty past the end, so that "all but the newest N
  // groups" always names the same tile.
  const auto load = [&](int t, uint32_t stage, auto parts, int part) {
    constexpr int PARTS = decltype(parts)::value;
    const bool a_whole = t < whole && a_tile.whole(), b_whole = t < whole && b_tile.whole();
    if (part == 0 && t < count) {
      if (!a_whole) a_tile.load_cut(p.a, stage, t < whole ? BLK_K : k_last);
      if (!b_whole) b_tile.load_cut(b_by_k, stage + ATile::BYTES, t < whole ? BLK_K : k_last);
    }
    a_tile.template load_whole<PARTS>(p.a, a_whole, stage, part);
    b_tile.template load_whole<PARTS>(b_by_k, b_whole, stage + ATile::BYTES, part);
    if (part == PARTS - 1) cp_async_commit();
  };
  // Starts the copies of a share's first K tiles, from ring position `at` on.
  const auto open = [&](const Share& share, RingPosition<STAGES> at) {
    a_tile.move_to(p.a, int64_t(share.tile.m) * BLK_M, p.m, int64_t(share.first) * BLK_K);
    b_tile.move_to(b_by_k, int64_t(share.tile.n) * BLK_N, p.n, int64_t(share.first) * BLK_K);
    count = share.count;
    whole = share.first + count == schedule.k_tiles && k_last < BLK_K ? count - 1 : count;
#pragma unroll 1
    for (int t = 0; t < STAGES - 1; ++t, at.advance()) {
      mbarrier_wait(read + at.stage * 8, at.parity ^ 1);
      load(t, stages + at.stage * STAGE_BYTES, std::integral_constant<int, 1>(), 0);
    }
    prefetch_c<BLK_M, BLK_N, THREADS>(p, int64_t(share.tile.m) * BLK_M, int64_t(share.tile.n) * BLK_N);
  };

  RingPosition<STAGES> at;
  const uint32_t a_lane = a_lane_offset<ATile, T, A_K_CONTIGUOUS>(warp_m, lane);
  const uint32_t b_lane = b_lane_offset<BTile, T, B_K_CONTIGUOUS>(warp_n, lane);
  open(schedule[blockIdx.x], at);
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    float acc[MMAS_M][MMAS_N][4] = {};
    uint32_t a[2][4], b[2][MMAS_N / 2][4];  // A: this row of fragments and the next; B: this k-step's and the next
    const auto load_a = [&](int i, uint32_t stage, int step) {
      load_fragment<T, A_K_CONTIGUOUS>(a[i % 2], ATile::address(stage, a_lane, i, step));
    };
    const auto load_b = [&](int buffer, uint32_t stage, int step) {
#pragma unroll
      for (int j = 0; j < MMAS_N / 2; ++j)
        load_fragment<T, B_K_CONTIGUOUS>(b[buffer][j], BTile::address(stage + ATile::BYTES, b_lane, j, step));
    };
    cp_async_wait<STAGES - 2>();
    if (count > 0) {
      arrive(filled + at.stage * 8);
      mbarrier_wait(filled + at.stage * 8, at.parity);
#pragma unroll
      for (int i = 0; i < 2; ++i) load_a(i, stages + at.stage * STAGE_BYTES, 0);
      load_b(0, stages + at.stage * STAGE_BYTES, 0);
    }

    // ---- main loop ----
#pragma unroll 1
    for (int t = 0; t < count; ++t) {
      const int freed = at.stage == 0 ? STAGES - 1 : at.stage - 1;  // read before this one, to be filled next
      const uint32_t freed_parity = at.parity ^ (at.stage == 0), done = read + at.stage * 8;
      const uint32_t current = stages + at.stage * STAGE_BYTES;
      const bool more = t + 1 < count;
      at.advance();
      const uint32_t next = more ? stages + at.stage * STAGE_BYTES : current;  // past the end, fragments that nobody uses
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        const uint32_t after = step == STEPS - 1 ? next : current;  // where the next k-step's fragments lie
        if (step == STEPS - 2 && more) {  // a step before anyone needs the next K tile, so that a slow warp holds nobody up
          cp_async_wait<STAGES - 3>();
          arrive(filled + at.stage * 8);
        }
        if (step == STEPS - 1 && more) mbarrier_wait(filled + at.stage * 8, at.parity);
        load_b((step + 1) % 2, after, (step + 1) % STEPS);
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i) {
#pragma unroll
          for (int jj = 0; jj < MMAS_N; ++jj) {
            const int j = i % 2 ? MMAS_N - 1 - jj : jj;
            mma_m16n8<T>(acc[i][j], a[i % 2], b[step % 2][j / 2][j % 2 * 2], b[step % 2][j / 2][j % 2 * 2 + 1]);
          }
          if (i + 2 < MMAS_M) load_a(i + 2, current, step);
          else load_a(i + 2 - MMAS_M, after, (step + 1) % STEPS);
          if (i == MMAS_M / 2 - 1) {
            if (step == 0) mbarrier_wait(read + freed * 8, freed_parity);
            load(t + STAGES - 1, stages + freed * STAGE_BYTES, std::integral_constant<int, STEPS>(), step);
          }
        }
      }
      arrive(done);
    }

    // ---- epilogue ----
    if (work + gridDim.x < schedule.size) open(schedule[work + gridDim.x], at);  // its operands come meanwhile
    const Share share = schedule[anew(work)];
    float* const staged = reinterpret_cast<float*>(smem + STAGES * STAGE_BYTES) + warp * STAGED;  // (16, WARP_N)
    const auto stage_rows = [&](int pass) {
#pragma unroll
      for (int i = 0; i < MMAS_M; ++i)  // registers have no index at run time
        if (i == pass)
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j)
#pragma unroll
            for (int h = 0; h < 2; ++h)
              *reinterpret_cast<float2*>(staged + staged_offset(lane / 4 + h * 8, j * 8 + lane % 4 * 2, WARP_N)) =
                  make_float2(acc[i][j][h * 2], acc[i][j][h * 2 + 1]);
    };
    finish_tile<T, MMAS_M, WARP_N>(p, wide, staged, int64_t(share.tile.m) * BLK_M + warp_m,
                                   int64_t(share.tile.n) * BLK_N + warp_n, share.split * p.m * p.n, stage_rows);
  }
  cp_async_wait<0>();
}

template <int I, typename T>
Status launch_instance(const Launch& call) {
  const Problem& p = call.problem;
  const Wide wide = wide_accesses(p);
  const Schedule schedule(p, call.tile, call.tile.tile_k * 2 / int(sizeof(T)), call.splits);
  if constexpr (sizeof(T) == 4) return launch<mma_swizzle<I, T, true, true>, true>(call, p, wide, schedule);
  else {
    const bool a = order_of(p.a) == Order::row_major, b = order_of(p.b) == Order::col_major;
    if (a && b) return launch<mma_swizzle<I, T, true, true>, true>(call, p, wide, schedule);
    if (a) return launch<mma_swizzle<I, T, true, false>, true>(call, p, wide, schedule);
    if (b) return launch<mma_swizzle<I, T, false, true>, true>(call, p, wide, schedule);
    return launch<mma_swizzle<I, T, false, false>, true>(call, p, wide, schedule);
  }
}

template <int... I>
Status launch_any(const Launch& call, std::integer_sequence<int, I...>) {
  Status status;
  const auto attempt = [&](auto index) {
    constexpr int i = decltype(index)::value;
    if (&call.tile != &kMmaSwizzle[i]) return;
    switch (call.problem.a.dtype) {
      case DType::f16: status = launch_instance<i, __half>(call); break;
      case DType::bf16: status = launch_instance<i, __nv_bfloat16>(call); break;
      case DType::f32: status = launch_instance<i, float>(call); break;
    }
  };
  (attempt(std::integral_constant<int, I>()), ...);
  return status;
}

}  // namespace

Status launch_mma_swizzle(const Launch& call) {
  return launch_any(call, std::make_integer_sequence<int, std::size(kMmaSwizzle)>());
}

}  // namespace tc
