// The ladder, as the planner sees it. Adding a rung: NN_name.h and NN_name.cu here, its entry below, its configurations in
// setup.py (CONFIGURATIONS).
#include "../gemm/cost_model.h"
#include "../gemm/direct_shape.h"
#include "../gemm/feasibility.h"
#include "../gemm/stationary_shape.h"
#include "../gemm/streamed_shape.h"
#include "../gemm/walked_shape.h"
#include "01_simt.h"
#include "02_wmma_naive.h"
#include "03_wmma_block.h"
#include "04_wmma_double_buffer.h"
#include "05_wmma_kstage.h"
#include "06_mma_swizzle.h"
#include "07_wgmma_tma.h"
#include "08_mma_skinny.h"
#include "09_wgmma_cluster.h"
#include "10_mma_guarded.h"
#include "11_wgmma_multicast.h"
#include "12_mma_short.h"
#include "13_mma_stationary.h"
#include "14_wgmma_shifted.h"
#include "15_wgmma_bf16x6.h"
#include "16_simt_skinny.h"
#include "17_wgmma_bf16x6_rs.h"
#include "18_simt_kstage.h"
#include "19_wgmma_interleaved.h"
#include "20_mma_streamed.h"
#include "21_mma_direct.h"
#include "22_simt_columns.h"
#include "23_simt_short.h"
#include "24_simt_rows.h"
#include "25_wgmma_bf16x6_streamed.h"

namespace tc {
namespace {

// sm_80 and later: machine code for the architectures of the build, PTX for the rest. wgmma is Hopper's alone.
constexpr int kAnySm = 999;

constexpr bool kSplitK = true;     // KernelTraits::split_k
constexpr bool kByElement = true;  // KernelTraits::by_element

const char* fits_stationary(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  const bool fits = StationaryShape(key, config, device.gpu.num_sms).chunks > 0;
  return fits ? nullptr : "its columns of B, all of K deep, do not fit shared memory";
}

// The key as the product reads it, if A is repacked so that K is contiguous.
PlanKey with_a_repacked(PlanKey key) {
  key.a = repacked(key.a, key.m, key.k, true), key.a.alignment = 16;
  return key;
}

PlanKey with_a_dense(const PlanKey& key, const Config& config) {
  return StreamedShape::must_repack(key.a, key.m, key.k, config) ? with_a_repacked(key) : key;
}

const char* fits_streamed(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  const bool fits = StreamedShape(with_a_dense(key, config), config, device.gpu.num_sms).chunks > 0;
  return fits ? nullptr : "its columns of B, all of K deep, do not fit shared memory";
}

const char* fits_direct(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  const bool repacks = needs_repack(key.a, key.m, key.k, true, config.alignment);
  return DirectShape::refuses(repacks ? with_a_repacked(key) : key, config, device.gpu.num_sms);
}

const char* fits_walked(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  return WalkedShape::refuses(with_a_dense(key, config), config, device.gpu.num_sms);
}

// mma_skinny and simt_skinny read a row-major B by vectors of a lane's columns, and a last step of K that is cut by element. A vector that is
// longer than a row reads from the next rows too. It reads beyond B if the last step has too few of them.
const char* fits_skinny(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  const int64_t vector = config.tile_n / 8, step = config.tile_k * 2 / size_of(key.b.dtype) / config.warp_slices;
  const int64_t left = key.k % step, after = key.n + left * key.b.row;  // elements from the last whole step's last row on
  const bool in_place =
      order_of(key.b) == Order::row_major && !needs_repack(transpose(key.b), key.n, key.k, false, config.alignment);
  if (in_place && key.n < vector && key.k > step && left > 0 && after < vector)
    return "its vectors would reach beyond B, whose rows are short";
  return needs_32_bit_numbers(key, config, device);
}

// simt_kstage counts what is left of a slice's K in 32 bits.
const char* counts_k(const PlanKey& key, const Config&, const DeviceSpec&) {
  return key.k > INT32_MAX ? "its K does not fit 32 bits" : nullptr;
}

const char* parts_fit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  if (PartsLayout{key.m, key.k}.pitch() > INT32_MAX) return "coordinates of its parts do not fit 32 bits";
  return needs_32_bit_coordinates(key, config, device);
}

const char* rows_fit_coordinates(const PlanKey& key, const Config& config, const DeviceSpec& device) {
  const int64_t rows = key.m + (numbers_rows(key.a) ? key.batch * (key.a.batch / key.a.row) : key.batch * key.m);
  if (rows > INT32_MAX - 1023) return "coordinates of its rows do not fit 32 bits";
  return needs_32_bit_coordinates(key, config, device);
}

// KernelTraits::in_order, which tests/test_batch_invariance.py checks.
constexpr MathSet kInOrder16 = Maths<Math::f16, Math::bf16>::set;
constexpr MathSet kInOrder = Maths<Math::f16, Math::bf16, Math::tf32>::set;
constexpr MathSet kInOrder32 = Maths<Math::f32_simt>::set;
constexpr MathSet kInOrderParts = Maths<Math::f32_emulated>::set;
// Warps share K, K is permuted, or where a row begins tells which products are added at once.
constexpr MathSet kOtherOrder = {};

template <auto& CONFIGS>
KernelTraits rung(const char* name, const char* idea, Unit unit, MathSet maths, MathSet in_order, OperandAccess access,
                  bool split_k = false, decltype(KernelTraits::estimate_us) estimate_us = estimate_tiles,
                  Span<const Cluster> clusters = kSingleBlock, Span<const int> narrower = {},
                  decltype(KernelTraits::can_implement) can_implement = nullptr, bool by_element = false) {
  const bool hopper = unit == Unit::wgmma;
  return {
      name,
      idea,
      hopper ? 90 : 80,
      hopper ? 90 : kAnySm,
      unit,
      maths,
      in_order,
      access,
      split_k,
      by_element,
      clusters,
      narrower,
      CONFIGS,
      kCode<CONFIGS>,
      can_implement ? can_implement
      : hopper      ? needs_32_bit_coordinates
                    : no_further_demands,
      estimate_us};
}

}  // namespace

