// What TMA brings and takes: tensor maps, made on the host, and the tiles of operands that they describe (sm_90).
#pragma once

#include <cudaTypedefs.h>

#include "../gemm/kernel.h"
#include "../ptx/tma.cuh"
#include "dispatch.h"

namespace tc {

constexpr int kBoxBytes = 128;  // of a line of every box: the widest that TMA can swizzle

// Boxes of (lines, 128 bytes) of `x`, (outer, extent) with `extent` contiguous, `pitch` elements from line to line; `layers` of
// them `layer` elements apart. Written to shared memory with the 128-byte swizzle; zeros beyond the matrix. fp32: what becomes of
// its elements on the way.
inline Status make_tensor_map(CUtensorMap& map, void* data, DType dtype, int64_t outer, int64_t extent, int64_t pitch,
                              int box_lines, int64_t layers = 1, int64_t layer = 0,
                              CUtensorMapDataType fp32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)
      function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (!encode) return status_of(cudaErrorNotSupported, "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
  const cuuint64_t size = size_of(dtype), least = (extent * size + 15) / 16 * 16;  // a stride that is never used must be valid
  const cuuint64_t dims[3] = {cuuint64_t(extent), cuuint64_t(outer), cuuint64_t(layers)};
  const cuuint64_t strides[2] = {outer > 1 ? pitch * size : least, layers > 1 ? layer * size : least};
  const cuuint32_t box[3] = {cuuint32_t(kBoxBytes / size), cuuint32_t(box_lines), 1}, steps[3] = {1, 1, 1};
  const auto type_of = [&] {
    switch (dtype) {
      case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
      case DType::f32: return fp32;
    }
    __builtin_unreachable();
  };
  const CUresult result = encode(&map, type_of(), 3, data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
                                 CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                 CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status_of(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

// Boxes of an operand x, (outer, K): (tile_outer, 128 bytes) where K is contiguous, (64, 128 bytes) otherwise: the kernel says
// which, because a single element's strides do not. fp32 is rounded to TF32; wgmma would cut it off, which doubles the error.
inline Status make_box_map(CUtensorMap& map, const MatrixView& x, int64_t outer, int64_t k, bool k_contiguous, int tile_outer) {
  constexpr CUtensorMapDataType tf32 = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  return k_contiguous ? make_tensor_map(map, x.data, x.dtype, outer, k, x.row, tile_outer, 1, 0, tf32)
                      : make_tensor_map(map, x.data, x.dtype, k, outer, x.col, 64, 1, 0, tf32);
}

// Of a tile's lines, `left` of which lie in the matrix, those that TMA brings, a multiple of `least`. It takes longer over rows beyond
// the matrix than over others (1x4096x4096 in tiles of 64x64 on an H200: 20.7 microseconds with them, 14.9 without). What lies in
// their place does not reach D.
__host__ __device__ inline int lines_inside(int tile, int64_t left, int least) {
  return int(left < tile ? (left + least - 1) / least * least : tile);
}

// An operand as its tiles are brought.
struct TmaDescriptors {
  CUtensorMap tile, last;  // last: of a matrix of several tiles, one that reaches beyond it
  int outer;
};

inline Status make_tma_descriptors(TmaDescriptors& map, const MatrixView& x, int64_t outer, int64_t k, bool k_contiguous, int tile_outer) {
  map.outer = int(outer);
  if (k == 0) return {};
  const auto make = [&](CUtensorMap& to, int lines) { return make_box_map(to, x, outer, k, k_contiguous, lines); };
  const Status tile = make(map.tile, lines_inside(tile_outer, outer, 8));
  const bool two = k_contiguous && outer > tile_outer && outer % tile_outer != 0;
  return tile.ok() && two ? make(map.last, lines_inside(tile_outer, outer % tile_outer, 8)) : tile;
}

struct TmaOperands {
  TmaDescriptors a, b;
};

inline Status make_tma_operands(TmaOperands& operands, const GemmDesc& p, const Config& tile, bool a_k_contiguous, bool b_k_contiguous) {
  const Status a = make_tma_descriptors(operands.a, p.a, p.m, p.k, a_k_contiguous, tile.tile_m);
  return a.ok() ? make_tma_descriptors(operands.b, transpose(p.b), p.n, p.k, b_k_contiguous, tile.tile_n) : a;
}

// act(math, a, b, operands): what a kernel is compiled for whose operands come by TMA (dispatch.h), and their tensor maps.
template <Math... MATHS, typename F>
Status with_tma_operands(const Launch& call, Maths<MATHS...> maths, F&& act) {
  return with_math(maths, call.math, [&](auto math) {
    return with_aligned_layouts<math>(call.desc, [&](auto a_k, auto b_k) {
      TmaOperands operands = {};
      const Status made = make_tma_operands(operands, call.desc, call.config, a_k, b_k);
      return made.ok() ? act(math, a_k, b_k, operands) : made;
    });
  });
}

// Where the 16-byte chunk `chunk` of line `line` lies in a box, in bytes: chunk ^ line % 8, for lines of 128 bytes.
__device__ __forceinline__ uint32_t box_offset(int line, int chunk) { return line * kBoxBytes + (chunk ^ (line & 7)) * 16; }

// (TILE, 128 bytes) of an operand where K lies contiguous, otherwise (TILE / 64, 64, 128 bytes), 64 of the tile to a line.
template <int TILE, bool K_CONTIGUOUS>
struct TmaOperandTile {
  const TmaDescriptors& map;
  const int outer;  // its first row of A or column of B
  const int lines = lines_inside(TILE, map.outer - outer, K_CONTIGUOUS ? 8 : 64);

  __device__ __forceinline__ void load(uint32_t smem, uint32_t barrier, int k0) const {
    if (K_CONTIGUOUS) tma_load(smem, outer > 0 && lines < TILE ? map.last : map.tile, barrier, k0, outer);
    else
      for (int i = 0; i < lines; i += 64) tma_load(smem + i * kBoxBytes, map.tile, barrier, outer + i, k0);
  }
};

}  // namespace tc
