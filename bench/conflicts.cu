// Replays a list of shared-memory addresses with one warp. bench/conflicts.py runs the kernel under Nsight Compute.
//
// Build: nvcc -std=c++17 -O3 -arch=sm_90 -shared -Xcompiler=-fPIC -o conflicts.so bench/conflicts.cu
#include <cstdint>

namespace {

enum Kind { kStore, kLoad, kLdmatrix };

// Lane l accesses addresses[l], addresses[l + 32] and so on, in bytes from the start of shared memory. The kernel stores what
// it reads to `sink`, 32 elements: the compiler would otherwise drop the reads.
template <Kind KIND, int WIDTH>
__global__ void replay_accesses(const uint32_t* addresses, int count, uint32_t* sink) {
  extern __shared__ __align__(128) char smem[];
  const uint32_t base = uint32_t(__cvta_generic_to_shared(smem));
  uint32_t r[4] = {}, seen = 0;
  for (int i = threadIdx.x; i < count; i += 32) {
    const uint32_t at = base + addresses[i];
    if (KIND == kLdmatrix)
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
                   : "r"(at));
    else if (KIND == kLoad && WIDTH == 16)
      asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];" : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3]) : "r"(at));
    else if (KIND == kStore && WIDTH == 16) asm volatile("st.shared.v4.u32 [%0], {%1, %1, %1, %1};" ::"r"(at), "r"(r[0]));
    else if (KIND == kStore && WIDTH == 8) asm volatile("st.shared.v2.u32 [%0], {%1, %1};" ::"r"(at), "r"(r[0]));
    else if (KIND == kStore && WIDTH == 4) asm volatile("st.shared.u32 [%0], %1;" ::"r"(at), "r"(r[0]));
    seen ^= r[0] ^ r[1] ^ r[2] ^ r[3];
  }
  sink[threadIdx.x] = seen;
}

}  // namespace

// Returns 0 or the CUDA error; -1 if no access has this `kind` and `width`. `count` is a multiple of 32.
extern "C" int replay(int kind, int width, const uint32_t* addresses, int count, uint32_t* sink, int smem_bytes) {
  const auto launch = [&](auto kernel) {
    kernel<<<1, 32, smem_bytes>>>(addresses, count, sink);
    return int(cudaDeviceSynchronize());
  };
  if (kind == kLdmatrix) return launch(replay_accesses<kLdmatrix, 16>);
  if (kind == kLoad && width == 16) return launch(replay_accesses<kLoad, 16>);
  if (kind == kStore && width == 16) return launch(replay_accesses<kStore, 16>);
  if (kind == kStore && width == 8) return launch(replay_accesses<kStore, 8>);
  if (kind == kStore && width == 4) return launch(replay_accesses<kStore, 4>);
  return -1;
}
