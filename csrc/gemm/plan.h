// Problem and device facts in, configuration out: pure functions, no GPU calls.
#pragma once

#include "registry.h"

namespace tc {

// What the planner thinks of one instance of one kernel.
struct Verdict {
  const Kernel* kernel = nullptr;
  const Instance* instance = nullptr;
  const char* rejection = nullptr;  // null: it may run
  float microseconds = 0;           // predicted; meaningless when rejected
};

// Judges one instance. `problem` is canonical (problem.h).
Verdict judge(const Kernel& kernel, const Instance& instance, const Problem& problem, const Device& device);

// The fastest instance that may run, among those of `only` when it is given.
// Its kernel is null when none may.
Verdict plan(const Problem& problem, const Device& device, const Kernel* only = nullptr);

}  // namespace tc
