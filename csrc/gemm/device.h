// The description of a GPU for the planner and the launchers.
#pragma once

#include <cstdint>
#include <string>

namespace tc {

// The unit that forms a kernel's products.
enum class Unit : uint8_t { simt, mma_sync, wgmma };

constexpr const char* name_of(Unit unit) {
  switch (unit) {
    case Unit::simt: return "fp32";
    case Unit::mma_sync: return "mma.sync";
    case Unit::wgmma: return "wgmma";
  }
  __builtin_unreachable();
}

// The peaks of a GPU model for dense products with fp32 accumulation. Tensor core peaks are for 16-bit operands.
struct KnownGpu {
  const char* name;  // the beginning of the driver's name for the GPU, after "NVIDIA "
  int sm;            // 10 * major + minor
  int num_sms;
  double fp32_tflops, mma_sync_tflops, wgmma_tflops, dram_gb_per_s;

  constexpr double peak_tflops(Unit unit) const {
    switch (unit) {
      case Unit::simt: return fp32_tflops;
      case Unit::mma_sync: return mma_sync_tflops;
      case Unit::wgmma: return wgmma_tflops;
    }
    __builtin_unreachable();
  }
};

// A GPU of this process, or one that a test describes.
struct DeviceSpec {
  int ordinal;
  int64_t smem_per_block;  // bytes, after opting in by cudaFuncAttributeMaxDynamicSharedMemorySize
  KnownGpu gpu;
  std::string driver_name = {};  // as cudaDeviceProp has it
};

// The kernels' rates and the cost model's constants were measured on this GPU. Its 620 TFLOP/s of mma.sync were measured too.
inline constexpr KnownGpu kH200 = {"H200", 90, 132, 66.9, 620, 989.4, 4800};

// The table's entry for the driver's GPU, or null. The longest matching name wins: an "NVIDIA H200 NVL" is not an H200.
const KnownGpu* find_gpu(const std::string& driver_name, int sm, int num_sms);

// Derives the peaks of a GPU outside the table from the rates of its generation's SM. The bandwidth is as given.
KnownGpu derived_gpu(int sm, int num_sms, double ghz, double dram_gb_per_s);

}  // namespace tc
