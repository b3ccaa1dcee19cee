// What op.cpp hands to a backend: a checked problem, free of torch.
#pragma once

#include <cstdint>
#include <string>

#include "gemm/problem.h"

namespace tc {

// Plans and launches on the current stream of the device. `kernel` forces one by name; empty lets the planner choose.
void run_cuda(const Problem& problem, int32_t device_index, const std::string& kernel);

}  // namespace tc
