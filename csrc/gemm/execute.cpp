#include "execute.h"

namespace tc {

Status execute(const Problem& problem, const Verdict& verdict, const Device& device, void* workspace, void* stream) {
  Problem p = problem;
  const Workspace offsets = workspace_of(problem, verdict);
  char* const base = static_cast<char*>(workspace);
  if (verdict.repack_a) {
    const Status status = launch_repack(p.a, p.m, p.k, base + offsets.a, device, stream);
    if (!status.ok()) return status;
    p.a = {base + offsets.a, repacked_leading(p.k, p.a.dtype), 1, p.a.dtype};
  }
  if (verdict.repack_b) {
    const Status status = launch_repack(transpose(p.b), p.n, p.k, base + offsets.b, device, stream);
    if (!status.ok()) return status;
    p.b = {base + offsets.b, 1, repacked_leading(p.k, p.b.dtype), p.b.dtype};
  }
  if (verdict.splits == 1) return verdict.kernel->launch({p, *verdict.instance, device, 1, stream});

  Problem parts = p;
  parts.c.data = nullptr;
  parts.d = {base + offsets.partials, p.n, 1, DType::f32};
  parts.alpha = 1.f;
  parts.beta = 0.f;
  const Status status = verdict.kernel->launch({parts, *verdict.instance, device, verdict.splits, stream});
  if (!status.ok()) return status;
  return launch_reduce(p, reinterpret_cast<const float*>(base + offsets.partials), verdict.splits, device, stream);
}

}  // namespace tc
