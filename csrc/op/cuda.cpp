// From a checked description to a launch on torch's current stream, and from a launcher's status to an exception.
#include "backend.h"

#include <cuda_runtime_api.h>
#include <torch/csrc/inductor/aoti_torch/c/shim.h>
#include <torch/csrc/stable/accelerator.h>

#include <algorithm>
#include <mutex>

#include "../gemm/plans.h"
#include "../gemm/run.h"
#include "device_spec.h"
#include "tensor.h"

// A CPU-only torch lacks these. They are weak so that a wheel with kernels loads there too; no CUDA tensor exists to reach
// them.
#pragma weak aoti_torch_get_current_cuda_stream
#pragma weak aoti_torch_cuda_caching_allocator_raw_alloc
#pragma weak aoti_torch_cuda_caching_allocator_raw_delete

namespace tc {
namespace {

void check_status(const Status& status) {
  const auto error = static_cast<cudaError_t>(status.cuda_error);
  if (!status.ok()) fail(message::cuda_failed, {status.call, cudaGetErrorName(error), cudaGetErrorString(error)});
}

// Each GPU's specification, read at its first call.
const DeviceSpec& device_spec(int device) {
  constexpr int kMaxDevices = 128;
  static DeviceSpec specs[kMaxDevices];
  static std::once_flag read[kMaxDevices];
  check(device < kMaxDevices, message::too_many_gpus, device, kMaxDevices);
  std::call_once(read[device], [&] { check_status(read_device_spec(device, specs[device])); });
  return specs[device];
}

[[noreturn]] void fail_without_kernel(const PlanKey& key, const DeviceSpec& device, const Scope& scope) {
  std::string reasons;
  for (const Candidate& x : candidates(key, device, scope)) reasons += std::string("; ") + x.kernel->name + ": " + x.reason;
  const std::string capability = std::to_string(device.gpu.sm / 10) + "." + std::to_string(device.gpu.sm % 10);
  fail(message::no_kernel, {capability, reasons});
}

Candidate plan_by_name(const PlanKey& key, const DeviceSpec& device, const std::string& name) {
  const std::optional<Scope> scope = find_scope(name);
  if (!scope) {
    std::string names;
    for (const KernelTraits& kernel : kernels()) names += std::string(names.empty() ? "" : ", ") + kernel.name;
    fail(message::kernel_unknown, {name, names});
  }
  const Candidate best = plan(key, device, *scope);
  if (!best.kernel) fail_without_kernel(key, device, *scope);
  return best;
}

// Runs a canonical problem of at most kMostProducts products on the device, which is the current one.
void run_launch(const GemmDesc& desc, int32_t device_index, const std::string& kernel) {
  const DeviceSpec& device = device_spec(device_index);
  const PlanKey key = key_of(desc);
  const Candidate candidate = kernel.empty() ? cached_plan(key, device) : plan_by_name(key, device, kernel);
  if (!candidate.kernel) fail_without_kernel(key, device, {});
  void* stream = nullptr;
  check(aoti_torch_get_current_cuda_stream(device_index, &stream) == TORCH_SUCCESS, message::no_stream, device_index);
  const Workspace workspace = workspace_of(key, candidate);
  void* memory = nullptr;
  if (workspace.size > 0)
    check(aoti_torch_cuda_caching_allocator_raw_alloc(workspace.size, &memory) == TORCH_SUCCESS, message::no_workspace,
          workspace.size, device_index);
  const Status status = run(desc, candidate, device, memory, stream);
  if (memory) aoti_torch_cuda_caching_allocator_raw_delete(memory);  // reused only by later work on this stream
  check_status(status);
}

}  // namespace

void run_cuda(const GemmDesc& given, int32_t device_index, const std::string& kernel) {
  const torch::stable::accelerator::DeviceGuard guard(device_index);
  const GemmDesc desc = canonical(given);
  if (desc.batch <= kMostProducts) return run_launch(desc, device_index, kernel);
  for (int64_t first = 0; first < desc.batch; first += kMostProducts) {
    GemmDesc part = product_of(desc, first);
    part.batch = std::min(kMostProducts, desc.batch - first);
    run_launch(canonical(part), device_index, kernel);
  }
}

}  // namespace tc
