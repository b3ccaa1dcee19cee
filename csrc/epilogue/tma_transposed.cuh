// The epilogue by TMA of a warpgroup that holds a tile of D^T: wgmma's rows are columns of D. A 16-bit D is transposed by
// stmatrix on its way to shared memory, an fp32 D by its stores. C becomes D in place, as in tma.cuh.
#pragma once

#include "../ptx/cluster.cuh"
#include "tma.cuh"

namespace tc {

struct TransposedPaths {
  // A tile has `columns` columns of D. If they are no multiple of 64, D's last box would reach into the next tile. For all tiles
  // but the last of a row, `d_narrow` therefore ends D with the tile: its fourth coordinate counts tiles.
  struct Maps {
    CUtensorMap c, d, d_narrow;
  };
  Maps parts, last;  // last: for the last part of a tile, if it has fewer rows
  int columns;
  int next_c;  // as in TmaPaths
  bool d_exceeds_l2;
  CPath c_path;
};

inline Status make_transposed_paths(TransposedPaths& paths, const GemmDesc& p, const TileParts& parts, const Modes& modes) {
  paths.columns = modes.columns;
  paths.c_path = c_path_of(p);
  paths.next_c = p.c.batch != 0;
  paths.d_exceeds_l2 = d_exceeds_l2(p);
  const Layers layers{modes.layers() * p.batch, p.d.batch}, of_c{matrices_of(p.c, p.batch), p.c.batch};
  const int64_t tiles = modes.columns % 64 == 0 ? 0 : p.n / modes.columns;
  const auto make = [&](TransposedPaths::Maps& maps, int rows) {
    Status status = make_tensor_map(maps.d, p.d.data, p.d.dtype, p.m, writable_columns(p), p.d.row, rows, layers);
    if (status.ok() && tiles > 0)
      status = make_tensor_map(
          maps.d_narrow, p.d.data, p.d.dtype, p.m, modes.columns, p.d.row, rows, layers, Layers{tiles, modes.columns});
    if (status.ok() && paths.c_path == CPath::tma)
      status = make_tensor_map(maps.c, p.c.data, p.c.dtype, p.m, p.n, p.c.row, rows, of_c);
    return status;
  };
  const Status status = make(paths.parts, parts.rows);
  return status.ok() && parts.last < parts.rows ? make(paths.last, parts.last) : status;
}

// A block's tile of D, whose column counts along a row of tiles. The layer counts products where a C is read (TilePlace).
struct TransposedPlace {
  int m0, tile, layer;
};

// How the blocks of a cluster that share K divide the parts of their tile: block `slice` of `count` finishes every count-th
// part.
struct PartOwners {
  static constexpr int kMost = 4;  // blocks
  int count, slice;

  // Which block finishes part i, and how many parts before i it finishes. The compiler knows i, so that these are selections.
  __device__ int owner(int i) const { return count == 3 ? i % 3 : i & (count - 1); }
  __device__ int before(int i) const { return count == 3 ? i / 3 : count == 4 ? i / 4 : count == 2 ? i / 2 : i; }
  __device__ bool mine(int i) const { return owner(i) == slice; }
  // The place among the sums of part i, in the memory of its owner, of those that block `x` sends.
  __device__ int place(int i, int x) const { return before(i) * (count - 1) + x - (x > owner(i)); }
  static constexpr int most_places(int parts) { return std::max({(parts + 1) / 2, (parts + 2) / 3 * 2, (parts + 3) / 4 * 3}); }
};

// The epilogue for tiles of (ROWS, COLS) of D, of which a warpgroup holds the transpose: accumulators of COLS / 64 blocks of 64
// columns of D by ROWS rows. T is the operands' type, and D's type is T or fp32. A part of a tile is (rows_of(), 64 columns) of
// D, in boxes of 128 bytes a row: one box, or two in fp32. A tile has COUNT parts, numbered down
// each block in turn. BUFFERS of them lie in shared memory at a time, and each buffer has a warp whose first lane issues its
// copies.
template <typename T, typename D, int ROWS, int COLS, int MOST_ROWS, int BUFFERS>
struct TransposedEpilogue {
  static constexpr TileParts PARTS = TileParts::of(ROWS, MOST_ROWS);
  static constexpr int PER_BLOCK = PARTS.count, PART_ROWS = PARTS.rows, COUNT = COLS / 64 * PER_BLOCK, BLOCKS = COLS / 64;
  static constexpr int WIDTH = kBoxBytes / int(sizeof(D)), BOXES = 64 / WIDTH, BOX_BYTES = PART_ROWS * kBoxBytes;
  static constexpr int PART_BYTES = BOXES * BOX_BYTES;
  // Bytes from a block's first part to the next block's. A part of one box ends with its own rows. A part of two boxes takes PART_BYTES
  // however few rows it has, because its second box begins BOX_BYTES behind its first.
  static constexpr int BLOCK_BYTES = BOXES == 1 ? ROWS * kBoxBytes : PER_BLOCK * PART_BYTES;
  static_assert(PARTS.last > 0 && COUNT % BUFFERS == 0 && BUFFERS <= 4);

