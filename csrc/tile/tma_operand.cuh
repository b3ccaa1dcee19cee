// Tensor maps, which the host makes, and the operand tiles that TMA loads with them (sm_90).
#pragma once

#include <cudaTypedefs.h>

#include <optional>

#include "../gemm/kernel.h"
#include "../ptx/tma.cuh"
#include "dispatch.h"

namespace tc {

constexpr int kBoxBytes = 128;  // bytes of a row of every box: the most that TMA can swizzle

// Matrices of the same size at a constant distance.
struct Layers {
  int64_t count = 1, stride = 0;  // elements
};

// Describes boxes of (box_rows, 128 bytes) of `layers` matrices. Each is (rows, cols) with contiguous rows, `leading` elements
// apart. If there are `tiles`, each of them is such a set of layers, and the map has a fourth coordinate. TMA writes boxes to
// shared memory with the 128-byte swizzle, and with zeros beyond the matrix. `fp32` is the tensor map's type for fp32 elements:
// TFLOAT32 makes TMA round them to TF32.
inline Status make_tensor_map(CUtensorMap& map, void* data, DType dtype, int64_t rows, int64_t cols, int64_t leading,
                              int box_rows, Layers layers = {}, std::optional<Layers> tiles = {},
                              CUtensorMapDataType fp32 = CU_TENSOR_MAP_DATA_TYPE_FLOAT32) {
  static PFN_cuTensorMapEncodeTiled_v12000 encode = [] {
    void* function = nullptr;
    cudaDriverEntryPointQueryResult found;
    if (cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000, cudaEnableDefault, &found) != cudaSuccess)
      function = nullptr;
    return reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(function);
  }();
  if (!encode) return status_of(cudaErrorNotSupported, "cudaGetDriverEntryPointByVersion(cuTensorMapEncodeTiled)");
  const cuuint64_t size = size_of(dtype), least = (cols * size + 15) / 16 * 16;  // an unused stride must be valid too
  const Layers tile = tiles.value_or(Layers());
  const auto stride = [&](const Layers& x) { return x.count > 1 ? x.stride * size : least; };
  const cuuint64_t dims[4] = {cuuint64_t(cols), cuuint64_t(rows), cuuint64_t(layers.count), cuuint64_t(tile.count)};
  const cuuint64_t strides[3] = {stride({rows, leading}), stride(layers), stride(tile)};
  const cuuint32_t box[4] = {cuuint32_t(kBoxBytes / size), cuuint32_t(box_rows), 1, 1}, steps[4] = {1, 1, 1, 1};
  const auto type_of = [&] {
    switch (dtype) {
      case DType::f16: return CU_TENSOR_MAP_DATA_TYPE_FLOAT16;
      case DType::bf16: return CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
      case DType::f32: return fp32;
    }
    __builtin_unreachable();
  };
  const CUresult result =
      encode(&map, type_of(), tiles ? 4 : 3, data, dims, strides, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
             CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return status_of(result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue, "cuTensorMapEncodeTiled");
}

// Describes boxes of an operand x of `batch` products, (outer, K) each: (tile_outer, 128 bytes) if K is contiguous, and
// otherwise rows of 128 bytes, as many k as a row has elements. The kernel says which, because the strides of a single element do
// not. TMA rounds fp32 to TF32: wgmma would truncate it, which doubles the error.
inline Status make_box_map(CUtensorMap& map, const MatrixView& x, int64_t batch, int64_t outer, int64_t k, bool k_contiguous,
                           int tile_outer) {
  constexpr CUtensorMapDataType tf32 = CU_TENSOR_MAP_DATA_TYPE_TFLOAT32;
  const Layers all{matrices_of(x, batch), x.batch};
  return k_contiguous ? make_tensor_map(map, x.data, x.dtype, outer, k, x.row, tile_outer, all, {}, tf32)
                      : make_tensor_map(map, x.data, x.dtype, k, outer, x.col, kBoxBytes / size_of(x.dtype), all, {}, tf32);
}

// How many of a tile's rows TMA loads: the `left` rows that lie in the matrix, rounded up to a multiple of `unit`. Rows beyond
// the matrix take TMA longer than others: 1x4096x4096 in tiles of 64x64 on an H200 took 20.7 microseconds with them and 14.9
// without. What shared memory holds in their place does not reach D.
__host__ __device__ inline int rows_inside(int tile, int64_t left, int unit) {
  return (int(left < tile ? left : tile) + unit - 1) / unit * unit;
}

// An operand's tensor maps. A tile has `tile_outer` of the matrix's `outer` rows of A or columns of B.
struct TmaDescriptors {
  CUtensorMap tile, last;  // last: for the last of several tiles, if that tile reaches beyond the matrix
  int outer, tile_outer;
  int next_product;  // matrices from a product's to the next one's; 0 if all share the operand
  bool k_contiguous;
};

inline Status make_tma_descriptors(TmaDescriptors& map, const MatrixView& x, int64_t batch, int64_t outer, int64_t k,
                                   bool k_contiguous, int tile_outer) {
  map.outer = int(outer), map.tile_outer = tile_outer, map.next_product = x.batch != 0, map.k_contiguous = k_contiguous;
  if (k == 0) return {};
  const auto make = [&](CUtensorMap& to, int rows) { return make_box_map(to, x, batch, outer, k, k_contiguous, rows); };
  const Status tile = make(map.tile, rows_inside(tile_outer, outer, 8));
  const bool two = k_contiguous && outer > tile_outer && outer % tile_outer != 0;
  return tile.ok() && two ? make(map.last, rows_inside(tile_outer, outer % tile_outer, 8)) : tile;
}

struct TmaOperands {
  TmaDescriptors a, b;
};

inline Status make_tma_operands(TmaOperands& operands, const Launch& call, bool a_k_contiguous, bool b_k_contiguous) {
  const GemmDesc& p = call.desc;
  const Status a = make_tma_descriptors(operands.a, p.a, p.batch, p.m, p.k, a_k_contiguous, call.config.tile_m);
  return a.ok() ? make_tma_descriptors(operands.b, transpose(p.b), p.batch, p.n, p.k, b_k_contiguous, call.modes.columns) : a;
}

// Calls act(math, a, b, operands) for a kernel whose operands come by TMA: math, layouts (dispatch.h), tensor maps.
template <Math... MATHS, typename F>
Status with_tma_operands(const Launch& call, Maths<MATHS...> maths, F&& act) {
  return with_math(maths, call.math, [&](auto math) {
    return with_aligned_layouts<math>(call.desc, [&](auto a_k, auto b_k) {
      TmaOperands operands = {};
      const Status made = make_tma_operands(operands, call, a_k, b_k);
      return made.ok() ? act(math, a_k, b_k, operands) : made;
    });
  });
}

// Calls act(a, b), which tell at compile time whether A and B are contiguous along K. A kernel that serves all layouts has a main
// loop for each of them, and one epilogue. A_ANY, B_ANY: the operand may have either layout; otherwise K is contiguous.
template <bool A_ANY, bool B_ANY, typename F>
__device__ __forceinline__ void with_tma_layouts(const TmaOperands& operands, F&& act) {
  const auto with_b = [&](auto a_k) {
    if (!B_ANY || operands.b.k_contiguous) act(a_k, std::true_type());
    else if constexpr (B_ANY) act(a_k, std::false_type());
  };
  if (!A_ANY || operands.a.k_contiguous) with_b(std::true_type());
  else if constexpr (A_ANY) with_b(std::false_type());
}

// Where vector `vector` of row `row` lies in a box, in bytes. The 128-byte swizzle puts it in place vector ^ row % 8.
__device__ __forceinline__ uint32_t box_offset(int row, int vector) { return row * kBoxBytes + (vector ^ (row & 7)) * 16; }

// An operand's tile in shared memory: (rows, 128 bytes) if K is contiguous, (rows / UNIT, UNIT, 128 bytes) otherwise. In the
// second form a 128-byte row holds UNIT rows of A or columns of B at one k: 64 of 16 bits, and 32 of fp32.
template <bool K_CONTIGUOUS, int UNIT = 64>
struct TmaOperandTile {
  const TmaDescriptors& map;
  const int outer;  // the tile's first row of A or column of B
  const int product;
  // 128-byte rows that TMA loads per K tile: none if the tile lies outside the matrix.
  const int lines = max(0, rows_inside(map.tile_outer, map.outer - outer, K_CONTIGUOUS ? 8 : UNIT));
  const CUtensorMap& box = K_CONTIGUOUS && outer > 0 && lines < map.tile_outer ? map.last : map.tile;
  const int matrix = product * map.next_product;

  __device__ __forceinline__ void load(uint32_t smem, uint32_t barrier, int k0) const {
    if (K_CONTIGUOUS) tma_load(smem, box, barrier, k0, outer, matrix);
    else
      for (int i = 0; i < lines; i += UNIT) tma_load(smem + i * kBoxBytes, box, barrier, outer + i, k0, matrix);
  }

  // Copies the tile to L2.
  __device__ __forceinline__ void prefetch(int k0) const {
    if (K_CONTIGUOUS) {
      if (lines > 0) tma_prefetch(box, k0, outer, matrix);
    } else {
      for (int i = 0; i < lines; i += UNIT) tma_prefetch(box, outer + i, k0, matrix);
    }
  }

  // Loads the tile for several blocks of the cluster, see tma_load_multicast.
  __device__ __forceinline__ void load_multicast(uint32_t smem, uint32_t barrier, int k0, uint16_t blocks) const {
    if (K_CONTIGUOUS) tma_load_multicast(smem, box, barrier, k0, outer, matrix, blocks);
    else
      for (int i = 0; i < lines; i += UNIT)
        tma_load_multicast(smem + i * kBoxBytes, box, barrier, outer + i, k0, matrix, blocks);
  }
};

}  // namespace tc
