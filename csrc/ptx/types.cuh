// The operand types of tensor core instructions.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace tc {

// TF32 has no type of its own in memory: it is fp32 whose low 13 bits the tensor core does not read.
struct Tf32 {
  float x;
};

}  // namespace tc