  const GemmDesc& p;
  const TransposedPaths& paths;
  char* const buffers;    // (BUFFERS, BOXES, PART_ROWS, 128 bytes), or (BLOCKS, BLOCK_BYTES) if they hold all parts
  char* const c_row;      // (COLS) elements of C where C is one row for all, up to 4 bytes each
  const uint32_t c_full;  // (BUFFERS) barriers: the part of C has arrived
  const int group;        // the warpgroup's number; named barrier 1 + group is its own
  const int thread;       // in the warpgroup
  const PartOwners owners;

  // Where part i lies in `buffers`.
  __device__ int offset_of(int i) const {
    return BUFFERS == COUNT ? i / PER_BLOCK * BLOCK_BYTES + i % PER_BLOCK * PART_BYTES : i % BUFFERS * PART_BYTES;
  }
  __device__ uint32_t part(int i) const { return smem_address(buffers) + offset_of(i); }
  __device__ void sync() const { named_barrier<128>(1 + group); }
  __device__ bool owns(int i) const { return thread == i % BUFFERS * 32; }
  __device__ int row_of(int i) const { return i % PER_BLOCK * PART_ROWS; }
  // Loops over the parts are unrolled, so that the compiler knows which of them is a block's last.
  __device__ bool is_shorter(int i) const { return PARTS.last < PART_ROWS && i % PER_BLOCK == PER_BLOCK - 1; }
  __device__ int rows_of(int i) const { return is_shorter(i) ? PARTS.last : PART_ROWS; }
  __device__ const TransposedPaths::Maps& maps_of(int i) const { return is_shorter(i) ? paths.last : paths.parts; }
  __device__ int col_of(int i) const { return i / PER_BLOCK * 64; }
  __device__ bool c_is_fp32() const { return sizeof(D) == 4 && is_f32(p.c.dtype); }
  // The warpgroup's first column in D. `tile` counts along a row of tiles.
  __device__ int first_col_of(int tile) const { return tile * paths.columns + group * COLS; }

  __device__ void load_c(int i, const TransposedPlace& at) const {
    const uint32_t full = c_full + i % BUFFERS * 8;
    mbarrier_arrive_expect(full, BOXES * rows_of(i) * kBoxBytes);
#pragma unroll
    for (int x = 0; x < BOXES; ++x)
      tma_load(part(i) + x * BOX_BYTES, maps_of(i).c, full, first_col_of(at.tile) + col_of(i) + x * WIDTH, at.m0 + row_of(i),
               at.layer * paths.next_c);
  }

  __device__ void store_d(int i, const TransposedPlace& at) const {
    const bool narrow = paths.columns % 64 != 0 && (at.tile + 1) * paths.columns < p.n;
    const int col = group * COLS + (narrow ? 0 : at.tile * paths.columns) + col_of(i), row = at.m0 + row_of(i);
    const uint64_t policy = cache_policy(paths.d_exceeds_l2);
#pragma unroll
    for (int x = 0; x < BOXES; ++x)
      if (narrow) tma_store(maps_of(i).d_narrow, part(i) + x * BOX_BYTES, policy, col + x * WIDTH, row, at.layer, at.tile);
      else tma_store(maps_of(i).d, part(i) + x * BOX_BYTES, policy, col + x * WIDTH, row, at.layer);
    tma_store_commit();
  }

  // Called while the product runs. Loads the tile's part of C's row by cp.async (see TmaEpilogue::load_c_row), or the first
  // parts of C once the last tile's D has left their buffers.
  __device__ void prefetch(const TransposedPlace& at) const {
    const int size = c_is_fp32() ? 4 : 2, col = thread * 16 / size;
    if (paths.c_path == CPath::row && col < COLS) {
      const int n = first_col_of(at.tile) + col;
      const bool inside = n < p.n;  // the row consists of whole vectors, see tma_reaches_c_and_d
      const int64_t offset = (at.layer * p.c.batch + (inside ? n : 0)) * size;
      cp_async_16(smem_address(c_row + thread * 16), static_cast<const char*>(p.c.data) + offset, inside);
      cp_async_commit();
    }
    if (paths.c_path != CPath::tma || thread % 32 != 0 || thread >= BUFFERS * 32) return;
    tma_store_wait_read<0>();
    load_c(thread / 32, at);
  }

