// Not a rung: the memory-bound kernels that a rung may need around it.
//
// An operand that cp.async and TMA cannot read (odd leading dimension, misaligned base, no direction of stride 1) is
// repacked into workspace, laid out as repacked() in problem.h says: realign copies lines to 16-byte boundaries,
// make_k_contiguous also transposes. reduce adds the fp32 partial products of a split K in a fixed order and finishes
// D. All three start while the kernel before them still runs (wait_for_previous_kernel in tile/launch.h).
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o workspace.cubin csrc/kernels/00_workspace.cu
#include <climits>
#include <type_traits>

#include "../gemm/execute.h"
#include "../tile/copy.cuh"
#include "../tile/epilogue.cuh"
#include "../tile/launch.h"

namespace tc {
namespace {

constexpr int THREADS = 256;
constexpr int BATCH = 4;  // chunks that a thread has in flight; with 4 blocks to an SM, enough to cover DRAM's latency

// The 16 bytes that begin `shift` bytes into the 32 of lo and hi, an even number below 16.
__device__ __forceinline__ uint4 funnel(const uint4& lo, const uint4& hi, int shift) {
  const uint32_t w[8] = {lo.x, lo.y, lo.z, lo.w, hi.x, hi.y, hi.z, hi.w};
  uint32_t by_8[6], by_4[5], x[4];  // selections, because registers have no index
#pragma unroll
  for (int i = 0; i < 6; ++i) by_8[i] = shift & 8 ? w[i + 2] : w[i];
#pragma unroll
  for (int i = 0; i < 5; ++i) by_4[i] = shift & 4 ? by_8[i + 1] : by_8[i];
#pragma unroll
  for (int i = 0; i < 4; ++i) x[i] = __funnelshift_r(by_4[i], by_4[i + 1], shift % 4 * 8);
  return make_uint4(x[0], x[1], x[2], x[3]);
}

// The first `count` bytes of x, an even number, and zeros.
__device__ __forceinline__ uint4 cut(uint4 x, int count) {
  const auto word = [&](uint32_t w, int left) { return left >= 4 ? w : left > 0 ? w & 0xffff : 0; };
  return make_uint4(word(x.x, count), word(x.y, count - 4), word(x.z, count - 8), word(x.w, count - 12));
}

// Lines of `bytes` bytes, `stride` bytes apart and aligned to their elements, to lines of whole 16-byte chunks, filled
// up with zeros. A chunk is put together from the one or two aligned 16-byte words that it touches. A word may reach
// past its line but not past the matrix, where nothing need be mapped: chunks at either end are read by element.
__global__ __launch_bounds__(THREADS, 4) void realign(const void* source, int64_t stride, int64_t bytes, uint4* target,
                                                      int64_t lines) {
  wait_for_previous_kernel();
  const int64_t per_line = (bytes + 15) / 16, chunks = lines * per_line;
  const int64_t step_lines = THREADS / per_line, step = THREADS % per_line;  // to a thread's next chunk
  const uintptr_t begin = reinterpret_cast<uintptr_t>(source), end = begin + (lines - 1) * stride + bytes;
  const auto words = [&](uintptr_t from, int count) {  // that a chunk touches; 0 if one of them reaches past the matrix
    const int words = from % 16 + count > 16 ? 2 : 1;
    return from / 16 * 16 >= begin && from / 16 * 16 + words * 16 <= end ? words : 0;
  };
  constexpr int64_t SHARE = THREADS * BATCH;
  for (int64_t first = blockIdx.x * SHARE + threadIdx.x; first < chunks; first += gridDim.x * SHARE) {
    int64_t line = first / per_line, chunk = first % per_line;
    uintptr_t from[BATCH];
    int count[BATCH];  // bytes of the chunk that exist
    uint4 lo[BATCH], hi[BATCH];
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      from[i] = begin + line * stride + chunk * 16;
      count[i] = line < lines ? int(min(int64_t(16), bytes - chunk * 16)) : 0;
      const uint4* const word = reinterpret_cast<const uint4*>(from[i] / 16 * 16);
      lo[i] = hi[i] = make_uint4(0, 0, 0, 0);
      if (words(from[i], count[i]) > 0) lo[i] = __ldg(word);
      if (words(from[i], count[i]) > 1) hi[i] = __ldg(word + 1);
      line += step_lines;
      chunk += step;
      if (chunk >= per_line) chunk -= per_line, ++line;
    }
#pragma unroll
    for (int i = 0; i < BATCH; ++i) {
      if (count[i] == 0) break;
      target[first + i * THREADS] =
          words(from[i], count[i]) ? cut(funnel(lo[i], hi[i], int(from[i] % 16)), count[i])
                                   : load_piece(reinterpret_cast<const uint16_t*>(from[i]), count[i] / 2, false);
    }
  }
}

constexpr int BLK = 64;  // of outer and of K in a tile of make_k_contiguous

// Element (o, k) of the source, (outer, K) with any strides, to target[o * leading + k]; zeros from K up to `leading`.
// Reads run along the source's smaller stride, 16 bytes each when `wide` (outer stride 1, lines 16-byte aligned), and
// every write is 16 bytes of a line.
template <typename E>
__global__ __launch_bounds__(THREADS, 4) void make_k_contiguous(const E* source, int64_t outer_stride, int64_t k_stride,
                                                                E* target, int64_t leading, int64_t outer, int64_t k,
                                                                bool along_k, bool wide) {
  constexpr int W = 16 / int(sizeof(E)), SHARE = BLK * BLK / THREADS;  // elements of a chunk; of a thread
  __shared__ __align__(16) E tile[BLK * BLK];  // (outer, K)
  // A chunk's place in its row is permuted so that 8 lanes, on rows 1 or 4 apart, store to 8 different bank groups.
  const auto at = [&](int o, int kk) { return &tile[o * BLK + (kk / W ^ ((o ^ o >> 2) & 7)) * W + kk % W]; };
  wait_for_previous_kernel();
  const int64_t tiles_k = (leading + BLK - 1) / BLK, tiles = (outer + BLK - 1) / BLK * tiles_k;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t o0 = t / tiles_k * BLK, k0 = t % tiles_k * BLK;
    const int outer_left = int(min(int64_t(BLK), outer - o0)), k_left = int(min(int64_t(BLK), k - k0));
    const E* next = source + o0 * outer_stride + k0 * k_stride;  // stepped: 64-bit products are slow
    // V elements of outer to a read, whole chunks of K to a thread.
    const auto read_along_outer = [&](auto elements) {
      constexpr int V = decltype(elements)::value, LANES = BLK / V;
      const int o = threadIdx.x % LANES * V;
      const auto k_of = [&](int i) { return int(threadIdx.x / LANES + i / W * (THREADS / LANES)) * W + i % W; };
      Vec<E, V> v[SHARE / V];
      next += o * outer_stride + k_of(0) * k_stride;
#pragma unroll
      for (int i = 0; i < SHARE / V; next += (k_of(i + 1) - k_of(i)) * k_stride, ++i)
        v[i] = o < outer_left && k_of(i) < k_left ? *reinterpret_cast<const Vec<E, V>*>(next) : Vec<E, V>{};
#pragma unroll
      for (int i = 0; i < SHARE / V; i += W)
#pragma unroll
        for (int u = 0; u < V; ++u) {
          Vec<E, W> chunk;
#pragma unroll
          for (int e = 0; e < W; ++e) chunk.x[e] = v[i + e].x[u];
          *reinterpret_cast<Vec<E, W>*>(at(o + u, k_of(i))) = chunk;
        }
    };
    if (along_k) {
      const int kk = threadIdx.x % BLK;
      const auto o_of = [&](int i) { return int(threadIdx.x / BLK) + i * (THREADS / BLK); };
      E v[SHARE];
      next += o_of(0) * outer_stride + kk * k_stride;
#pragma unroll
      for (int i = 0; i < SHARE; ++i, next += THREADS / BLK * outer_stride)
        v[i] = o_of(i) < outer_left && kk < k_left ? *next : E(0);
#pragma unroll
      for (int i = 0; i < SHARE; ++i) *at(o_of(i), kk) = v[i];
    } else if (sizeof(E) == 4 && wide && outer_left == BLK) {
      if constexpr (sizeof(E) == 4) read_along_outer(std::integral_constant<int, 4>());
    } else {
      read_along_outer(std::integral_constant<int, 1>());
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < SHARE / W; ++i) {
      const int o = (threadIdx.x + i * THREADS) / (BLK / W), kk = (threadIdx.x + i * THREADS) % (BLK / W) * W;
      if (o < outer_left && kk < leading - k0)
        *reinterpret_cast<uint4*>(&target[(o0 + o) * leading + k0 + kk]) = *reinterpret_cast<const uint4*>(at(o, kk));
    }
    __syncthreads();
  }
}

