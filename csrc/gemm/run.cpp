#include "run.h"

#include <utility>

namespace tc {

Status run(const GemmDesc& desc, const Candidate& candidate, const DeviceSpec& device, void* workspace, void* stream) {
  const Workspace offsets = workspace_of(key_of(desc), candidate);
  GemmDesc p = candidate.exchanged ? exchange_operands(desc) : desc;
  char* const base = static_cast<char*>(workspace);
  const auto copy = [&](const Copied<MatrixView>& from, void* memory) {
    MatrixView to = repacked(from.x, from.rows, from.length, from.along);
    to.data = memory;
    return std::pair(to, launch_repack(from.x, to, p.batch, from.rows, from.length, device, stream));
  };
  Launch::Parts parts = {};
  if (candidate.writes_parts()) {
    if (candidate.repack_a) {
      parts = {OperandParts::at(base + offsets.a, {p.m, p.k, matrices_of(p.a, p.batch)}),
               OperandParts::at(base + offsets.b, {p.n, p.k, matrices_of(p.b, p.batch)})};
      const Status status = launch_parts(p, parts.a, parts.b, device, stream);
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
  return launch_reduce(p, static_cast<const float*>(partials), pitch, candidate.layers(), device, stream);
}

}  // namespace tc