  // The accumulators of part i. Lane l of warp w holds the elements at row 8 j + l % 4 * 2 + e and column 16 w + l / 4 + 8 h of
  // the part, in acc[4 j + 2 h + e].
  __device__ __forceinline__ float* acc_of(float (&acc)[BLOCKS][ROWS / 2], int i) const {
    return &acc[i / PER_BLOCK][i % PER_BLOCK * PART_ROWS / 2];
  }

  // The sums of a part are vectors of four, (SUMS, 128) of them in shared memory.
  static constexpr int SUMS = PART_ROWS / 8, SUMS_BYTES = SUMS * 128 * 16;
  static constexpr int ALL_SUMS_BYTES = PartOwners::most_places(COUNT) * SUMS_BYTES;  // that a warpgroup receives, at most

  // How many bytes of sums the warpgroup receives.
  __device__ int received_bytes() const {
    int bytes = 0;
#pragma unroll
    for (int i = 0; i < COUNT; ++i) bytes += owners.mine(i) ? (owners.count - 1) * rows_of(i) / 8 * 128 * 16 : 0;
    return bytes;
  }

  // Sends the sums of the parts that other blocks finish to their memory at `smem`, where `received` counts the bytes. Block
  // x of those that share K has rank first_rank + (x << log2_step) in the cluster.
  __device__ __forceinline__ void send_sums(const float (&acc)[BLOCKS][ROWS / 2], uint32_t smem, uint32_t received,
                                            int first_rank, int log2_step) const {
#pragma unroll
    for (int i = 0; i < COUNT; ++i) {
      if (owners.mine(i)) continue;
      const int rank = first_rank + (owners.owner(i) << log2_step);
      const uint32_t barrier = address_in_block(received, rank);
      const uint32_t to = address_in_block(smem + owners.place(i, owners.slice) * SUMS_BYTES + thread * 16, rank);
      const float* const sums = &acc[i / PER_BLOCK][i % PER_BLOCK * PART_ROWS / 2];
#pragma unroll
      for (int x = 0; x < SUMS; ++x)
        if (x < rows_of(i) / 8)
          store_async(to + x * 128 * 16, make_float4(sums[x * 4], sums[x * 4 + 1], sums[x * 4 + 2], sums[x * 4 + 3]), barrier);
    }
  }

  // Adds the sums that the other blocks have sent to `smem`.
  __device__ __forceinline__ void add_sums(float (&acc)[BLOCKS][ROWS / 2], uint32_t smem) const {
#pragma unroll 1
    for (int other = 0; other < owners.count; ++other) {
      if (other == owners.slice) continue;
#pragma unroll
      for (int i = 0; i < COUNT; ++i) {
        if (!owners.mine(i)) continue;
        const uint32_t from = smem + owners.place(i, other) * SUMS_BYTES + thread * 16;
        float* const sums = acc_of(acc, i);
#pragma unroll
        for (int x = 0; x < SUMS; ++x) {
          if (x >= rows_of(i) / 8) break;
          const float4 y = ld_shared_16(from + x * 128 * 16);
          sums[x * 4] += y.x, sums[x * 4 + 1] += y.y, sums[x * 4 + 2] += y.z, sums[x * 4 + 3] += y.w;
        }
      }
    }
  }

  // Calls act(j, count, address) for every eight rows j of 16-bit part i, two at a time while there are two: `count` 8x8
  // matrices for ldmatrix_trans and stmatrix_trans, of columns 16 w and 16 w + 8 for each eight rows.
  template <typename F>
  __device__ __forceinline__ void each_matrix(int i, F&& act) const {
    const int warp = thread / 32, lane = thread % 32, column = warp * 2 + lane / 8 % 2;
#pragma unroll
    for (int j = 0; j < PART_ROWS / 8; j += 2)
      if (j + 1 < rows_of(i) / 8)
        act(j, std::integral_constant<int, 4>(), part(i) + box_offset(j * 8 + lane / 16 * 8 + lane % 8, column));
      else if (j < rows_of(i) / 8) act(j, std::integral_constant<int, 2>(), part(i) + box_offset(j * 8 + lane % 8, column));
  }

  // Calls act(x, element) for the accumulators x of fp32 part i. The 32 lanes take 32 banks: eight columns of four rows.
  template <typename F>
  __device__ __forceinline__ void each_element(int i, F&& act) const {
    const int warp = thread / 32, lane = thread % 32;
    char* const box = buffers + offset_of(i) + warp / 2 * BOX_BYTES;
#pragma unroll
    for (int x = 0; x < PART_ROWS / 2; ++x) {
      if (x >= rows_of(i) / 2) break;
      const int row = x / 4 * 8 + lane % 4 * 2 + x % 2, col = warp % 2 * 16 + lane / 4 + x / 2 % 2 * 8;
      act(x, *reinterpret_cast<float*>(box + box_offset(row, col / 4) + col % 4 * 4));
    }
  }

