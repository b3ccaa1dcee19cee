#pragma once

#include "tensor.h"

namespace tc {

// Computes `problem` on the CPU. mat1 and mat2 are the tensors that its A and B describe.
void run_cpu(const TensorMeta& mat1, const TensorMeta& mat2, const GemmDesc& problem);

}  // namespace tc
