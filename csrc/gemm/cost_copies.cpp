// The predictions of what runs beside the product: copies of operands, parts of fp32, and the reduction of K slices.
#include <algorithm>

#include "ceil_div.h"
#include "cost_model.h"
#include "cost_parts.h"
#include "run.h"

namespace tc {
namespace {

// Microseconds on an H200 unless a line names another unit. cost_model.h says how they were fitted.
constexpr double kRepack = 2.1;      // start a copy, and the product after it
constexpr double kKeptBytes = 30e6;  // by hand, a copy that L2 keeps until the product reads it
constexpr double kKept = 0.8;        // of a pass over it, what that saves
// A reduction, fitted to 2815 times and then raised by hand. The times alone give 2.4 us and 0.6 for kFromL2, with which picks lose
// more: predictions of split-K spread more than others, and of many that look equal the pick is one that is predicted too short. kReduce
// was 3.3. Since reductions let the next kernel start, they take 0.85 us less; with 2.9 the pick of 128x4096x14336 would move to K slices,
// which take longer. kRepack and kPartsStart, 2.8 and 1.38 before, follow the times of that change (h200-tried.md, "Kernels before and
// after the product").
constexpr double kReduce = 3.1;              // finish one kernel, start the reduction and read the first kernel's results
constexpr double kReduceLayer = 0.035;       // of each layer, whose loads follow the last one's addition
constexpr double kInL2 = 50e6;               // bytes that a reduction finds in L2
constexpr double kFromL2 = 0.9;              // of their time from DRAM
constexpr double kOddF32 = 0.4, kOdd16 = 1;  // by hand, of the bytes' time, more where a reduction goes by element
constexpr double kPartsStart = 0.45;         // of the parts of fp32, until the product reads them
constexpr double kPartsElements = 0.8;       // more, if an operand is not read in vectors along K
// By hand, of an SM, a tile that make_k_contiguous transposes, however few of its elements lie in the matrix: 361 products of 1x704x22
// whose B is transposed take 22.9 us on an H200, and were predicted to take 14 without it.
constexpr double kTransposedTile = 0.45;

}  // namespace

// L2 keeps a copy for the product, which then does not wait for DRAM again. Of a larger copy it keeps less, and at last nothing.
double repack_us(const MatrixKey& x, int64_t batch, int64_t outer, int64_t k, bool along_k, const DeviceSpec& device) {
  const int64_t matrices = matrices_of(x, batch);
  const double bytes = double(matrices * outer) * double(k) * size_of(x.dtype);
  const double moved = (2 * bytes - kKept * std::max(0.0, std::min(bytes, 2 * kKeptBytes - bytes))) / bytes_per_us(device);
  const bool transposes = along_k && order_of(x) != Order::row_major;
  const double tiles =
      transposes ? double(matrices * ceil_div(outer, int64_t(kTransposedEdge)) * ceil_div(k, int64_t(kTransposedEdge))) : 0;
  return std::max(moved, kTransposedTile * tiles / device.gpu.num_sms) + kRepack;
}

double parts_us(const PlanKey& p, const DeviceSpec& device) {
  const PartsLayout a{p.m, p.k, matrices_of(p.a, p.batch)}, b{p.n, p.k, matrices_of(p.b, p.batch)};
  const double bytes = double(p.m * a.products + p.n * b.products) * double(p.k) * 4 + double(a.bytes()) + double(b.bytes());
  const bool vectors = a_vectors_along_k(p) && b_vectors_along_k(p);
  return bytes / bytes_per_us(device) + kPartsStart + (vectors ? 0 : kPartsElements) + kLaunch;
}

// The reduction reads the partial sums, from L2 as far as they fit. It goes by element where a row is no multiple of four.
double reduce_us(const PlanKey& p, int layers, const DeviceSpec& device) {
  const double elements = double(p.batch) * double(p.m) * double(p.n);
  const double bytes = (layers * 4.0 + size_of(p.d.dtype)) * elements + c_bytes(p), beyond_l2 = std::max(0.0, bytes - kInL2);
  const double by_element = p.n % 4 == 0 ? 0 : bytes * (is_f32(p.d.dtype) ? kOddF32 : kOdd16);
  return kReduce + kReduceLayer * layers + (kFromL2 * (bytes - beyond_l2) + beyond_l2 + by_element) / bytes_per_us(device);
}

}  // namespace tc
