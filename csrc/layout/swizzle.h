// How tiles lie in shared memory: index functions shared by the kernels, the host, and (through bind.cpp) the bank analyser.
#pragma once

#ifdef __CUDACC__
#define TC_HOST_DEVICE __host__ __device__
#else
#define TC_HOST_DEVICE
#endif

namespace tc {

// Rows a fixed number of elements apart. A pitch above the row's length is padding that spreads a column over the banks.
TC_HOST_DEVICE constexpr int padded_offset(int line, int col, int pitch) { return line * pitch + col; }

constexpr int kSkew = 16;      // halves after each row of wmma_block's operands; WMMA needs a 32-byte multiple
constexpr int kPadBytes = 16;  // by the WMMA rungs above it: eight rows of a fragment start in eight different bank groups
constexpr int kSlabPad = 4;    // floats, by simt: rows stay 16-byte aligned, and the transposing stores spread
constexpr int kRowPad = 8;     // floats, by epilogues: eight rows of an accumulator, stored as pairs, take different banks

constexpr int kChunk = 16;  // bytes moved by one cp.async, one ldmatrix row, one vector access

// XOR swizzle without padding: 16-byte chunk `chunk` of line `line` lies at the returned chunk of the same line, for lines of
// `chunks` chunks (a power of two). Eight lines of 128 bytes fill the 32 banks eight times over; the XOR gives the same chunk
// of eight consecutive lines eight different bank groups. Shorter lines share a 128-byte row, so their line number is shifted.
TC_HOST_DEVICE constexpr int swizzled_chunk(int line, int chunk, int chunks) {
  return chunks >= 8   ? chunk ^ (line & 7)
         : chunks == 4 ? chunk ^ (line >> 1 & 3)
         : chunks == 2 ? chunk ^ (line >> 2 & 1)
                       : chunk;
}

// In elements of `bytes` bytes each; `extent` elements to a line.
TC_HOST_DEVICE constexpr int swizzled_offset(int line, int col, int extent, int bytes) {
  const int per_chunk = kChunk / bytes;
  return line * extent + swizzled_chunk(line, col / per_chunk, extent / per_chunk) * per_chunk + col % per_chunk;
}

}  // namespace tc
