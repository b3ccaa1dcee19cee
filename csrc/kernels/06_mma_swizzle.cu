// mma_swizzle: hand-written mma.sync and ldmatrix, on shared memory that needs no padding.
//
// What changed from wmma_kstage: the XOR swizzle places every 16-byte vector so that neither cp.async's stores nor ldmatrix's
// reads conflict in a bank. It spends no shared memory on padding. ldmatrix loads fragments (.trans where K is not the
// contiguous direction) one k-step ahead of the mma.sync that use them, so that the tensor cores do not wait for shared memory.
// Each warp walks its tile in serpentine order, which reuses the B fragment at each turn. There is one barrier per K tile.
//
// Operands that are not 16-byte aligned are repacked first (00_workspace.cu), at memory speed.
//
// Small problems wait for latency, and four things shorten that. When there are fewer tiles than SMs and K is long, split-K
// gives each block one K slice of a tile, and a second kernel adds their fp32 sums in a fixed order. Where small tiles would
// leave each scheduler a single warp, two groups of warps take different k-steps of every K tile (sliced K, warp_slices). L2
// prefetches small operands at once, and C before the epilogue. On Hopper, a configuration of one block per SM starts while the
// kernel before it still runs (PDL, tile/launch.h).
//
// Measured gain (H200, python -m bench.ladder at 04bea51): 469 TFLOP/s at 4096 cubed and 487 at 8192, 1.7x and 1.6x
// wmma_kstage. That is 77 and 80 % of the mma.sync ceiling of the same run.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o mma_swizzle.cubin csrc/kernels/06_mma_swizzle.cu
// Run:   python -m bench.sweep --kernel mma_swizzle
#include "06_mma_swizzle.h"

#include "../epilogue/staged.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/scheduler.cuh"
#include "../tile/swizzled_tile.cuh"

