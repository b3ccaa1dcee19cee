// Index functions of tiles in shared memory, for the kernels, the host and (through op/introspect.cpp) the bank analyser.
#pragma once

#ifdef __CUDACC__
#define TC_HOST_DEVICE __host__ __device__
#else
#define TC_HOST_DEVICE
#endif

namespace tc {

// Rows lie `pitch` elements apart. A pitch above the row's length is padding, which spreads a column over the banks.
TC_HOST_DEVICE constexpr int padded_offset(int row, int col, int pitch) { return row * pitch + col; }

// Padding after each row.
constexpr int kSkew = 16;      // 16-bit elements, for wmma_block's operands: WMMA needs a multiple of 32 bytes
constexpr int kPadBytes = 16;  // bytes, for the later WMMA rungs: eight rows of a fragment start in eight different bank groups
constexpr int kSlabPad = 4;    // floats, for simt: rows stay 16-byte aligned, and the transposing stores spread over the banks
constexpr int kRowPad = 8;     // floats, for epilogues: eight rows of an accumulator, stored as pairs, take different banks

// Bytes of a chunk, which is a 16-byte vector: one cp.async, one row of ldmatrix, one vector access.
constexpr int kChunk = 16;

// XOR swizzle without padding. Chunk `chunk` of row `row` lies at the returned chunk of the same row. A row has `chunks`
// chunks, a power of two. Eight rows of 128 bytes fill the 32 banks eight times, and the XOR puts the same chunk of eight
// consecutive rows into eight different bank groups. Shorter rows share 128 bytes, so their row number is shifted.
TC_HOST_DEVICE constexpr int swizzle_shift(int chunks) { return chunks >= 8 ? 0 : chunks == 4 ? 1 : chunks == 2 ? 2 : 3; }
TC_HOST_DEVICE constexpr int swizzled_chunk(int row, int chunk, int chunks) {
  return chunk ^ (row >> swizzle_shift(chunks) & 7 >> swizzle_shift(chunks));
}

// Where element (row, col) lies, in elements of `bytes` bytes. A row has `extent` elements.
TC_HOST_DEVICE constexpr int swizzled_offset(int row, int col, int extent, int bytes) {
  const int per_chunk = kChunk / bytes;
  return row * extent + swizzled_chunk(row, col / per_chunk, extent / per_chunk) * per_chunk + col % per_chunk;
}

}  // namespace tc
