#include "device.h"

#include <cstring>

namespace tc {
namespace {

// Sources: NVIDIA's data sheets of the products and its white papers on GA100, GA102, AD102, GH100 and RTX Blackwell. Rates are
// for dense products with fp32 accumulation. Hopper's mma.sync has no published peak: bench/ceilings.cu measured 620 TFLOP/s on
// an H200, and the other Hopper boards are assumed to have the same share of wgmma's peak.
constexpr double kMmaSyncOfWgmma = kH200.mma_sync_tflops / kH200.wgmma_tflops;

constexpr KnownGpu kGpus[] = {
    // name, sm, SMs, fp32, mma.sync, wgmma TFLOP/s, GB/s
    {"A100-SXM4-40GB", 80, 108, 19.5, 312, 0, 1555},
    {"A100-PCIE-40GB", 80, 108, 19.5, 312, 0, 1555},
    {"A100-SXM4-80GB", 80, 108, 19.5, 312, 0, 2039},
    {"A100 80GB PCIe", 80, 108, 19.5, 312, 0, 1935},
    {"A30", 80, 56, 10.3, 165, 0, 933},
    {"A40", 86, 84, 37.4, 149.7, 0, 696},
    {"A10", 86, 72, 31.2, 125, 0, 600},
    {"RTX A6000", 86, 84, 38.7, 154.8, 0, 768},
    {"GeForce RTX 3090 Ti", 86, 84, 40.0, 80, 0, 1008},
    {"GeForce RTX 3090", 86, 82, 35.6, 71, 0, 936},
    {"L40S", 89, 142, 91.6, 362, 0, 864},
    {"L40", 89, 142, 90.5, 181, 0, 864},
    {"L4", 89, 58, 30.3, 121, 0, 300},
    {"RTX 6000 Ada Generation", 89, 142, 91.1, 364.2, 0, 960},
    {"GeForce RTX 4090", 89, 128, 82.6, 165.2, 0, 1008},
    kH200,
    {"H200 NVL", 90, 132, 60, 835.5 * kMmaSyncOfWgmma, 835.5, 4800},
    {"H100 80GB HBM3", 90, 132, 66.9, 989.4 * kMmaSyncOfWgmma, 989.4, 3350},
    {"H100 PCIe", 90, 114, 51.2, 756.5 * kMmaSyncOfWgmma, 756.5, 2039},
    {"H100 NVL", 90, 132, 60, 835.5 * kMmaSyncOfWgmma, 835.5, 3938},
    {"H800", 90, 132, 66.9, 989.4 * kMmaSyncOfWgmma, 989.4, 3350},
    {"H20", 90, 78, 44, 148 * kMmaSyncOfWgmma, 148, 4000},
    {"GH200 480GB", 90, 132, 66.9, 989.4 * kMmaSyncOfWgmma, 989.4, 4000},
    {"GH200 144G HBM3e", 90, 132, 66.9, 989.4 * kMmaSyncOfWgmma, 989.4, 4900},
    {"GeForce RTX 5090", 120, 170, 104.8, 209.5, 0, 1792},
};

}  // namespace

const KnownGpu* find_gpu(const std::string& driver_name, int sm, int num_sms) {
  const std::string name = driver_name.rfind("NVIDIA ", 0) == 0 ? driver_name.substr(7) : driver_name;
  const KnownGpu* found = nullptr;
  for (const KnownGpu& gpu : kGpus)
    if (name.rfind(gpu.name, 0) == 0 && gpu.sm == sm && gpu.num_sms == num_sms &&
        (!found || std::strlen(gpu.name) > std::strlen(found->name)))
      found = &gpu;
  return found;
}

// Fused multiply-adds per SM and cycle come from the white papers named above. sm_100 has no published figure for mma.sync and
// is assumed to have sm_80's. GeForce boards have half of the 512: the planner then expects too much of every kernel alike.
KnownGpu derived_gpu(int sm, int num_sms, double ghz, double dram_gb_per_s) {
  const int fp32 = sm == 80 ? 64 : 128;
  const int wgmma = sm == 90 ? 2048 : 0;
  const double mma_sync = sm == 80 || sm / 10 == 10 ? 1024 : sm == 90 ? wgmma * kMmaSyncOfWgmma : 512;
  const double per_unit = 2e-3 * num_sms * ghz;  // TFLOP/s for each fused multiply-add
  return {"", sm, num_sms, fp32 * per_unit, mma_sync * per_unit, wgmma * per_unit, dram_gb_per_s};
}

}  // namespace tc
