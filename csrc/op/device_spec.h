// A GPU's specification: by its name, or measured where the table of gemm/device.cpp does not know it.
#pragma once

#include "../gemm/desc.h"
#include "../gemm/device.h"

namespace tc {

// Reads the specification of a CUDA device, which is the current one.
Status read_device_spec(int ordinal, DeviceSpec& spec);

// The same without the table. Peaks follow the SMs' clock. The bandwidth is that of copies of 64 MB, which take about a
// millisecond on a stream of their own, or the memory clock's where nothing can be measured.
Status measure_device_spec(int ordinal, DeviceSpec& spec);

}  // namespace tc
