// What the planner and the launchers know of a GPU.
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

// A GPU model's peaks: dense products with fp32 accumulation, of 16-bit operands where a tensor core forms them.
struct KnownGpu {
  const char* name;  // the beginning of what the driver calls it, after "NVIDIA "
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

// One GPU of this process, or one that a test describes.
struct DeviceSpec {
  int ordinal;
  int64_t smem_per_block;  // bytes, after opting in
  KnownGpu gpu;
};

// The kernels' rates and the cost model's constants were measured on this one; 620 TFLOP/s of mma.sync is a measurement too.
inline constexpr KnownGpu kH200 = {"H200", 90, 132, 66.9, 620, 989.4, 4800};

// The table's entry for what the driver reports, or null. The longest name that fits counts: an "NVIDIA H200 NVL" is no H200.
const KnownGpu* find_gpu(const std::string& driver_name, int sm, int num_sms);

// A GPU outside the table: its peaks by what an SM of its generation does in a cycle, its bandwidth as given.
KnownGpu derived_gpu(int sm, int num_sms, double ghz, double dram_gb_per_s);

}  // namespace tc
