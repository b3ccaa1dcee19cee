#include "cost_model.h"

#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "cost_parts.h"
#include "raster_rows.h"

namespace tc {
namespace {

// Microseconds on an H200 unless a line names another unit. cost_model.h says how they were fitted.
constexpr double kRepack = 2.8;      // start a copy, and the product after it
constexpr double kKeptBytes = 30e6;  // by hand, a copy that L2 keeps until the product reads it
constexpr double kKept = 0.8;        // of a pass over it, what that saves
// A reduction, fitted to 2815 times and then raised by hand. The times alone give 2.4 us and 0.6 for kFromL2, with which picks lose
// more: predictions of split-K spread more than others, and of many that look equal the pick is one that is predicted too short.
constexpr double kReduce = 3.3;         // finish one kernel, start the reduction and read the first kernel's results
constexpr double kReduceLayer = 0.035;  // of each layer, whose loads follow the last one's addition
constexpr double kInL2 = 50e6;        // bytes that a reduction finds in L2; by hand, odd fp32 rows come half as fast from DRAM
constexpr double kFromL2 = 0.9;       // of their time from DRAM
constexpr double kBytesLeast = 0.1;   // of an epilogue, by hand, what does not depend on the bytes of C and D
constexpr double kEpilogue = 10.4;    // of a tile of 128x256, if the configuration gives no time
constexpr double kInterleaved = 1.2;  // of wgmma_interleaved's waves over wgmma_tma's
constexpr double kDViaRegisters = 0.816, kCViaRegisters = 1.16;  // 32 KB of a tile, copied by two warpgroups
constexpr double kRowEnds = 142;                                 // columns that cost as much as the ends of a row of D
constexpr double kEmptyTile = 0.6;        // of an epilogue, by hand, what a tile takes that has hardly an element in the matrix
constexpr double kRowsLeast = 0.2;        // of D's copy, what a tile takes that has hardly a row in the matrix
constexpr double kF32ViaRegisters = 1.4;  // of both, for fp32
constexpr double kF32Box = 0.6;           // a box of C and of D in fp32, of cooperative warpgroups
// Factors of one warpgroup and of pingpong, over two cooperative warpgroups.
constexpr double kSingle = 2.63, kPingpong = 1.19;
constexpr double kRelu = 0.4, kGated = 2.8;  // the activation of a tile of 128x256
constexpr double kBoxStore = 0.465;          // after the last product, for each box that a warpgroup fills at once
constexpr double kOtherBoxes = 3.67;         // boxes that a tile of 128x256 of other kernels counts as
constexpr double kPingpongOrder = 0.166;     // between the products of two pingpong warpgroups
constexpr double kPingpongEpilogue = 1.67;   // of an epilogue beside the other warpgroup's products
constexpr double kDrift = 0.29;              // pingpong products in many waves, which an H100 slows down, an H200 does not
constexpr int kDriftWaves = 4;               // by hand: 4773x3456x5120, 8 waves, takes 276 us on an H100 and 228 in torch.addmm
constexpr double kUnalignedCopies = 1.19;    // of operands that are read in less than 16 bytes
constexpr double kOddVectors = 1.15;         // the epilogue of a 16-bit D whose rows are not aligned to 16 bytes, in vectors
constexpr double kOddElements = 3.96;        // the same element by element
constexpr double kLatency = 1.8;             // of DRAM under load
constexpr double kSimtStart = 1;             // by hand, for simt

// Waves of tiles. Nearly all constants of the cost model, and the configurations' rates and epilogues, were fitted together to drawn
// problems on an H200 and an H100; h200-tried.md says to which ("The cost model by its residuals", "What split-K and copies take",
// "Alone, after a rest").
// The fit minimises what picks lose over the fastest candidate and how many are slower than 0.97x of torch.addmm, and a little the
// differences of all times.
// A constant's value alone therefore says little about the hardware. kStreaming ended at its bound, the data sheet's
// bandwidth. kSlices, kInThrees and kInFours were not fitted.
// The constants of straddling rows were set by hand to the same times, and those of fp32 in epilogues to 86 problems on an H100.
constexpr double kStreaming = 4.8e6;        // bytes per microsecond from DRAM, in a wave that waits for nothing else
constexpr double kOwnPort = 53.2e3;         // the same for an SM that has its port for itself
constexpr double kPort = 81.3e3;            // the same for two neighbouring SMs, which share a port
constexpr double kL2 = 189e3;               // bytes per microsecond from L2, for each SM
constexpr double kPrefetches = 0.396;       // of the launch, hidden by what small grids prefetch (prefetches_k_tiles)
constexpr double kHotLine = 0.386e-3;       // a request to a line of L2 that other SMs ask for too
constexpr double kHotSectors = 3e-3;        // the same, by which a tile waits for rows that begin within sectors of 32 bytes
constexpr double kOutside = 0.17;           // a K tile of a row-major B of few columns, for what TMA loads beyond them
constexpr double kUnhidden = 4;             // K tiles, by hand, that wait for such rows: later ones are loaded in time
constexpr double kInStep = 1024;            // elements of K over which blocks that ask for the same lines stay in step, by hand
constexpr double kSlices = 96;              // of L2, which serve one request at a time
constexpr double kFreshGrid = 0.52;         // of kOverlap, lost by a grid without PDL (needs_order)
constexpr double kSharedLoads = 1.61;       // of L2: loads that blocks share by multicast, over those of single blocks
constexpr double kPairLoads = 2.27;         // the same in clusters of two that share A
constexpr double kPairLoadsB = 1.34;        // the same in clusters of two that share B
constexpr int kFewAcross = 16;              // by hand, tiles side by side with which pairs that share B cost kPairLoads too
constexpr double kUnmerged = 1.67;          // the same of single blocks that share K, of which L2 merges fewer
constexpr double kStores = 0.327;           // of L2: stores, over loads
constexpr double kStraddlingStores = 1.27;  // the same if rows of D begin within lines
constexpr double kStraddlingLines = 1.93;   // of L2: a row of 128 bytes that begins within a line, over one that begins with it
constexpr double kStraddlingSectors = 3.2;  // the same of a row that begins within a sector of 32 bytes
constexpr double kPartsOfLines = 0.4;       // by hand, of B from DRAM by TMA, if lines belong to two tiles
constexpr double kSharedStraddling = 0.6;   // of what that adds, in clusters
constexpr double kTmaStart = 0.564;         // wgmma_tma's barriers and tensor maps
constexpr double kThirdGroup = 0.45;        // the start of a third consumer warpgroup in wgmma_tma
constexpr double kTmaTile = 1.08;           // of a tile of wgmma_tma, whatever its size, from the second on
constexpr double kClusterStart = 0.63;      // kTmaStart of wgmma_cluster
constexpr double kEmptyRows = 0.532;        // of wgmma_cluster's epilogue, the share that rows outside the matrix take too
constexpr double kClusterWave = 2.14;       // of a further wave of blocks that share K: 0.4 at few rows, and tens at many

// wgmma_multicast, from its tile's size alone, as if most tiles waited for shared memory, which TMA writes and wgmma reads. That
// describes their times best, although shared memory can do more (h200-tried.md, "A main loop without branches").
constexpr double kWgmmaOfPeak = 0.802;       // share of the data sheet's peak that wgmma reaches
constexpr double kShared = 260e3;            // bytes per microsecond through an SM's shared memory, as fitted
constexpr double kRing = 0.888;              // the latency of a K tile's loads under load
constexpr double kTransposedReads = 1.28;    // of wgmma's M operand, if it is not contiguous along K
constexpr double kLeastKTile = 0.107;        // of one block, however many stages it has
constexpr double kTransposedEpilogue = 3.9;  // of a tile of 128x256, 16-bit with a full C
constexpr double kWideProduct = 1.058;       // of warpgroups with 128 columns, over those with 64
constexpr double kWideEpilogue = 1.21;       // the same of the epilogue
constexpr double kNextTile = 0.847;          // from a tile's epilogue to the next tile's products
constexpr double kMulticastStart = 0.41;     // kTmaStart of this kernel: it has more of both
constexpr double kCluster = 0.04;            // the start and the end of a block that the others wait for
constexpr double kSharedSums = 0.0853;       // blocks that share K wait for each other and send sums
constexpr double kSumsRate = 12.4e3;         // bytes per microsecond that a block receives from others
constexpr double kInThrees = 0.887;          // share of the SMs that clusters of three occupy: 39 clusters on an H200
constexpr double kInFours = 0.91;            // the same of clusters of four, 30, and of eight, 15

// wgmma_shifted, by hand to seven problems on an H200. A K tile takes up to 1 us on an H100.
constexpr double kShiftedKTile = 0.48;  // its producers' copies, shifts and stores of B
constexpr double kShiftedRows = 0.1;    // of 64 rows of A beside them
constexpr double kShiftedTile = 3;      // a tile's first copies of B, which nothing hides

// wgmma_bf16x6 and wgmma_bf16x6_rs, by hand.
constexpr double kPartsStart = 1.2;  // of the parts, until the product reads them
// What a wave of 128x128 tiles waits until the next one multiplies: 3320x6296x16 takes 66 us on an H200, 55 without it. Tiles of
// 128x64 wait less: 12544x240x40 takes 17.2 us and is predicted to take 16.8.
constexpr double kPartsNextTile = 1.2;
constexpr double kRsKTile = 0.5;   // a K tile's loads, splits and additions
constexpr double kRsNarrow = 1.5;  // of it, where rows of the long operand are not aligned to 16 bytes
constexpr double kRsStart = 1.2;   // the first loads
constexpr double kRsTile = 1.5;    // from a tile's epilogue to the next tile's products
constexpr double kRsFullC = 2;     // of the epilogue

// mma_skinny.
constexpr double kSkinnyBy4 = 1.45;      // loads of operands whose rows are aligned to 4 bytes or less
constexpr double kSkinnyLatency = 1.85;  // of a K tile's loads, which begin while those before it are multiplied
constexpr double kSkinnyParts = 25;      // by hand, TFLOP/s of fp32 in parts: splitting B takes its time in any configuration
constexpr double kOneWarpStep = 0.932;   // of blocks of one warp, a K tile's loads
constexpr double kOneWarpRow = 0.59;     // of their products and epilogue, what a single row takes
// By hand, of a further wave of a batch, whose products have blocks of their own: 192 x 1x1981x96 takes 94.6 us in 46 waves (H100).
constexpr double kSkinnyWave = 0.9;
constexpr double kSimtVectors = 1.05;  // by hand, of simt_skinny's waves, with loads of 16 bytes
constexpr double kSimtWords = 1.42;    // the same with loads of 4 bytes
constexpr double kSkinnyRows = 1.1;    // of 16 rows: 16x4096x4096 takes 12.2, and 1x4096x4096 10.6

constexpr double large_tiles(const Config& config) { return double(config.tile_m * config.tile_n) / (128 * 256); }

double activation_us(Activation::Kind kind) {
  switch (kind) {
    case Activation::Kind::none: return 0;
    case Activation::Kind::relu: return kRelu;
    case Activation::Kind::gated: return kGated;
  }
  __builtin_unreachable();
}

// An epilogue that reads and writes so many bytes of C and D for an element, over one of a 16-bit D with a full C.
double of_bytes(double bytes) { return kBytesLeast + (1 - kBytesLeast) * bytes / 4; }

// The epilogue of a tile of wgmma_tma. Configurations give the time for 16-bit elements with a full C. In fp32, a warpgroup waits
// for boxes that it has filled before. If TMA cannot reach C or D, copies through registers come on top.
double tma_epilogue_us(const Config& config, const PlanKey& p) {
  const double bytes = size_of(p.d.dtype) + (has_full_c(p) ? size_of(p.c.dtype) : 0);
  const double rows_inside = std::min(1.0, double(p.m) / config.tile_m);
  const double inside = kRowsLeast + (1 - kRowsLeast) * rows_inside;
  const double filled = kEmptyTile + (1 - kEmptyTile) * rows_inside * std::min(1.0, double(p.n) / config.tile_n);
  const double via_registers = (d_path_of(p) == DPath::tma ? 0 : kDViaRegisters * (1 + kRowEnds / config.tile_n) * inside) +
                               (c_path_of(p) < CPath::vectors ? 0 : kCViaRegisters);
  const bool f32 = is_f32(p.d.dtype);
  const double longer = (config.pingpong ? kPingpong : config.threads > 256 ? 1 : kSingle) * (f32 ? kF32ViaRegisters : 1);
  const int64_t rows = ceil_div(config.tile_m / 64, config.threads / 128 - 1);  // of boxes, in a consumer warpgroup's tile
  const double boxes = double(rows * ceil_div(config.tile_n * size_of(p.d.dtype), 128));
  const double of_boxes = f32 && !config.pingpong ? kF32Box * boxes * bytes / 8 : 0;
  return std::max(config.epilogue_us * of_bytes(bytes) * filled, of_boxes) +
         longer * via_registers * config.tile_m * config.tile_n * size_of(p.d.dtype) / 32768;
}

// What a tile takes after its product, and what a kernel with such tiles takes beside them.
double tma_finish_us(const Config& config, const PlanKey& p) {
  return tma_epilogue_us(config, p) + activation_us(p.activation) * large_tiles(config) + kTmaTile;
}
double tma_start_us(const Config& config) {
  return kTmaStart + (config.threads > 384 ? kThirdGroup : 0) - kTmaTile + kBoxStore * config.boxes;
}

double launch_us(const KernelTraits& kernel, const Config& config, const PlanKey& p, const Modes& modes,
                 const DeviceSpec& device) {
  if (kernel.access == OperandAccess::any) return kLaunch + kSimtStart;
  if (!repacks(kernel.access) || !uses_pdl(config)) return kLaunch;
  const bool prefetches = kernel.unit == Unit::wgmma && prefetches_k_tiles(p, config, modes, device.gpu.num_sms);
  return kLaunch - kOverlap + (needs_order(p, config, modes) ? kFreshGrid : 0) - (prefetches ? kPrefetches : 0) -
         idle_us(blocks_of(p, config, modes), device);
}

// A kernel's time, launch included. Arithmetic and memory overlap but for a share of the shorter.
double launched_us(const KernelTraits& kernel, const Config& config, const PlanKey& p, const Modes& modes,
                   const DeviceSpec& device, double arithmetic, double memory) {
  return std::max(arithmetic, memory) + kExposed * std::min(arithmetic, memory) + launch_us(kernel, config, p, modes, device);
}

// The longer of two times: the busiest SM's tiles at the configuration's rate, and all bytes at copy bandwidth. `epilogue` is
// the time of a tile's epilogue.
double product_us(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                  double epilogue, const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const int64_t work = blocks_of(p, config, modes);
  const double per_sm = double(ceil_div(work, device.gpu.num_sms));
  // An SM with fewer blocks than it could hold hides less latency.
  const double filled = std::min(1.0, per_sm / config.blocks_per_sm);
  const double flops = 2.0 * config.tile_m * config.tile_n * k_tiles * config.tile_k;
  const bool unaligned = alignment(p.a, p.m, p.k) < 16 || alignment(p.b, p.k, p.n) < 16;
  const bool narrow = config.alignment < 16 || (kernel.access == OperandAccess::contiguous && unaligned);
  const double copies = narrow ? kUnalignedCopies : 1;
  const double product = flops * copies / (sm_rate(kernel, config, math, device) * (0.4 + 0.6 * filled));
  const double arithmetic = per_sm * (product + epilogue + activation_us(p.activation) * large_tiles(config));
  // The ring of stages turns at most once per DRAM latency. This limits problems of few tiles with a long K.
  const double waves = double(ceil_div(work, int64_t(device.gpu.num_sms) * config.blocks_per_sm));
  const double ring = config.stages > 1 ? waves * double(k_tiles) / config.stages * kLatency : 0;
  return launched_us(kernel, config, p, modes, device, arithmetic, std::max(ring, dram_us(p, modes.k_slices, device)));
}

// A wave takes the 4-norm of three times: a tile's on its SM, and those in which L2 and DRAM move what all tiles of the wave read
// and write. A tile also waits for rows that begin within sectors and that many SMs ask for: 200704x240x40, whose rows have 80 bytes,
// takes 63.7 us in single blocks of 128x128, and 45.1 in clusters of 2x1 that share B, in 256x128 (H200). TMA also loads boxes of 64
// columns of a row-major B with fewer, and takes time for those beyond: 1000000x32x32 49.2 us, and 44.1 with K contiguous in B.
struct Wave {
  double l2_us = 0, dram_us = 0, wait_us = 0;
  double us(double tile_us) const { return norm4(tile_us + wait_us, l2_us, dram_us); }
};

// Tiles in waves: each cluster that the GPU holds has one tile in a full wave, and some have one in the last.
struct Waves {
  int64_t count = 0;
  Wave full, last;

