// Matrix products by cuBLAS.
#include <cublas_v2.h>
#include <type_traits>

#include "base/strings.h"
#include "fluid/core/cuda/cuda_call_impl.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/kernels/cuda/halves_impl.h"
#include "fluid/kernels/cuda/register_impl.h"
#include "fluid/kernels/half/widened.h"
#include "fluid/kernels/math/matmul_products.h"

namespace fleet::fluid::cuda {
namespace {

// cuBLAS reads matrices by columns. A row-major matrix read so is its transpose, and the transpose
// of C is op(B)' op(A)': the operands change places, and nothing is copied.
struct Call {
  cublasHandle_t blas;
  BatchedProduct p;
  cublasOperation_t a_op = p.shape.transpose_a ? CUBLAS_OP_T : CUBLAS_OP_N;
  cublasOperation_t b_op = p.shape.transpose_b ? CUBLAS_OP_T : CUBLAS_OP_N;
  int64_t lda = p.shape.transpose_a ? p.shape.m : p.shape.k;
  int64_t ldb = p.shape.transpose_b ? p.shape.k : p.shape.n;
};

// Products of halves add up in float32, and are rounded once.
template <Half T>
constexpr cudaDataType_t kCudaType = std::is_same_v<T, __half> ? CUDA_R_16F : CUDA_R_16BF;
template <Half T>
cublasStatus_t one_product(const Call& call, float alpha, const T* a, const T* b, float beta,
                           T* c) {
  const GemmShape& s = call.p.shape;
  return cublasGemmEx_64(call.blas, call.b_op, call.a_op, s.n, s.m, s.k, &alpha, b, kCudaType<T>,
                         call.ldb, a, kCudaType<T>, call.lda, &beta, c, kCudaType<T>, s.n,
                         CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
cublasStatus_t one_product(const Call& call, float alpha, const float* a, const float* b,
                           float beta, float* c) {
  const GemmShape& s = call.p.shape;
  return cublasSgemm_64(call.blas, call.b_op, call.a_op, s.n, s.m, s.k, &alpha, b, call.ldb, a,
                        call.lda, &beta, c, s.n);
}
cublasStatus_t one_product(const Call& call, double alpha, const double* a, const double* b,
                           double beta, double* c) {
  const GemmShape& s = call.p.shape;
  return cublasDgemm_64(call.blas, call.b_op, call.a_op, s.n, s.m, s.k, &alpha, b, call.ldb, a,
                        call.lda, &beta, c, s.n);
}

template <Half T>
cublasStatus_t batch(const Call& call, float alpha, const T* a, const T* b, T* c) {
  const BatchedProduct& p = call.p;
  const float beta = 0;
  return cublasGemmStridedBatchedEx_64(
      call.blas, call.b_op, call.a_op, p.shape.n, p.shape.m, p.shape.k, &alpha, b, kCudaType<T>,
      call.ldb, p.b_stride, a, kCudaType<T>, call.lda, p.a_stride, &beta, c, kCudaType<T>,
      p.shape.n, p.c_stride, p.count, CUBLAS_COMPUTE_32F, CUBLAS_GEMM_DEFAULT);
}
cublasStatus_t batch(const Call& call, float alpha, const float* a, const float* b, float* c) {
  const BatchedProduct& p = call.p;
  const float beta = 0;
  return cublasSgemmStridedBatched_64(call.blas, call.b_op, call.a_op, p.shape.n, p.shape.m,
                                      p.shape.k, &alpha, b, call.ldb, p.b_stride, a, call.lda,
                                      p.a_stride, &beta, c, p.shape.n, p.c_stride, p.count);
}
cublasStatus_t batch(const Call& call, double alpha, const double* a, const double* b, double* c) {
  const BatchedProduct& p = call.p;
  const double beta = 0;
  return cublasDgemmStridedBatched_64(call.blas, call.b_op, call.a_op, p.shape.n, p.shape.m,
                                      p.shape.k, &alpha, b, call.ldb, p.b_stride, a, call.lda,
                                      p.a_stride, &beta, c, p.shape.n, p.c_stride, p.count);
}

template <class T>
void check(cublasStatus_t status, const GemmShape& s) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  throw_error(ErrorCode::kInternal,
              {.what = str_cat("a cuBLAS call failed: ", cublasGetStatusString(status)),
               .where = str_cat("product of ", dtype_name(element_type<T>()), " [", s.m, ", ", s.k,
                                "] and [", s.k, ", ", s.n, "]"),
               .expected = "CUBLAS_STATUS_SUCCESS",
               .got = cublasGetStatusName(status),
               .fix = "run with CUDA_LAUNCH_BLOCKING=1 to see which op's work it was"});
}

// Several products into one result, which would be rounded after each.
template <class T>
bool adds_halves(const BatchedProduct& p) {
  return Half<T> && p.count > 1 && p.c_stride == 0;
}

template <class T>
void multiply(Stream& stream, const BatchedProduct& p, Computed<T> alpha, const T* a, const T* b,
              T* c) {
  const GemmShape& s = p.shape;
  const int64_t results = p.c_stride == 0 ? 1 : p.count;
  if (s.m == 0 || s.n == 0 || p.count == 0) return;
  if (s.k == 0) return set_to_zero(stream.raw(), c, s.m * s.n * results);
  const Call call{.blas = stream.blas(), .p = p};
  if (p.count > 1 && results > 1) return check<T>(batch(call, alpha, a, b, c), s);
  // Several products into one result: one after the other, in one order.
  for (int64_t i = 0; i < p.count; ++i) {
    const Computed<T> kept = i == 0 ? 0 : 1;
    check<T>(one_product(call, alpha, a + i * p.a_stride, b + i * p.b_stride, kept, c), s);
  }
}

template <class T>
std::unique_ptr<Prepared> prepare_mul(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const BatchedProduct product{.shape = {.m = shape.m, .n = shape.n, .k = shape.k}};
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", shape.out, element_type<T>());
  return make_prepared([=](const KernelContext& c) {
    multiply<T>(stream_of(c), product, 1, c.in<T>(x), c.in<T>(y), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_mul_grad(PrepareContext& context) {
  const MulShape shape = mul_shape(context);
  const BatchedProduct to_x{
      .shape = {.m = shape.m, .n = shape.k, .k = shape.n, .transpose_b = true}};
  const BatchedProduct to_y{
      .shape = {.m = shape.k, .n = shape.n, .k = shape.m, .transpose_a = true}};
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out_grad = context.input("Out@GRAD");
  context.require(context.in("Out@GRAD").shape.numel() == shape.m * shape.n, "Out@GRAD",
                  shape.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, element_type<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, element_type<T>());
  return make_prepared([=](const KernelContext& c) {
    const T* grad = c.in<T>(out_grad);
    Stream& stream = stream_of(c);
    if (x_grad >= 0) multiply<T>(stream, to_x, 1, grad, c.in<T>(y), c.out<T>(x_grad));
    if (y_grad >= 0) multiply<T>(stream, to_y, 1, c.in<T>(x), grad, c.out<T>(y_grad));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_matmul(PrepareContext& context) {
  const MatmulShape s = checked_matmul_shape(context);
  BatchedProduct product = forward_product(s);
  if (s.out.numel() == 0) product.count = 0;
  const auto alpha = static_cast<Computed<T>>(context.attrs<MatmulAttrs>().alpha);
  const int x = context.input("X");
  const int y = context.input("Y");
  const int out = context.set_output("Out", s.out, element_type<T>());
  return make_prepared([=](const KernelContext& c) {
    multiply<T>(stream_of(c), product, alpha, c.in<T>(x), c.in<T>(y), c.out<T>(out));
  });
}

template <class T>
std::unique_ptr<Prepared> prepare_matmul_grad(PrepareContext& context) {
  const MatmulShape s = checked_matmul_shape(context);
  context.require(context.in("Out@GRAD").shape.numel() == s.out.numel(), "Out@GRAD",
                  s.out.to_string(), context.in("Out@GRAD").shape.to_string());
  const auto alpha = static_cast<Computed<T>>(context.attrs<MatmulAttrs>().alpha);
  const bool empty = s.out.numel() == 0;
  const BatchedProduct to_x = empty ? BatchedProduct{} : x_product(s);
  const BatchedProduct to_y = empty ? BatchedProduct{} : y_product(s);
  if (adds_halves<T>(to_x) || adds_halves<T>(to_y)) return nullptr;
  const bool x_turned = s.x.transpose;
  const bool y_turned = s.y.transpose;
  const int64_t x_numel = context.in("X").shape.numel();
  const int64_t y_numel = context.in("Y").shape.numel();
  const int x = context.input("X");
  const int y = context.input("Y");
  const int grad = context.input("Out@GRAD");
  const int x_grad = context.set_output("X@GRAD", context.in("X").shape, element_type<T>());
  const int y_grad = context.set_output("Y@GRAD", context.in("Y").shape, element_type<T>());
  return make_prepared([=](const KernelContext& c) {
    Stream& stream = stream_of(c);
    const T* xs = c.in<T>(x);
    const T* ys = c.in<T>(y);
    const T* gs = c.in<T>(grad);
    if (empty) {
      if (x_grad >= 0) set_to_zero(stream.raw(), c.out<T>(x_grad), x_numel);
      if (y_grad >= 0) set_to_zero(stream.raw(), c.out<T>(y_grad), y_numel);
      return;
    }
    if (x_grad >= 0) {
      multiply<T>(stream, to_x, alpha, x_turned ? ys : gs, x_turned ? gs : ys, c.out<T>(x_grad));
    }
    if (y_grad >= 0) {
      multiply<T>(stream, to_y, alpha, y_turned ? gs : xs, y_turned ? xs : gs, c.out<T>(y_grad));
    }
  });
}

template <class T>
void register_type(KernelTable& table) {
  const auto list = [&table](const char* op, auto prepare, auto in_float) {
    const DType type = element_type<T>();
    const Kernel own{.name = "cublas", .prepare = prepare};
    if constexpr (Half<T>) {
      add_half(table, op, DeviceKind::kCuda, type, own, {.name = "cublas", .prepare = in_float});
    } else {
      table.add_last(op, DeviceKind::kCuda, type, own);
    }
  };
  list("mul", prepare_mul<T>, prepare_mul<float>);
  list("mul_grad", prepare_mul_grad<T>, prepare_mul_grad<float>);
  list("matmul", prepare_matmul<T>, prepare_matmul<float>);
  list("matmul_grad", prepare_matmul_grad<T>, prepare_matmul_grad<float>);
}

}  // namespace

void register_matmul(KernelTable& table) {
  register_type<float>(table);
  register_type<double>(table);
  register_type<__half>(table);
  register_type<__nv_bfloat16>(table);
}

}  // namespace fleet::fluid::cuda
