// Not a rung: writes the three bf16 parts of fp32 operands for kernels/15_wgmma_bf16x6.cu.
//
// A strip whose elements lose bits of their third parts is marked (gemm/parts.h).
//
// One launch writes the parts of A and of B, with a row of blocks for each product of a batch. A thread holds eight
// consecutive k of a row, so that it writes a 16-byte vector of each part. Reads follow the operand's smaller stride.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o parts.cubin csrc/kernels/00_parts.cu
// Run:   python -m bench.sweep --kernel wgmma_bf16x6
#include "../gemm/run.h"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/launch.h"
#include "../tile/parts.cuh"

namespace tc {
namespace {

constexpr int THREADS = 256, BLK = PartsLayout::kBlock;

struct Source {
  const float* data;
  int64_t outer_stride, k_stride, batch, outer, k;
  bool along_k, vectors;  // vectors: whether 16-byte vectors along K are aligned
  __nv_bfloat16* parts;
  int64_t padded, parts_batch, marks_batch;  // from a product's parts and marks to the next one's
  float* marks;
  int strips, tiles;  // tiles of K in a strip
};

struct Sources {
  Source of[2];
};

// Writes the parts of eight consecutive elements of a row.
__device__ __forceinline__ void write_parts(__nv_bfloat16* parts, int64_t padded, const float (&v)[8], int64_t o, int64_t k,
                                            Magnitudes& seen) {
  PairParts pairs[4];
  seen.split(pairs, [&](int i) { return v[i]; });
#pragma unroll
  for (int part = 0; part < PartsLayout::kParts; ++part)
    store_whole(parts + (o * PartsLayout::kParts + part) * padded + k,
                make_uint4(pairs[0].x[part], pairs[1].x[part], pairs[2].x[part], pairs[3].x[part]));
}

__global__ __launch_bounds__(THREADS, 4) void write_parts_of_both(const __grid_constant__ Sources sources,
                                                                  const int blocks_of_a, const bool early) {
  wait_on_dependencies();
  if (early) launch_dependents();
  const bool second = int(blockIdx.x) >= blocks_of_a;
  if (blockIdx.y > 0 && sources.of[second].batch == 0) return;  // all products share the operand
  const Source& x = sources.of[second];
  const float* const data = x.data + blockIdx.y * x.batch;
  __nv_bfloat16* const parts = x.parts + blockIdx.y * x.parts_batch;
  const int block = blockIdx.x - (second ? blocks_of_a : 0), strip = block % x.strips;
  const int64_t o0 = int64_t(block / x.strips) * BLK;
  __shared__ float tile[BLK][BLK + 1];  // (K, outer), if reads follow the columns
  Magnitudes seen;
  for (int t = 0; t < x.tiles; ++t) {
    const int64_t k0 = (int64_t(strip) * x.tiles + t) * BLK;
    if (k0 >= x.padded) break;
    if (!x.along_k) {
      // Reads follow the columns. Neighbouring lanes then take another k of the same row from shared memory.
      const int64_t o = o0 + threadIdx.x % BLK;
      const float* const from = data + o * x.outer_stride + k0 * x.k_stride;
      float v[BLK * BLK / THREADS];
#pragma unroll
      for (int i = 0; i < BLK * BLK / THREADS; ++i) {
        const int k = threadIdx.x / BLK + i * (THREADS / BLK);
        v[i] = o < x.outer && k0 + k < x.k ? from[k * x.k_stride] : 0.f;
      }
      __syncthreads();  // all threads have read the last tile
#pragma unroll
      for (int i = 0; i < BLK * BLK / THREADS; ++i) tile[threadIdx.x / BLK + i * (THREADS / BLK)][threadIdx.x % BLK] = v[i];
      __syncthreads();
    }
#pragma unroll
    for (int i = 0; i < BLK * 8 / THREADS; ++i) {
      const int row = threadIdx.x / 8 + i * (THREADS / 8), column = threadIdx.x % 8 * 8;
      const int64_t o = o0 + row, k = k0 + column;
      if (o >= x.outer) continue;
      float v[8];
      if (!x.along_k) {
#pragma unroll
        for (int e = 0; e < 8; ++e) v[e] = tile[column + e][row];
      } else {
        const float* const from = data + o * x.outer_stride + k * x.k_stride;
        if (x.vectors && k + 8 <= x.k) {
          *reinterpret_cast<float4*>(v) = *reinterpret_cast<const float4*>(from);
          *reinterpret_cast<float4*>(v + 4) = *reinterpret_cast<const float4*>(from + 4);
        } else {
#pragma unroll
          for (int e = 0; e < 8; ++e) v[e] = k + e < x.k ? from[e * x.k_stride] : 0.f;
        }
      }
      write_parts(parts, x.padded, v, o, k, seen);
    }
  }
  __shared__ float of_warp[THREADS / 32];
  const float of_lane = warp_max(seen.largest());
  if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = of_lane;
  const bool lossy = __syncthreads_or(seen.lossy());
  if (threadIdx.x != 0) return;
  float largest = 0.f;
#pragma unroll
  for (float x : of_warp) largest = fmaxf(largest, x);
  x.marks[blockIdx.y * x.marks_batch + o0 / BLK * PartsLayout::kMostStrips + strip] = lossy ? -largest : largest;
}

Source source_of(const MatrixView& x, const OperandParts& to, const PartsLayout& layout) {
  const bool along_k = layout.outer == 1 || x.col < x.row;
  return {static_cast<const float*>(x.data),
          x.row,
          x.col,
          x.batch,
          layout.outer,
          layout.k,
          along_k,
          x.col == 1 && alignment(x, layout.outer, layout.k) == 16,
          static_cast<__nv_bfloat16*>(to.parts.data),
          layout.padded(),
          to.parts.batch,
          to.marks_batch,
          to.marks,
          int(layout.strips()),
          int(layout.strip_tiles())};
}

}  // namespace

Status launch_parts(const GemmDesc& p, const OperandParts& a, const OperandParts& b, const DeviceSpec& device, void* stream,
                    bool early) {
  const Source of_a = source_of(p.a, a, {p.m, p.k}), of_b = source_of(transpose(p.b), b, {p.n, p.k});
  const int64_t blocks_of_a = ceil_div(p.m, BLK) * of_a.strips, blocks = blocks_of_a + ceil_div(p.n, BLK) * of_b.strips;
  return launch_grid<write_parts_of_both, true>(
      {blocks, THREADS, 0, 1, true, p.batch}, device, stream, Sources{{of_a, of_b}}, int(blocks_of_a), early);
}

}  // namespace tc
