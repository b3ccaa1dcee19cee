// Every configuration's launcher on random problems, with a CUDA runtime that launches nothing: it records what it is asked for. This
// shows without a GPU that each math and layout of each configuration has compiled code, that grids, blocks and shared memory are what
// the configuration says, and that tensor maps keep TMA's rules. tests/test_launches.py links it with the objects of the build.
#include <cuda.h>
#include <cuda_runtime_api.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "../csrc/gemm/direct_shape.h"
#include "../csrc/gemm/feasibility.h"
#include "../csrc/gemm/run.h"
#include "../csrc/gemm/stationary_shape.h"
#include "../csrc/gemm/streamed_shape.h"
#include "../csrc/gemm/walked_shape.h"

namespace {

struct Recorded {
  std::vector<cudaLaunchConfig_t> launches;
  std::vector<bool> pdl;  // whether each launch uses programmatic dependent launch
  int clusters = 0;       // of the last launch, in blocks
  int maps = 0;
} recorded;

std::string problem;  // for messages

void expect(bool condition, const char* what) {
  if (condition) return;
  std::printf("%s: %s\n", what, problem.c_str());
  std::exit(1);
}

// PTX ISA and driver API: addresses and strides are multiples of 16 bytes, boxes have up to 256 rows and here 128 bytes a row.
CUresult encode(CUtensorMap*, CUtensorMapDataType type, cuuint32_t rank, void* data, const cuuint64_t* sizes,
                const cuuint64_t* strides, const cuuint32_t* box, const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle,
                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  const bool two_bytes = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  const cuuint64_t bytes = two_bytes ? 2 : 4;
  const int dims = int(rank);
  expect((dims == 3 || dims == 4) && reinterpret_cast<uintptr_t>(data) % 16 == 0,
         "a tensor map's address is not a multiple of 16");
  for (int i = 0; i < dims - 1; ++i)
    expect(strides[i] % 16 == 0 && strides[i] > 0, "a tensor map's stride is not a multiple of 16");
  expect(sizes[1] == 1 || strides[0] >= sizes[0] * bytes, "a tensor map's rows overlap");
  for (int i = 0; i < dims; ++i)
    expect(sizes[i] > 0 && sizes[i] <= (1ull << 32), "a tensor map has a size that TMA does not take");
  expect(box[0] * bytes == 128 && box[1] > 0 && box[1] <= 256, "a tensor map has a box that TMA does not take");
  ++recorded.maps;
  return CUDA_SUCCESS;
}

}  // namespace

