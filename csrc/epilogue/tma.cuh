// The epilogue of a warpgroup by TMA. Boxes of C come to shared memory while the product runs. Each box of C becomes a box of D
// in place, and leaves while the next box is computed.
#pragma once

#include "../gemm/access.h"
#include "../layout/tile_parts.h"
#include "../ptx/cp_async.cuh"
#include "../ptx/mbarrier.cuh"
#include "../ptx/mma.cuh"
#include "../tile/copy.cuh"
#include "../tile/tma_operand.cuh"
#include "box_copies.cuh"
#include "formula.cuh"

namespace tc {

struct TmaPaths {
  CUtensorMap c, d;
  CUtensorMap d_narrow;  // if a tile's last box would reach into the next tile: D ends with the tile, and a fourth coordinate
                         // counts tiles
  int next_c;            // matrices of C from a product's to the next one's; 0 if all share it
  CPath c_path;
  DPath d_path;
  bool d_exceeds_l2;
  bool tma_only;  // D goes by TMA, and C by TMA, as one row of whole 16-byte vectors, or not at all; most calls need no more
};

// Each product has `k_slices` layers of D. Tiles have `columns` columns of D.
inline Status make_tma_paths(TmaPaths& paths, const GemmDesc& p, int k_slices, int columns) {
  paths.c_path = c_path_of(p);
  paths.d_path = d_path_of(p);
  paths.next_c = p.c.batch != 0;
  paths.d_exceeds_l2 = d_exceeds_l2(p);
  paths.tma_only = tma_reaches_c_and_d(p);
  if (paths.c_path == CPath::tma) {
    const Layers all{matrices_of(p.c, p.batch), p.c.batch};
    const Status status = make_tensor_map(paths.c, p.c.data, p.c.dtype, p.m, p.n, p.c.row, kBoxRows, all);
    if (!status.ok()) return status;
  }
  if (paths.d_path != DPath::tma) return {};
  const Layers layers{k_slices * p.batch, p.d.batch};
  if (columns * size_of(p.d.dtype) % kBoxBytes != 0 && p.n > columns) {
    const Status status = make_tensor_map(
        paths.d_narrow, p.d.data, p.d.dtype, p.m, columns, p.d.row, kBoxRows, layers, Layers{p.n / columns, columns});
    if (!status.ok()) return status;
  }
  return make_tensor_map(paths.d, p.d.data, p.d.dtype, p.m, writable_columns(p), p.d.row, kBoxRows, layers);
}

// A warpgroup's tile of D. The layer counts products where a C is read, because partial products have none.
struct TilePlace {
  int m0, n0, layer;
};

// The epilogue of a warpgroup for tiles of (ROWS, COLS) and D of type D. T is the operands' type, which C may have as well. A
// tile has COUNT boxes of (64, 128 bytes), numbered along each block of 64 rows in turn. BUFFERS of them lie in shared memory
// at a time. Each buffer has a warp whose first lane issues the buffer's TMA copies, because a store holds that lane up for 100
// cycles. All tiles use one set of boxes. Two sets in turn left room for two stages only: 16384x4096x128 with a bias then took
// 60.0 microseconds on an H200 instead of 57.6, and 65536x256x256 took 40 instead of 31.
template <typename T, typename D, int ROWS, int COLS, int MOST_BUFFERS, bool kTmaOnly>
struct TmaEpilogue {
  static constexpr int WIDTH = kBoxBytes / int(sizeof(D)), PER_BLOCK = (COLS + WIDTH - 1) / WIDTH;
  static constexpr int COUNT = ROWS / kBoxRows * PER_BLOCK, LAST_WIDTH = COLS - (PER_BLOCK - 1) * WIDTH;
  static constexpr int BUFFERS = buffers_of(COUNT, MOST_BUFFERS), BOX_BYTES = kBoxRows * kBoxBytes;
  static constexpr bool IS_16_BIT = sizeof(D) == 2;  // fp32 never takes CPath::vectors or DPath::vectors
  static_assert(COUNT % BUFFERS == 0 && BUFFERS <= 4 && (kTmaOnly || LAST_WIDTH == WIDTH));

