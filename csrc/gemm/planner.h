// From a PlanKey and a DeviceSpec to a Candidate: pure functions that call no GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel.h"

namespace tc {

// One way to run a problem: a kernel's configuration and its modes.
struct Candidate {
  const KernelTraits* kernel = nullptr;
  const Config* config = nullptr;
  Math math = Math::f16;
  bool exchanged = false;  // computes D^T = B^T A^T
  bool repack_a = false, repack_b = false;  // copied into workspace first; A and B as exchanged
  int k_slices = 1;
  const char* reason = nullptr;  // why it cannot run; null: it can
  float microseconds = 0;        // predicted; meaningless where it cannot run

  int index() const { return int(config - kernel->configs.first); }
  // Layers of partial products in workspace; 1 where D is written directly.
  int layers() const { return kernel->split_k == SplitK::workspace ? k_slices : 1; }
};

// Where each part of the workspace begins, and its size, in bytes.
struct Workspace {
  int64_t a, b, partials, size;
};
Workspace workspace_of(const PlanKey& key, const Candidate& candidate);

// All kernels, one of them, or one of its configurations.
struct Scope {
  const KernelTraits* kernel = nullptr;  // null: every kernel
  const Config* config = nullptr;        // null: every configuration of the kernel
  bool holds(const KernelTraits& k, const Config& c) const {
    return (!kernel || kernel == &k) && (!config || config == &c);
  }
};

// "" is every kernel, "name" one of them, "name/2" its third configuration. Null where there is no such thing.
std::optional<Scope> find_scope(const std::string& name);

// Every candidate in scope, those that cannot run included, in ladder order.
std::vector<Candidate> candidates(const PlanKey& key, const DeviceSpec& device, const Scope& scope = {});

// The candidate in scope with the least predicted time; its kernel is null where none can run.
Candidate plan(const PlanKey& key, const DeviceSpec& device, const Scope& scope = {});

}  // namespace tc
