// Not a rung: the memory-bound kernels that a rung may need around it.
//
// An operand that cp.async and TMA cannot read (odd leading dimension, misaligned base, no direction of stride 1) is
// repacked into workspace, laid out as repacked() in gemm/access.h says: realign copies lines to 16-byte boundaries,
// make_k_contiguous also transposes. reduce adds the fp32 partial products of a split K in a fixed order and finishes D. All
// three may start while the kernel before them still runs (ptx/pdl.cuh), but let no product do so:
// its blocks would take SMs as those empty, L2 would merge fewer of their reads, because neighbours read the same tiles, and TF32
// at 4095x4097x4099 with a bias took 561 microseconds on an H200 instead of 482 (bench/results/h200-tried.md).
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o workspace.cubin csrc/kernels/00_workspace.cu
#include <climits>
#include <type_traits>

#include "../epilogue/vectors.cuh"
#include "../gemm/run.h"
#include "../ptx/pdl.cuh"
#include "../tile/copy.cuh"
#include "../tile/launch.h"

namespace tc {
namespace {

constexpr int THREADS = 256;
constexpr int BATCH = 4;  // chunks that a thread has in flight; with 3 blocks to an SM, enough to cover DRAM's latency

// Lines of `bytes` bytes, `stride` bytes apart and aligned to their elements, to lines `pitch` 16-byte chunks apart, whose
// last chunk is filled up with zeros. Index counts the chunks: 32 bits where they suffice, because divisions are a good
// part of what a thread does.
template <typename Index>
__global__ __launch_bounds__(THREADS, 3) void realign(const void* source, int64_t stride, int64_t bytes, uint4* target,
                                                      int64_t pitch, Index lines) {
  wait_on_dependencies();
  const Index per_line = Index((bytes + 15) / 16), chunks = lines * per_line;
  const Index step_lines = THREADS / per_line, step = THREADS % per_line;  // to a thread's next chunk
  const uintptr_t begin = reinterpret_cast<uintptr_t>(source), end = begin + (lines - 1) * stride + bytes;
  constexpr int kElemsPerThread = THREADS * BATCH;
  for (Index block = blockIdx.x; block * kElemsPerThread < chunks; block += gridDim.x) {
    const Index first = block * kElemsPerThread + threadIdx.x;
    const auto each = [&](auto&& act) {
      Index line = first / per_line, chunk = first % per_line;
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        act(i, int64_t(line), int64_t(chunk));
        line += step_lines;
        chunk += step;
        if (chunk >= per_line) chunk -= per_line, ++line;
      }
    };
    ShiftedVector copied[BATCH];
    const auto from = [&](int64_t line, int64_t chunk) { return begin + line * stride + chunk * 16; };
    each([&](int i, int64_t line, int64_t chunk) {
      copied[i].fetch(from(line, chunk), line < lines ? int(min(int64_t(16), bytes - chunk * 16)) : 0, begin, end);
    });
    each([&](int i, int64_t line, int64_t chunk) {
      const uint4 x = copied[i].value(from(line, chunk));
      if (line < lines) target[line * pitch + chunk] = x;
    });
  }
}

constexpr int BLK = 64;  // of outer and of K in a tile of make_k_contiguous

// Element (o, k) of the source, (outer, K) with any strides, to target[o * leading + k]; zeros from K up to `leading`.
// Reads run along the source's smaller stride, those of whole tiles of fp32 16 bytes each when `wide` (outer stride 1, lines
// 16-byte aligned), and every write is 16 bytes of a line.
template <typename E>
__global__ __launch_bounds__(THREADS, 4) void make_k_contiguous(const E* source, int64_t outer_stride, int64_t k_stride,
                                                                E* target, int64_t leading, int64_t outer, int64_t k,
                                                                bool along_k, bool wide) {
  constexpr int W = 16 / int(sizeof(E)), kElemsPerThread = BLK * BLK / THREADS;  // elements of a chunk; of a thread
  __shared__ __align__(16) E tile[BLK * BLK];  // (outer, K)
  // A chunk's place in its row is permuted so that 8 lanes, on rows 1 or 4 apart, store to 8 different bank groups.
  const auto at = [&](int o, int kk) { return &tile[o * BLK + (kk / W ^ ((o ^ o >> 2) & 7)) * W + kk % W]; };
  wait_on_dependencies();
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
      Vec<E, V> v[kElemsPerThread / V];
      next += o * outer_stride + k_of(0) * k_stride;
#pragma unroll
      for (int i = 0; i < kElemsPerThread / V; next += (k_of(i + 1) - k_of(i)) * k_stride, ++i)
        v[i] = o < outer_left && k_of(i) < k_left ? *reinterpret_cast<const Vec<E, V>*>(next) : Vec<E, V>{};
#pragma unroll
      for (int i = 0; i < kElemsPerThread / V; i += W)
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
      E v[kElemsPerThread];
      next += o_of(0) * outer_stride + kk * k_stride;
#pragma unroll
      for (int i = 0; i < kElemsPerThread; ++i, next += THREADS / BLK * outer_stride)
        v[i] = o_of(i) < outer_left && kk < k_left ? *next : E(0);
#pragma unroll
      for (int i = 0; i < kElemsPerThread; ++i) *at(o_of(i), kk) = v[i];
    } else if (sizeof(E) == 4 && wide && outer_left == BLK) {
      if constexpr (sizeof(E) == 4) read_along_outer(std::integral_constant<int, 4>());
    } else {
      read_along_outer(std::integral_constant<int, 1>());
    }
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kElemsPerThread / W; ++i) {
      const int o = (threadIdx.x + i * THREADS) / (BLK / W), kk = (threadIdx.x + i * THREADS) % (BLK / W) * W;
      if (o < outer_left && kk < leading - k0)
        *reinterpret_cast<uint4*>(&target[(o0 + o) * leading + k0 + kk]) = *reinterpret_cast<const uint4*>(at(o, kk));
    }
    __syncthreads();
  }
}

