// Runs a candidate: repacks operands that the kernel cannot read, launches the kernel and adds split-K's partial products.
#pragma once

#include "planner.h"

namespace tc {

// `desc` is canonical; `workspace` has workspace_of(key_of(desc), candidate).size bytes on the device, 256-byte aligned.
Status run(const GemmDesc& desc, const Candidate& candidate, const DeviceSpec& device, void* workspace, void* stream);

// kernels/00_workspace.cu defines launch_repack and launch_reduce. `early`: the next kernel may start while they run.

// Elements along each edge of the tiles by which a copy transposes.
inline constexpr int kTransposedEdge = 64;

// Copies the x of `batch` products, (outer, K) each, to `target`, which has the strides of repacked(x, outer, k).
Status launch_repack(const MatrixView& x, const MatrixView& target, int64_t batch, int64_t outer, int64_t k,
                     const DeviceSpec& device, void* stream, bool early);

// kernels/00_parts.cu: writes the parts of A and B. `early` as above.
Status launch_parts(const GemmDesc& desc, const OperandParts& a, const OperandParts& b, const DeviceSpec& device, void* stream,
                    bool early);

// Finishes D from fp32 partial products, (layers, batch, M, N) with rows `pitch` elements apart.
Status launch_reduce(const GemmDesc& desc, const float* partials, int64_t pitch, int layers, const DeviceSpec& device,
                     void* stream, bool early);

}  // namespace tc