  const GemmDesc& p;
  const TmaPaths& paths;
  char* const boxes;      // (BUFFERS, 64, 128 bytes)
  char* const c_row;      // (COLS) elements of C where C is one row for all
  const uint32_t c_full;  // (BUFFERS) barriers: the box of C has arrived
  const int barrier;      // the number of the warpgroup's named barrier
  const int thread;       // in the warpgroup

  __device__ bool c_is_fp32() const { return sizeof(T) == 4 || (sizeof(D) == 4 && is_f32(p.c.dtype)); }
  __device__ uint32_t box(int i) const { return smem_address(boxes) + i % BUFFERS * BOX_BYTES; }
  __device__ void sync() const { named_barrier<128>(barrier); }
  __device__ bool owns(int i) const { return thread == i % BUFFERS * 32; }  // whether this thread issues TMA copies for box i
  // Columns of the tile in box i. Loops over the boxes are unrolled, so that the compiler knows them.
  __device__ int width_of(int i) const { return i % PER_BLOCK == PER_BLOCK - 1 ? LAST_WIDTH : WIDTH; }

  // The first element of the matrix of C or D that a tile is of.
  template <typename X>
  __device__ X* first_of(const MatrixView& x, const TilePlace& at) const {
    return static_cast<X*>(x.data) + at.layer * x.batch;
  }

  __device__ void load_c(int i, const TilePlace& at) const {
    mbarrier_arrive_expect(c_full + i % BUFFERS * 8, BOX_BYTES);
    tma_load(box(i), paths.c, c_full + i % BUFFERS * 8, at.n0 + i % PER_BLOCK * WIDTH, at.m0 + i / PER_BLOCK * kBoxRows,
             at.layer * paths.next_c);
  }

  // Once D has left the buffer of box i, loads the next box of C into that buffer.
  __device__ void load_next_c(int i, const TilePlace& at) const {
    if (!owns(i)) return;
    tma_store_wait_read<0>();
    load_c(i + BUFFERS, at);
  }

  __device__ void store_d(int i, const TilePlace& at) const {
    if (!owns(i)) return;
    const int col = i % PER_BLOCK * WIDTH, row = at.m0 + i / PER_BLOCK * kBoxRows;
    const uint64_t policy = cache_policy(paths.d_exceeds_l2);
    if (LAST_WIDTH < WIDTH && at.n0 + COLS < p.n) tma_store(paths.d_narrow, box(i), policy, col, row, at.layer, at.n0 / COLS);
    else tma_store(paths.d, box(i), policy, at.n0 + col, row, at.layer);
    tma_store_commit();
  }

  // Loads the tile's part of C's row by cp.async, after the first wgmma, so that the load keeps no tensor core waiting. A load
  // to registers is slower, because ptxas makes the next wgmma wait for it, though only the epilogue uses the row: 1024 cubed
  // with a bias on an H200 took 7.4 microseconds by registers and 6.7 by cp.async. TMA is slower too, because the row queues
  // behind the operands: 4096x4096x64 took 17.2 microseconds by TMA and 16.4 by cp.async.
  __device__ void load_c_row(const TilePlace& at) const {
    const int size = c_is_fp32() ? 4 : 2, col = thread * 16 / size;
    if (col >= COLS) return;
    const int64_t left = (p.n - at.n0 - col) * size;  // bytes of the row
    const char* const from =
        static_cast<const char*>(p.c.data) + (at.layer * p.c.batch + (left > 0 ? at.n0 + int64_t(col) : 0)) * size;
    if (!kTmaOnly && 0 < left && left < 16) {
#pragma unroll 1
      for (int e = 0; e < left; e += 2)
        *reinterpret_cast<uint16_t*>(c_row + thread * 16 + e) = *reinterpret_cast<const uint16_t*>(from + e);
    } else {
      cp_async_16(smem_address(c_row + thread * 16), from, left > 0);
    }
    cp_async_commit();
  }