  // An SM multiplies a tile in `product_us` and finishes it in `epilogue_us`. Loads for the next tile and stores of the last go on
  // meanwhile. Nothing hides the last epilogue.
  double us(double product_us, double epilogue_us) const {
    return count == 0 ? 0 : (count - 1) * full.us(product_us + epilogue_us) + last.us(product_us) + epilogue_us;
  }
};

// The longest queue of requests at a slice of L2 if blocks, `readers`, read the same K tile of an operand x, (outer, K). A slice
// serves one request at a time, of at most 128 bytes, and a K tile of short rows lies in few lines: 7616x8x88 row-major, whose blocks
// all read the same 16 bytes of each row of B, takes 5.4 us in single blocks and 3.5 in clusters of 4x1 (H200). Over a long K blocks
// drift apart, and ask for different lines: 23048x8x6872 and 23048x16x6872 take 120.9 and 120.8 us (H100).
double queue_of(const MatrixKey& x, int64_t k, int64_t rows, int64_t readers) {
  const bool along_k = order_of(x) == Order::row_major;
  const double requests = double(along_k ? rows : std::min<int64_t>(k, 64) * ceil_div(rows, 64));
  const double pitch = double(along_k ? x.row : x.col) * size_of(x.dtype);
  const double lines = std::max(1.0, requests * std::min(1.0, pitch / 128 * std::max(1.0, double(k) / kInStep)));
  return double(readers) * requests / std::min(kSlices, lines);
}

// What rows of 128 bytes take of L2 beyond one, where rows of x begin within lines or sectors.
double straddling(const MatrixKey& x, int64_t rows, int64_t cols) {
  return straddles(32, x, rows, cols) ? kStraddlingSectors - 1 : straddles(128, x, rows, cols) ? kStraddlingLines - 1 : 0;
}

// Blocks that share by multicast read once. Weights in 72 tiles stream from DRAM at 39 KB/us for each SM, because some SMs share
// their port; 64 tiles have a port each and stream at 59. `boxes`: whether TMA loads rows of 128 bytes, or a warp vectors.
// `tiles_m`: how many tiles cover the rows, if not as few as can.
Waves waves_of(const Config& config, const PlanKey& p, const Modes& modes, const DeviceSpec& device, bool boxes = true,
               int64_t tiles_m = 0) {
  const Cluster& cluster = modes.cluster;
  if (tiles_m == 0) tiles_m = ceil_div(p.m, config.tile_m * cluster.m);
  const int64_t tiles_n = ceil_div(p.n, modes.columns * cluster.n), work = p.batch * tiles_m * tiles_n * modes.layers();
  const int64_t at_once = clusters_at_once(config, cluster, device);
  if (work == 0) return {};
  // Rows of 128 bytes of a K tile. B without K contiguous consists of 64 columns.
  const bool b_along_k = order_of(p.b) == Order::col_major;
  const int64_t columns = b_along_k ? modes.columns : ceil_div(modes.columns, 64) * 64;
  const double a_rows = double(std::min<int64_t>(config.tile_m, p.m)) * cluster.m;
  const double b_rows = double(std::min<int64_t>(columns, p.n)) * cluster.n;
  const int sharers = cluster.m * cluster.n;
  const double b_parts_of_lines = modes.columns % 64 != 0 && !b_along_k ? kStraddlingLines - 1 : 0;
  const double again =
      (a_rows * straddling(p.a, p.m, p.k) + b_rows * std::max(straddling(p.b, p.k, p.n), b_parts_of_lines)) *
      (!boxes        ? 0
       : sharers > 1 ? kSharedStraddling
                     : 1);
  const double pair = cluster.m > 1 && tiles_n > kFewAcross ? kPairLoadsB : kPairLoads;
  const double merged = sharers > 2 ? kSharedLoads : sharers == 2 ? pair : cluster.k > 1 ? kUnmerged : 1;
  const double stores =
      double(std::min<int64_t>(config.tile_m, p.m)) * cluster.m * std::min<int64_t>(int64_t(modes.columns) * cluster.n, p.n) *
      size_of(p.d.dtype) * (straddles(128, p.d, p.m, p.n) ? kStraddlingStores : kStores);
  const double loads = ((a_rows + b_rows) * merged + again) * p.k / modes.layers() * size_of(p.a.dtype);
  const double l2 = (loads + stores) / (kL2 * device.gpu.num_sms);
  // Requests in the longest queue at a slice of L2 for a K tile, if `across` tiles side by side read the same rows of A, and
  // `down` tiles one below the other the same columns of B. `sectors`: only for operands whose rows begin within sectors.
  const auto queue = [&](int64_t across, int64_t down, bool sectors) {
    const auto of = [&](const MatrixKey& x, int64_t outer, int64_t rows, int64_t readers) {
      const bool within = boxes && straddles(32, x, outer, p.k);
      return sectors && !within ? 0 : queue_of(x, p.k, std::min(rows, outer), readers);
    };
    return of(p.a, p.m, config.tile_m, across) + of(transpose(p.b), p.n, columns, down);
  };
  const double k_tiles = double(p.k) * size_of(p.a.dtype) / (128 * modes.k_slices);
  const double outside = boxes && !b_along_k && p.n < 64 ? kOutside * (1 - double(p.n) / 64) / cluster.m : 0;
  const int group = evenly(int(tiles_m), rows_at_once(p, config, modes, device.gpu.num_sms));
  const double scale = device.gpu.dram_gb_per_s / kH200.dram_gb_per_s;
  const double of_b = double(p.k) * double(p.n) * double(matrices_of(p.b, p.batch)) * size_of(p.b.dtype);
  const double again_of_b = boxes && b_parts_of_lines > 0 && p.n > modes.columns ? kPartsOfLines * of_b : 0;
  const double bytes = (dram_us(p, modes.layers(), device) * bytes_per_us(device) + again_of_b) / work;  // of a cluster's tile
  const auto wave = [&](int64_t clusters) {
    const double sm = scale * (clusters * cluster.blocks() > device.gpu.num_sms / 2 ? kPort / 2 : kOwnPort);
    const double dram = std::max(clusters * bytes / (scale * kStreaming), bytes / cluster.blocks() / sm);
    const double hot = kHotLine * k_tiles * queue(std::min(tiles_n, clusters), std::min(tiles_m, clusters), false);
    const int64_t across = std::min(tiles_n, ceil_div(clusters, group)), down = std::min(tiles_m, ceil_div(clusters, across));
    const double wait =
        outside * std::ceil(k_tiles) + kHotSectors * std::min(std::ceil(k_tiles), kUnhidden) * queue(across, down, true);
    return Wave{clusters * l2 + hot, dram, wait};
  };
  const int64_t count = ceil_div(work, at_once);
  return {count, wave(at_once), wave(work - (count - 1) * at_once)};
}

}  // namespace

int64_t clusters_at_once(const Config& config, const Cluster& cluster, const DeviceSpec& device) {
  const double share = cluster.blocks() == 3 ? kInThrees : cluster.blocks() > 3 ? kInFours : 1;
  return std::max(1, int(device.gpu.num_sms * share) * config.blocks_per_sm / cluster.blocks());
}

double estimate_tiles(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                      const DeviceSpec& device) {
  const bool vectors = repacks(kernel.access), aligned = alignment(p.d, p.m, p.n) == 16;
  const double odd_vectors = is_f32(p.d.dtype) ? 1 : kOddVectors;
  const double tile = config.epilogue_us > 0 ? config.epilogue_us : kEpilogue * large_tiles(config);
  // The part of a tile that lies in D, which matters where a thread goes from element to element.
  const double inside = std::min(1.0, double(p.m) / config.tile_m) * std::min(1.0, double(p.n) / config.tile_n);
  const double epilogue = tile * (aligned ? 1 : vectors ? odd_vectors : kOddElements) * (vectors ? 1 : inside);
  return product_us(kernel, config, math, p, modes, epilogue, device) + kBoxStore * kOtherBoxes * large_tiles(config);
}

// Pingpong warpgroups hide the shorter of product and epilogue behind the longer, from the second tile on.
double estimate_tma_epilogue(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                             const DeviceSpec& device) {
  const double epilogue = tma_finish_us(config, p);
  const double product = tile_us(kernel, config, math, p, modes, device);
  const Waves waves = waves_of(config, p, modes, device);
  const bool drifts = config.pingpong && waves.count > kDriftWaves;
  const double slower = drifts ? 1 + kDrift * (kH200.dram_gb_per_s / device.gpu.dram_gb_per_s - 1) : 1;
  const double hidden = std::max(product * slower + kPingpongOrder, (product + kPingpongEpilogue * epilogue) / 2);
  const double tiles = config.pingpong && waves.count > 1 ? waves.us(hidden, 0) + epilogue : waves.us(product, epilogue);
  const bool waits = math == Math::f32_emulated && config.tile_m * config.tile_n >= 128 * 128;
  const double between = waits ? kPartsNextTile * (waves.count - 1) : 0;
  return tiles + between + launch_us(kernel, config, p, modes, device) + tma_start_us(config);
}

// A K tile takes as long as its products, or as its producers' copy of B.
double estimate_shifted(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                        const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const double copies = kShiftedKTile + kShiftedRows * config.tile_m / 64;
  const double product = std::max(tile_us(kernel, config, math, p, modes, device), k_tiles * copies) + kShiftedTile;
  const double tiles = waves_of(config, p, modes, device, false).us(product, tma_finish_us(config, p));
  return tiles + launch_us(kernel, config, p, modes, device) + tma_start_us(config);
}

// wgmma_tma's loads and products, in tiles of rows of one kind. C and D go through registers, those too that TMA could bring.
double estimate_interleaved(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                            const DeviceSpec& device) {
  const double product = tile_us(kernel, config, math, p, modes, device);
  const double copies = (d_path_of(p) == DPath::tma ? kDViaRegisters : 0) + (c_path_of(p) == CPath::tma ? kCViaRegisters : 0);
  const double epilogue = tma_finish_us(config, p) + copies * config.tile_n * 128 * size_of(p.d.dtype) / 32768;
  const int64_t tiles_m = interleaved_tiles(p.m, rows_of_a_kind(p.a, p.k), config.tile_m);
  const double tiles = waves_of(config, p, modes, device, true, tiles_m).us(product, epilogue);
  return kInterleaved * tiles + launch_us(kernel, config, p, modes, device) + tma_start_us(config);
}

// A K tile takes as long as its products, or as the latency of its loads.
double estimate_bf16x6_rs(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                          const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const bool streams_a = config.tile_m > config.tile_n;
  const int by = streams_a ? alignment(p.a, p.m, p.k) : alignment(p.b, p.k, p.n);
  const double loads = kRsKTile * (by < 16 ? kRsNarrow : 1);
  const double product = norm4(tile_us(kernel, config, math, p, modes, device), k_tiles * loads);
  const double epilogue =
      config.epilogue_us * (has_full_c(p) ? kRsFullC : 1) + activation_us(p.activation) * large_tiles(config) + kRsTile;
  return waves_of(config, p, modes, device, false).us(product, epilogue) + kRsStart + kLaunch - kOverlap -
         idle_us(blocks_of(p, config, modes), device);
}

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
  const double rows = double(std::min<int64_t>(config.tile_m, p.m)) / config.tile_m;
  const bool one_warp = config.threads == 32;
  const double of_rows = one_warp ? kOneWarpRow + (1 - kOneWarpRow) * rows : 1;
  const double product =
      k_tiles * norm4(products * resident * copies * of_rows, one_warp ? kOneWarpStep : kSkinnyLatency / (config.stages + 1));
  const bool odd = alignment(p.d, p.m, p.n) != 16 && !is_f32(p.d.dtype);
  const double epilogue =
      config.epilogue_us * of_rows * (odd ? kOddVectors : 1) + activation_us(p.activation) * large_tiles(config);
  const Waves waves = waves_of(config, p, modes, device, false);
  const double starts = kSkinnyWave * double(std::max<int64_t>(0, waves.count - 1));
  const double loads = kernel.unit != Unit::simt ? 1 : by < 16 ? kSimtWords : kSimtVectors;
  return loads * waves.us(product, epilogue) + starts + launch_us(kernel, config, p, modes, device) +
         kSkinnyRows * (rows - 0.5);
}