// D = alpha * (sum over splits of partials, (splits, M, N)) + beta * C, W elements of a row to a thread; W divides N.
template <typename T, int W>
__global__ __launch_bounds__(THREADS) void reduce(const Problem p, const Wide wide, const float* partials,
                                                  const int splits) {
  wait_for_previous_kernel();
  const int64_t runs_n = p.n / W, runs = p.m * runs_n;
  for (int64_t r = blockIdx.x * int64_t(THREADS) + threadIdx.x; r < runs; r += int64_t(gridDim.x) * THREADS) {
    const int64_t i = r / runs_n, j = r % runs_n * W;
    float sum[W] = {};
#pragma unroll 8  // loads in flight: the sums are few and the parts many
    for (int s = 0; s < splits; ++s) {
      const Vec<float, W> part = *reinterpret_cast<const Vec<float, W>*>(partials + (s * p.m + i) * p.n + j);
#pragma unroll
      for (int e = 0; e < W; ++e) sum[e] += part.x[e];
    }
    finish_run<T>(p, wide, i, j, sum);
  }
}

Status launch_realign(const Matrix& x, void* target, int64_t lines, int64_t leading, int64_t length,
                      const Device& device, void* stream) {
  const int64_t size = size_of(x.dtype), bytes = length * size, share = THREADS * BATCH;
  const int64_t blocks = (lines * ((bytes + 15) / 16) + share - 1) / share;
  return launch_blocks<realign, true>(std::min(blocks, int64_t(INT_MAX)), THREADS, 0, device, stream,
                                      static_cast<const void*>(x.data), leading * size, bytes,
                                      static_cast<uint4*>(target), lines);
}

