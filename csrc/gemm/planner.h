// Problem and device facts in, configuration out: pure functions, no GPU calls.
#pragma once

#include <optional>
#include <string>

#include "kernel.h"

namespace tc {

// What the planner thinks of one instance of one kernel.
struct Verdict {
  const Kernel* kernel = nullptr;
  const Instance* instance = nullptr;
  const char* rejection = nullptr;  // null: it may run
  float microseconds = 0;           // predicted; meaningless when rejected
  int splits = 1;                   // parts of K
  bool repack_a = false, repack_b = false;

  int layers() const { return kernel && kernel->split_k == SplitK::workspace ? splits : 1; }  // of D, in workspace if more than one
};

// Where in the workspace each part lies, and its size, in bytes.
struct Workspace {
  int64_t a, b, partials, size;
};
Workspace workspace_of(const Problem& problem, const Verdict& verdict);

// Judges one instance. `problem` is canonical (problem.h).
Verdict judge(const Kernel& kernel, const Instance& instance, const Problem& problem, const Device& device);

// A choice among all instances, those of one kernel, or a single one.
struct Scope {
  const Kernel* kernel = nullptr;      // null: every kernel
  const Instance* instance = nullptr;  // null: every instance of the kernel
  bool holds(const Kernel& k, const Instance& i) const {
    return (!kernel || kernel == &k) && (!instance || instance == &i);
  }
};

// "" is every kernel, "name" one kernel, "name/2" its third instance. Null when there is no such thing.
std::optional<Scope> find_scope(const std::string& name);

// The fastest instance in scope that may run; its kernel is null when none may.
Verdict plan(const Problem& problem, const Device& device, const Scope& scope = {});

}  // namespace tc
