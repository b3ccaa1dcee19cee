// Not a rung: the memory-bound kernels that run before and after a rung.
//
// Two of them repack an operand that cp.async and TMA cannot read: one with an odd leading dimension, a misaligned base, or no
// direction of stride 1. They also repack one that TMA reads slowly, where gemm/planner.cpp expects that to pay. The copy goes to
// workspace, and repacked() in gemm/access.h defines its layout. realign copies rows to 16-byte boundaries. make_k_contiguous
// also transposes.
//
// Two others, reduce and reduce_elements, add the fp32 partial products of split-K in a fixed order and finish D. Each kernel has a row
// of blocks for each product of a batch.
//
// All may start while the kernel before them still runs (programmatic dependent launch, ptx/pdl.cuh), and let the next one start while
// they run where gemm/run.cpp says so.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90a -Xptxas=-v -cubin -o workspace.cubin csrc/kernels/00_workspace.cu
// Run:   python -m bench.sweep --only 4095,4097,4099
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
constexpr int BATCH = 4;  // 16-byte vectors in flight per thread; with 3 blocks per SM, they cover DRAM's latency

// Copies contiguous rows to 16-byte boundaries. The columns of a column-major matrix count as rows here. The source's rows have
// `bytes` bytes, begin `stride` bytes apart, and are aligned to their elements. The target's rows begin `pitch` 16-byte vectors
// apart, and zeros fill the rest of each row's last vector. The matrices of a batch begin `source_batch` bytes and `target_batch`
// vectors apart. Index counts vectors. It has 32 bits where those suffice, because
// divisions are a large part of a thread's work.
template <typename Index>
__global__ __launch_bounds__(THREADS,
                             3) void realign(const char* source, int64_t source_batch, int64_t stride, int64_t bytes,
                                             uint4* target, int64_t target_batch, int64_t pitch, Index rows, bool early) {
  wait_on_dependencies();
  if (early) launch_dependents();
  source += blockIdx.y * source_batch, target += blockIdx.y * target_batch;
  const Index per_row = Index((bytes + 15) / 16), vectors = rows * per_row;
  const Index step_rows = THREADS / per_row, step = THREADS % per_row;  // from a thread's vector to its next one
  const uintptr_t begin = reinterpret_cast<uintptr_t>(source), end = begin + (rows - 1) * stride + bytes;
  constexpr int VECTORS_PER_BLOCK = THREADS * BATCH;
  for (Index block = blockIdx.x; block * VECTORS_PER_BLOCK < vectors; block += gridDim.x) {
    const Index first = block * VECTORS_PER_BLOCK + threadIdx.x;
    const auto each = [&](auto&& act) {
      Index row = first / per_row, vector = first % per_row;
#pragma unroll
      for (int i = 0; i < BATCH; ++i) {
        act(i, int64_t(row), int64_t(vector));
        row += step_rows;
        vector += step;
        if (vector >= per_row) vector -= per_row, ++row;
      }
    };
    ShiftedVector copied[BATCH];
    const auto from = [&](int64_t row, int64_t vector) { return begin + row * stride + vector * 16; };
    each([&](int i, int64_t row, int64_t vector) {
      copied[i].fetch(from(row, vector), row < rows ? int(min(int64_t(16), bytes - vector * 16)) : 0, begin, end);
    });
    each([&](int i, int64_t row, int64_t vector) {
      const uint4 x = copied[i].value(from(row, vector));
      if (row < rows) target[row * pitch + vector] = x;
    });
  }
}

constexpr int BLK = kTransposedEdge;  // a tile of make_k_contiguous has BLK elements of outer and BLK of K

