// The predictions of kernels for few rows: mma_skinny, simt_skinny, simt_columns, simt_rows.
#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "cost_model.h"
#include "cost_waves.h"

namespace tc {
namespace {

// mma_skinny.
constexpr double kSkinnyBy4 = 1.45;      // loads of operands whose rows are aligned to 4 bytes or less
constexpr double kSkinnyLatency = 1.85;  // of a K tile's loads, which begin while those before it are multiplied
constexpr double kSkinnyParts = 25;      // by hand, TFLOP/s of fp32 in parts: splitting B takes its time in any configuration
constexpr double kSkinnyAlongN = 1.18;   // by hand, of a batch's waves of blocks of eight warps along rows of B
constexpr double kOneWarpC = 0.2;        // by hand, of blocks of one warp, a tile of a full C that they read by element
constexpr double kOneWarpStep = 0.73;    // of blocks of one warp, a K tile's loads
constexpr double kOneWarpRow = 0.5;      // of their products and epilogue, what a single row takes
// By hand, of a further wave of a batch, whose products have blocks of their own: 192 x 1x1981x96 takes 94.6 us in 46 waves (H100).
constexpr double kSkinnyWave = 0.9;
constexpr double kSimtVectors = 1.12;  // of simt_skinny's waves, with loads of 16 bytes; fitted with cost_short_k.cpp's fp32
constexpr double kSimtWords = 1.2;     // the same with loads of 4 bytes, by hand
// 16 rows take this much longer than one, in simt_skinny too: 16x4096x4096 takes 12.2, and 1x4096x4096 10.6. A K below kSkinnyRowsK takes a
// share of it. Without that share 42x1x16, which takes 2.4, was predicted to take 1.6. By hand.
constexpr double kSkinnyRows = 0.85;
constexpr double kSkinnyRowsK = 256;

// simt_columns, fitted to 410 problems on an H200, rounded (bench/results/h200-tried-few-rows.md, "Sums by reduce-scatter").
constexpr double kColumnsStart = 0.26;
constexpr double kColumnsTurn = 0.15;    // of the loads that a warp has under way
constexpr double kColumnsLoad = 0.064;   // the same of 512 bytes of B among them
constexpr double kColumnsTile = 0.032;   // a tile's instructions
constexpr double kColumnsSum = 0.0009;   // of them, of a shuffle that adds sums of two lanes
constexpr double kColumnsStep = 0.0016;  // of them, of a load of a step or four of its multiplications
constexpr double kColumnsAgain = 0.16;   // of DRAM's time for B, of reading it for further rows
constexpr double kColumnsRows = 0.012;   // of all, of further rows
// Of DRAM's time, for columns that four lanes read in several steps, and for those whose last line four or eight lanes read in part.
constexpr double kColumnsParts = 1.65, kColumnsTorn = 1.07;

// simt_rows, fitted to 85 problems on an H200 (bench/results/h200-tried.md, "Rows of B, 512 bytes at a time").
constexpr double kRowsStart = 0.08;
constexpr double kRowsTile = 0.4;     // from a tile's last loads to the next tile's first
constexpr double kRowsTurn = 0.7;     // of the loads that a warp has under way
constexpr double kRowsStep = 0.0033;  // of an SM's instructions, of one in a step of each warp
constexpr double kRowsAgain = 0.1;    // of DRAM's time for B, of reading it for further rows

}  // namespace

// A warp's loads of a K tile take as long as the products, or the latency that few of them hide.
double estimate_skinny(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                       const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const double resident =
      double(std::min<int64_t>(config.blocks_per_sm, ceil_div(blocks_of(p, config, modes), device.gpu.num_sms)));
  const int by = std::min(alignment(p.a, p.m, p.k), alignment(p.b, p.k, p.n));
  const double copies = config.alignment == 16 || by > 4 ? 1 : kSkinnyBy4;
  const double parts_rate = kSkinnyParts * 1e6 / device.gpu.num_sms * device.gpu.fp32_tflops / kH200.fp32_tflops;
  const double rate = math == Math::f32_emulated ? parts_rate : sm_rate(kernel, config, math, device);
  const double products = 2.0 * config.tile_m * config.tile_n * config.tile_k / rate;
  const int full = std::max(config.tile_m, 4);  // one row counts as a quarter of four in tiles of one row, too
  const double rows = double(std::min<int64_t>(full, p.m)) / full;
  const bool one_warp = config.threads == 32;
  const double of_rows = one_warp ? kOneWarpRow + (1 - kOneWarpRow) * rows : 1;
  const bool eight_warps = kernel.unit != Unit::simt && config.threads == 256;
  const double along_n = eight_warps && p.batch > 1 && order_of(p.b) == Order::row_major && p.n > 1 ? kSkinnyAlongN : 1;
  const double product =
      k_tiles * norm4(products * resident * copies * of_rows, one_warp ? kOneWarpStep : kSkinnyLatency / (config.stages + 1));
  const bool odd = alignment(p.d, p.m, p.n) != 16 && !is_f32(p.d.dtype);
  const bool c_by_element = has_full_c(p) && p.n > 1 && alignment(p.c, p.m, p.n) != 16;
  const double of_tile = rows * double(std::min<int64_t>(p.n, config.tile_n)) / config.tile_n;  // that lies in the matrix
  const double of_c = one_warp && c_by_element ? kOneWarpC * resident * of_tile : 0;
  const double epilogue =
      config.epilogue_us * of_rows * (odd ? kOddVectors : 1) + activation_us(p.activation) * large_tiles(config) + of_c;
  const Waves waves = waves_of(config, p, modes, device, false);
  const double starts = kSkinnyWave * double(std::max<int64_t>(0, waves.count - 1));
  const double loads = kernel.unit != Unit::simt ? along_n : by < 16 ? kSimtWords : kSimtVectors;
  // Blocks of four warps use PDL if the SMs hold all of them at once (launch_rows). So do those of one, whose constants were fitted with it.
  const bool at_once = blocks_of(p, config, modes) <= int64_t(device.gpu.num_sms) * config.blocks_per_sm;
  const bool four_warps = config.threads == 128 && at_once && !needs_order(p, config, modes);
  return loads * waves.us(product, epilogue) + starts + launch_us(kernel, config, p, modes, device) -
         (four_warps ? kOverlap : 0) + kSkinnyRows * (rows - 0.5) * std::min(1.0, double(p.k) / kSkinnyRowsK);
}

// A warp waits for its loads, as many K tiles at a time as it has stages. An SM is busy with the instructions of all of its warps.
double estimate_columns(const KernelTraits&, const Config& config, Math, const PlanKey& p, const Modes& modes,
                        const DeviceSpec& device) {
  const int64_t sms = device.gpu.num_sms, work = blocks_of(p, config, modes);
  const double row_bytes = double(p.k) * size_of(p.b.dtype), lanes = config.tile_k / 8, columns = config.tile_n * lanes / 32;
  const double steps = std::ceil(std::ceil(row_bytes / (config.tile_k * 2)) / modes.k_slices);
  const bool whole = int64_t(row_bytes) % (config.tile_k * 2) == 0, rest = int64_t(row_bytes) % 16 != 0;
  const bool vectors = alignment(p.a, p.m, p.k) == 16 && alignment(p.b, p.k, p.n) == 16;
  // Eight lanes load vectors of a last step that is not whole as early as others. All else of it is loaded after the steps.
  const bool early = lanes == 8 && vectors, late = !whole && (!early || rest);
  const double turns = std::ceil((whole || early ? steps : steps - 1) / config.stages) + (late ? 1 : 0);
  const double turn = kColumnsTurn + kColumnsLoad * columns * config.stages;
  const double waiting = double(ceil_div(work, sms * (config.threads / 32))) * turns * turn;

  const bool by_element = !whole && (rest || !vectors);
  const double loads = columns + config.tile_m, fmas = columns * config.tile_m * (is_f32(p.a.dtype) ? 1 : 3);
  const double instructions = kColumnsStep * (steps * (loads + fmas) + (by_element ? 4 * loads : 0));
  const double sums = columns * config.tile_m,
               shuffles = sums - std::max(1., sums / lanes) + std::max(0., std::log2(lanes / sums));
  const double busy = double(ceil_div(work, sms)) * (kColumnsTile + kColumnsSum * shuffles + instructions);

  const double of_b = row_bytes * double(p.n) * double(matrices_of(p.b, p.batch)) / bytes_per_us(device);
  const int64_t tiles_m = std::max<int64_t>(1, ceil_div(p.m, config.tile_m));
  const double again = kColumnsAgain * double(tiles_m - 1) * of_b;
  const double torn = lanes < 32 && int64_t(row_bytes) % 128 != 0 ? kColumnsTorn : 1;
  const double stream = (dram_us(p, modes.k_slices, device) + again) * (lanes < 8 && steps > 1 ? kColumnsParts : 1) * torn;
  return norm4(waiting, busy, stream) * (1 + kColumnsRows * double(tiles_m - 1)) + kColumnsStart + kLaunch - kOverlap -
         idle_us(std::min(work, sms), device);
}

// A warp waits for its loads, as many steps at a time as it has stages. An SM is busy with the instructions of all of its warps.
double estimate_rows(const KernelTraits&, const Config& config, Math, const PlanKey& p, const Modes& modes,
                     const DeviceSpec& device) {
  const int64_t sms = device.gpu.num_sms, work = blocks_of(p, config, modes), block_k = config.tile_k / 2;
  const double steps = double(ceil_div(ceil_div(p.k, int64_t(modes.k_slices)), block_k)),
               turns = std::ceil(steps / config.stages);
  const double waiting = double(ceil_div(work, sms * config.blocks_per_sm)) * (kRowsTile + kRowsTurn * turns);

  const int loads = (alignment(p.b, p.k, p.n) == 16 ? 4 : 16) + config.tile_m * (a_vectors_along_k(p) ? 1 : 4);
  const int fmas = 16 * config.tile_m;
  const double busy = double(ceil_div(work, sms)) * kRowsStep * steps * (loads + fmas);

  const double of_b = double(p.k) * double(p.n) * double(matrices_of(p.b, p.batch)) * size_of(p.b.dtype) / bytes_per_us(device);
  const double again = kRowsAgain * double(std::max<int64_t>(1, ceil_div(p.m, config.tile_m)) - 1) * of_b;
  return norm4(waiting, busy, dram_us(p, modes.k_slices, device) + again) + kRowsStart + kLaunch - kOverlap -
         idle_us(std::min(work, sms), device);
}

}  // namespace tc
