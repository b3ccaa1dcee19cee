// The kernels and their instances. Adding a rung: one file in kernels/, one line in registry.cpp.
#pragma once

#include "problem.h"

namespace tc {

// What the planner and the launchers know of a GPU.
struct Device {
  int ordinal;
  int sm;                  // 10 * major + minor
  int num_sms;
  int64_t smem_per_block;  // bytes, after opting in
};

// One compiled configuration of a kernel.
struct Instance {
  int tile_m, tile_n, tile_k;
  int threads;
  int smem_bytes;     // dynamic shared memory
  int blocks_per_sm;  // what __launch_bounds__ asks for
  float tflops;       // reached on an H200 with every SM busy; the planner scales it by the number of SMs
};

constexpr unsigned bit(DType t) { return 1u << unsigned(t); }

struct Kernel {
  const char* name;
  const char* idea;
  int min_sm;
  unsigned operands;        // which dtypes of A and B, as bits
  bool contiguous_operands; // A and B each need a direction of stride 1
  const Instance* instances;
  int num_instances;
  Status (*launch)(const Problem&, const Instance&, const Device&, void* stream);  // null in a CPU-only build
};

struct Kernels {
  const Kernel* first;
  int count;
  const Kernel* begin() const { return first; }
  const Kernel* end() const { return first + count; }
};

// In ladder order.
Kernels kernels();

}  // namespace tc
