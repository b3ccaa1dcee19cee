#include "run.h"

namespace tc {

Status execute(const Problem& problem, const Verdict& verdict, const Device& device, void* workspace, void* stream) {
  Problem p = problem;
  const Workspace offsets = workspace_of(problem, verdict);
  char* const base = static_cast<char*>(workspace);
  const auto repack = [&](Matrix& x, int64_t outer, void* memory) {  // x is (outer, K)
    Matrix target = repacked(x, outer, p.k);
    target.data = memory;
    const Status status = launch_repack(x, target, outer, p.k, device, stream);
    x = target;
    return status;
  };
  if (verdict.repack_a) {
    const Status status = repack(p.a, p.m, base + offsets.a);
    if (!status.ok()) return status;
  }
  if (verdict.repack_b) {
    Matrix b = transpose(p.b);
    const Status status = repack(b, p.n, base + offsets.b);
    if (!status.ok()) return status;
    p.b = transpose(b);
  }
  if (verdict.layers() == 1) return verdict.kernel->launch({p, *verdict.instance, device, verdict.splits, stream});

  const Problem parts = partial_products(p, base + offsets.partials);
  const Status status = verdict.kernel->launch({parts, *verdict.instance, device, verdict.splits, stream});
  if (!status.ok()) return status;
  return launch_reduce(p, reinterpret_cast<const float*>(base + offsets.partials), verdict.splits, device, stream);
}

}  // namespace tc
