// The products of cuBLAS that kernels use, in plain loops over matrices that lie by columns.
#include <cublas_v2.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/testing/cuda_on_host/stream.h"

namespace {

struct Matrix {
  cublasOperation_t operation;
  int64_t leading;
  int64_t index(int64_t row, int64_t column) const {
    return operation == CUBLAS_OP_N ? row + column * leading : column + row * leading;
  }
};

template <class Sum, class T>
void multiply(const Matrix& a_form, const Matrix& b_form, int64_t m, int64_t n, int64_t k,
              Sum alpha, const T* a, const T* b, Sum beta, T* c, int64_t ldc) {
  for (int64_t column = 0; column < n; ++column) {
    for (int64_t row = 0; row < m; ++row) {
      Sum sum{};
      for (int64_t i = 0; i < k; ++i) {
        sum += static_cast<Sum>(a[a_form.index(row, i)]) *
               static_cast<Sum>(b[b_form.index(i, column)]);
      }
      T& out = c[row + column * ldc];
      out =
          static_cast<T>(beta == Sum{} ? alpha * sum : alpha * sum + beta * static_cast<Sum>(out));
    }
  }
}

template <class T, class Sum = T>
cublasStatus_t strided(cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n,
                       int64_t k, Sum alpha, const T* a, int64_t lda, int64_t a_step, const T* b,
                       int64_t ldb, int64_t b_step, Sum beta, T* c, int64_t ldc, int64_t c_step,
                       int64_t count) {
  fleet::testing::put_on_stream([=] {
    for (int64_t i = 0; i < count; ++i) {
      multiply<Sum>({a_op, lda}, {b_op, ldb}, m, n, k, alpha, a + i * a_step, b + i * b_step, beta,
                    c + i * c_step, ldc);
    }
  });
  return CUBLAS_STATUS_SUCCESS;
}

// Halves, all three alike, that add up in float32.
template <class T>
cublasStatus_t halves(cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n,
                      int64_t k, const void* alpha, const void* a, int64_t lda, int64_t a_step,
                      const void* b, int64_t ldb, int64_t b_step, const void* beta, void* c,
                      int64_t ldc, int64_t c_step, int64_t count) {
  return strided<T, float>(a_op, b_op, m, n, k, *static_cast<const float*>(alpha),
                           static_cast<const T*>(a), lda, a_step, static_cast<const T*>(b), ldb,
                           b_step, *static_cast<const float*>(beta), static_cast<T*>(c), ldc,
                           c_step, count);
}

}  // namespace

extern "C" {

cublasStatus_t cublasGemmStridedBatchedEx_64(
    cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
    const void* alpha, const void* a, cudaDataType a_type, int64_t lda, long long a_step,
    const void* b, cudaDataType b_type, int64_t ldb, long long b_step, const void* beta, void* c,
    cudaDataType c_type, int64_t ldc, long long c_step, int64_t count, cublasComputeType_t sum,
    cublasGemmAlgo_t) {
  if (sum != CUBLAS_COMPUTE_32F || a_type != b_type || a_type != c_type) {
    return CUBLAS_STATUS_NOT_SUPPORTED;
  }
  const auto multiply_halves = a_type == CUDA_R_16F ? halves<__half> : halves<__nv_bfloat16>;
  return multiply_halves(a_op, b_op, m, n, k, alpha, a, lda, a_step, b, ldb, b_step, beta, c, ldc,
                         c_step, count);
}

cublasStatus_t cublasGemmEx_64(cublasHandle_t blas, cublasOperation_t a_op, cublasOperation_t b_op,
                               int64_t m, int64_t n, int64_t k, const void* alpha, const void* a,
                               cudaDataType a_type, int64_t lda, const void* b, cudaDataType b_type,
                               int64_t ldb, const void* beta, void* c, cudaDataType c_type,
                               int64_t ldc, cublasComputeType_t sum, cublasGemmAlgo_t algorithm) {
  return cublasGemmStridedBatchedEx_64(blas, a_op, b_op, m, n, k, alpha, a, a_type, lda, 0, b,
                                       b_type, ldb, 0, beta, c, c_type, ldc, 0, 1, sum, algorithm);
}

cublasStatus_t cublasSgemm_v2_64(cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op,
                                 int64_t m, int64_t n, int64_t k, const float* alpha,
                                 const float* a, int64_t lda, const float* b, int64_t ldb,
                                 const float* beta, float* c, int64_t ldc) {
  return strided<float>(a_op, b_op, m, n, k, *alpha, a, lda, 0, b, ldb, 0, *beta, c, ldc, 0, 1);
}

cublasStatus_t cublasDgemm_v2_64(cublasHandle_t, cublasOperation_t a_op, cublasOperation_t b_op,
                                 int64_t m, int64_t n, int64_t k, const double* alpha,
                                 const double* a, int64_t lda, const double* b, int64_t ldb,
                                 const double* beta, double* c, int64_t ldc) {
  return strided<double>(a_op, b_op, m, n, k, *alpha, a, lda, 0, b, ldb, 0, *beta, c, ldc, 0, 1);
}

cublasStatus_t cublasSgemmStridedBatched_64(cublasHandle_t, cublasOperation_t a_op,
                                            cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                                            const float* alpha, const float* a, int64_t lda,
                                            long long a_step, const float* b, int64_t ldb,
                                            long long b_step, const float* beta, float* c,
                                            int64_t ldc, long long c_step, int64_t count) {
  return strided<float>(a_op, b_op, m, n, k, *alpha, a, lda, a_step, b, ldb, b_step, *beta, c, ldc,
                        c_step, count);
}

cublasStatus_t cublasDgemmStridedBatched_64(cublasHandle_t, cublasOperation_t a_op,
                                            cublasOperation_t b_op, int64_t m, int64_t n, int64_t k,
                                            const double* alpha, const double* a, int64_t lda,
                                            long long a_step, const double* b, int64_t ldb,
                                            long long b_step, const double* beta, double* c,
                                            int64_t ldc, long long c_step, int64_t count) {
  return strided<double>(a_op, b_op, m, n, k, *alpha, a, lda, a_step, b, ldb, b_step, *beta, c, ldc,
                         c_step, count);
}

const char* cublasGetStatusName(cublasStatus_t) {
  return "a status";
}
const char* cublasGetStatusString(cublasStatus_t) {
  return "a status";
}

}  // extern "C"
