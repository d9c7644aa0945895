// Matrix products by cuBLAS.
#include <cublas_v2.h>

#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cpu/register.h"
#include "fluid/kernels/cuda/register_impl.h"

namespace fleet::fluid::cuda {
namespace {

// C[m, n] = op(A) op(B), row-major: A is [m, k], or [k, m] when transposed; B is [k, n], or [n, k].
struct Product {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

cublasStatus_t blas_gemm(cublasHandle_t blas, cublasOperation_t b_op, cublasOperation_t a_op,
                         const Product& p, const float* b, int64_t ldb, const float* a, int64_t lda,
                         float* c) {
  const float one = 1;
  const float zero = 0;
  return cublasSgemm_64(blas, b_op, a_op, p.n, p.m, p.k, &one, b, ldb, a, lda, &zero, c, p.n);
}

cublasStatus_t blas_gemm(cublasHandle_t blas, cublasOperation_t b_op, cublasOperation_t a_op,
                         const Product& p, const double* b, int64_t ldb, const double* a,
                         int64_t lda, double* c) {
  const double one = 1;
  const double zero = 0;
  return cublasDgemm_64(blas, b_op, a_op, p.n, p.m, p.k, &one, b, ldb, a, lda, &zero, c, p.n);
}

// cuBLAS reads matrices by columns. A row-major matrix read so is its transpose, and the transpose
// of C is op(B)' op(A)': the operands change places, and nothing is copied.
template <class T>
void multiply(Stream& stream, const Product& p, const T* a, const T* b, T* c) {
  if (p.m == 0 || p.n == 0) return;
  if (p.k == 0) return fill<T>(stream.raw(), T{}, c, p.m * p.n);
  const cublasOperation_t a_op = p.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  const cublasOperation_t b_op = p.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  const int64_t lda = p.transpose_a ? p.m : p.k;
  const int64_t ldb = p.transpose_b ? p.k : p.n;
  const cublasStatus_t status = blas_gemm(stream.blas(), b_op, a_op, p, b, ldb, a, lda, c);
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_error(ErrorCode::kInternal,
              {.what = str_cat("a cuBLAS call failed: ", cublasGetStatusString(status)),
               .where = str_cat(std::is_same_v<T, float> ? "cublasSgemm" : "cublasDgemm", " of [",
                                p.m, ", ", p.k, "] and [", p.k, ", ", p.n, "]"),
               .expected = "CUBLAS_STATUS_SUCCESS",
               .got = cublasGetStatusName(status),
               .fix = "run with CUDA_LAUNCH_BLOCKING=1 to see which op's work it was"});
}

template <class T>
std::unique_ptr<Prepared> prepare_mul(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const Product product = {.m = shape.m, .n = shape.n, .k = shape.k};
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape.out, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    multiply<T>(stream_of(c), product, c.in<T>(x), c.in<T>(y), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mul_grad(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const Product to_x = {.m = shape.m, .n = shape.k, .k = shape.n, .transpose_b = true};
  const Product to_y = {.m = shape.k, .n = shape.n, .k = shape.m, .transpose_a = true};
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out_grad = context.input("Out@GRAD");
  context.require(context.in("Out@GRAD").shape.numel() == shape.m * shape.n, "Out@GRAD",
                  shape.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, dtype_of<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, dtype_of<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* grad = c.in<T>(out_grad);
    Stream& stream = stream_of(c);
    if (x_grad >= 0) multiply<T>(stream, to_x, grad, c.in<T>(y), c.out<T>(x_grad));
    if (y_grad >= 0) multiply<T>(stream, to_y, c.in<T>(x), grad, c.out<T>(y_grad));
  });
}

}  // namespace

void register_matmul(KernelTable& table) {
  cpu::for_types<float, double>([&table]<class T>(std::type_identity<T>) {
    const DType dtype = dtype_of<T>();
    table.add_last("mul", DeviceKind::kCuda, dtype, {"cublas", prepare_mul<T>});
    table.add_last("mul_grad", DeviceKind::kCuda, dtype, {"cublas", prepare_mul_grad<T>});
  });
}

}  // namespace fleet::fluid::cuda
