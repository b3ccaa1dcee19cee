// The operand types of tensor core instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tc {

// TF32 has no format of its own in memory: it is fp32, of which the tensor core does not read the low 13 bits.
struct Tf32 {
  float x;
};

}  // namespace tc