Span<const KernelTraits> kernels() {
  static const KernelTraits ladder[] = {
      rung<kSimt>("simt", "8x8 register tiles on CUDA cores, any strides",  //
                  Unit::simt, SimtMaths::set, kInOrder32, OperandAccess::any),
      rung<kWmmaNaive>("wmma_naive", "one 16x16 WMMA tile a warp, fragments straight from global memory",  //
                       Unit::mma_sync, WmmaNaiveMaths::set, kInOrder, OperandAccess::contiguous),
      rung<kWmmaBlock>("wmma_block", "128x128 WMMA block tiles, skewed shared memory",  //
                       Unit::mma_sync, WmmaBlockMaths::set, kInOrder, OperandAccess::contiguous),
      rung<kWmmaDoubleBuffer>(
          "wmma_double_buffer", "64x64 warp tiles; registers hold the next K tile during the current one's product",
          Unit::mma_sync, WmmaDoubleBufferMaths::set, kInOrder, OperandAccess::contiguous),
      rung<kWmmaKstage>("wmma_kstage", "a ring of K tiles filled by cp.async, TF32",  //
                        Unit::mma_sync, WmmaKstageMaths::set, kInOrder16, OperandAccess::contiguous),
      rung<kMmaSwizzle>("mma_swizzle", "ldmatrix and mma.sync on XOR-swizzled shared memory, multi-stage cp.async",
                        Unit::mma_sync, MmaSwizzleMaths::set, kInOrder, OperandAccess::aligned_fp32_along_k, kSplitK),
      rung<kWgmmaTma>(
          "wgmma_tma", "TMA and wgmma, warp-specialised; C arrives and D leaves while other tiles are multiplied", Unit::wgmma,
          WgmmaTmaMaths::set, kInOrder, OperandAccess::aligned_fp32_along_k, kSplitK, estimate_tma_epilogue),
      rung<kMmaSkinny>(
          "mma_skinny", "for a few rows: B from global memory straight into mma.sync, a block's warps share K", Unit::mma_sync,
          MmaSkinnyMaths::set, kOtherOrder, OperandAccess::aligned, kSplitK, estimate_skinny, kSingleBlock, {}, fits_skinny),
      rung<kWgmmaCluster>(
          "wgmma_cluster", "for a few tiles: a cluster's blocks share K and add through distributed shared memory", Unit::wgmma,
          WgmmaClusterMaths::set, kInOrder, OperandAccess::aligned_fp32_along_k, false, estimate_cluster, kWgmmaClusters),
      rung<kMmaGuarded>(
          "mma_guarded", "for rows that begin anywhere: copies as wide as their alignment allows, no repack", Unit::mma_sync,
          MmaGuardedMaths::set, kInOrder, OperandAccess::contiguous, kSplitK, estimate_guarded, kSingleBlock),
      rung<kWgmmaMulticast>("wgmma_multicast",
                            "tiles in steps of 8 rows: D^T on wgmma; the blocks of a cluster share operands by multicast, or K",
                            Unit::wgmma, WgmmaMulticastMaths::set, kInOrder, OperandAccess::aligned_a_along_k, kSplitK,
                            estimate_multicast, kMulticastClusters, kMulticastNarrower),
      rung<kMmaShort>("mma_short", "for a short K and rows that begin anywhere: the fewest instructions from load to store",
                      Unit::mma_sync, MmaShortMaths::set, kInOrder, OperandAccess::contiguous, kSplitK, estimate_short),
      rung<kMmaStationary>("mma_stationary", "for many rows and a short K: B stays in shared memory, A and D pass by once",
                           Unit::mma_sync, MmaStationaryMaths::set, kOtherOrder, OperandAccess::aligned_a_along_k, !kSplitK,
                           estimate_stationary, kSingleBlock, {}, fits_stationary),
      rung<kWgmmaShifted>(
          "wgmma_shifted", "for a large B whose rows begin anywhere: producers shift it into place, no repack", Unit::wgmma,
          WgmmaShiftedMaths::set, kInOrder, OperandAccess::aligned_a_alone, kSplitK, estimate_shifted),
      rung<kWgmmaBf16x6>(
          "wgmma_bf16x6", "fp32 at tensor-core speed: three bf16 parts of each operand, six products, exact sums apart",
          Unit::wgmma, WgmmaBf16x6Maths::set, kInOrderParts, OperandAccess::parts, kSplitK, estimate_tma_epilogue, kSingleBlock,
          {}, parts_fit_coordinates),
      rung<kSimtSkinny>(
          "simt_skinny", "for up to four rows in fp32: B from global memory into fp32 arithmetic, a block's warps share K",
          Unit::simt, SimtSkinnyMaths::set, kOtherOrder, OperandAccess::aligned, kSplitK, estimate_skinny, kSingleBlock, {},
          fits_skinny),
      rung<kWgmmaBf16x6Rs>(
          "wgmma_bf16x6_rs", "for a long and a short operand in fp32: parts made in registers and on the way to shared memory",
          Unit::wgmma, WgmmaBf16x6RsMaths::set, kInOrderParts, OperandAccess::any, kSplitK, estimate_bf16x6_rs, kSingleBlock,
          {}, no_further_demands),
      rung<kSimtKstage>(
          "simt_kstage", "fp32 on CUDA cores for a short K: a ring of K tiles that lie as in global memory, no repack",
          Unit::simt, SimtKstageMaths::set, kInOrder32, OperandAccess::contiguous, kSplitK, estimate_kstage, kSingleBlock, {},
          counts_k),
      rung<kWgmmaInterleaved>(
          "wgmma_interleaved",
          "for a large A whose rows begin anywhere: a tile has every second, fourth or eighth of them, no repack", Unit::wgmma,
          WgmmaInterleavedMaths::set, kOtherOrder, OperandAccess::aligned_b_alone, kSplitK, estimate_interleaved, kSingleBlock,
          {}, rows_fit_coordinates),
      // It adds in the order of K, but no test has compared its bits with other kernels'.
      rung<kMmaStreamed>(
          "mma_streamed", "for many rows and a short K: B stays in shared memory, bulk copies bring the rows of A",
          Unit::mma_sync, MmaStreamedMaths::set, kOtherOrder, OperandAccess::dense_a_along_k, !kSplitK, estimate_streamed,
          kSingleBlock, {}, fits_streamed),
      rung<kMmaDirect>(
          "mma_direct", "for many rows and a short K: words of A go straight into registers, words of D straight out of them",
          Unit::mma_sync, MmaDirectMaths::set, kOtherOrder, OperandAccess::aligned_a_alone, !kSplitK, estimate_direct,
          kSingleBlock, {}, fits_direct),
      rung<kSimtColumns>("simt_columns", "for up to four rows: each warp multiplies columns of B of its own on CUDA cores",
                         Unit::simt, SimtColumnsMaths::set, kOtherOrder, OperandAccess::along_k, kSplitK, estimate_columns,
                         kSingleBlock, {}, needs_32_bit_numbers, kByElement),
      // It adds in the order of K, too. But zeros after K's end turn a sum of -0 into 0, and follow at other K than in other kernels.
      rung<kSimtShort>("simt_short", "fp32 on CUDA cores for the shortest K: the fewest instructions from load to store",
                       Unit::simt, SimtShortMaths::set, kOtherOrder, OperandAccess::any, !kSplitK, estimate_simt_short),
      rung<kSimtRows>("simt_rows", "for up to eight rows in fp32: lanes side by side along rows of B, a block's warps share K",
                      Unit::simt, SimtRowsMaths::set, kOtherOrder, OperandAccess::b_along_n, kSplitK, estimate_rows,
                      kSingleBlock, {}, needs_32_bit_numbers),
      // Unlike wgmma_bf16x6_rs, it adds the lesser products once, over all of K.
      rung<kWgmmaBf16x6Streamed>(
          "wgmma_bf16x6_streamed",
          "fp32 for many rows and a short K: the parts of B stay in shared memory, bulk copies bring rows", Unit::wgmma,
          WgmmaBf16x6StreamedMaths::set, kOtherOrder, OperandAccess::dense_a_along_k, !kSplitK, estimate_walked, kSingleBlock,
          {}, fits_walked),
  };
  return ladder;
}

}  // namespace tc
