#include "cost_model.h"

#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "cost_waves.h"

namespace tc {
namespace {

// Microseconds on an H200 unless a line names another unit. cost_model.h says how they were fitted.
constexpr double kBytesLeast = 0.1;        // of an epilogue, by hand, what does not depend on the bytes of C and D
constexpr double kEpilogue = 10.4;         // of a tile of 128x256, if the configuration gives no time
constexpr double kInterleavedStart = 0.4;  // more of its start; by hand: 16 products of 78x96x78 take 4.2
constexpr double kInterleaved = 1.2;       // of wgmma_interleaved's waves over wgmma_tma's
constexpr double kDViaRegisters = 0.816, kCViaRegisters = 1.16;  // 32 KB of a tile, copied by two warpgroups
constexpr double kRowEnds = 142;                                 // columns that cost as much as the ends of a row of D
constexpr double kEmptyTile = 0.6;        // of an epilogue, by hand, what a tile takes that has hardly an element in the matrix
constexpr double kRowsLeast = 0.2;        // of D's copy, what a tile takes that has hardly a row in the matrix
constexpr double kF32ViaRegisters = 1.4;  // of both, for fp32
constexpr double kF32Rows = 0.5;          // the same of a D with contiguous rows, by hand (BoxCopies::copy_d_rows)
constexpr double kF32Box = 0.6;           // a box of C and of D in fp32, of cooperative warpgroups
// Factors of one warpgroup and of pingpong, over two cooperative warpgroups.
constexpr double kSingle = 2.63, kPingpong = 1.19;
constexpr double kBoxStore = 0.42;          // after the last product, for each box that a warpgroup fills at once
constexpr double kOtherBoxes = 3.67;        // boxes that a tile of 128x256 of other kernels counts as
constexpr double kPingpongOrder = 0.166;    // between the products of two pingpong warpgroups
constexpr double kPingpongEpilogue = 1.67;  // of an epilogue beside the other warpgroup's products
constexpr double kDrift = 0.29;             // pingpong products in many waves, which an H100 slows down, an H200 does not
constexpr int kDriftWaves = 4;              // by hand: 4773x3456x5120, 8 waves, takes 276 us on an H100 and 228 in torch.addmm
constexpr double kUnalignedCopies = 1.19;   // of operands that are read in less than 16 bytes
constexpr double kOddElements = 3.96;       // the same element by element
constexpr double kLatency = 1.8;            // of DRAM under load

constexpr double kTmaStart = 0.564;    // wgmma_tma's barriers and tensor maps
constexpr double kThirdGroup = 0.45;   // the start of a third consumer warpgroup in wgmma_tma
constexpr double kTmaTile = 0.9;       // by hand, of each tile of wgmma_tma but the first, whatever its size
constexpr double kTmaTileC = 0.28;     // by hand, more of each tile, if C is full
constexpr double kTmaNoC = 1;          // by hand, less of each tile of 128x256 but the last, without a C
constexpr double kClusterStart = 0.9;  // kTmaStart of wgmma_cluster
constexpr double kEmptyRows = 0.532;   // of wgmma_cluster's epilogue, the share that rows outside the matrix take too
constexpr double kClusterWave = 2.14;  // of a further wave of blocks that share K: 0.4 at few rows, and tens at many

// wgmma_multicast, from its tile's size alone, as if most tiles waited for shared memory, which TMA writes and wgmma reads. That
// describes their times best, although shared memory can do more (h200-tried.md, "A main loop without branches").
constexpr double kWgmmaOfPeak = 0.802;       // share of the data sheet's peak that wgmma reaches
constexpr double kShared = 263e3;            // bytes per microsecond through an SM's shared memory, as fitted
constexpr double kRing = 0.888;              // the latency of a K tile's loads under load
constexpr double kTransposedReads = 1.28;    // of wgmma's M operand, if it is not contiguous along K
constexpr double kLeastKTile = 0.107;        // of one block, however many stages it has
constexpr double kTransposedEpilogue = 3.2;  // of a tile of 128x256, 16-bit with a full C
constexpr double kPartWaits = 0.15;          // by hand, each part of a warpgroup's tile that waits for another's buffer
constexpr double kWideProduct = 1.058;       // of warpgroups with 128 columns, over those with 64
constexpr double kWideEpilogue = 1.17;       // the same of the epilogue
constexpr double kNextTile = 0.928;          // from a tile's epilogue to the next tile's products
constexpr double kMulticastNoC = 0.3;        // by hand, less of each tile but the last, without a C
constexpr double kHeld = 0.2;                // the same if the stages hold all K of the next tile, and C is not full
constexpr double kMulticastStart = 0.41;     // kTmaStart of this kernel: it has more of both
constexpr double kCluster = 0.045;           // the start and the end of a block that the others wait for
constexpr double kSharedSums = 0.0853;       // blocks that share K wait for each other and send sums
constexpr double kSumsRate = 18.5e3;         // bytes per microsecond that a block receives from others

// wgmma_shifted, by hand to seven problems on an H200. A K tile takes up to 1 us on an H100.
constexpr double kShiftedKTile = 0.48;  // its producers' copies, shifts and stores of B
constexpr double kShiftedRows = 0.1;    // of 64 rows of A beside them
constexpr double kShiftedTile = 3;      // a tile's first copies of B, which nothing hides

// What a wave of 128x128 tiles of wgmma_bf16x6 waits until the next one multiplies, together with cost_copies.cpp's kPartsStart between a fit
// to 119 problems on an H200 and one to 211 others. Tiles of 128x64 wait less: 100352x512x128 with a full C takes 269 us in the former and
// 232 in the latter.
constexpr double kPartsNextTile = 2.2;
// By hand, what tiles of 128 columns take beyond a launch (h200-tried-float32.md, "Parts of B that stay, and rows by bulk copies").
constexpr double kPartsWide = 1;

// wgmma_bf16x6_rs, fitted to 459 problems on an H200 (bench/results/h200-tried-float32.md, "Fewer instructions to split").
constexpr double kRsKTile = 0.62;    // a K tile's loads, splits and additions
constexpr double kRsNarrow = 2.5;    // of it, where rows of the long operand are not aligned to 16 bytes
constexpr double kRsAcross = 1.07;   // of both, if the long operand is not contiguous along K
constexpr double kRsElements = 0.2;  // more, if the producer splits 64 rows or columns that it loads by element
constexpr double kRsStart = 0.3;     // the first loads
constexpr double kRsTile = 0.5;      // from a tile's epilogue to the next tile's products
constexpr double kRsFullC = 1.8;     // of the epilogue

// An epilogue that reads and writes so many bytes of C and D for an element, over one of a 16-bit D with a full C.
double of_bytes(double bytes) { return kBytesLeast + (1 - kBytesLeast) * bytes / 4; }

// The epilogue of a tile of wgmma_tma. Configurations give the time for 16-bit elements with a full C. In fp32, a warpgroup waits
// for boxes that it has filled before. If TMA cannot reach C or D, copies through registers come on top.
double tma_epilogue_us(const Config& config, const PlanKey& p) {
  const double bytes = size_of(p.d.dtype) + (has_full_c(p) ? size_of(p.c.dtype) : 0);
  const double rows_inside = std::min(1.0, double(p.m) / config.tile_m);
  const double inside = kRowsLeast + (1 - kRowsLeast) * rows_inside;
  const double filled = kEmptyTile + (1 - kEmptyTile) * rows_inside * std::min(1.0, double(p.n) / config.tile_n);
  const bool f32 = is_f32(p.d.dtype);
  const double of_d = d_path_of(p) == DPath::tma ? 0 : kDViaRegisters * (1 + kRowEnds / config.tile_n) * inside;
  const double of_c = c_path_of(p) < CPath::vectors ? 0 : kCViaRegisters;
  const double d_in_f32 = order_of(p.d) == Order::row_major ? kF32Rows : kF32ViaRegisters;
  const double via_registers = f32 ? of_d * d_in_f32 + of_c * kF32ViaRegisters : of_d + of_c;
  const double longer = config.pingpong ? kPingpong : config.threads > 256 ? 1 : kSingle;
  const int64_t rows = ceil_div(config.tile_m / 64, config.threads / 128 - 1);  // of boxes, in a consumer warpgroup's tile
  const double boxes = double(rows * ceil_div(config.tile_n * size_of(p.d.dtype), 128));
  const double of_boxes = f32 && !config.pingpong ? kF32Box * boxes * bytes / 8 : 0;
  return std::max(config.epilogue_us * of_bytes(bytes) * filled, of_boxes) +
         longer * via_registers * config.tile_m * config.tile_n * size_of(p.d.dtype) / 32768;
}

// Whether a tile has no C to wait for, and TMA stores it: the next tile then begins earlier. A batch of 325x272x272x32 takes 21.0 us in
// wgmma_tma's tiles of 128x128, where 36 were predicted without kTmaNoC.
bool only_stores(const PlanKey& p) { return !present(p.c) && d_path_of(p) == DPath::tma; }

// What a tile takes whatever its size.
double tma_tile_us(const PlanKey& p) { return kTmaTile + (has_full_c(p) ? kTmaTileC : 0); }

// What a tile takes after its product, and what a kernel with such tiles takes beside them.
double tma_finish_us(const Config& config, const PlanKey& p) {
  return tma_epilogue_us(config, p) + activation_us(p.activation) * large_tiles(config) + tma_tile_us(p);
}
double tma_start_us(const Config& config, const PlanKey& p) {
  return kTmaStart + (config.threads > 384 ? kThirdGroup : 0) - tma_tile_us(p) + kBoxStore * config.boxes;
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

}  // namespace

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
  // Two pingpong warpgroups take tiles in turn, so that each tile gains half as much.
  const double earlier = only_stores(p) ? kTmaNoC * large_tiles(config) / (config.pingpong ? 2 : 1) : 0;
  const double tiles =
      config.pingpong && waves.count > 1 ? waves.us(hidden, 0, earlier) + epilogue : waves.us(product, epilogue, earlier);
  const bool waits = math == Math::f32_emulated && config.tile_m * config.tile_n >= 128 * 128;
  const double between = waits ? kPartsNextTile * (waves.count - 1) : 0;
  const double wide = math == Math::f32_emulated && config.tile_n == 128 ? kPartsWide : 0;
  return tiles + between + wide + launch_us(kernel, config, p, modes, device) + tma_start_us(config, p);
}

// A K tile takes as long as its products, or as its producers' copy of B.
double estimate_shifted(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                        const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const double copies = kShiftedKTile + kShiftedRows * config.tile_m / 64;
  const double product = std::max(tile_us(kernel, config, math, p, modes, device), k_tiles * copies) + kShiftedTile;
  const double tiles = waves_of(config, p, modes, device, false).us(product, tma_finish_us(config, p));
  return tiles + launch_us(kernel, config, p, modes, device) + tma_start_us(config, p);
}

// wgmma_tma's loads and products, in tiles of rows of one kind. C and D go through registers, those too that TMA could bring.
double estimate_interleaved(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                            const DeviceSpec& device) {
  const double product = tile_us(kernel, config, math, p, modes, device);
  const double copies = (d_path_of(p) == DPath::tma ? kDViaRegisters : 0) + (c_path_of(p) == CPath::tma ? kCViaRegisters : 0);
  const double epilogue = tma_finish_us(config, p) + copies * config.tile_n * 128 * size_of(p.d.dtype) / 32768;
  const int64_t tiles_m = interleaved_tiles(p.m, rows_of_a_kind(p.a, p.k), config.tile_m);
  const double tiles = waves_of(config, p, modes, device, true, tiles_m).us(product, epilogue);
  return kInterleaved * tiles + kInterleavedStart + launch_us(kernel, config, p, modes, device) + tma_start_us(config, p);
}

// A K tile takes as long as its products, or as the latency of its loads.
double estimate_bf16x6_rs(const KernelTraits& kernel, const Config& config, Math math, const PlanKey& p, const Modes& modes,
                          const DeviceSpec& device) {
  const int64_t k_tiles = ceil_div(ceil_div(p.k, config.tile_k), modes.k_slices);
  const bool streams_a = config.tile_m > config.tile_n;
  const int by = streams_a ? alignment(p.a, p.m, p.k) : alignment(p.b, p.k, p.n);
  const bool along_k = streams_a ? order_of(p.a) == Order::row_major : order_of(p.b) == Order::col_major;
  const double loads = kRsKTile * (by < 16 ? kRsNarrow : 1), across = along_k ? 1 : kRsAcross;
  const bool vectors = streams_a ? b_vectors_along_k(p) : a_vectors_along_k(p);  // of the other operand
  const double split = vectors ? 1 : 1 + kRsElements * std::min(config.tile_m, config.tile_n) / 64;
  const double product = norm4(tile_us(kernel, config, math, p, modes, device), k_tiles * loads) * across * split;
  const double epilogue =
      config.epilogue_us * (has_full_c(p) ? kRsFullC : 1) + activation_us(p.activation) * large_tiles(config) + kRsTile;
  return waves_of(config, p, modes, device, false).us(product, epilogue) + kRsStart + kLaunch - kOverlap -
         idle_us(blocks_of(p, config, modes), device);
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
  const double parts = ceil_div(config.tile_m, 64), waits = kPartWaits * std::max(0.0, parts * (wide ? 2 : 1) - config.boxes);
  const Cluster& cluster = modes.cluster;
  const bool shares_k = cluster.k > 1;
  // A block that shares K reads as many sums as it finishes from each other block, and finishes whole parts.
  const double finished = std::max(1.0 / cluster.k, 1 / parts);
  const double sums = shares_k ? kSharedSums + tile_m * tile_n * 4 * finished * (cluster.k - 1) / kSumsRate : 0;
  const Waves waves = waves_of(config, p, modes, device);
  const double earlier = (only_stores(p) ? kMulticastNoC : 0) + (k_tiles <= config.stages && !has_full_c(p) ? kHeld : 0);
  return waves.us(product, (epilogue + waits) * finished + sums + kNextTile, earlier) +
         (shares_k ? std::max<int64_t>(0, waves.count - 1) * kClusterWave : 0) + launch_us(kernel, config, p, modes, device) +
         kMulticastStart + kCluster * (cluster.blocks() - 1);
}

}  // namespace tc