// A block of a cluster has one tile, so that no product hides its epilogue.
double estimate_cluster(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                        const DeviceSpec& device) {
  const double product = tile_us(kernel, config, math, p, modes, device);
  const double epilogue = config.epilogue_us * (kEmptyRows + (1 - kEmptyRows) * std::min(1.0, double(p.m) / config.tile_m));
  const Waves waves = waves_of(config, p, modes, device);
  return waves.us(product, epilogue) + std::max<int64_t>(0, waves.count - 1) * kClusterWave +
         launch_us(kernel, config, p, modes, device) + kClusterStart;
}

// A K tile takes as long as the slowest of tensor cores, shared memory and kLeastKTile, and longer if few stages hide the latency
// of its loads.
double estimate_multicast(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                          const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const double tile_m = config.tile_m, tile_n = config.tile_n;
  const double peak = kWgmmaOfPeak * device.gpu.wgmma_tflops * 1e6 / device.gpu.num_sms * relative_rate(math, kernel);
  const double products = 2 * tile_m * tile_n * config.tile_k / peak;
  // Rows of a K tile: written by TMA, and read by wgmma, which has 64 columns of B on its M.
  const double written = std::min(tile_m, double(p.m)) + std::min(double(modes.columns), double(p.n));
  const double read = tile_n * (order_of(p.b) == Order::col_major ? 1 : kTransposedReads) + tile_n / 64 * tile_m;
  const double shared = (written + read) * config.tile_k * size_of(p.a.dtype) / kShared;
  const double latency = kRing / (config.stages - 1);
  const bool wide = config.tile_n / (config.threads / 128 - 1) > 64;
  const double product = k_tiles * norm4(std::max({products, shared, kLeastKTile}), latency) * (wide ? kWideProduct : 1);
  const double c_and_d = size_of(p.d.dtype) + (has_full_c(p) ? size_of(p.c.dtype) : 0);
  const double epilogue = large_tiles(config) *
                          (kTransposedEpilogue * (wide ? kWideEpilogue : 1) * of_bytes(c_and_d) + activation_us(p.activation));
  const Cluster& cluster = modes.cluster;
  const bool shares_k = cluster.k > 1;
  // A block that shares K reads as many sums as it finishes from each other block, and finishes whole parts.
  const double parts = ceil_div(config.tile_m, 64), finished = std::max(1.0 / cluster.k, 1 / parts);
  const double sums = shares_k ? kSharedSums + tile_m * tile_n * 4 * finished * (cluster.k - 1) / kSumsRate : 0;
  const Waves waves = waves_of(config, p, modes, device);
  return waves.us(product, epilogue * finished + sums + kNextTile) +
         (shares_k ? std::max<int64_t>(0, waves.count - 1) * kClusterWave : 0) + launch_us(kernel, config, p, modes, device) +
         kMulticastStart + kCluster * (cluster.blocks() - 1);
}

