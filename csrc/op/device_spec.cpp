#include "device_spec.h"

#include <cuda_runtime_api.h>

#include <algorithm>

namespace tc {
namespace {

constexpr double kCopyOfPeak = 0.854;  // what a copy reaches of an H200's data sheet (gemm/cost_parts.cpp)

int attribute(cudaDeviceAttr name, int device) {
  int value = 0;
  cudaDeviceGetAttribute(&value, name, device);
  return value;
}

double gb_per_s_by_clock(int device) {
  const double khz = attribute(cudaDevAttrMemoryClockRate, device), bits = attribute(cudaDevAttrGlobalMemoryBusWidth, device);
  return 2 * khz * 1e3 * bits / 8 / 1e9;  // two transfers a cycle
}

// Null memory, a stream or an event that could not be made leaves `milliseconds` as it is.
cudaError_t time_copies(void* memory, size_t bytes, cudaStream_t stream, cudaEvent_t begin, cudaEvent_t end,
                        float& milliseconds) {
  constexpr int kRounds = 5;
  char* const source = static_cast<char*>(memory);
  for (int round = 0; round < kRounds; ++round) {
    cudaEventRecord(begin, stream);
    cudaMemcpyAsync(source + bytes, source, bytes, cudaMemcpyDeviceToDevice, stream);
    cudaEventRecord(end, stream);
    const cudaError_t error = cudaEventSynchronize(end);
    if (error != cudaSuccess) return error;
    float time = 0;
    cudaEventElapsedTime(&time, begin, end);
    if (round > 0) milliseconds = milliseconds == 0 ? time : std::min(milliseconds, time);  // the first round warms up
  }
  return cudaGetLastError();
}

// Bytes read and written a second, in the data sheet's terms; 0 where it cannot be measured.
double measured_gb_per_s() {
  constexpr size_t kBytes = 64 << 20;
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  cudaThreadExchangeStreamCaptureMode(&mode);  // allocating is allowed while another stream is captured
  void* memory = nullptr;
  cudaStream_t stream = nullptr;
  cudaEvent_t begin = nullptr, end = nullptr;
  float milliseconds = 0;
  if (cudaMalloc(&memory, 2 * kBytes) == cudaSuccess &&
      cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking) == cudaSuccess && cudaEventCreate(&begin) == cudaSuccess &&
      cudaEventCreate(&end) == cudaSuccess)
    if (time_copies(memory, kBytes, stream, begin, end, milliseconds) != cudaSuccess) milliseconds = 0;
  if (end) cudaEventDestroy(end);
  if (begin) cudaEventDestroy(begin);
  if (stream) cudaStreamDestroy(stream);
  if (memory) cudaFree(memory);
  cudaThreadExchangeStreamCaptureMode(&mode);
  cudaGetLastError();  // a failure only means that the clock has to do
  return milliseconds == 0 ? 0 : 2.0 * kBytes / (milliseconds * 1e-3) / 1e9 / kCopyOfPeak;
}

Status read_properties(int ordinal, cudaDeviceProp& properties) {
  return {int(cudaGetDeviceProperties(&properties, ordinal)), "cudaGetDeviceProperties"};
}

}  // namespace

Status measure_device_spec(int ordinal, DeviceSpec& spec) {
  cudaDeviceProp properties;
  const Status status = read_properties(ordinal, properties);
  if (!status.ok()) return status;
  const double ghz = attribute(cudaDevAttrClockRate, ordinal) * 1e-6, measured = measured_gb_per_s();
  spec = {ordinal, int64_t(properties.sharedMemPerBlockOptin),
          derived_gpu(10 * properties.major + properties.minor, properties.multiProcessorCount, ghz,
                      measured > 0 ? measured : gb_per_s_by_clock(ordinal)),
          properties.name};
  return {};
}

Status read_device_spec(int ordinal, DeviceSpec& spec) {
  cudaDeviceProp properties;
  const Status status = read_properties(ordinal, properties);
  if (!status.ok()) return status;
  const KnownGpu* known = find_gpu(properties.name, 10 * properties.major + properties.minor, properties.multiProcessorCount);
  if (!known) return measure_device_spec(ordinal, spec);
  spec = {ordinal, int64_t(properties.sharedMemPerBlockOptin), *known, properties.name};
  return {};
}

}  // namespace tc
