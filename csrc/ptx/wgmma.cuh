// wgmma, one wrapper per instruction (sm_90a). A warpgroup multiplies tiles in shared memory.
#pragma once

#include <cstdint>
#include <type_traits>

#include "types.cuh"

namespace tc {

// A warpgroup needs this fence before its first wgmma, and after its other accesses to the accumulators.
__device__ __forceinline__ void wgmma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

// Waits until at most the N most recent groups of the warpgroup are pending.
template <int N>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(N) : "memory");
}

// Changes the registers per thread of this warpgroup to REGISTERS, a multiple of 8 from 24 to 256 (PTX ISA, "setmaxnreg").
template <int REGISTERS>
__device__ __forceinline__ void warpgroup_reg_dealloc() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}
template <int REGISTERS>
__device__ __forceinline__ void warpgroup_reg_alloc() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(REGISTERS));
}

// wgmma's descriptor (PTX ISA, "Matrix Descriptor Format") of a tile that TMA wrote with the 128-byte swizzle. The tile has
// rows of 128 bytes. Eight rows form an atom of 1024 bytes, and atoms follow one another. K_CONTIGUOUS: a 128-byte row is a row
// of A or a column of B. Otherwise a 128-byte row holds 64 rows of A or columns of B at one k, and the next 64 lie `block`
// bytes further.
template <bool K_CONTIGUOUS>
__device__ __forceinline__ uint64_t tile_descriptor(uint32_t smem, uint32_t block) {
  constexpr uint64_t ATOM = 1024 >> 4, SWIZZLE_128B = uint64_t(1) << 62;
  return SWIZZLE_128B | ATOM << 32 | uint64_t(K_CONTIGUOUS ? 1 : block >> 4) << 16 | (smem & 0x3ffff) >> 4;
}

// The step of a descriptor to the next 32 bytes of K, in units of 16 bytes: within the 128-byte row, or 16 such rows down.
template <bool K_CONTIGUOUS>
constexpr uint64_t kNextK = (K_CONTIGUOUS ? 32 : 16 * 128) >> 4;

// The accumulators as asm operands (TC_FN for N of them), and their numbers in the instruction's text (TC_RN).
#define TC_F4(i) "+f"(d[i]), "+f"(d[i + 1]), "+f"(d[i + 2]), "+f"(d[i + 3])
#define TC_F8(i) TC_F4(i), TC_F4(i + 4)
#define TC_F16(i) TC_F8(i), TC_F8(i + 8)
#define TC_F32(i) TC_F16(i), TC_F16(i + 16)
#define TC_R4 "%0, %1, %2, %3"
#define TC_R8 TC_R4 ", %4, %5, %6, %7"
#define TC_R12 TC_R8 ", %8, %9, %10, %11"
#define TC_R16 TC_R12 ", %12, %13, %14, %15"
#define TC_R20 TC_R16 ", %16, %17, %18, %19"
#define TC_R24 TC_R20 ", %20, %21, %22, %23"
#define TC_R28 TC_R24 ", %24, %25, %26, %27"
#define TC_R32 TC_R28 ", %28, %29, %30, %31"
#define TC_R36 TC_R32 ", %32, %33, %34, %35"
#define TC_R40 TC_R32 ", %32, %33, %34, %35, %36, %37, %38, %39"
#define TC_R44 TC_R40 ", %40, %41, %42, %43"
#define TC_R48 TC_R40 ", %40, %41, %42, %43, %44, %45, %46, %47"
#define TC_R52 TC_R48 ", %48, %49, %50, %51"
#define TC_R56 TC_R48 ", %48, %49, %50, %51, %52, %53, %54, %55"
#define TC_R60 TC_R56 ", %56, %57, %58, %59"
#define TC_R64 TC_R56 ", %56, %57, %58, %59, %60, %61, %62, %63"
#define TC_R68 TC_R64 ", %64, %65, %66, %67"
#define TC_R72 TC_R64 ", %64, %65, %66, %67, %68, %69, %70, %71"
#define TC_R76 TC_R72 ", %72, %73, %74, %75"
#define TC_R80 TC_R72 ", %72, %73, %74, %75, %76, %77, %78, %79"
#define TC_R84 TC_R80 ", %80, %81, %82, %83"
#define TC_R88 TC_R80 ", %80, %81, %82, %83, %84, %85, %86, %87"
#define TC_R92 TC_R88 ", %88, %89, %90, %91"
#define TC_R96 TC_R88 ", %88, %89, %90, %91, %92, %93, %94, %95"
#define TC_R100 TC_R96 ", %96, %97, %98, %99"
#define TC_R104 TC_R96 ", %96, %97, %98, %99, %100, %101, %102, %103"
#define TC_R108 TC_R104 ", %104, %105, %106, %107"
#define TC_R112 TC_R104 ", %104, %105, %106, %107, %108, %109, %110, %111"
#define TC_R116 TC_R112 ", %112, %113, %114, %115"
#define TC_R120 TC_R112 ", %112, %113, %114, %115, %116, %117, %118, %119"
#define TC_R124 TC_R120 ", %120, %121, %122, %123"
#define TC_R128 TC_R120 ", %120, %121, %122, %123, %124, %125, %126, %127"
// A, B, P, TA, TB and X are the numbers of the asm operands that follow the accumulators.
#define TC_WGMMA_TEXT(SHAPE, TYPES, REGS, A, B, P, FLAGS)                                                                  \
  "{\n .reg .pred p;\n setp.ne.b32 p, %" #P ", 0;\n wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPES " {" REGS "}, %" #A \
  ", %" #B ", p, 1, 1" FLAGS ";\n}"
