// From a plan to launches: repack what the kernel cannot read, run it, add up the parts of a split K.
#pragma once

#include "planner.h"

namespace tc {

// `workspace`: workspace_of(problem, verdict).size bytes on the device, 256-byte aligned.
Status execute(const Problem& problem, const Verdict& verdict, const Device& device, void* workspace, void* stream);

// In kernels/00_workspace.cu.
// Copies x, (outer, K), to `target`, which lies as repacked(x, outer, k) says.
Status launch_repack(const Matrix& x, const Matrix& target, int64_t outer, int64_t k, const Device& device,
                     void* stream);
Status launch_reduce(const Problem& problem, const float* partials, int splits, const Device& device, void* stream);

}  // namespace tc
