#pragma once

#include "../gemm/desc.h"

namespace tc {

// Computes all products of `desc` on the CPU.
void run_cpu(const GemmDesc& desc);

}  // namespace tc
