#include "cost_waves.h"

#include <algorithm>
#include <cmath>

#include "ceil_div.h"
#include "raster_rows.h"

namespace tc {
namespace {

// Nearly all constants of the cost model, and the configurations' rates and epilogues, were fitted together to drawn
// problems on an H200 and an H100; h200-tried.md says to which ("The cost model by its residuals", "What split-K and copies take",
// "Alone, after a rest").
// The fit minimises what picks lose over the fastest candidate and how many are slower than 0.97x of torch.addmm, and a little the
// differences of all times.
// A constant's value alone therefore says little about the hardware. kStreaming ended at its bound, the data sheet's
// bandwidth. kSlices, kInThrees and kInFours were not fitted. kSharedLoads, kPairLoads and kPairLoadsB have been fitted since to 837
// problems ("Clusters share less than they seemed to"), kUnmerged and cost_model.cpp's kCluster and kSumsRate to 268 others ("Clusters of
// four that share K, once more"). kOwnPort, kPortAgain and kAlongN were set by hand ("A prediction that shrank"), kOutOfStep too ("Tiles without
// a C, clusters of four, and rows of B out of step").
// The constants of straddling rows were set by hand to the same times, and those of fp32 in epilogues to 86 problems on an H100.
constexpr double kStreaming = 4.8e6;        // bytes per microsecond from DRAM, in a wave that waits for nothing else
constexpr double kOwnPort = 71e3;           // the same for an SM that has its port for itself
constexpr double kPort = 81.3e3;            // the same for two neighbouring SMs, which share a port
constexpr double kPortAgain = 2;            // of read_again in waves_of, what passes a cluster's ports
constexpr double kL2 = 189e3;               // bytes per microsecond from L2, for each SM
constexpr double kHotLine = 0.386e-3;       // a request to a line of L2 that other SMs ask for too
constexpr double kHotSectors = 3e-3;        // the same, by which a tile waits for rows that begin within sectors of 32 bytes
constexpr double kAlongN = 0.13;            // a K tile of a row-major B, which TMA loads in boxes of 64 columns
constexpr double kUnhidden = 4;             // by hand, K tiles to which the two above apply: later ones are loaded in time
constexpr double kInStep = 1024;            // elements of K over which blocks that ask for the same lines stay in step, by hand
constexpr double kSlices = 96;              // of L2, which serve one request at a time
constexpr double kSharedLoads = 2.16;       // of L2: loads that blocks share by multicast, over those of single blocks
constexpr double kPairLoads = 2.05;         // the same in clusters of two that share A
constexpr double kPairLoadsB = 1.3;         // the same in clusters of two that share B
constexpr int kFewAcross = 16;              // by hand, tiles side by side with which pairs that share B cost kPairLoads too
constexpr double kUnmerged = 2;             // the same of single blocks that share K, of which L2 merges fewer
constexpr double kStores = 0.327;           // of L2: stores, over loads
constexpr double kStraddlingStores = 1.27;  // the same if rows of D begin within lines
constexpr double kStraddlingLines = 1.93;   // of L2: a row of 128 bytes that begins within a line, over one that begins with it
constexpr double kStraddlingSectors = 3.2;  // the same of a row that begins within a sector of 32 bytes
constexpr double kPartsOfLines = 0.4;       // by hand, of B from DRAM by TMA, if lines belong to two tiles
constexpr double kOutOfStep = 0.04;  // by hand, of a row-major B from DRAM by TMA, unless a cluster reads four tiles of it
constexpr double kTornStores = 1;    // of DRAM's time for D: what TMA's stores add where they tear sectors
// In clusters of two, of what straddling rows add; larger clusters take all of it (h200-tried.md, "Large clusters whose rows straddle lines").
constexpr double kPairStraddling = 0.6;
constexpr double kInThrees = 0.887;  // share of the SMs that clusters of three occupy: 39 clusters on an H200
constexpr double kInFours = 0.91;    // the same of clusters of four, 30, and of eight, 15

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

}  // namespace

double hot_columns_us(const PlanKey& p, int64_t columns, int64_t readers) {
  return kHotLine * double(p.k) * size_of(p.b.dtype) / 128 * queue_of(transpose(p.b), p.k, std::min(columns, p.n), readers);
}

int64_t clusters_at_once(const Config& config, const Cluster& cluster, const DeviceSpec& device) {
  const double share = cluster.blocks() == 3 ? kInThrees : cluster.blocks() > 3 ? kInFours : 1;
  return std::max(1, int(device.gpu.num_sms * share) * config.blocks_per_sm / cluster.blocks());
}

Waves waves_of(const Config& config, const PlanKey& p, const Modes& modes, const DeviceSpec& device, bool boxes,
               int64_t tiles_m) {
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
      (!boxes         ? 0
       : sharers == 2 ? kPairStraddling
                      : 1);
  const double pair = cluster.m > 1 && tiles_n > kFewAcross ? kPairLoadsB : kPairLoads;
  const double merged = sharers > 2 ? kSharedLoads : sharers == 2 ? pair : cluster.k > 1 ? kUnmerged : 1;
  const double stores =
      double(std::min<int64_t>(config.tile_m, p.m)) * cluster.m * std::min<int64_t>(int64_t(modes.columns) * cluster.n, p.n) *
      size_of(p.d.dtype) * (straddles(128, p.d, p.m, p.n) ? kStraddlingStores : kStores);
  const double row_bytes = double(p.k) / modes.layers() * size_of(p.a.dtype);
  const double loads = ((a_rows + b_rows) * merged + again) * row_bytes;
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
  const double along_n = boxes && !b_along_k ? kAlongN / cluster.m : 0;
  const int group = evenly(int(tiles_m), rows_at_once(p, config, modes, device.gpu.num_sms));
  const double scale = device.gpu.dram_gb_per_s / kH200.dram_gb_per_s;
  const double of_b = double(p.k) * double(p.n) * double(matrices_of(p.b, p.batch)) * size_of(p.b.dtype);
  const bool several = boxes && p.n > modes.columns;
  const double again_of_b = (several && b_parts_of_lines > 0 ? kPartsOfLines * of_b : 0) +
                            (several && !b_along_k && cluster.n < 4 ? kOutOfStep * of_b : 0);
  const double torn = boxes && tears_d(p, modes.columns) ? kTornStores * d_bytes(p) : 0;
  const double bytes =
      (dram_us(p, modes.layers(), device) * bytes_per_us(device) + again_of_b + torn) / work;  // of a cluster's tile
  // Two clusters that share an operand read three quarters of it each, three clusters 0.48, and many their part alone.
  const auto read_again = [](double rows, double clusters) { return rows * (1 - 1 / clusters) / (clusters * clusters); };
  const double through_port = bytes + kPortAgain * (read_again(a_rows, tiles_n) + read_again(b_rows, tiles_m)) * row_bytes;
  const auto wave = [&](int64_t clusters) {
    // A cluster of four lies on neighbouring SMs: 64 blocks of 24x192 take 38.8 us for 16x12288x4096 if four share A, 26.9 otherwise.
    const bool shares_port = sharers >= 4 || clusters * cluster.blocks() > device.gpu.num_sms / 2;
    const double sm = scale * (shares_port ? kPort / 2 : kOwnPort);
    const double dram = std::max(clusters * bytes / (scale * kStreaming), through_port / cluster.blocks() / sm);
    const double hot = kHotLine * k_tiles * queue(std::min(tiles_n, clusters), std::min(tiles_m, clusters), false);
    const int64_t across = std::min(tiles_n, ceil_div(clusters, group)), down = std::min(tiles_m, ceil_div(clusters, across));
    const double wait = std::min(std::ceil(k_tiles), kUnhidden) * (along_n + kHotSectors * queue(across, down, true));
    return Wave{clusters * l2 + hot, dram, wait};
  };
  const int64_t count = ceil_div(work, at_once);
  return {count, wave(at_once), wave(work - (count - 1) * at_once)};
}

}  // namespace tc