namespace tc {
namespace {

template <int I>
constexpr bool kUsesPdl = uses_pdl(kMmaSwizzle[I]);

template <int I, Math MATH, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kMmaSwizzle[I].threads, kMmaSwizzle[I].blocks_per_sm) void mma_swizzle(
    const GemmDesc p, const VectorAccess access, const Schedule schedule) {
  using T = Operand<MATH>;
  constexpr int BLK_M = kMmaSwizzle[I].tile_m, BLK_N = kMmaSwizzle[I].tile_n, STAGES = kMmaSwizzle[I].stages;
  constexpr int BLK_K = kMmaSwizzle[I].tile_k * 2 / int(sizeof(T)), MMA_K = 32 / int(sizeof(T));
  constexpr int THREADS = kMmaSwizzle[I].threads, WARP_SLICES = kMmaSwizzle[I].warp_slices, STEPS = BLK_K / MMA_K / WARP_SLICES;
  constexpr int WARPS = THREADS / 32 / WARP_SLICES, WARPS_N = BLK_N >= 256 ? 4 : 2, WARPS_M = WARPS / WARPS_N;
  constexpr int WARP_M = BLK_M / WARPS_M, WARP_N = BLK_N / WARPS_N, MMAS_M = WARP_M / 16, MMAS_N = WARP_N / 8;
  using ATile = SwizzledTile<T, BLK_M, BLK_K, A_K_CONTIGUOUS, THREADS>;
  using BTile = SwizzledTile<T, BLK_N, BLK_K, B_K_CONTIGUOUS, THREADS>;
  constexpr int STAGE_BYTES = ATile::BYTES + BTile::BYTES;
  static_assert(WARP_SLICES <= 2);
  static_assert(STAGES * STAGE_BYTES == kMmaSwizzle[I].smem_bytes);

  // ---- prologue ----
  // Made anew where it is used: its addresses would hold registers through the main loop.
  const auto of_product = [&] { return product_of(p, opaque_product()); };
  extern __shared__ __align__(128) char smem[];  // main loop: (STAGES, A tile then B tile); epilogue: (warps, PASS_M, D_PITCH)
  const uint32_t stages = smem_address(smem);
  const int warp = threadIdx.x / 32 % WARPS, slice = threadIdx.x / 32 / WARPS, lane = threadIdx.x % 32;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  const int64_t lda = A_K_CONTIGUOUS ? p.a.row : p.a.col, ldb = B_K_CONTIGUOUS ? p.b.col : p.b.row;

  // The blocks of a small problem prefetch all of A and B to L2 at once, because they end before the ring has hidden DRAM's
  // latency.
  WorkTile work_tile = schedule[blockIdx.x];
  if (schedule.size <= gridDim.x && (p.m + p.n) * p.k * int64_t(sizeof(T)) <= kSmallOperands) {
    const int64_t k0 = int64_t(work_tile.first) * BLK_K, k = min(int64_t(work_tile.count) * BLK_K, p.k - k0);
    ATile::prefetch(
        of_product().a, lda, int64_t(work_tile.tile.m) * BLK_M, p.m, k0, k, work_tile.tile.n, schedule.raster.tiles_n);
    BTile::prefetch(
        of_product().b, ldb, int64_t(work_tile.tile.n) * BLK_N, p.n, k0, k, work_tile.tile.m, schedule.raster.tiles_m);
  }
  if constexpr (kUsesPdl<I>) launch_dependents(), wait_on_dependencies();

  __shared__ WorkTile current;  // for the epilogue, in shared memory because the main loop has no registers to spare
  for (int work = blockIdx.x;; work_tile = schedule[work]) {
    if (threadIdx.x == 0) current = work_tile;
    const int count = work_tile.count;
    const int k_last = int(p.k - int64_t(schedule.k_tiles - 1) * BLK_K);  // depth of the last K tile, which may be cut off
    const int64_t m0 = int64_t(work_tile.tile.m) * BLK_M, n0 = int64_t(work_tile.tile.n) * BLK_N;
    const int64_t k0 = int64_t(work_tile.first) * BLK_K;

    ATile a_tile(of_product().a, lda, m0, p.m, k0);
    BTile b_tile(of_product().b, ldb, n0, p.n, k0);
    // Copies one of PARTS equal parts of the work tile's K tile t to `stage`. Every K tile has a commit group, which is empty
    // past the end: waiting for all but the newest STAGES - 2 groups then always waits for the tile that is needed next.
    const bool last_is_cut = k_last < BLK_K || a_tile.last_line_is_cut() || b_tile.last_line_is_cut();
    const int whole = count - (work_tile.first + count == schedule.k_tiles && last_is_cut);
    const auto load = [&](int t, uint32_t stage, auto parts, int part) {
      constexpr int PARTS = decltype(parts)::value;
      if (part == 0 && whole <= t && t < count) {
        a_tile.load_cut(p.a, stage, k_last);
        b_tile.load_cut(p.b, stage + ATile::BYTES, k_last);
      }
      a_tile.template load_whole<PARTS>(t < whole, stage, part);
      b_tile.template load_whole<PARTS>(t < whole, stage + ATile::BYTES, part);
      if (part == PARTS - 1) cp_async_commit();
    };
#pragma unroll 1  // instructions that run once come from memory: unrolled code took longer to fetch than to run
    for (int t = 0; t < STAGES - 1; ++t) load(t, stages + t * STAGE_BYTES, std::integral_constant<int, 1>(), 0);
    prefetch_c<BLK_M, BLK_N, THREADS>(of_product(), m0, n0);

    float acc[MMAS_M][MMAS_N][4] = {};  // (WARP_M, WARP_N) over the warp
    uint32_t a[MMAS_M][4];              // (WARP_M, 32 bytes of K) over the warp; a[i] is refilled after its products
    uint32_t b[2][MMAS_N / 2][4];       // (2, WARP_N, 32 bytes of K) over the warp: this k-step's and the next one's
    // Offsets of this lane's ldmatrix rows at the first k-step of its slice.
    const uint32_t a_lane = ATile::address(0, a_lane_offset<ATile, A_K_CONTIGUOUS>(warp_m, lane), 0, slice * STEPS);
    const uint32_t b_lane = BTile::address(0, b_lane_offset<BTile, B_K_CONTIGUOUS>(warp_n, lane), 0, slice * STEPS);
    const auto load_a = [&](int i, uint32_t stage, int step) {
      load_fragment<MATH, A_K_CONTIGUOUS>(a[i], ATile::address(stage, a_lane, i, step));
    };
    const auto load_b = [&](int buffer, uint32_t stage, int step) {
#pragma unroll
      for (int j = 0; j < MMAS_N / 2; ++j)
        load_fragment<MATH, B_K_CONTIGUOUS>(b[buffer][j], BTile::address(stage + ATile::BYTES, b_lane, j, step));
    };
    cp_async_wait<STAGES - 2>();
    __syncthreads();
    if (count > 0) {
#pragma unroll
      for (int i = 0; i < MMAS_M; ++i) load_a(i, stages, 0);
      load_b(0, stages, 0);
    }

    // ---- main loop ----
    uint32_t stage = stages, freed = stages + (STAGES - 1) * STAGE_BYTES;  // freed: read before `stage`, and filled next
    for (int t = 0; t < count; ++t) {
#pragma unroll
      for (int step = 0; step < STEPS; ++step) {
        load(t + STAGES - 1, freed, std::integral_constant<int, STEPS>(), step);
        if (step == STEPS - 1) {  // the next fragments come from the next stage; the barrier also frees this stage
          cp_async_wait<STAGES - 2>();
          __syncthreads();
          freed = stage;
          stage = stage == stages + (STAGES - 1) * STAGE_BYTES ? stages : stage + STAGE_BYTES;
        }
        load_b((step + 1) % 2, stage, (step + 1) % STEPS);
#pragma unroll
        for (int i = 0; i < MMAS_M; ++i) {
#pragma unroll
          for (int jj = 0; jj < MMAS_N; ++jj) {
            const int j = i % 2 ? MMAS_N - 1 - jj : jj;
            mma_m16n8<MmaType<MATH>>(acc[i][j], a[i], b[step % 2][j / 2][j % 2 * 2], b[step % 2][j / 2][j % 2 * 2 + 1]);
          }
          load_a(i, stage, (step + 1) % STEPS);
        }
      }
    }

    // ---- epilogue ----
    cp_async_wait<0>();
    __syncthreads();
    constexpr int FINISH = MMAS_M / WARP_SLICES, ROWS = FINISH * 16;  // a slice finishes FINISH of MMAS_M, ROWS of WARP_M rows
    if constexpr (WARP_SLICES == 2) {  // each slice hands the other slice its sums for the rows that the other finishes
      float4* const handed = reinterpret_cast<float4*>(smem);  // (FINISH * MMAS_N, THREADS)
      const auto each = [&](auto&& act) {
#pragma unroll
        for (int i = 0; i < FINISH; ++i)
#pragma unroll
          for (int j = 0; j < MMAS_N; ++j) act(acc[i][j], acc[FINISH + i][j], &handed[(i * MMAS_N + j) * THREADS]);
      };
      each([&](float (&first)[4], float (&second)[4], float4* row) {
        const auto sum = [&](int e) { return slice ? first[e] : second[e]; };
        row[threadIdx.x] = make_float4(sum(0), sum(1), sum(2), sum(3));
      });
      __syncthreads();
      each([&](float (&first)[4], float (&second)[4], const float4* row) {
        const float4 other = row[threadIdx.x ^ WARPS * 32];
#pragma unroll
        for (int e = 0; e < 4; ++e) first[e] = (slice ? second[e] : first[e]) + reinterpret_cast<const float (&)[4]>(other)[e];
      });
      __syncthreads();
    }
    constexpr int D_PITCH = WARP_N + kRowPad;
    constexpr int ROOM = kMmaSwizzle[I].smem_bytes / (THREADS / 32 * D_PITCH * 4);  // rows per warp that fit smem
    constexpr int PASS_M = ROOM >= ROWS ? ROWS : ROWS / 2;
    static_assert(PASS_M <= ROOM && PASS_M % 16 == 0);
    float* const staged = reinterpret_cast<float*>(smem) + threadIdx.x / 32 * PASS_M * D_PITCH;  // (PASS_M, D_PITCH)
    const WorkTile done = current;
    const GemmDesc of_d = of_product();
    const int64_t d0 = done.layer * slice_stride(p);
#pragma unroll 1  // one copy of the code that writes: two copies took ptxas three times as long
    for (int pass = 0; pass < ROWS; pass += PASS_M) {
      const int64_t m = int64_t(done.tile.m) * BLK_M + warp_m + slice * ROWS + pass;
      const int64_t n = int64_t(done.tile.n) * BLK_N + warp_n;
      const RowShift shift(of_d, m, n, d0, access.d_shifted);
#pragma unroll
      for (int i = 0; i < ROWS / 16; ++i)
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          if (i * 16 / PASS_M != pass / PASS_M) continue;
          const int row = i * 16 % PASS_M + lane / 4 + h * 8;
          stage_pairs(access.d_shifted, &staged[row * D_PITCH + shift(row) + lane % 4 * 2], acc[i], h);
        }
      __syncwarp();
      finish_staged<T, PASS_M, WARP_N, D_PITCH>(of_d, access, shift, staged, m, n, d0);
      __syncwarp();
    }
    work += gridDim.x;
    if (work >= schedule.size) return;
    __syncthreads();  // the next tile's operands take the memory where other warps still stage this tile
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k * 2 / size_of(p.a.dtype));
  return with_math(MmaSwizzleMaths(), call.math, [&](auto math) {
    return with_aligned_layouts<math>(p, [&](auto a_k, auto b_k) {
      return launch<mma_swizzle<I, math, a_k, b_k>, kUsesPdl<I>>(call, p, vector_access_of(p), schedule);
    });
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kMmaSwizzle>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