  // Called while the product runs. Loads the tile's row of C, or its first boxes once the last tile's D has left their buffers.
  // C that goes through registers is only prefetched into L2.
  __device__ void prefetch(const TilePlace& at) const {
    if (paths.c_path == CPath::row) load_c_row(at);
    if (!kTmaOnly && paths.c_path >= CPath::vectors && p.c.col == 1 && p.c.row != 0) {
      const int bytes = c_is_fp32() ? 4 : 2;
      if (at.m0 < p.m && at.n0 < p.n)
        prefetch_lines(
            static_cast<const char*>(p.c.data) + (at.layer * p.c.batch + at.m0 * p.c.row + at.n0) * bytes, p.c.row * bytes,
            int(min(int64_t(ROWS), p.m - at.m0)), min(int64_t(COLS), p.n - at.n0) * bytes, thread, 128);
    }
    if (paths.c_path != CPath::tma || thread % 32 != 0 || thread >= BUFFERS * 32) return;
    tma_store_wait_read<0>();
    load_c(thread / 32, at);
  }

  // The thread is hidden from the compiler, which would compute addresses before the main loop and spill them.
  __device__ BoxCopies<D, BUFFERS> copies() const {
    int hidden = thread;
    asm volatile("" : "+r"(hidden));
    return {p, boxes, hidden};
  }
  __device__ D* element(int i, int row, int col) const { return BoxCopies<D, BUFFERS>{p, boxes, thread}.element(i, row, col); }

