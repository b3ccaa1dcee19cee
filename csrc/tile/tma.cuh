// TMA: tensor maps on the host, and copies of boxes of a matrix between global and shared memory, one wrapper per instruction
// (sm_90).
#pragma once

#include <cudaTypedefs.h>

#include "../gemm/registry.h"
#include "launch.h"

namespace tc {

constexpr int kBoxBytes = 128;  // of a line of every box: the widest that TMA can swizzle

// Boxes of `box` elements of a tensor of `size` elements, its contiguous direction first, and zeros beyond it; `strides` in bytes.
inline Status encode_tensor_map(CUtensorMap& map, void* data, DType dtype, const cuuint64_t (&size)[3],
                                const cuuint64_t (&strides)[2], const cuuint32_t (&box)[3], CUtensorMapSwizzle swizzle) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)
      function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (!encode) return status_of(cudaErrorNotSupported, "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
  const cuuint32_t steps[3] = {1, 1, 1};
  const CUtensorMapDataType type = dtype == DType::f16    ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16
                                   : dtype == DType::bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                                          : CU_TENSOR_MAP_DATA_TYPE_FLOAT32;
  const CUresult result = encode(&map, type, 3, data, size, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                                 CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status_of(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

// Boxes of (lines, 128 bytes) of (outer, extent) with `extent` contiguous, `pitch` elements from line to line; `layers` of them
// `layer` elements apart. Written to shared memory with the 128-byte swizzle.
inline Status make_tensor_map(CUtensorMap& map, void* data, DType dtype, int64_t outer, int64_t extent, int64_t pitch,
                              int box_lines, int64_t layers = 1, int64_t layer = 0) {
  const cuuint64_t size = size_of(dtype), least = (extent * size + 15) / 16 * 16;  // a stride that is never used must be valid
  return encode_tensor_map(map, data, dtype, {cuuint64_t(extent), cuuint64_t(outer), cuuint64_t(layers)},
                           {outer > 1 ? pitch * size : least, layers > 1 ? layer * size : least},
                           {cuuint32_t(kBoxBytes / size), cuuint32_t(box_lines), 1}, CU_TENSOR_MAP_SWIZZLE_128B);
}

// Parts of `box` elements of one row of `extent`, as they lie.
inline Status make_row_map(CUtensorMap& map, void* data, DType dtype, int64_t extent, int box) {
  const cuuint64_t stride = (extent * size_of(dtype) + 15) / 16 * 16;
  return encode_tensor_map(map, data, dtype, {cuuint64_t(extent), 1, 1}, {stride, stride}, {cuuint32_t(box), 1, 1},
                           CU_TENSOR_MAP_SWIZZLE_NONE);
}

// Where the 16-byte chunk `chunk` of line `line` lies in a box, in bytes: chunk ^ line % 8, for lines of 128 bytes.
__device__ __forceinline__ uint32_t box_offset(int line, int chunk) { return line * kBoxBytes + (chunk ^ (line & 7)) * 16; }

// Fetches the map itself, so that its first use need not wait for it.
__device__ __forceinline__ void prefetch_tensor_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Copies the box at (x, y), elements from the map's innermost dimension out, to shared memory; `barrier` counts its bytes.
__device__ __forceinline__ void tma_load(uint32_t smem, const CUtensorMap& map, uint32_t barrier, int x, int y) {
  asm volatile("cp.async.bulk.tensor.3d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%0], [%1, {%3, %4, %5}], [%2];"
               ::"r"(smem), "l"(&map), "r"(barrier), "r"(x), "r"(y), "r"(0) : "memory");
}

// Copies a box to global memory, what of it lies inside the matrix. It belongs to this thread's next group of stores.
__device__ __forceinline__ void tma_store(const CUtensorMap& map, uint32_t smem, int x, int y, int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.tile.bulk_group [%0, {%2, %3, %4}], [%1];"
               ::"l"(&map), "r"(smem), "r"(x), "r"(y), "r"(z) : "memory");
}
__device__ __forceinline__ void tma_store_commit() { asm volatile("cp.async.bulk.commit_group;" ::: "memory"); }

// Until at most N of this thread's groups of stores, the youngest, still read shared memory.
template <int N>
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" ::"n"(N) : "memory");
}
// Before TMA reads what this thread has stored to shared memory.
__device__ __forceinline__ void fence_before_tma() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

}  // namespace tc
