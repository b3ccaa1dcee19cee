// simt_kstage: fp32 on CUDA cores, from a ring of K tiles that lie in shared memory as they lie in global memory.
//
// What changed from simt: cp.async brings K tiles through a ring of stages, and nothing transposes them. Where K is contiguous, a lane
// reads four k of a row at once. Its rows lie interleaved with the other lanes' rows, and a pitch of an odd number of 16-byte vectors
// puts those of eight lanes into different banks. The ring runs on from one output tile of a block to the next, so that the loads of
// the next tile go on during an epilogue. Split-K serves small problems.
//
// FMAs limit the kernel. A scheduler's registers form two banks, by even and odd numbers, and each gives one operand a cycle: an FMA whose
// sum and factor lie in one bank takes two cycles, unless the factor is kept from the FMA before. The compiler does not see to that.
// Of four k that a lane reads as a vector, two lie in either bank, so that half of the FMAs take two cycles.
//
// Measured gain (H200): 144x4168x32 takes 5.3 us, 11.9 in the fastest of the other kernels, and 5.1 in torch.addmm. 4096 cubed takes
// 3.76 ms, 4.02 in simt, and 2.70 in torch.addmm.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -DTC_CONFIG=0 -cubin -o simt_kstage.cubin csrc/kernels/18_simt_kstage.cu
// Run:   python -m bench.sweep --kernel simt_kstage --only 4096,4096,4096
#include "18_simt_kstage.h"

#include "../epilogue/staged.cuh"
#include "../ptx/pdl.cuh"
#include "../tile/dispatch.h"
#include "../tile/padded_ring.cuh"
#include "../tile/scheduler.cuh"