  // Computes alpha * acc + beta * C for box i, in place. `acc` holds wgmma's accumulators from the box's first column on: pairs
  // of columns, in rows eight apart. Each path of C has a loop of its own: one loop for all paths, with zeros or copies in
  // between, took twice the instructions.
  __device__ __forceinline__ void add_c(int i, float* acc) const {
    const int warp = thread / 32, lane = thread % 32;
    const auto add = [&](int j, int h, float2 c) {  // adds to columns 8 j + lane % 4 * 2 and the next, 8 h rows down
      float* const pair = acc + j * 4 + h * 2;
      pair[0] = combine(pair[0], p.epilogue.alpha, c.x, p.epilogue.beta);
      pair[1] = combine(pair[1], p.epilogue.alpha, c.y, p.epilogue.beta);
    };
    const auto add_row = [&](auto&& pair_at) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j) {
        if (j >= width_of(i) / 8) break;
        const float2 c = pair_at(i % PER_BLOCK * WIDTH + j * 8 + lane % 4 * 2);
        add(j, 0, c), add(j, 1, c);
      }
    };
    if (paths.c_path == CPath::none) {
#pragma unroll
      for (int x = 0; x < WIDTH / 2; ++x)
        if (x < width_of(i) / 2) acc[x] = combine(acc[x], p.epilogue.alpha, 0.f, 0.f);
    } else if (paths.c_path == CPath::row) {
      if (c_is_fp32()) add_row([&](int col) { return *reinterpret_cast<const float2*>(c_row + col * 4); });
      else if constexpr (sizeof(T) == 2)
        add_row([&](int col) { return unpack(*reinterpret_cast<const uint32_t*>(c_row + col * 2), T()); });
    } else if constexpr (sizeof(D) == 2) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j += 2) {
        if (j >= width_of(i) / 8) break;
        uint32_t q[4];
        ldmatrix_x4(q, box(i) + box_offset(warp * 16 + lane % 16, j + lane / 16));
#pragma unroll
        for (int x = 0; x < 4; ++x) add(j + x / 2, x % 2, unpack(q[x], D()));
      }
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2 && j < width_of(i) / 8; ++h)
          add(j, h, *reinterpret_cast<const float2*>(element(i, warp * 16 + lane / 4 + h * 8, j * 8 + lane % 4 * 2)));
    }
  }

  // Writes acc to box i, over C: 16-bit D by stmatrix, fp32 two floats at a time.
  __device__ __forceinline__ void write_box(int i, const float* acc) const {
    const int warp = thread / 32, lane = thread % 32;
    const auto result = [&](int j, int h) { return make_float2(acc[j * 4 + h * 2], acc[j * 4 + h * 2 + 1]); };
    if constexpr (sizeof(D) == 2) {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; j += 2) {
        if (j >= width_of(i) / 8) break;
        uint32_t d[4];
#pragma unroll
        for (int x = 0; x < 4; ++x) {
          const float2 r = result(j + x / 2, x % 2);
          d[x] = pack(r.x, r.y, D());
        }
        stmatrix_x4(box(i) + box_offset(warp * 16 + lane % 16, j + lane / 16), d);
      }
    } else {
#pragma unroll
      for (int j = 0; j < WIDTH / 8; ++j)
#pragma unroll
        for (int h = 0; h < 2 && j < width_of(i) / 8; ++h)
          *reinterpret_cast<float2*>(element(i, warp * 16 + lane / 4 + h * 8, j * 8 + lane % 4 * 2)) = result(j, h);
    }
  }

  // The accumulators of box i.
  __device__ __forceinline__ float* acc_of(float (&acc)[ROWS / kBoxRows][COLS / 2], int i) const {
    return &acc[i / PER_BLOCK][i % PER_BLOCK * WIDTH / 2];
  }

  // Waits for box i of C if C comes by TMA.
  __device__ __forceinline__ void wait_for_c(int i, uint32_t use) const {
    if (paths.c_path == CPath::tma) mbarrier_wait(c_full + i % BUFFERS * 8, (use * (COUNT / BUFFERS) + i / BUFFERS) & 1);
  }

  // Finishes a tile in batches of boxes, each between two barriers. A batch is all boxes of the tile if the buffers hold them
  // all, and one box otherwise, because C then arrives in the buffers that D has left. 16384x4096x128 on an H200: with a bias
  // 67 microseconds box by box and 56 in one batch; in fp32 150 box by box and 160 in pairs.
  __device__ __forceinline__ void finish_by_tma(float (&acc)[ROWS / kBoxRows][COLS / 2], const TilePlace& at,
                                                uint32_t use) const {
    constexpr int BATCH = COUNT == BUFFERS ? BUFFERS : 1, LATER = COUNT > BUFFERS && BUFFERS > 1;
#pragma unroll
    for (int first = 0; first < COUNT; first += BATCH) {
      const auto each = [&](auto&& act) {
#pragma unroll
        for (int i = first; i < first + BATCH; ++i) act(i);
      };
      if (paths.c_path != CPath::tma) {
        if (BATCH > 1 || owns(first)) tma_store_wait_read<0>();  // TMA may go on reading the other buffers
        sync();
      }
      each([&](int i) {
        wait_for_c(i, use);
        add_c(i, acc_of(acc, i));
      });
      if (p.epilogue.activation.kind != Activation::Kind::none)
        each([&](int i) {
          if (width_of(i) == WIDTH) activate<WIDTH / 2>(acc_of(acc, i), p.epilogue.activation);
          else activate<LAST_WIDTH / 2>(acc_of(acc, i), p.epilogue.activation);
        });
      each([&](int i) { write_box(i, acc_of(acc, i)); });
      fence_proxy_async();
      sync();
      each([&](int i) { store_d(i, at); });
      // The next box of C takes the buffer whose store is one batch older, so that this batch's store has time to end.
      if (paths.c_path == CPath::tma && first >= LATER && first - LATER + BUFFERS < COUNT)
        each([&](int i) { load_next_c(i - LATER, at); });
    }
  }

  // Copies C to box i, or to ACROSS boxes side by side from box i on. Returns the number of boxes.
  template <int ACROSS>
  __device__ __forceinline__ int load_boxes(int i, int m, int n, const TilePlace& at) const {
    if constexpr (IS_16_BIT) {
      if (paths.c_path == CPath::vectors) {
        copies().copy_c_vectors(i, m, n, first_of<const D>(p.c, at));
        return 1;
      }
    } else if (copies().template has_rows<ACROSS>(p.c, n)) {
      copies().template copy_c_rows<ACROSS>(i, m, n, first_of<const float>(p.c, at));
      return ACROSS;
    }
    if (c_is_fp32()) copies().copy_c(i, m, n, first_of<const float>(p.c, at));
    else copies().copy_c(i, m, n, first_of<const T>(p.c, at));
    return 1;
  }
  // The same for D, from the boxes.
  template <int ACROSS>
  __device__ __forceinline__ int store_boxes(int i, int m, int n, const TilePlace& at) const {
    D* const d = first_of<D>(p.d, at);
    if constexpr (IS_16_BIT) {
      if (paths.d_path == DPath::vectors) {
        copies().template copy_d_vectors<ACROSS>(i, m, n, d);
        return ACROSS;
      }
    } else if (copies().template has_rows<ACROSS>(p.d, n)) {
      copies().template copy_d_rows<ACROSS>(i, m, n, d);
      return ACROSS;
    }
    copies().copy_d(i, m, n, d);
    return 1;
  }

  // Finishes a tile whose C or D goes through registers. A loop takes as many boxes at a time as there are buffers, because
  // copies unrolled for each box do not fit the instruction cache: 1024x50257x768 with an fp32 C and D on an H200 took 639
  // microseconds unrolled and 356 in this loop. A warp copies the rows whose sums it holds, so that within a tile it waits for
  // other warps only before TMA.
  __device__ __forceinline__ void finish_via_registers(float (&acc)[ROWS / kBoxRows][COLS / 2], const TilePlace& at,
                                                       uint32_t use) const {
    constexpr int ACROSS = BUFFERS < PER_BLOCK ? BUFFERS : PER_BLOCK;  // boxes of a row that the buffers hold
    static_assert(BUFFERS % ACROSS == 0 && PER_BLOCK % ACROSS == 0);
    const bool c_by_tma = paths.c_path == CPath::tma, d_by_tma = paths.d_path == DPath::tma;
    const auto row_of = [&](int i) { return at.m0 + i / PER_BLOCK * kBoxRows; };
    const auto col_of = [&](int i) { return at.n0 + i % PER_BLOCK * WIDTH; };
#pragma unroll 1
    for (int first = 0; first < COUNT; first += BUFFERS) {
      if (first == 0 || d_by_tma) {
        tma_store_wait_read<0>();
        sync();
      }
      if (paths.c_path >= CPath::vectors) {
#pragma unroll 1
        for (int i = first; i < first + BUFFERS;) i += load_boxes<ACROSS>(i, row_of(i), col_of(i), at);
        __syncwarp();
      }
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        if (i / BUFFERS * BUFFERS != first) continue;
        wait_for_c(i, use);
        add_c(i, acc_of(acc, i));
        activate<WIDTH / 2>(acc_of(acc, i), p.epilogue.activation);
        write_box(i, acc_of(acc, i));
      }
      if (d_by_tma) {
        fence_proxy_async();
        sync();
#pragma unroll 1
        for (int i = first; i < first + BUFFERS; ++i) store_d(i, at);
        if (c_by_tma && first + BUFFERS < COUNT)
          for (int i = first; i < first + BUFFERS; ++i) load_next_c(i, at);
        continue;
      }
      __syncwarp();
#pragma unroll 1
      for (int i = first; i < first + BUFFERS;) i += store_boxes<ACROSS>(i, row_of(i), col_of(i), at);
      __syncwarp();
      // This barrier comes before C's next boxes, or the next tile's boxes or row, take the place of these boxes. The barrier
      // also keeps the warps within a tile of each other. The `order` barriers rely on this, because one thread arrives for its
      // warpgroup.
      if (c_by_tma || first + BUFFERS == COUNT) {
        fence_proxy_async();
        sync();
        if (c_by_tma && first + BUFFERS < COUNT)
          for (int i = first; i < first + BUFFERS; ++i) load_next_c(i, at);
      }
    }
  }

  // `use` counts this warpgroup's tiles and gives the parity of `c_full`.
  __device__ __forceinline__ void finish(float (&acc)[ROWS / kBoxRows][COLS / 2], const TilePlace& at, uint32_t use) const {
    if (paths.c_path == CPath::row) cp_async_wait<0>();  // the barrier before the first box makes the whole row visible
    if constexpr (kTmaOnly) finish_by_tma(acc, at, use);
    else finish_via_registers(acc, at, use);
  }
};

}  // namespace tc