// Copies element (o, k) of the source to target[o * leading + k] and writes zeros from K up to `leading`. The source is (outer,
// K) and may have any strides. Reads follow its smaller stride; `along_k` says that this is K's. Every write is a 16-byte
// vector. `outer_vectors` says that the outer stride is 1 and that 16-byte vectors along outer are aligned: whole tiles of fp32
// are then read in such vectors.
template <typename E>
__global__ __launch_bounds__(THREADS, 4) void make_k_contiguous(
    const E* source, int64_t source_batch, int64_t outer_stride, int64_t k_stride, E* target, int64_t target_batch,
    int64_t leading, int64_t outer, int64_t k, bool along_k, bool outer_vectors, bool early) {
  constexpr int W = 16 / int(sizeof(E));  // elements of a vector
  constexpr int kElemsPerThread = BLK * BLK / THREADS;
  __shared__ __align__(16) E tile[BLK * BLK];  // (BLK, BLK): (outer, K)
  // A vector's place in its row is permuted: 8 lanes whose rows are 1 or 4 apart then store to 8 different bank groups.
  const auto at = [&](int o, int kk) { return &tile[o * BLK + (kk / W ^ ((o ^ o >> 2) & 7)) * W + kk % W]; };
  wait_on_dependencies();
  if (early) launch_dependents();
  source += blockIdx.y * source_batch, target += blockIdx.y * target_batch;
  const int64_t tiles_k = (leading + BLK - 1) / BLK, tiles = (outer + BLK - 1) / BLK * tiles_k;
  for (int64_t t = blockIdx.x; t < tiles; t += gridDim.x) {
    const int64_t o0 = t / tiles_k * BLK, k0 = t % tiles_k * BLK;
    const int outer_left = int(min(int64_t(BLK), outer - o0)), k_left = int(min(int64_t(BLK), k - k0));
    const E* next = source + o0 * outer_stride + k0 * k_stride;  // stepped, because 64-bit multiplications are slow
    // A read takes V elements along outer. A thread reads W consecutive k, so that it can store whole vectors along K.
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
          Vec<E, W> vector;
#pragma unroll
          for (int e = 0; e < W; ++e) vector.x[e] = v[i + e].x[u];
          *reinterpret_cast<Vec<E, W>*>(at(o + u, k_of(i))) = vector;
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
    } else if (sizeof(E) == 4 && outer_vectors && outer_left == BLK) {
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

// D = activation(alpha * (sum of the K slices' partial products) + beta * C). `partials` is (k_slices, batch, M, N) with
// rows `pitch` elements apart. A thread finishes W elements of a row at a time; W divides N and `pitch`.
template <typename T, int W>
__global__ __launch_bounds__(THREADS) void reduce(const GemmDesc batch, const VectorAccess access, const float* partials,
                                                  const int64_t pitch, const int k_slices, const bool early) {
  constexpr int LOADS = 8;  // in flight, whatever k_slices is: D is small and K has many slices, so the loads must overlap
  wait_on_dependencies();
  if (early) launch_dependents();
  const GemmDesc p = product_of(batch, blockIdx.y);
  const int64_t vectors_n = p.n / W, vectors = p.m * vectors_n, layer = p.batch * p.m;
  partials += blockIdx.y * p.m * pitch;
  for (int64_t v = blockIdx.x * int64_t(THREADS) + threadIdx.x; v < vectors; v += int64_t(gridDim.x) * THREADS) {
    const int64_t i = v / vectors_n, j = v % vectors_n * W;
    float sum[W] = {};
    for (int first = 0; first < k_slices; first += LOADS) {
      Vec<float, W> partial[LOADS];
#pragma unroll
      for (int s = 0; s < LOADS && first + s < k_slices; ++s)
        partial[s] = *reinterpret_cast<const Vec<float, W>*>(partials + ((first + s) * layer + i) * pitch + j);
#pragma unroll
      for (int s = 0; s < LOADS && first + s < k_slices; ++s)
#pragma unroll
        for (int e = 0; e < W; ++e) sum[e] += partial[s].x[e];
    }
    finish_vector<T>(p, access, i, j, sum);
  }
}

// The same where N is no multiple of W. A thread finishes COUNT elements at a time, which lie THREADS apart in the order of rows, and
// divides once for all of them: 4992x783x132 in TF32 with a full C takes 37.0 us on an H200, and 51.7 with `reduce` and a W of 1, which
// ran 159 instructions for an element.
template <typename T, int COUNT>
__global__ __launch_bounds__(THREADS, 4) void reduce_elements(const GemmDesc batch, const float* partials, const int64_t pitch,
                                                              const int k_slices, const bool early) {
  wait_on_dependencies();
  if (early) launch_dependents();
  const GemmDesc p = product_of(batch, blockIdx.y);
  const int64_t elements = p.m * p.n, layer = p.batch * p.m * pitch, per_block = THREADS * COUNT;
  const int64_t step_rows = THREADS / p.n, step = THREADS % p.n;  // from a thread's element to its next one
  partials += blockIdx.y * p.m * pitch;
  for (int64_t block = blockIdx.x * per_block; block < elements; block += gridDim.x * per_block) {
    int64_t rows[COUNT], cols[COUNT];
    const float* from[COUNT];
    int64_t row = (block + threadIdx.x) / p.n, col = (block + threadIdx.x) % p.n;
    const auto each = [&](auto&& act) {
#pragma unroll
      for (int i = 0; i < COUNT; ++i) act(i);
    };
    each([&](int i) {
      // Beyond the matrix a thread loads from the last row again, because a branch would wait for each load.
      rows[i] = row, cols[i] = col, from[i] = partials + min(row, p.m - 1) * pitch + col;
      row += step_rows, col += step;
      if (col >= p.n) col -= p.n, ++row;
    });
    float sum[COUNT] = {}, c[COUNT] = {};
    const auto load_c = [&](auto type) {
      each([&](int i) {
        c[i] = to_float(static_cast<const decltype(type)*>(p.c.data)[min(rows[i], p.m - 1) * p.c.row + cols[i] * p.c.col]);
      });
    };
    if (p.c.data && is_f32(p.c.dtype)) load_c(float());
    else if (p.c.data) load_c(T());
#pragma unroll 4
    for (int s = 0; s < k_slices; ++s) each([&](int i) { sum[i] += *from[i], from[i] += layer; });
    each([&](int i) { sum[i] = combine(sum[i], p.epilogue.alpha, c[i], p.epilogue.beta); });
    activate<COUNT>(sum, p.epilogue.activation);
    const auto store_d = [&](auto type) {
      using D = decltype(type);
      each([&](int i) {
        if (rows[i] < p.m) static_cast<D*>(p.d.data)[rows[i] * p.d.row + cols[i] * p.d.col] = from_float<D>(sum[i]);
      });
    };
    if (is_f32(p.d.dtype)) store_d(float());
    else store_d(T());
  }
}

Status launch_realign(const MatrixView& x, const MatrixView& target, int64_t products, int64_t outer, int64_t k,
                      const DeviceSpec& device, void* stream, bool early) {
  const bool k_contiguous = order_of(x) == Order::row_major;
  const int64_t rows = k_contiguous ? outer : k, length = k_contiguous ? k : outer;
  const int64_t leading = k_contiguous ? x.row : x.col, pitch = k_contiguous ? target.row : target.col;
  const int64_t size = size_of(x.dtype), bytes = length * size, per_block = THREADS * BATCH;
  const int64_t vectors = rows * ((bytes + 15) / 16);
  const int64_t blocks = std::min((vectors + per_block - 1) / per_block, int64_t(INT_MAX));
  const auto realign_by = [&](auto index) {
    using Index = decltype(index);
    return launch_grid<realign<Index>, true>(
        {blocks, THREADS, 0, 1, true, products}, device, stream, static_cast<const char*>(x.data), x.batch * size,
        leading * size, bytes, static_cast<uint4*>(target.data), target.batch * size / 16, pitch * size / 16, Index(rows),
        early);
  };
  return vectors + per_block * blocks < INT_MAX ? realign_by(int()) : realign_by(int64_t());
}

template <typename E>
Status launch_make_k_contiguous(const MatrixView& x, const MatrixView& target, int64_t products, int64_t outer, int64_t k,
                                const DeviceSpec& device, void* stream, bool early) {
  const int64_t blocks = (outer + BLK - 1) / BLK * ((target.row + BLK - 1) / BLK);
  const bool along_k = outer == 1 || x.col < x.row;
  const bool outer_vectors = order_of(x) == Order::col_major && alignment(x, outer, k) == 16;
  return launch_grid<make_k_contiguous<E>, true>(
      {std::min(blocks, int64_t(INT_MAX)), THREADS, 0, 1, true, products}, device, stream, static_cast<const E*>(x.data),
      x.batch, x.row, x.col, static_cast<E*>(target.data), target.batch, target.row, outer, k, along_k, outer_vectors, early);
}

template <typename T>
Status launch_reduce_of(const GemmDesc& p, const float* partials, int64_t pitch, int k_slices, const DeviceSpec& device,
                        void* stream, bool early) {
  constexpr int W = 4;  // elements of a thread at a time
  const int64_t blocks = (p.m * p.n + THREADS * W - 1) / (THREADS * W);
  const Grid grid{std::min(blocks, int64_t(device.gpu.num_sms) * 8), THREADS, 0, 1, true, p.batch};
  if (p.n % W == 0)
    return launch_grid<reduce<T, W>, true>(grid, device, stream, p, vector_access_of(p), partials, pitch, k_slices, early);
  return launch_grid<reduce_elements<T, W>, true>(grid, device, stream, p, partials, pitch, k_slices, early);
}

}  // namespace

Status launch_repack(const MatrixView& x, const MatrixView& target, int64_t batch, int64_t outer, int64_t k,
                     const DeviceSpec& device, void* stream, bool early) {
  const int64_t products = matrices_of(x, batch);
  if (order_of(x) == order_of(target)) return launch_realign(x, target, products, outer, k, device, stream, early);
  return is_f32(x.dtype) ? launch_make_k_contiguous<uint32_t>(x, target, products, outer, k, device, stream, early)
                         : launch_make_k_contiguous<uint16_t>(x, target, products, outer, k, device, stream, early);
}

Status launch_reduce(const GemmDesc& p, const float* partials, int64_t pitch, int k_slices, const DeviceSpec& device,
                     void* stream, bool early) {
  switch (p.a.dtype) {
    case DType::f16: return launch_reduce_of<__half>(p, partials, pitch, k_slices, device, stream, early);
    case DType::bf16: return launch_reduce_of<__nv_bfloat16>(p, partials, pitch, k_slices, device, stream, early);
    case DType::f32: return launch_reduce_of<float>(p, partials, pitch, k_slices, device, stream, early);
  }
  __builtin_unreachable();
}

}  // namespace tc