namespace tc {
namespace {

constexpr int kSumOf = 256;  // elements of K whose products are added in sequence

template <int I, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS>
__global__ __launch_bounds__(kSimtKstage[I].threads, kSimtKstage[I].blocks_per_sm) void simt_kstage(
    const GemmDesc p, const VectorAccess access, const Schedule schedule, const RingOperand a_operand,
    const RingOperand b_operand) {
  constexpr int BLK_M = kSimtKstage[I].tile_m, BLK_N = kSimtKstage[I].tile_n, BLK_K = kSimtKstage[I].tile_k;
  constexpr int STAGES = kSimtKstage[I].stages, THREADS = kSimtKstage[I].threads, WARPS = THREADS / 32;
  constexpr int WARPS_N = simt_kstage_warps_n(BLK_M, BLK_N), WARP_M = BLK_M / (WARPS / WARPS_N), WARP_N = BLK_N / WARPS_N;
  constexpr int LANES_M = 4, LANES_N = 8, ROWS = WARP_M / LANES_M, COLS = WARP_N / LANES_N;  // of a lane
  using ATile = PaddedRing<BLK_M, BLK_K, A_K_CONTIGUOUS, THREADS>;
  using BTile = PaddedRing<BLK_N, BLK_K, B_K_CONTIGUOUS, THREADS>;
  using ARows = LaneRows<ROWS, LANES_M, ATile::PITCH, A_K_CONTIGUOUS>;
  using BRows = LaneRows<COLS, LANES_N, BTile::PITCH, B_K_CONTIGUOUS>;
  constexpr int A_SIZE = simt_kstage_tile(BLK_M, BLK_K), STAGE = A_SIZE + simt_kstage_tile(BLK_N, BLK_K);  // floats
  constexpr int WARP_SUMS = simt_kstage_sums(WARP_M, WARP_N);
  static_assert((STAGES * STAGE + WARPS * WARP_SUMS) * 4 == kSimtKstage[I].smem_bytes);

  // ---- prologue ----
  extern __shared__ __align__(16) float smem[];  // (STAGES, A tile then B tile), then (WARPS, WARP_SUMS)
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  // A quarter of a warp reads vectors of two rows and of four columns. With eight columns a read would take twice as long.
  const int lane_m = lane / 16 * 2 + lane % 2, lane_n = lane / 2 % LANES_N;
  const int warp_m = warp / WARPS_N * WARP_M, warp_n = warp % WARPS_N * WARP_N;
  float* const warp_sums = smem + STAGES * STAGE + warp * WARP_SUMS;
  const float* const a_first = smem + warp_m * (A_K_CONTIGUOUS ? ATile::PITCH : 1) + ARows::first(lane_m);
  const float* const b_first = smem + A_SIZE + warp_n * (B_K_CONTIGUOUS ? BTile::PITCH : 1) + BRows::first(lane_n);
  ATile a_tile(a_operand);
  BTile b_tile(b_operand);
  wait_on_dependencies();
  launch_dependents();

  // Copies the next K tile of this block's work tiles to `stage`, if there is one, and closes a commit group.
  int work_ahead = blockIdx.x, left = 0, k_left = 0;
  const auto copy = [&](float* stage) {
#pragma unroll 1
    while (left == 0 && work_ahead < schedule.size) {
      const WorkTile ahead = schedule[work_ahead];
      const int64_t k0 = int64_t(ahead.first) * BLK_K;
      a_tile.go_to(int64_t(ahead.tile.m) * BLK_M, k0);
      b_tile.go_to(int64_t(ahead.tile.n) * BLK_N, k0);
      left = ahead.count, k_left = int(min(int64_t(left) * BLK_K, p.k - k0));
      work_ahead += gridDim.x;
    }
    if (left > 0) {
      a_tile.copy(smem_address(stage), k_left);
      b_tile.copy(smem_address(stage + A_SIZE), k_left);
      --left, k_left -= BLK_K;
    }
    cp_async_commit();
  };
#pragma unroll 1
  for (int s = 0; s < STAGES - 1; ++s) copy(smem + s * STAGE);
  const auto after = [&](int offset) { return offset == (STAGES - 1) * STAGE ? 0 : offset + STAGE; };
  int stage = 0, freed = (STAGES - 1) * STAGE;  // offsets; freed: read before `stage`, and filled next

#pragma unroll 1
  for (int work = blockIdx.x; work < schedule.size; work += gridDim.x) {
    const WorkTile work_tile = schedule[work];
    const int64_t m = int64_t(work_tile.tile.m) * BLK_M + warp_m, n = int64_t(work_tile.tile.n) * BLK_N + warp_n;
    float acc[ROWS][COLS] = {};  // (WARP_M, WARP_N) over the warp
    // (ROWS * COLS / 4, 32) vectors of the warp's sums. A lane reads and writes its own.
    Vec<float, 4>* const sums = reinterpret_cast<Vec<float, 4>*>(warp_sums) + lane;
    float (&parts)[ROWS * COLS / 4][4] = reinterpret_cast<float (&)[ROWS * COLS / 4][4]>(acc);
    const auto add_sums = [&] {
#pragma unroll
      for (int i = 0; i < ROWS * COLS / 4; ++i) {
        const Vec<float, 4> sum = sums[i * 32];
#pragma unroll
        for (int j = 0; j < 4; ++j) parts[i][j] += sum.x[j];
      }
    };

    // ---- main loop ----
#pragma unroll 1
    for (int t = 0; t < work_tile.count; ++t) {
      if (t > 0 && t % (kSumOf / BLK_K) == 0) {
        if (t > kSumOf / BLK_K) add_sums();
#pragma unroll
        for (int i = 0; i < ROWS * COLS / 4; ++i) {
          sums[i * 32] = reinterpret_cast<const Vec<float, 4>&>(parts[i]);
#pragma unroll
          for (int j = 0; j < 4; ++j) parts[i][j] = 0.f;
        }
      }
      cp_async_wait<STAGES - 2>();
      __syncthreads();
      copy(smem + freed);
#pragma unroll
      for (int k = 0; k < BLK_K; k += 4) {
        float b[BRows::GROUPS][BRows::G][4];  // (columns, 4)
#pragma unroll
        for (int j = 0; j < BRows::GROUPS; ++j) BRows::load(b[j], b_first + stage, j, k);
#pragma unroll
        for (int group = 0; group < ARows::GROUPS; ++group) {
          float a[ARows::G][4];  // (rows, 4)
          ARows::load(a, a_first + stage, group, k);
#pragma unroll
          for (int i = 0; i < ARows::G; ++i)
#pragma unroll
            for (int kk = 0; kk < 4; ++kk)
#pragma unroll
              for (int j = 0; j < COLS; ++j) {
                float& sum = acc[group * ARows::G + i][j];
                sum = fmaf(a[i][kk], b[j / BRows::G][j % BRows::G][kk], sum);
              }
        }
      }
      freed = stage;
      stage = after(stage);
    }
    if (work_tile.count > kSumOf / BLK_K) add_sums();

    // ---- epilogue ----
    constexpr int PASSES = simt_kstage_passes(WARP_M, WARP_N), PASS_M = WARP_M / PASSES, D_PITCH = WARP_N + kRowPad;
    __syncwarp();  // all lanes have read their sums
#pragma unroll 1
    for (int pass = 0; pass < PASSES; ++pass) {
#pragma unroll
      for (int i = 0; i < ROWS; ++i) {
        if (i * LANES_M / PASS_M != pass) continue;
        float* const row = warp_sums + (ARows::row(lane_m, i) - pass * PASS_M) * D_PITCH;  // (PASS_M, D_PITCH)
#pragma unroll
        for (int j = 0; j < COLS; j += BRows::G)
          *reinterpret_cast<Vec<float, BRows::G>*>(row + BRows::row(lane_n, j)) =
              reinterpret_cast<const Vec<float, BRows::G>&>(acc[i][j]);
      }
      __syncwarp();
      finish_staged<float, PASS_M, WARP_N, D_PITCH>(product_of(p, opaque_product()), access, RowShift(), warp_sums,
                                                    m + pass * PASS_M, n, work_tile.layer * slice_stride(p));
      __syncwarp();
    }
  }
}

template <int I>
Status launch_config(const Launch& call) {
  const GemmDesc& p = call.desc;
  const Schedule schedule(call, call.config.tile_k);
  const auto operand = [](const MatrixView& x, int64_t outer, int64_t k) {
    const bool along_k = order_of(x) == Order::row_major;
    return RingOperand{static_cast<const float*>(x.data), along_k ? x.row : x.col, x.batch, outer,
                       alignment(x, outer, k) == 16 && (along_k ? k : outer) % 4 == 0};
  };
  const bool pdl = !would_crowd(p, call.config, call.modes, call.device.gpu.num_sms);
  return with_layouts(p, [&](auto a_k, auto b_k) {
    const auto run = [&](auto uses_pdl) {
      return launch<simt_kstage<I, a_k, b_k>, uses_pdl>(
          call, p, vector_access_of(p), schedule, operand(p.a, p.m, p.k), operand(transpose(p.b), p.n, p.k));
    };
    return pdl ? run(std::true_type()) : run(std::false_type());
  });
}

const bool registered = register_configs<TC_CONFIG, TC_COUNT>(kCode<kSimtKstage>, [](auto i) { return launch_config<i>; });

}  // namespace
}  // namespace tc
