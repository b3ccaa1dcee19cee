// The predictions of kernels for small problems, a short K and rows that begin anywhere: mma_guarded, mma_short, mma_stationary,
// mma_streamed, mma_direct, wgmma_bf16x6_streamed, simt_kstage, simt_short.
#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "cost_model.h"
#include "cost_parts.h"
#include "cost_waves.h"
#include "direct_shape.h"
#include "stationary_shape.h"
#include "streamed_shape.h"
#include "walked_shape.h"

namespace tc {
namespace {

// mma_guarded. A small K tile takes as long as a large one: the code for every alignment and order is long and scattered.
constexpr double kGuardedKTile = 1.45;     // the least
constexpr double kGuardedSlices = -0.244;  // power of the groups of warps that share a K tile
constexpr double kGuardedTile = 0.65;      // the first K tile and the start
constexpr double kGuardedEpilogue = 0.48;  // of a tile of 64x64
constexpr double kGuardedFullC = 0.9;      // of it, 64 rows of a full C, however few of a tile's columns lie in it
constexpr double kGuardedLaunch = 2.1;
constexpr double kGuardedExposed = 0.066;                // kExposed of this kernel
constexpr double kOddResult = 2.8;                       // the epilogue of a D whose rows are not aligned to 16 bytes
constexpr double kBy8 = 1.22, kBy4 = 1.45, kBy2 = 1.98;  // copies of operands whose rows are aligned to 8, 4 and 2 bytes

// mma_short.
constexpr double kShortTile = 0.4;        // the first K tile's loads and the last stores, for each wave
constexpr double kShortKTile = 0.75;      // the latency of a K tile's loads
constexpr double kShortEpilogue = 0.235;  // of a tile of 64x64, while only its instructions run
constexpr double kShortFullC = 0.185;     // of 64 rows of a full C, as in mma_guarded
constexpr double kShortOdd = 1.55;        // of the epilogue, by hand, if rows of D are not aligned; not of a batch in one wave
constexpr double kShortF32 = 1.5;         // by hand, what a C and a D in fp32 add to it
constexpr double kShortLaunch = 0.95;     // of one wave
constexpr double kShortAlone = 1.7;       // more of it, if the wave fills the GPU, and with the square of its share otherwise
constexpr double kShortWaves = 1.4;       // by hand, of all waves if a product has several: A and B come again and again

// mma_stationary, fitted to 214 times of drawn problems on an H100 (bench/results/h200-tried.md has some of them).
constexpr double kStationaryStart = 0.2;       // of the blocks and their panels
constexpr double kStationaryVectors = 0.084;   // of a tile of 16x64: the epilogue, if C and D have aligned vectors
constexpr double kStationaryElements = 0.2;    // by hand, the least of a tile otherwise, products included
constexpr double kStationaryC = 0.034;         // of a full C's vectors
constexpr double kStationaryCElements = 0.24;  // of its elements
constexpr double kStationaryF32 = 0.32;        // of a D in fp32, which leaves by element; by hand
constexpr double kStationaryStep = 0.023;      // of 64 bytes of K: the products
constexpr double kStationaryLoad = 0.03;       // the same of loading a warp's rows of A
constexpr double kStationaryOdd = 1.6;         // the same of rows that are aligned to 4 or 2 bytes
constexpr double kStationaryLatency = 1;       // of as many loads of A as a warp holds
constexpr double kStationaryWait = 1.56;       // of a warp's chunk, alone on its SM
constexpr double kStationaryPanel = 0.39;      // of a chunk of B, for 64 bytes of K
constexpr double kStationaryStream = 1.19;     // of DRAM's time

// mma_streamed, by hand from 46 times on an H200 (bench/results/h200-tried.md, "Rows that begin anywhere, by bulk copies").
constexpr double kStreamedStart = 2.5;    // of the blocks, the first columns of B and the first rows of A
constexpr double kStreamedPanel = 0.016;  // of 1024 bytes of a panel
constexpr double kStreamedA = 0.006;      // of 64 bytes of K of a tile's rows
constexpr double kStreamedB = 0.019;      // of 64 bytes of K of 64 columns
constexpr double kStreamedOdd = 2;        // of both, where rows begin at odd multiples of 2 bytes
constexpr double kStreamedRows = 0.16;    // of a tile of 16x64: the epilogue, if D has 16-bit rows
constexpr double kStreamedF32 = 0.36;     // the same of another D
constexpr double kStreamedC = 0.37;       // of a full C
constexpr double kStreamedChunks = 1.3;   // of these, if D has several chunks of columns
constexpr double kStreamedStep = 0.33;    // of 64 bytes of K of a warp's chunk, alone on its SM
constexpr double kStreamedWait = 0.8;     // of a warp's chunk otherwise
constexpr double kStreamedStream = 1.19;  // of DRAM's time
// A block copies B to its panel element by element if bulk copies cannot bring it (StreamedShape::streams_b). The time grows with K, and
// with the columns of a chunk from 8 to 32. Set by hand to batches with a row-major B: 25 products of 255x64x255 take 17.0 us.
constexpr double kStreamedByElement = 1.1e-3;  // of an element of K, for each of these columns

// mma_direct, fitted to 231 times on an H200 (bench/results/h200-tried.md, "Words straight from registers").
constexpr double kDirectStart = 1.2;                   // of the blocks and their first rows of A
constexpr double kDirectStart4 = 1.5;                  // more of it, if a lane loads 4 bytes of A at a time
constexpr double kDirectPanel = 0.208;                 // of 64 columns of B, for 64 bytes of K
constexpr double kDirectPanel2 = 2.5;                  // times as much for chunks of 32 columns
constexpr double kDirectLoad = 0.0098;                 // of 64 bytes of K of 16 rows of A
constexpr double kDirectAccess = 0.0024;               // of the loads of these rows, for 16 bytes at a time and the longest K
constexpr double kDirectStep = 0.0125;                 // of their products with 64 columns
constexpr double kDirectFew = 1.22;                    // of these, if a warp holds 16 rows: they read B for themselves alone
constexpr double kDirectChunk = 0.044;                 // of 16 rows of 64 columns of D
constexpr double kDirectC = 0.0725;                    // of a full C of this size
constexpr double kDirectBy8 = 1.54, kDirectBy4 = 2.3;  // times as much for C and D of 8 and 4 bytes at a time
constexpr double kDirectBy4Many = 2.7;                 // kDirectBy4 for 32 rows at a time; both are set by hand
constexpr double kDirectWait = 0.48;                   // of a warp's chunk, alone on its SM
constexpr double kDirectWaitC = 0.36;                  // of its full C, by hand
constexpr double kDirectStream = 1.03;                 // of DRAM's time
// kDirectStream where chunks of columns tear sectors of D (tears_d), for 16 and 32 rows at a time. Set by hand to 1000000x300x100,
// 5162x8284x2, and batches of 350x350x32 and 1018x1018x80.
constexpr double kDirectTorn16 = 2.6, kDirectTorn32 = 3.4;
constexpr double kDirectTornVectors = 0.73;  // of both, where rows are aligned to 16 bytes: by hand to 82 of 1248x1368x8
// The same in fp32. These and simt_kstage's were means of fits to halves of 217 problems on an H200 ("The shortest K in fp32"). All but those
// of the panel, accesses, depth, narrow and few rows and 8 bytes follow 382 problems since ("Parts of B that stay, and rows by bulk copies").
constexpr double kDirectF32Start = 1.4;
constexpr double kDirectF32Panel = 0.345;
constexpr double kDirectF32Load = 0.039;    // with the parts of these rows
constexpr double kDirectF32Access = 0.011;  // more of it, for each further load that brings 16 bytes
constexpr double kDirectF32Depth = 0.125;   // of the start, a step of K: the first rows of A
constexpr double kDirectF32Step = 0.0275;
constexpr double kDirectF32Narrow = 1.46, kDirectF32Few = 1.71;  // of these, for 16 columns or 8 rows at a time
constexpr double kDirectF32Chunk = 0.1225;
constexpr double kDirectF32C = 0.26;
constexpr double kDirectF32By8 = 1.15, kDirectF32By4 = 3.1;
constexpr double kDirectF32Wait = 0.62, kDirectF32WaitFew = 1.2;  // the second, by hand, of 8 rows at a time

// wgmma_bf16x6_streamed, fitted to 273 times on an H200 (bench/results/h200-tried-float32.md, "Parts of B that stay, and rows by bulk copies").
constexpr double kWalkedStart = 0.89;   // of the blocks and their first rows of A
constexpr double kWalkedPanel = 1.25;   // of 64 elements of K of 64 columns of B
constexpr double kWalkedTile = 0.92;    // of a tile of 64x64: its start and its epilogue
constexpr double kWalkedOdd = 0.56;     // more of it, if D has no aligned pairs
constexpr double kWalkedC = 0.92;       // the same of a full C
constexpr double kWalkedStep = 0.38;    // of 32 elements of a tile's K, half of it for the parts of A
constexpr double kWalkedWait = 2.3;     // of a warpgroup's tile, alone on its SM
constexpr double kWalkedStream = 1.52;  // of DRAM's time
constexpr double kWalkedTorn = 5;       // the same where tiles tear sectors of D

// simt_kstage. Its configurations' rates were fitted to 835 times on an H200 (bench.candidates --float32 --seed 20311126).
constexpr double kKstageLaunch = 2.5;
constexpr double kKstageFreshGrid = 0.5;  // without PDL (would_crowd), by hand, here and in simt_short
constexpr double kKstageKTile = 0.29;     // the least
constexpr double kKstageEpilogue = 1.1;   // of a tile of 64x64, while only its instructions run
constexpr double kKstageFullC = 0.6;      // the same of reading a full C
constexpr double kKstageOdd = 2;          // of both, by element
constexpr double kKstageAlone = 1.22;     // tiles that an SM finishes in the time of one
constexpr double kKstageElements = 1.05;  // copies of an operand by element

// simt_short, by hand from two fits on an H200, to 123 times and to these and older ones (bench/results/h200-tried-float32.md, "Lanes of
// simt_short").
constexpr double kSimtShortLaunch = 3.6, kSimtShortLaunchOne = 2.15;  // the second of one wave
constexpr double kSimtShortKTile = 0.64;                              // the latency of a K tile's loads
constexpr double kSimtShortLong = 0.35;                               // more of it, of 32 elements of K
constexpr double kSimtShortLoad = 0.08;      // of 16 elements of K of 64 rows or columns, while only the instructions run
constexpr double kSimtShortEpilogue = 0.44;  // the same of a tile of 64x64
constexpr double kSimtShortFullC = 0.42;     // the same of its full C
constexpr double kSimtShortOdd = 1.6;        // of both, by element

}  // namespace

// The blocks of an SM hide each other's latency, until the SM is busy.
double estimate_guarded(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                        const DeviceSpec& device) {
  const auto narrow = [](int bytes) { return bytes == 16 ? 1 : bytes == 8 ? kBy8 : bytes == 4 ? kBy4 : kBy2; };
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const int64_t work = blocks_of(p, config, modes);
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double resident = double(std::min<int64_t>(config.blocks_per_sm, ceil_div(work, device.gpu.num_sms)));
  const double copies = (narrow(alignment(p.a, p.m, p.k)) * config.tile_m + narrow(alignment(p.b, p.k, p.n)) * config.tile_n) /
                        (config.tile_m + config.tile_n);
  const double flops = 2.0 * config.tile_m * config.tile_n * config.tile_k;
  const double busy = flops / sm_rate(kernel, config, math, device) * resident * copies;
  const bool by_rows = takes_rows(p) && (!present(p.c) || has_bias(p));
  const double of_c = has_full_c(p) ? kGuardedFullC / 64 * double(std::min<int64_t>(config.tile_m, p.m)) : 0;
  const double of_d = kGuardedEpilogue * config.tile_m * config.tile_n / (64 * 64) *
                      (by_rows || alignment(p.d, p.m, p.n) == 16 ? 1 : kOddResult);
  const double epilogue = (of_c + of_d) * resident;
  const double slower = std::max(1.0, config.tile_k / 64.0) * std::pow(config.warp_slices, kGuardedSlices) * std::sqrt(copies);
  const double arithmetic = waves * (k_tiles * std::max(kGuardedKTile * slower, busy) + kGuardedTile + epilogue);
  const double memory = dram_us(p, modes.k_slices, device);
  return std::max(arithmetic, memory) + kGuardedExposed * std::min(arithmetic, memory) + kGuardedLaunch - idle_us(work, device);
}

// Each wave waits for its loads, and the blocks of an SM share its instruction slots. One wave uses PDL.
double estimate_short(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                      const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const int64_t work = blocks_of(p, config, modes);
  const int64_t waves = ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm);
  const double crowd = std::min(1.0, double(work) / double(int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double waiting = waves * (kShortTile + k_tiles * kShortKTile);
  const double of_tile = kShortEpilogue + (is_f32(p.d.dtype) ? kShortF32 * (has_full_c(p) ? 1 : 0.5) : 0);
  const double of_c = has_full_c(p) ? kShortFullC / 64 * double(std::min<int64_t>(config.tile_m, p.m)) : 0;
  const bool product_waves = work > p.batch * int64_t(device.gpu.num_sms) * config.blocks_per_sm;
  const bool odd_rows = takes_rows(p) && alignment(p.d, p.m, p.n) != 16;
  const double odd = odd_rows && (p.batch == 1 || waves > 1) ? kShortOdd : 1;
  const double epilogue = of_tile * odd * config.tile_m * config.tile_n / (64 * 64) + of_c;
  const double issue = ceil_div(work, device.gpu.num_sms) * (tile_us(kernel, config, math, p, modes, device) + epilogue);
  const double hot = hot_columns_us(p, config.tile_n, ceil_div(p.m, config.tile_m));
  const double arithmetic = (waiting + issue) * (product_waves ? kShortWaves : 1) + hot,
               memory = dram_us(p, modes.k_slices, device);
  const double launch = waves > 1 ? kLaunch : kShortLaunch + kShortAlone * crowd * crowd;
  return std::max(arithmetic, memory) + kExposed * std::min(arithmetic, memory) + launch - idle_us(work, device);
}

// An SM takes as long as its warps' chunks of D, whose epilogues and loads share its ports, or as one warp's latencies.
double estimate_stationary(const KernelTraits&, const Config& config, Math, const PlanKey& p, const Modes&,
                           const DeviceSpec& device) {
  const StationaryShape shape(p, config, device.gpu.num_sms);
  const double depth = double(shape.depth), steps = config.tile_k * 2.0 / StationaryShape::kStep;
  const double rows = double(ceil_div(p.m, config.tile_m)), chunks = double(shape.chunks);
  const double rounds = double(shape.rounds(p.m, config, shape.walkers)), width = double(shape.width) / config.tile_n;
  // Where a warp does not hold all of K at once, it loads its rows in parts, and anew for each chunk.
  const bool whole = depth <= steps, full_c = has_full_c(p), vectors = takes_vectors(p);
  const double load = kStationaryLoad * depth * (alignment(p.a, p.m, p.k) < 8 ? kStationaryOdd : 1) * (whole ? 1 : chunks);
  const double products = kStationaryStep * depth * width;
  const double of_c = !full_c ? 0 : vectors ? kStationaryC * width : kStationaryCElements;
  const double chunk =
      (vectors ? kStationaryVectors * width + products : std::max(kStationaryElements, kStationaryVectors + products)) + of_c +
      (is_f32(p.d.dtype) ? kStationaryF32 : 0);
  const double busy = std::ceil(rows / double(shape.walkers)) * (load + chunk * chunks);
  const double loads = whole ? 1 : std::ceil(depth / steps) * chunks;
  const double waiting = rounds * (loads * kStationaryLatency + chunks * (kStationaryWait + kStationaryStep * depth));
  const double waves = double(ceil_div(p.batch * shape.panels * shape.walkers, device.gpu.num_sms));  // of blocks
  return norm4(busy * waves, waiting * waves, kStationaryStream * dram_us(p, 1, device)) +
         kStationaryPanel * depth * chunks * waves + kStationaryStart + kLaunch - kOverlap;
}

// An SM takes as long as its warps' accesses to shared memory and stores, or as one warp's latencies.
double estimate_streamed(const KernelTraits&, const Config& config, Math, const PlanKey& p, const Modes&,
                         const DeviceSpec& device) {
  const StreamedShape shape(p, config, device.gpu.num_sms);
  if (shape.chunks == 0) return 0;
  const double depth = double(shape.depth), chunks = double(shape.chunks), width = double(shape.width) / config.tile_n;
  const double tiles = double(ceil_div(ceil_div(p.m, config.tile_m), shape.walkers));  // of a block
  const double rounds = double(shape.rounds(p.m, config, shape.walkers, shape.warps));
  const double epilogue = (takes_rows(p) ? kStreamedRows : kStreamedF32) + (has_full_c(p) ? kStreamedC : 0);
  const double odd = alignment(p.a, p.m, p.k) < 4 ? kStreamedOdd : 1;
  const double several = p.n > config.tile_n ? kStreamedChunks : 1;
  const double busy = several * tiles * chunks * ((kStreamedA + kStreamedB * width) * depth * odd + epilogue * width);
  const double waiting = rounds * chunks * (kStreamedStep * depth + kStreamedWait);
  const double by_element = shape.streams_b ? 0 : kStreamedByElement * double((std::min<int64_t>(shape.width, 32) - 8) * p.k);
  const double panel = chunks * (kStreamedPanel * double(shape.width) * depth * StreamedShape::kStep / 1024 + by_element);
  const double waves = double(ceil_div(p.batch * shape.panels * shape.walkers, device.gpu.num_sms));  // of blocks
  return norm4(busy * waves, waiting * waves, kStreamedStream * dram_us(p, 1, device)) + (kStreamedStart + panel) * waves +
         kLaunch - kOverlap;
}

// An SM takes as long as its warps' instructions and reads of B, or as one warp's latencies.
double estimate_direct(const KernelTraits&, const Config& any_dtype, Math, const PlanKey& p, const Modes&,
                       const DeviceSpec& device) {
  const bool f32 = is_f32(p.a.dtype);
  const DirectShape shape(p, any_dtype, device.gpu.num_sms);
  Config config = any_dtype;
  config.tile_m = direct_rows(any_dtype, f32);
  const double depth = double(shape.depth), chunks = double(shape.chunks), width = double(shape.width) / config.tile_n;
  const double full_c = has_full_c(p) ? 1 : 0, steps = config.tile_k * 2.0 / DirectShape::kStep;
  const double sixteens = double(ceil_div(ceil_div(p.m, config.tile_m), shape.walkers)) * config.tile_m / 16;  // of a block
  const double accesses = 16.0 / shape.bytes_a;
  const auto by = [&](double by_8, double by_4) { return shape.bytes_d == 16 ? 1 : shape.bytes_d == 8 ? by_8 : by_4; };
  double load, products, of_d, wait, panel, start;
  if (f32) {
    load = depth * (kDirectF32Load + kDirectF32Access * (accesses - 1));
    products = kDirectF32Step * depth * (config.tile_m == 8 ? kDirectF32Few : shape.width == 16 ? kDirectF32Narrow : 1);
    of_d = by(kDirectF32By8, kDirectF32By4) * (kDirectF32Chunk + kDirectF32C * full_c);
    wait = config.tile_m == 8 ? kDirectF32WaitFew : kDirectF32Wait;
    panel = kDirectF32Panel, start = kDirectF32Start + kDirectF32Depth * depth;
  } else {
    load = kDirectLoad * depth + kDirectAccess * steps * accesses;
    products = kDirectStep * depth * (config.tile_m == 16 ? kDirectFew : 1);
    of_d = by(kDirectBy8, config.tile_m == 16 ? kDirectBy4 : kDirectBy4Many) * (kDirectChunk + kDirectC * full_c);
    wait = kDirectWait + kDirectWaitC * full_c;
    panel = kDirectPanel * (width < 1 ? kDirectPanel2 : 1), start = kDirectStart + (shape.bytes_a == 4 ? kDirectStart4 : 0);
  }
  const double busy = sixteens * (load + chunks * width * (products + of_d));
  const double waiting = double(shape.rounds(p.m, config, shape.walkers)) * chunks * wait;
  const double torn =
      (config.tile_m == 32 ? kDirectTorn32 : kDirectTorn16) * (alignment(p.d, p.m, p.n) == 16 ? kDirectTornVectors : 1);
  const double stream = tears_d(p, shape.width) ? torn : kDirectStream;
  const double waves = double(ceil_div(p.batch * shape.panels * shape.walkers, device.gpu.num_sms));  // of blocks
  return norm4(busy * waves, waiting * waves, stream * dram_us(p, 1, device)) +
         (start + panel * depth * chunks * width) * waves + kLaunch - kOverlap;
}

// An SM is busy with the instructions of all of its tiles, and a block waits for each of its K tiles.
double estimate_kstage(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                       const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices), work = blocks_of(p, config, modes);
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const auto copies = [](int alignment) { return alignment == 16 ? 1 : kKstageElements; };
  const double product =
      tile_us(kernel, config, math, p, modes, device) * copies(alignment(p.a, p.m, p.k)) * copies(alignment(p.b, p.k, p.n));
  const double odd = alignment(p.d, p.m, p.n) == 16 ? 1 : kKstageOdd;
  const double epilogue =
      odd * (kKstageEpilogue + (has_full_c(p) ? kKstageFullC : 0)) * config.tile_m * config.tile_n / (64 * 64);
  const double at_once = std::max(double(ceil_div(work, device.gpu.num_sms)), kKstageAlone);
  const double busy = at_once * (product + epilogue);
  const double launch = kKstageLaunch + (would_crowd(p, config, modes, device.gpu.num_sms) ? kKstageFreshGrid : 0);
  return norm4(busy, waves * k_tiles * kKstageKTile, dram_us(p, modes.k_slices, device)) + launch;
}

// An SM takes as long as its warpgroups' instructions and products, or as one warpgroup's latencies.
double estimate_walked(const KernelTraits&, const Config& config, Math, const PlanKey& p, const Modes&,
                       const DeviceSpec& device) {
  const WalkedShape shape(p, config, device.gpu.num_sms);
  const double width = config.tile_n / 64.0, steps = double(ceil_div(p.k, int64_t(32)));
  const double epilogue = kWalkedTile + (WalkedShape::has_pairs(p) ? 0 : kWalkedOdd) + (has_full_c(p) ? kWalkedC : 0);
  const double tiles = double(ceil_div(ceil_div(p.m, int64_t(WalkedShape::kRows)), shape.walkers));  // of a block
  const double busy = tiles * (epilogue * width + kWalkedStep * steps * (1 + width) / 2);
  const double waiting = kWalkedWait * double(shape.rounds(p.m, config));
  const double stream = tears_d(p, config.tile_n) ? kWalkedTorn : kWalkedStream;
  const double waves = double(ceil_div(p.batch * shape.panels * shape.walkers, device.gpu.num_sms));  // of blocks
  return norm4(busy * waves, waiting * waves, stream * dram_us(p, 1, device)) +
         (kWalkedStart + kWalkedPanel * double(shape.depth) * width) * waves + kLaunch - kOverlap;
}

// Each wave waits for its loads, and the blocks of an SM share its instruction slots.
double estimate_simt_short(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                           const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(p.k, config.tile_k), work = blocks_of(p, config, modes);
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double products = 2.0 * config.tile_m * config.tile_n * ceil_div(p.k, 4) * 4 / sm_rate(kernel, config, math, device);
  const double loads = kSimtShortLoad * double(k_tiles * (config.tile_m + config.tile_n) * config.tile_k) / (64 * 16);
  const double odd = alignment(p.d, p.m, p.n) == 16 ? 1 : kSimtShortOdd;
  const double epilogue =
      odd * (kSimtShortEpilogue + (has_full_c(p) ? kSimtShortFullC : 0)) * config.tile_m * config.tile_n / (64 * 64);
  const double busy = double(ceil_div(work, device.gpu.num_sms)) * (products + loads + epilogue);
  const double start = waves > 1 ? kSimtShortLaunch : kSimtShortLaunchOne;
  const double launch = start + (would_crowd(p, config, modes, device.gpu.num_sms) ? kKstageFreshGrid : 0);
  const double k_tile = kSimtShortKTile + (config.tile_k > 16 ? kSimtShortLong : 0);
  return norm4(busy, waves * double(k_tiles) * k_tile, dram_us(p, 1, device)) + launch;
}

}  // namespace tc
