#include "run.h"

namespace tc {

Status run(const GemmDesc& desc, const Candidate& candidate, const DeviceSpec& device, void* workspace, void* stream) {
  const Workspace offsets = workspace_of(key_of(desc), candidate);
  GemmDesc p = candidate.exchanged ? exchange_operands(desc) : desc;
  char* const base = static_cast<char*>(workspace);
  const auto repack = [&](MatrixView& x, int64_t outer, int64_t k, bool along_k, void* memory) {  // x is (outer, k)
    MatrixView target = repacked(x, outer, k, along_k);
    target.data = memory;
    const Status status = launch_repack(x, target, p.batch, outer, k, device, stream);
    x = target;
    return status;
  };
  Launch::Parts parts = {};
  if (candidate.writes_parts()) {
    if (candidate.repack_a) {
      parts = {OperandParts::at(base + offsets.a, {p.m, p.k, matrices_of(p.a, p.batch)}),
               OperandParts::at(base + offsets.b, {p.n, p.k, matrices_of(p.b, p.batch)})};
      const Status status = launch_parts(p, parts.a, parts.b, device, stream);
      if (!status.ok()) return status;
    }
  } else if (candidate.repack_a) {
    const Status status = repack(p.a, p.m, p.k, candidate.a_along_k(), base + offsets.a);
    if (!status.ok()) return status;
  }
  if (candidate.repack_b && !candidate.writes_parts()) {
    const bool along_n = candidate.b_along_n();
    MatrixView b = along_n ? p.b : transpose(p.b);
    const Status status =
        along_n ? repack(b, p.k, p.n, true, base + offsets.b) : repack(b, p.n, p.k, candidate.b_along_k(), base + offsets.b);
    if (!status.ok()) return status;
    p.b = along_n ? b : transpose(b);
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
