// Chooses how to run a problem, from a PlanKey and a DeviceSpec. These functions are pure and call no GPU.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "kernel.h"

namespace tc {

// An operand as a copy into workspace reads it, (rows, length). `along`: the length must be contiguous in the copy. X is a MatrixView or
// a MatrixKey.
template <typename X>
struct Copied {
  X x;
  int64_t rows, length;
  bool along;
};

// A kernel's configuration for a problem, and its modes.
struct Candidate {
  const KernelTraits* kernel = nullptr;
  const Config* config = nullptr;
  Math math = Math::f16;
  bool exchanged = false;                   // computes D^T = B^T A^T
  bool repack_a = false, repack_b = false;  // whether A and B, after the exchange, are first copied into workspace
  bool finish_apart = false;                // the kernel cannot reach C or D: the reduction finishes D
  Modes modes;
  const char* reason = nullptr;  // why the candidate cannot run; null: it can
  float microseconds = 0;        // predicted; meaningless if the candidate cannot run
  bool from_table = false;       // the plan of a loaded table (plans.h)

  int index() const { return int(config - kernel->configs.first); }
  // Whether workspace takes the parts of A and B, instead of copies (repack_a and repack_b are then true).
  bool writes_parts() const { return kernel->access == OperandAccess::parts; }
  // Whether a copy of B has N contiguous.
  bool copies_b_along_n() const { return repacks_b_along_n(kernel->access); }
  // A as (M, K), and B as (N, K), or as (K, N) if its copy has N contiguous. P is a GemmDesc or a PlanKey.
  template <typename P>
  auto copied_a(const P& p) const {
    return Copied<decltype(p.a)>{p.a, p.m, p.k, repacks_a_along_k(kernel->access, math)};
  }
  template <typename P>
  auto copied_b(const P& p) const {
    return copies_b_along_n() ? Copied<decltype(p.b)>{p.b, p.k, p.n, true}
                              : Copied<decltype(p.b)>{transpose(p.b), p.n, p.k, repacks_b_along_k(kernel->access, math)};
  }
  // B, (K, N), of its copy as copied_b() has it.
  template <typename X>
  X b_of_copy(const X& copy) const {
    return copies_b_along_n() ? copy : transpose(copy);
  }
  // The pitch of the rows of partial products, which begin at 16-byte boundaries.
  static int64_t partials_pitch(int64_t n) { return (n + 3) / 4 * 4; }
  // Layers of partial products in workspace. 0: D is written directly.
  int layers() const { return finish_apart || modes.layers() > 1 ? modes.layers() : 0; }
};

// The key as a candidate's product reads it, with repacked operands. `key` is exchanged already if the candidate exchanges operands.
PlanKey after_repacks(PlanKey key, const Candidate& x);

// The offset of each part of the workspace, and the workspace's size, in bytes.
struct Workspace {
  int64_t a, b, partials, size;
};
Workspace workspace_of(const PlanKey& key, const Candidate& candidate);

// The candidates to consider: all kernels, one kernel, or one configuration, whose modes may be fixed.
struct Scope {
  const KernelTraits* kernel = nullptr;  // null: every kernel
  const Config* config = nullptr;        // null: every configuration of the kernel
  std::optional<Cluster> cluster;        // null: every shape that the problem fills
  std::optional<int> columns;            // null: every width of a tile that the planner considers
  std::optional<int> k_slices;           // null: every number that the problem allows
  bool holds(const KernelTraits& k, const Config& c) const { return (!kernel || kernel == &k) && (!config || config == &c); }
};

// "" is every kernel, "name" is one kernel, and "name/2" is its third configuration. Its modes follow in this order:
// "name/2/4x1/n56/k3" runs in clusters of 4 x 1 blocks, with 56 columns of D in a tile and three K slices; "name/2/1x1x2"
// runs in clusters of two blocks that share K. A name that gives the cluster and no columns means whole tiles; any other mode
// that a name does not give is the planner's. Null if the name is unknown.
std::optional<Scope> find_scope(const std::string& name);

// Every candidate in scope in ladder order, including those that cannot run.
std::vector<Candidate> candidates(const PlanKey& key, const DeviceSpec& device, const Scope& scope = {});

// The candidate in scope with the least predicted time. Its kernel is null if no candidate can run.
Candidate plan(const PlanKey& key, const DeviceSpec& device, const Scope& scope = {});

}  // namespace tc
