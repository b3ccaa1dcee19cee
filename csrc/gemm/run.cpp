#include "run.h"

#include <utility>

namespace tc {

namespace {

// Whether the kernels that run before and after a product let the next kernel start while they run. What that kernel does before it
// waits is then hidden. But its blocks take SMs one by one, as these become free, and where a large product's blocks start at different
// times, L2 merges fewer of their reads: 4095x4097x4099 in TF32, 1056 tiles of a K of 4099, takes 533 us on an H200 with an early start
// and 478 without. 65536x128x300, 512 tiles, takes 22.5 and 23.3. Reductions were timed after products of one wave alone.
bool starts_next(const GemmDesc& p, const Candidate& candidate, const DeviceSpec& device) {
  constexpr int kWaves = 4;
  return blocks_of(p, *candidate.config, candidate.modes) <= int64_t(kWaves) * device.gpu.num_sms;
}

}  // namespace

Status run(const GemmDesc& desc, const Candidate& candidate, const DeviceSpec& device, void* workspace, void* stream) {
  const Workspace offsets = workspace_of(key_of(desc), candidate);
  GemmDesc p = candidate.exchanged ? exchange_operands(desc) : desc;
  const bool early = starts_next(p, candidate, device);
  char* const base = static_cast<char*>(workspace);
  const auto copy = [&](const Copied<MatrixView>& from, void* memory) {
    MatrixView to = repacked(from.x, from.rows, from.length, from.along);
    to.data = memory;
    return std::pair(to, launch_repack(from.x, to, p.batch, from.rows, from.length, device, stream, early));
  };
  Launch::Parts parts = {};
  if (candidate.writes_parts()) {
    if (candidate.repack_a) {
      parts = {OperandParts::at(base + offsets.a, {p.m, p.k, matrices_of(p.a, p.batch)}),
               OperandParts::at(base + offsets.b, {p.n, p.k, matrices_of(p.b, p.batch)})};
      const Status status = launch_parts(p, parts.a, parts.b, device, stream, early);
      if (!status.ok()) return status;
    }
  } else {
    if (candidate.repack_a) {
      const auto [a, status] = copy(candidate.copied_a(p), base + offsets.a);
      if (!status.ok()) return status;
      p.a = a;
    }
    if (candidate.repack_b) {
      const auto [b, status] = copy(candidate.copied_b(p), base + offsets.b);
      if (!status.ok()) return status;
      p.b = candidate.b_of_copy(b);
    }
  }
  const Launcher launch = candidate.kernel->code[candidate.index()].launch;
  const auto product = [&](const GemmDesc& of) {
    return launch({of, *candidate.config, candidate.math, candidate.modes, device, stream, parts});
  };
  if (candidate.layers() == 0) return product(p);
  void* const partials = base + offsets.partials;
  const int64_t pitch = candidate.partials_pitch(p.n);
  const Status status = product(partial_products(p, partials, pitch));
  if (!status.ok()) return status;
  return launch_reduce(p, static_cast<const float*>(partials), pitch, candidate.layers(), device, stream, early);
}

}  // namespace tc