// L2 keeps a copy for the product, which then does not wait for DRAM again. Of a larger copy it keeps less, and at last nothing.
double repack_us(const MatrixKey& x, int64_t batch, int64_t outer, int64_t k, const DeviceSpec& device) {
  const double bytes = double(matrices_of(x, batch) * outer) * double(k) * size_of(x.dtype);
  return (2 * bytes - kKept * std::max(0.0, std::min(bytes, 2 * kKeptBytes - bytes))) / bytes_per_us(device) + kRepack;
}

double parts_us(const PlanKey& p, const DeviceSpec& device) {
  const PartsLayout a{p.m, p.k, matrices_of(p.a, p.batch)}, b{p.n, p.k, matrices_of(p.b, p.batch)};
  const double bytes = double(p.m * a.products + p.n * b.products) * double(p.k) * 4 + double(a.bytes()) + double(b.bytes());
  return bytes / bytes_per_us(device) + kPartsStart + kLaunch;
}

// The reduction reads the partial sums, from L2 as far as they fit. It goes by element where a row is no multiple of four: 116 of
// 282x282x80 with a full C take 98 us on an H200, where 43 were predicted as if they were vectors.
double reduce_us(const PlanKey& p, int layers, const DeviceSpec& device) {
  const double elements = double(p.batch) * double(p.m) * double(p.n);
  const double bytes = (layers * 4.0 + size_of(p.d.dtype)) * elements + c_bytes(p), beyond_l2 = std::max(0.0, bytes - kInL2);
  const double by_element = p.n % 4 == 0 ? 0 : is_f32(p.d.dtype) ? beyond_l2 : 2 * bytes;
  return kReduce + kReduceLayer * layers + (kFromL2 * (bytes - beyond_l2) + beyond_l2 + by_element) / bytes_per_us(device);
}

}  // namespace tc