// D = alpha * (sum over k_slices of partials, (k_slices, M, N)) + beta * C, W elements of a row to a thread; W divides N.
template <typename T, int W>
__global__ __launch_bounds__(THREADS) void reduce(const GemmDesc p, const VectorAccess wide, const float* partials,
                                                  const int k_slices) {
  wait_on_dependencies();
  const int64_t runs_n = p.n / W, runs = p.m * runs_n;
  for (int64_t r = blockIdx.x * int64_t(THREADS) + threadIdx.x; r < runs; r += int64_t(gridDim.x) * THREADS) {
    const int64_t i = r / runs_n, j = r % runs_n * W;
    float sum[W] = {};
#pragma unroll 8  // loads in flight: the sums are few and the parts many
    for (int s = 0; s < k_slices; ++s) {
      const Vec<float, W> part = *reinterpret_cast<const Vec<float, W>*>(partials + (s * p.m + i) * p.n + j);
#pragma unroll
      for (int e = 0; e < W; ++e) sum[e] += part.x[e];
    }
    finish_vector<T>(p, wide, i, j, sum);
  }
}

Status launch_realign(const MatrixView& x, const MatrixView& target, int64_t outer, int64_t k, const DeviceSpec& device, void* stream) {
  const bool k_contiguous = order_of(x) == Order::row_major;
  const int64_t lines = k_contiguous ? outer : k, length = k_contiguous ? k : outer;
  const int64_t leading = k_contiguous ? x.row : x.col, pitch = k_contiguous ? target.row : target.col;
  const int64_t size = size_of(x.dtype), bytes = length * size, share = THREADS * BATCH;
  const int64_t chunks = lines * ((bytes + 15) / 16), blocks = std::min((chunks + share - 1) / share, int64_t(INT_MAX));
  const auto realign_by = [&](auto index) {
    using Index = decltype(index);
    return launch_grid<realign<Index>, true>({blocks, THREADS}, device, stream, static_cast<const void*>(x.data), leading * size, bytes,
                                             static_cast<uint4*>(target.data), pitch * size / 16, Index(lines));
  };
  return chunks + share * blocks < INT_MAX ? realign_by(int()) : realign_by(int64_t());
}

template <typename E>
Status launch_make_k_contiguous(const MatrixView& x, const MatrixView& target, int64_t outer, int64_t k, const DeviceSpec& device,
                                void* stream) {
  const int64_t blocks = (outer + BLK - 1) / BLK * ((target.row + BLK - 1) / BLK);
  const bool along_k = outer == 1 || x.col < x.row;
  const bool wide = order_of(x) == Order::col_major && alignment(x, outer, k) == 16;
  return launch_grid<make_k_contiguous<E>, true>({std::min(blocks, int64_t(INT_MAX)), THREADS}, device, stream,
                                                 static_cast<const E*>(x.data), x.row, x.col, static_cast<E*>(target.data),
                                                 target.row, outer, k, along_k, wide);
}

template <typename T>
Status launch_reduce_of(const GemmDesc& p, const float* partials, int k_slices, const DeviceSpec& device, void* stream) {
  const auto reduce_by = [&](auto width) {
    constexpr int W = decltype(width)::value;
    const int64_t blocks = (p.m * p.n / W + THREADS - 1) / THREADS;
    return launch_grid<reduce<T, W>, true>({std::min(blocks, int64_t(device.gpu.num_sms) * 8), THREADS}, device, stream, p,
                                           vector_access_of(p), partials, k_slices);
  };
  return p.n % 4 == 0 ? reduce_by(std::integral_constant<int, 4>()) : reduce_by(std::integral_constant<int, 1>());
}

}  // namespace

Status launch_repack(const MatrixView& x, const MatrixView& target, int64_t outer, int64_t k, const DeviceSpec& device,
                     void* stream) {
  if (order_of(x) == order_of(target)) return launch_realign(x, target, outer, k, device, stream);
  return is_f32(x.dtype) ? launch_make_k_contiguous<uint32_t>(x, target, outer, k, device, stream)
                         : launch_make_k_contiguous<uint16_t>(x, target, outer, k, device, stream);
}

Status launch_reduce(const GemmDesc& p, const float* partials, int k_slices, const DeviceSpec& device, void* stream) {
  switch (p.a.dtype) {
    case DType::f16: return launch_reduce_of<__half>(p, partials, k_slices, device, stream);
    case DType::bf16: return launch_reduce_of<__nv_bfloat16>(p, partials, k_slices, device, stream);
    case DType::f32: return launch_reduce_of<float>(p, partials, k_slices, device, stream);
  }
  __builtin_unreachable();
}

}  // namespace tc
