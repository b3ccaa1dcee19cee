// What op.cpp hands to a backend: a checked problem, free of torch.
#pragma once

// The stable ABI as of torch 2.11; to be included before any torch header. Not a build flag, because the pybind11 that torch
// bundles refuses to be compiled under it.
#define TORCH_TARGET_VERSION 0x020b000000000000

#include <cstdint>
#include <string>

#include "../gemm/desc.h"

namespace tc {

// Plans and launches on the current stream of the device. `kernel` forces one by name (find_scope in gemm/plan.h says how);
// empty lets the planner choose among all.
void run_cuda(const Problem& problem, int32_t device_index, const std::string& kernel);

}  // namespace tc
