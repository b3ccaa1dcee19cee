// What op.cpp hands to the GPU: a checked problem, free of torch.
#pragma once

#include <cstdint>
#include <string>

#include "../gemm/desc.h"

namespace tc {

// Plans and launches on the current stream of the device. `kernel` forces one by name (find_scope in gemm/planner.h says how);
// empty lets the planner choose among all.
void run_cuda(const GemmDesc& problem, int32_t device_index, const std::string& kernel);

}  // namespace tc