extern "C" {
void** __cudaRegisterFatBinary(void*) {
  static void* handle[1];
  return handle;
}
void __cudaRegisterFatBinaryEnd(void**) {}
void __cudaUnregisterFatBinary(void**) {}
char __cudaInitModule(void**) { return 0; }
void __cudaRegisterFunction(void**, const char*, char*, const char*, int, uint3*, uint3*, dim3*, dim3*, int*) {}
void __cudaRegisterVar(void**, char*, char*, const char*, int, size_t, int, int) {}
cudaError_t __cudaGetKernel(cudaKernel_t*, const void*) { return cudaSuccess; }
cudaError_t __cudaLaunchKernel(cudaKernel_t, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
unsigned __cudaPushCallConfiguration(dim3, dim3, size_t, void*) { return 1; }
cudaError_t __cudaPopCallConfiguration(dim3*, dim3*, size_t*, void*) { return cudaErrorNotSupported; }
cudaError_t cudaLaunchKernel(const void*, dim3, dim3, void**, size_t, cudaStream_t) { return cudaErrorNotSupported; }
cudaError_t cudaFuncSetAttribute(const void*, cudaFuncAttribute, int) { return cudaSuccess; }
cudaError_t cudaGetLastError() { return cudaSuccess; }
cudaError_t cudaLaunchKernelExC(const cudaLaunchConfig_t* config, const void*, void**) {
  recorded.launches.push_back(*config);
  recorded.pdl.push_back(false);
  recorded.clusters = 1;
  for (unsigned i = 0; i < config->numAttrs; ++i) {
    const cudaLaunchAttribute& x = config->attrs[i];
    if (x.id == cudaLaunchAttributeClusterDimension) recorded.clusters = int(x.val.clusterDim.x);
    if (x.id == cudaLaunchAttributeProgrammaticStreamSerialization) recorded.pdl.back() = true;
  }
  return cudaSuccess;
}
cudaError_t cudaOccupancyMaxActiveClusters(int* count, const void*, const cudaLaunchConfig_t* config) {
  const int blocks = int(config->attrs[0].val.clusterDim.x);
  *count = (blocks > 2 ? 120 : 132) / blocks;
  return cudaSuccess;
}
cudaError_t cudaGetDriverEntryPointByVersion(const char*, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult*) {
  *function = reinterpret_cast<void*>(&encode);
  return cudaSuccess;
}
}

namespace tc {
namespace {

std::mt19937 random_bits(0);
int64_t below(int64_t n) { return int64_t(random_bits() % uint64_t(n)); }

int64_t random_size() {
  switch (below(3)) {
    case 0: return 1 + below(300);
    case 1: return 8 * (1 + below(600));
    default: return 1 + below(5000);
  }
}

// A matrix at `address` in one of the layouts of torch_addmm_tc/testing/inputs.py.
MatrixView random_matrix(uint64_t address, int64_t rows, int64_t cols, DType dtype, bool may_overlap) {
  const int64_t odd = below(4) == 0, pitch = odd ? 3 : 8;
  const int64_t misaligned = odd * size_of(dtype);
  MatrixView x{reinterpret_cast<void*>(address + uint64_t(misaligned)), cols, 1, 0, dtype};
  switch (below(may_overlap ? 6 : 5)) {
    case 0: break;
    case 1: x.row = 1, x.col = rows; break;
    case 2: x.row = (cols + 15) / 8 * pitch; break;
    case 3: x.row = 1, x.col = (rows + 15) / 8 * pitch; break;
    case 4: x.row = 4 * cols, x.col = 2; break;
    case 5: x.row = 0; break;
  }
  if (!may_overlap && x.row > 1 && x.row < cols) x.row = cols;
  if (!may_overlap && x.col > 1 && x.row == 1 && x.col < rows) x.col = rows;
  return x;
}

GemmDesc random_problem() {
  const DType dtype = DType(below(3)), d_dtype = below(3) ? dtype : DType::f32, c_dtype = below(2) ? dtype : d_dtype;
  GemmDesc p{1, random_size(), random_size(), random_size(), {}, {}, {}, {}, Precision(below(2)), below(2) == 1, {}};
  p.a = random_matrix(1ull << 32, p.m, p.k, dtype, true);
  p.b = random_matrix(2ull << 32, p.k, p.n, dtype, true);
  p.c = random_matrix(3ull << 32, p.m, p.n, c_dtype, true);
  p.d = random_matrix(4ull << 32, p.m, p.n, d_dtype, false);
  p.epilogue = {below(8) ? 0.5f : 0.f, below(3) ? 0.5f : 0.f, kActivations[below(5)].activation};
  return canonical(p);
}

void check(const GemmDesc& p, const PlanKey& key, const Candidate& x, const DeviceSpec& device) {
  recorded = {};
  problem = std::string(x.kernel->name) + "/" + std::to_string(x.index()) + " " + name_of(x.math) + " at " +
            std::to_string(p.m) + "x" + std::to_string(p.n) + "x" + std::to_string(p.k);
  const Status status = run(p, x, device, reinterpret_cast<void*>(5ull << 32), nullptr);
  expect(status.ok(), status.call);
  const size_t before = x.writes_parts() ? x.repack_a : x.repack_a + x.repack_b, after = x.layers() > 0;
  expect(recorded.launches.size() == before + 1 + after, "another number of kernels than the candidate says");
  for (const cudaLaunchConfig_t& launch : recorded.launches)
    expect(launch.gridDim.x > 0 && launch.gridDim.y == 1 && launch.gridDim.z == 1, "an empty grid");
  const cudaLaunchConfig_t& product = recorded.launches[before];
  expect(int(product.blockDim.x) == x.config->threads, "another number of threads than the configuration says");
  const PlanKey as_run = x.exchanged ? exchange_operands(key) : key;
  const auto is = [&](const char* name) { return std::strcmp(x.kernel->name, name) == 0; };
  const PlanKey as_read = after_repacks(as_run, x);
  const int sms = device.gpu.num_sms;  // four kernels ask for what the problem needs of shared memory
  const WalkedShape walked(as_read, *x.config, sms);
  const int smem =
      is("mma_stationary")          ? StationaryShape(as_run, *x.config, sms).smem_bytes(*x.config)
      : is("mma_direct")            ? DirectShape(as_read, *x.config, sms).smem_bytes
      : is("mma_streamed")          ? StreamedShape(as_read, *x.config, sms).smem_bytes(as_read, *x.config)
      : is("wgmma_bf16x6_streamed") ? int(walked.smem_bytes(*x.config))
                                    : x.config->smem_bytes;
  expect(
      smem <= x.config->smem_bytes && int(product.dynamicSmemBytes) == smem, "other shared memory than the configuration says");
  const Cluster& cluster = x.modes.cluster;
  if (needs_order(as_run, *x.config, x.modes)) expect(!recorded.pdl[before], "PDL, although the blocks need order");
  const int blocks = int(product.gridDim.x);
  if (is("wgmma_bf16x6_streamed")) expect(blocks == walked.panels * walked.walkers, "another grid than its shape says");
  else expect(cluster.k > 1 || blocks <= sms * x.config->blocks_per_sm, "more blocks than the GPU holds");
  if (!after) expect(recorded.clusters == cluster.blocks(), "another cluster than the candidate says");
  expect(product.gridDim.x % unsigned(cluster.blocks()) == 0, "a part of a cluster");
  const OperandAccess access = x.kernel->access;                                                  // C and D may have maps too
  const bool no_maps = access == OperandAccess::any || access == OperandAccess::dense_a_along_k;  // loads, and bulk copies
  const int by_tma = no_maps ? 0 : access == OperandAccess::aligned_a_alone ? 1 : 2;
  if (x.kernel->unit == Unit::wgmma && key.k > 0) expect(recorded.maps >= by_tma, "operands without tensor maps");
}

}  // namespace
}  // namespace tc

int main() {
  using namespace tc;
  const DeviceSpec hopper{0, 227 * 1024, kH200}, ampere{0, 163 * 1024, *find_gpu("NVIDIA A100-SXM4-80GB", 80, 108)};
  int checked = 0;
  for (int i = 0; i < 1500; ++i) {
    const GemmDesc p = random_problem();
    const PlanKey key = key_of(p);
    for (const DeviceSpec& device : {hopper, ampere})
      for (Candidate x : candidates(key, device)) {
        if (x.reason) continue;
        x.modes.cluster = x.kernel->clusters[int(below(x.kernel->clusters.count))];
        const int in_layers = writes_fp32(*x.config, key.a.dtype) ? x.modes.k_slices : 1;
        x.modes.k_slices = x.modes.cluster.k > 1 ? x.modes.cluster.k : in_layers;
        const int width = int(below(x.kernel->narrower.count + 1));
        x.modes.columns = x.config->tile_n - (width > 0 ? x.kernel->narrower[width - 1] : 0);
        check(p, key, x, device), ++checked;
      }
  }
  std::printf("%d launches are as their configurations say\n", checked);
}
