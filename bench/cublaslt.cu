// cuBLASLt's matmul with C and D in separate memory. bench/cublaslt.py times every algorithm that the heuristics return.
//
// cuBLASLt is column-major. A row-major D = A B is its D^T = B^T A^T: N comes before M, and B is the left operand.
// Build: nvcc -std=c++17 -O3 -shared -Xcompiler=-fPIC -o cublaslt.so bench/cublaslt.cu -lcublasLt
#include <cublasLt.h>

#include <cstdint>
#include <memory>
#include <vector>

namespace {

struct Matmul {
  cublasLtHandle_t handle = nullptr;
  cublasLtMatmulDesc_t operation = nullptr;
  cublasLtMatrixLayout_t left = nullptr, right = nullptr, result = nullptr;
  std::vector<cublasLtMatmulHeuristicResult_t> found;

  ~Matmul() {
    for (const auto layout : {left, right, result})
      if (layout) cublasLtMatrixLayoutDestroy(layout);
    if (operation) cublasLtMatmulDescDestroy(operation);
    if (handle) cublasLtDestroy(handle);
  }

  template <typename T>
  bool set(cublasLtMatmulDescAttributes_t name, T value) {
    return cublasLtMatmulDescSetAttribute(operation, name, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
};

}  // namespace

// Creates a Matmul for D (M, N) = alpha A (M, K) B (K, N) + beta C. All matrices are row-major. With `weight_major`, B is the
// transpose of a row-major (N, K) matrix. With `bias`, C is a row of N elements, and alpha = beta = 1. `type` and `d_type` are
// cudaDataType: A's and B's type, and C's and D's. Returns null if cuBLASLt has no algorithm. Sets `count` to the number of
// algorithms, at most `wanted`.
extern "C" void* create(int64_t m, int64_t n, int64_t k, int weight_major, int type, int d_type, int tf32, int bias,
                        uint64_t workspace_bytes, int wanted, int* count) {
  auto matmul = std::make_unique<Matmul>();
  const auto compute = tf32 ? CUBLAS_COMPUTE_32F_FAST_TF32 : CUBLAS_COMPUTE_32F;
  const auto operand = cudaDataType(type), out = cudaDataType(d_type);
  const auto ok = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
  if (!ok(cublasLtCreate(&matmul->handle)) || !ok(cublasLtMatmulDescCreate(&matmul->operation, compute, CUDA_R_32F)) ||
      !matmul->set(CUBLASLT_MATMUL_DESC_TRANSA, weight_major ? CUBLAS_OP_T : CUBLAS_OP_N) ||
      (bias && !matmul->set(CUBLASLT_MATMUL_DESC_EPILOGUE, CUBLASLT_EPILOGUE_BIAS)) ||
      !ok(cublasLtMatrixLayoutCreate(
          &matmul->left, operand, weight_major ? k : n, weight_major ? n : k, weight_major ? k : n)) ||
      !ok(cublasLtMatrixLayoutCreate(&matmul->right, operand, k, m, k)) ||
      !ok(cublasLtMatrixLayoutCreate(&matmul->result, out, n, m, n)))
    return nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  if (!ok(cublasLtMatmulPreferenceCreate(&preference))) return nullptr;
  cublasLtMatmulPreferenceSetAttribute(
      preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes, sizeof(workspace_bytes));
  // Split-K algorithms must sum the K slices in fp32, as this package's split-K does.
  const uint32_t in_fp32 = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE;
  cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &in_fp32, sizeof(in_fp32));
  matmul->found.resize(wanted);
  const bool asked =
      ok(cublasLtMatmulAlgoGetHeuristic(matmul->handle, matmul->operation, matmul->left, matmul->right, matmul->result,
                                        matmul->result, preference, wanted, matmul->found.data(), count));
  cublasLtMatmulPreferenceDestroy(preference);
  return asked && *count > 0 ? matmul.release() : nullptr;
}

extern "C" void destroy(void* matmul) { delete static_cast<Matmul*>(matmul); }

// Runs the heuristics' algorithm of index `algorithm`. Returns a cublasStatus_t.
extern "C" int run(void* matmul, int algorithm, const void* a, const void* b, const void* c, void* d, float alpha, float beta,
                   int bias, void* workspace, uint64_t workspace_bytes, void* stream) {
  Matmul& x = *static_cast<Matmul*>(matmul);
  if (bias && !x.set(CUBLASLT_MATMUL_DESC_BIAS_POINTER, c)) return CUBLAS_STATUS_INVALID_VALUE;
  const float one = 1, zero = 0;
  return cublasLtMatmul(
      x.handle, x.operation, bias ? &one : &alpha, b, x.left, a, x.right, bias ? &zero : &beta, bias ? d : c, x.result, d,
      x.result, &x.found[algorithm].algo, workspace, workspace_bytes, static_cast<cudaStream_t>(stream));
}