template <typename E>
Status launch_make_k_contiguous(const Matrix& x, const Matrix& target, int64_t outer, int64_t k, const Device& device,
                                void* stream) {
  const int64_t blocks = (outer + BLK - 1) / BLK * ((target.row + BLK - 1) / BLK);
  const bool along_k = outer == 1 || x.col < x.row;
  const bool wide = order_of(x) == Order::col_major && alignment(x, outer, k) == 16;
  return launch_blocks<make_k_contiguous<E>, true>(std::min(blocks, int64_t(INT_MAX)), THREADS, 0, device, stream,
                                                   static_cast<const E*>(x.data), x.row, x.col,
                                                   static_cast<E*>(target.data), target.row, outer, k, along_k, wide);
}

template <typename T>
Status launch_reduce_of(const Problem& p, const float* partials, int splits, const Device& device, void* stream) {
  const auto reduce_by = [&](auto width) {
    constexpr int W = decltype(width)::value;
    const int64_t blocks = (p.m * p.n / W + THREADS - 1) / THREADS;
    return launch_blocks<reduce<T, W>, true>(std::min(blocks, int64_t(device.num_sms) * 8), THREADS, 0, device, stream,
                                             p, wide_accesses(p), partials, splits);
  };
  return p.n % 4 == 0 ? reduce_by(std::integral_constant<int, 4>()) : reduce_by(std::integral_constant<int, 1>());
}

}  // namespace

Status launch_repack(const Matrix& x, const Matrix& target, int64_t outer, int64_t k, const Device& device,
                     void* stream) {
  if (order_of(x) == order_of(target))
    return order_of(x) == Order::row_major ? launch_realign(x, target.data, outer, x.row, k, device, stream)
                                           : launch_realign(x, target.data, k, x.col, outer, device, stream);
  return size_of(x.dtype) == 2 ? launch_make_k_contiguous<uint16_t>(x, target, outer, k, device, stream)
                               : launch_make_k_contiguous<uint32_t>(x, target, outer, k, device, stream);
}

Status launch_reduce(const Problem& p, const float* partials, int splits, const Device& device, void* stream) {
  switch (p.a.dtype) {
    case DType::f16: return launch_reduce_of<__half>(p, partials, splits, device, stream);
    case DType::bf16: return launch_reduce_of<__nv_bfloat16>(p, partials, splits, device, stream);
    default: return launch_reduce_of<float>(p, partials, splits, device, stream);
  }
}

}  // namespace tc
