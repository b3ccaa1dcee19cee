// From a checked problem to a launch on torch's current stream, and from a launcher's status to an exception.
#include "backend.h"

#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <mutex>
#include <stdexcept>
#include <tuple>

#include "../gemm/run.h"

namespace tc {
namespace {

void check(const Status& status) {
  if (status.ok()) return;
  const auto error = static_cast<cudaError_t>(status.cuda_error);
  throw std::runtime_error(std::string("tc::addmm: ") + status.call + " failed: " + cudaGetErrorName(error) + ": " +
                           cudaGetErrorString(error));
}

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  check({int(cudaDeviceGetAttribute(&value, name, device)), "cudaDeviceGetAttribute"});
  return value;
}

const Device& device_facts(int device) {
  constexpr int kMaxDevices = 128;
  static Device facts[kMaxDevices];
  static std::once_flag read[kMaxDevices];
  if (device >= kMaxDevices) throw std::runtime_error("tc::addmm: more than 128 GPUs in one process");
  std::call_once(read[device], [&] {
    facts[device] = {device,
                     10 * attribute(cudaDevAttrComputeCapabilityMajor, device) +
                         attribute(cudaDevAttrComputeCapabilityMinor, device),
                     attribute(cudaDevAttrMultiProcessorCount, device),
                     attribute(cudaDevAttrMaxSharedMemoryPerBlockOptin, device)};
  });
  return facts[device];
}

Verdict choose(const Problem& problem, const Device& device, const std::string& name) {
  const std::optional<Scope> scope = find_scope(name);
  if (!scope) {
    std::string names;
    for (const Kernel& kernel : kernels()) names += std::string(names.empty() ? "" : ", ") + kernel.name;
    throw std::runtime_error("tc::addmm: there is no kernel '" + name + "'; there are " + names +
                             ", and 'NAME/INDEX' for one of a kernel's instances");
  }
  const Verdict verdict = plan(problem, device, *scope);
  if (verdict.kernel) return verdict;
  std::string reasons;
  for (const Kernel& kernel : kernels())
    for (int i = 0; i < kernel.num_instances; ++i)
      if (scope->holds(kernel, kernel.instances[i]))
        reasons += std::string("; ") + kernel.name + ": " +
                   judge(kernel, kernel.instances[i], problem, device).rejection;
  throw std::runtime_error("tc::addmm: no kernel accepts this problem on a GPU of compute capability " +
                           std::to_string(device.sm / 10) + "." + std::to_string(device.sm % 10) + reasons);
}

// A cache of the planner's choices, one per thread: planning takes 1.4 to 4 microseconds, and a model asks for the same few problems
// again and again. The planner is given the key, not the problem, so that it cannot see what the key leaves out.
Verdict choose_cached(const Problem& problem, const Device& device) {
  Problem key = problem;
  for (Matrix* x : {&key.a, &key.b, &key.c, &key.d})
    if (x->data) x->data = reinterpret_cast<void*>(16 + reinterpret_cast<uintptr_t>(x->data) % 16);
  key.alpha = key.beta = 1.f;
  key.activation = {key.activation.kind};
  struct Entry {
    Problem key;
    int device;
    Verdict verdict;
  };
  thread_local Entry cache[64];
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;  // 2^64 over the golden ratio: sizes that are multiples of 64 lie apart
  Entry& entry = cache[((uint64_t(key.m) * kSpread + uint64_t(key.n)) * kSpread + uint64_t(key.k)) * kSpread >> 58];
  const auto members = [](const Problem& x, const int& device) {
    return std::tie(x.m, x.n, x.k, x.a, x.b, x.c, x.d, x.allow_tf32, x.activation.kind, device);
  };
  if (!entry.verdict.kernel || members(entry.key, entry.device) != members(key, device.ordinal))
    entry = {key, device.ordinal, choose(key, device, {})};
  return entry.verdict;
}

}  // namespace

void run_cuda(const Problem& problem, int32_t device_index, const std::string& kernel) {
  const torch::stable::accelerator::DeviceGuard guard(device_index);
  const Device& device = device_facts(device_index);
  const Problem p = canonical(problem);
  const Verdict verdict = kernel.empty() ? choose_cached(p, device) : choose(p, device, kernel);
  void* stream = nullptr;
  if (aoti_torch_get_current_cuda_stream(device_index, &stream) != TORCH_SUCCESS)
    throw std::runtime_error("tc::addmm: torch has no current CUDA stream");
  const Workspace workspace = workspace_of(p, verdict);
  void* memory = nullptr;
  if (workspace.size > 0 && aoti_torch_cuda_caching_allocator_raw_alloc(workspace.size, &memory) != TORCH_SUCCESS)
    throw std::runtime_error("tc::addmm: no memory for a workspace of " + std::to_string(workspace.size) + " bytes");
  const Status status = execute(p, verdict, device, memory, stream);
  if (memory) aoti_torch_cuda_caching_allocator_raw_delete(memory);  // reused only by later work on this stream
  check(status);
}

}  // namespace tc