#define TC_WGMMA_FRAGMENT(SHAPE, TYPES, REGS, A, B, P, TA, TB, X, FLAGS, ...)                                                 \
  asm volatile("{\n .reg .pred p;\n setp.ne.b32 p, %" #X ", 0;\n wgmma.mma_async.sync.aligned." SHAPE ".f32." TYPES " {" REGS \
               "}, {%" #A ", %" #B ", %" #P ", %" #TA "}, %" #TB ", p, 1, 1" FLAGS ";\n}"                                     \
               : __VA_ARGS__                                                                                                  \
               : "r"(a.x[0]), "r"(a.x[1]), "r"(a.x[2]), "r"(a.x[3]), "l"(b), "r"(int(accumulate)))
#define TC_WGMMA(WIDTH, REGS, A, B, P, TA, TB, X, ...)                                                 \
  if constexpr (N == WIDTH && std::is_same_v<Left, Tf32Fragment>)                                      \
    TC_WGMMA_FRAGMENT("m64n" #WIDTH "k8", "tf32.tf32", REGS, A, B, P, TA, TB, X, "", __VA_ARGS__);     \
  else if constexpr (N == WIDTH && std::is_same_v<Left, Bf16Fragment>)                                 \
    TC_WGMMA_FRAGMENT("m64n" #WIDTH "k16", "bf16.bf16", REGS, A, B, P, TA, TB, X, ", 0", __VA_ARGS__); \
  else if constexpr (N == WIDTH && std::is_same_v<T, __half>)                                          \
    asm volatile(TC_WGMMA_TEXT("m64n" #WIDTH "k16", "f16.f16", REGS, A, B, P, ", %" #TA ", %" #TB)     \
                 : __VA_ARGS__                                                                         \
                 : "l"(a), "l"(b), "r"(int(accumulate)), "n"(!A_K_CONTIGUOUS), "n"(!B_K_CONTIGUOUS));  \
  else if constexpr (N == WIDTH && std::is_same_v<T, __nv_bfloat16>)                                   \
    asm volatile(TC_WGMMA_TEXT("m64n" #WIDTH "k16", "bf16.bf16", REGS, A, B, P, ", %" #TA ", %" #TB)   \
                 : __VA_ARGS__                                                                         \
                 : "l"(a), "l"(b), "r"(int(accumulate)), "n"(!A_K_CONTIGUOUS), "n"(!B_K_CONTIGUOUS));  \
  else if constexpr (N == WIDTH && std::is_same_v<T, Tf32>)                                            \
  asm volatile(TC_WGMMA_TEXT("m64n" #WIDTH "k8", "tf32.tf32", REGS, A, B, P, "")                       \
               : __VA_ARGS__                                                                           \
               : "l"(a), "l"(b), "r"(int(accumulate)))

// A (64, 8) of TF32 in registers. Lane l of warp w of the warpgroup holds elements (16 w + l / 4 + 8 h, l % 4 + 4 e) in
// x[2 e + h].
struct Tf32Fragment {
  uint32_t x[4];
};

// A (64, 16) of bf16 in registers. The same lane holds elements (16 w + l / 4 + 8 h, l % 4 * 2 + 8 e) and, in the upper half, the next
// along K.
struct Bf16Fragment {
  uint32_t x[4];
};

// D (64, N) += A (64, K) B (K, N) in fp32, or D = A B if `accumulate` is false. K is 32 bytes deep: 16 elements of a 16-bit
// type or 8 TF32 values. Operands are given by descriptors, A also by a fragment, with which B must be contiguous along K. TF32 operands
// in shared memory must be contiguous along K. wgmma truncates fp32 to TF32. Lane l of warp w of the warpgroup holds elements
// (16 w + l / 4 + 8 h, 8 j + l % 4 * 2 + e) in d[4 j + 2 h + e].
template <typename T, int N, bool A_K_CONTIGUOUS, bool B_K_CONTIGUOUS, typename Left>
__device__ __forceinline__ void wgmma(float (&d)[N / 2], const Left& a, uint64_t b, bool accumulate) {
  static_assert(std::is_same_v<T, __half> || std::is_same_v<T, __nv_bfloat16> || std::is_same_v<T, Tf32>);
  static_assert(N % 8 == 0 && N <= 256);
  static_assert(sizeof(T) == 2 || (A_K_CONTIGUOUS && B_K_CONTIGUOUS));
  TC_WGMMA(8, TC_R4, 4, 5, 6, 7, 8, 9, TC_F4(0));
  TC_WGMMA(16, TC_R8, 8, 9, 10, 11, 12, 13, TC_F8(0));
  TC_WGMMA(24, TC_R12, 12, 13, 14, 15, 16, 17, TC_F8(0), TC_F4(8));
  TC_WGMMA(32, TC_R16, 16, 17, 18, 19, 20, 21, TC_F16(0));
  TC_WGMMA(40, TC_R20, 20, 21, 22, 23, 24, 25, TC_F16(0), TC_F4(16));
  TC_WGMMA(48, TC_R24, 24, 25, 26, 27, 28, 29, TC_F16(0), TC_F8(16));
  TC_WGMMA(56, TC_R28, 28, 29, 30, 31, 32, 33, TC_F16(0), TC_F8(16), TC_F4(24));
  TC_WGMMA(64, TC_R32, 32, 33, 34, 35, 36, 37, TC_F32(0));
  TC_WGMMA(72, TC_R36, 36, 37, 38, 39, 40, 41, TC_F32(0), TC_F4(32));
  TC_WGMMA(80, TC_R40, 40, 41, 42, 43, 44, 45, TC_F32(0), TC_F8(32));
  TC_WGMMA(88, TC_R44, 44, 45, 46, 47, 48, 49, TC_F32(0), TC_F8(32), TC_F4(40));
  TC_WGMMA(96, TC_R48, 48, 49, 50, 51, 52, 53, TC_F32(0), TC_F16(32));
  TC_WGMMA(104, TC_R52, 52, 53, 54, 55, 56, 57, TC_F32(0), TC_F16(32), TC_F4(48));
  TC_WGMMA(112, TC_R56, 56, 57, 58, 59, 60, 61, TC_F32(0), TC_F16(32), TC_F8(48));
  TC_WGMMA(120, TC_R60, 60, 61, 62, 63, 64, 65, TC_F32(0), TC_F16(32), TC_F8(48), TC_F4(56));
  TC_WGMMA(128, TC_R64, 64, 65, 66, 67, 68, 69, TC_F32(0), TC_F32(32));
  TC_WGMMA(136, TC_R68, 68, 69, 70, 71, 72, 73, TC_F32(0), TC_F32(32), TC_F4(64));
  TC_WGMMA(144, TC_R72, 72, 73, 74, 75, 76, 77, TC_F32(0), TC_F32(32), TC_F8(64));
  TC_WGMMA(152, TC_R76, 76, 77, 78, 79, 80, 81, TC_F32(0), TC_F32(32), TC_F8(64), TC_F4(72));
  TC_WGMMA(160, TC_R80, 80, 81, 82, 83, 84, 85, TC_F32(0), TC_F32(32), TC_F16(64));
  TC_WGMMA(168, TC_R84, 84, 85, 86, 87, 88, 89, TC_F32(0), TC_F32(32), TC_F16(64), TC_F4(80));
  TC_WGMMA(176, TC_R88, 88, 89, 90, 91, 92, 93, TC_F32(0), TC_F32(32), TC_F16(64), TC_F8(80));
  TC_WGMMA(184, TC_R92, 92, 93, 94, 95, 96, 97, TC_F32(0), TC_F32(32), TC_F16(64), TC_F8(80), TC_F4(88));
  TC_WGMMA(192, TC_R96, 96, 97, 98, 99, 100, 101, TC_F32(0), TC_F32(32), TC_F32(64));
  TC_WGMMA(200, TC_R100, 100, 101, 102, 103, 104, 105, TC_F32(0), TC_F32(32), TC_F32(64), TC_F4(96));
  TC_WGMMA(208, TC_R104, 104, 105, 106, 107, 108, 109, TC_F32(0), TC_F32(32), TC_F32(64), TC_F8(96));
  TC_WGMMA(216, TC_R108, 108, 109, 110, 111, 112, 113, TC_F32(0), TC_F32(32), TC_F32(64), TC_F8(96), TC_F4(104));
  TC_WGMMA(224, TC_R112, 112, 113, 114, 115, 116, 117, TC_F32(0), TC_F32(32), TC_F32(64), TC_F16(96));
  TC_WGMMA(232, TC_R116, 116, 117, 118, 119, 120, 121, TC_F32(0), TC_F32(32), TC_F32(64), TC_F16(96), TC_F4(112));
  TC_WGMMA(240, TC_R120, 120, 121, 122, 123, 124, 125, TC_F32(0), TC_F32(32), TC_F32(64), TC_F16(96), TC_F8(112));
  TC_WGMMA(248, TC_R124, 124, 125, 126, 127, 128, 129, TC_F32(0), TC_F32(32), TC_F32(64), TC_F16(96), TC_F8(112), TC_F4(120));
  TC_WGMMA(256, TC_R128, 128, 129, 130, 131, 132, 133, TC_F32(0), TC_F32(32), TC_F32(64), TC_F32(96));
}

#undef TC_F4
#undef TC_F8
#undef TC_F16
#undef TC_F32
#undef TC_R4
#undef TC_R8
#undef TC_R12
#undef TC_R16
#undef TC_R20
#undef TC_R24
#undef TC_R28
#undef TC_R32
#undef TC_R36
#undef TC_R40
#undef TC_R44
#undef TC_R48
#undef TC_R52
#undef TC_R56
#undef TC_R60
#undef TC_R64
#undef TC_R68
#undef TC_R72
#undef TC_R76
#undef TC_R80
#undef TC_R84
#undef TC_R88
#undef TC_R92
#undef TC_R96
#undef TC_R100
#undef TC_R104
#undef TC_R108
#undef TC_R112
#undef TC_R116
#undef TC_R120
#undef TC_R124
#undef TC_R128
#undef TC_WGMMA_TEXT
#undef TC_WGMMA_FRAGMENT
#undef TC_WGMMA

}  // namespace tc