  // Computes alpha * acc + beta * C for part i, in place.
  __device__ __forceinline__ void add_c(int i, float* acc) const {
    const auto add = [&](int x, float c) { acc[x] = combine(acc[x], p.epilogue.alpha, c, p.epilogue.beta); };
    if (paths.c_path == CPath::none) {
#pragma unroll
      for (int x = 0; x < PART_ROWS / 2; ++x)
        if (x < rows_of(i) / 2) add(x, 0.f);
    } else if (paths.c_path == CPath::row) {
      const int col = col_of(i) + thread / 32 * 16 + thread % 32 / 4;
      float c[2];
#pragma unroll
      for (int h = 0; h < 2; ++h)
        c[h] = c_is_fp32() ? reinterpret_cast<const float*>(c_row)[col + h * 8]
                           : to_float(reinterpret_cast<const T*>(c_row)[col + h * 8]);
#pragma unroll
      for (int x = 0; x < PART_ROWS / 2; ++x)
        if (x < rows_of(i) / 2) add(x, c[x / 2 % 2]);
    } else if constexpr (sizeof(D) == 4) {
      each_element(i, [&](int x, float& element) { add(x, element); });
    } else {
      each_matrix(i, [&](int j, auto count, uint32_t address) {
        constexpr int MATRICES = decltype(count)::value;
        uint32_t q[MATRICES];
        ldmatrix_trans(q, address);
#pragma unroll
        for (int x = 0; x < MATRICES; ++x) {
          const float2 c = unpack(q[x], T());
          add(j * 4 + x * 2, c.x), add(j * 4 + x * 2 + 1, c.y);
        }
      });
    }
  }

  // Writes acc to part i, over C.
  __device__ __forceinline__ void write_part(int i, const float* acc) const {
    if constexpr (sizeof(D) == 4) {
      each_element(i, [&](int x, float& element) { element = acc[x]; });
    } else {
      each_matrix(i, [&](int j, auto count, uint32_t address) {
        constexpr int MATRICES = decltype(count)::value;
        uint32_t d[MATRICES];
#pragma unroll
        for (int x = 0; x < MATRICES; ++x) d[x] = pack(acc[j * 4 + x * 2], acc[j * 4 + x * 2 + 1], T());
        stmatrix_trans(address, d);
      });
    }
  }

  // Finishes a tile in batches of parts, as TmaEpilogue::finish_by_tma does. `use` counts this warpgroup's tiles and gives the
  // parity of `c_full`.
  __device__ __forceinline__ void finish(float (&acc)[BLOCKS][ROWS / 2], const TransposedPlace& at, uint32_t use) const {
    constexpr int BATCH = COUNT == BUFFERS ? BUFFERS : 1, LATER = COUNT > BUFFERS && BUFFERS > 1;
    if (paths.c_path == CPath::row) cp_async_wait<0>();  // the barrier before the first part makes the whole row visible
#pragma unroll
    for (int first = 0; first < COUNT; first += BATCH) {
      // Parts that other blocks finish are computed with the others of their batch, because a condition for each would double
      // the time to compile.
      if (BATCH == 1 && !owners.mine(first) && paths.c_path != CPath::tma) continue;
      const auto each = [&](auto&& act) {
#pragma unroll
        for (int i = first; i < first + BATCH; ++i) act(i);
      };
      if (paths.c_path != CPath::tma) {
        each([&](int i) {
          if (owns(i)) tma_store_wait_read<0>();
        });
        sync();
      }
      each([&](int i) {
        if (paths.c_path == CPath::tma) mbarrier_wait(c_full + i % BUFFERS * 8, (use * (COUNT / BUFFERS) + i / BUFFERS) & 1);
        add_c(i, acc_of(acc, i));
      });
      if (p.epilogue.activation.kind != Activation::Kind::none)
        each([&](int i) {
          if (is_shorter(i)) activate<PARTS.last / 2>(acc_of(acc, i), p.epilogue.activation);
          else activate<PART_ROWS / 2>(acc_of(acc, i), p.epilogue.activation);
        });
      each([&](int i) { write_part(i, acc_of(acc, i)); });
      fence_proxy_async();
      sync();
      each([&](int i) {
        if (owns(i) && owners.mine(i)) store_d(i, at);
      });
      // The next part of C takes the buffer whose store is one batch older, so that this batch's store has time to end.
      if (paths.c_path == CPath::tma && first >= LATER && first - LATER + BUFFERS < COUNT)
        each([&](int i) {
          if (!owns(i - LATER)) return;
          tma_store_wait_read<0>();
          load_c(i - LATER + BUFFERS, at);
        });
    }
  }
};

}  // namespace tc
