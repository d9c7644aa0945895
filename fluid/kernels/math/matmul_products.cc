#include "fluid/kernels/math/matmul_products.h"

#include <string>
#include <utility>

#include "base/strings.h"

namespace fleet::fluid {
namespace {

int64_t stride_of(const MatmulSide& side) {
  return side.batch == 0 ? 0 : side.rows * side.columns;
}

}  // namespace

MatmulShape checked_matmul_shape(const PrepareContext& context) {
  const auto attrs = context.attrs<MatmulAttrs>();
  context.require(attrs.head_number == 1, "X", "head_number 1", str_cat(attrs.head_number));
  const Operator& op = context.op();
  return matmul_shape(context.in("X").shape, context.in("Y").shape, attrs,
                      str_cat("op '", op.type, "', X '", join(op.input("X"), ", "), "', Y '",
                              join(op.input("Y"), ", "), "'"));
}

// A batch on the left with one matrix on the right is one product with more rows.
BatchedProduct forward_product(const MatmulShape& s) {
  const int64_t m = s.x.op_rows();
  const int64_t n = s.y.op_columns();
  BatchedProduct product = {.shape = {.m = m,
                                      .n = n,
                                      .k = s.x.op_columns(),
                                      .transpose_a = s.x.transpose,
                                      .transpose_b = s.y.transpose},
                            .count = s.batch == 0 ? 1 : s.batch,
                            .a_stride = stride_of(s.x),
                            .b_stride = stride_of(s.y),
                            .c_stride = m * n};
  if (s.x.batch != 0 && s.y.batch == 0 && !s.x.transpose) {
    product.shape.m *= product.count;
    product.c_stride *= product.count;
    product.count = 1;
  }
  return product;
}

BatchedProduct x_product(const MatmulShape& s) {
  const int64_t m = s.x.op_rows();
  const int64_t n = s.y.op_columns();
  const int64_t k = s.x.op_columns();
  BatchedProduct product = {.shape = {},
                            .count = s.batch == 0 ? 1 : s.batch,
                            .a_stride = m * n,
                            .b_stride = stride_of(s.y),
                            .c_stride = stride_of(s.x)};
  if (s.x.transpose) {
    product.shape = {.m = k, .n = m, .k = n, .transpose_a = s.y.transpose, .transpose_b = true};
    std::swap(product.a_stride, product.b_stride);
  } else {
    product.shape = {.m = m, .n = k, .k = n, .transpose_a = false, .transpose_b = !s.y.transpose};
    if (s.x.batch != 0 && s.y.batch == 0) {
      product.shape.m *= product.count;
      product.count = 1;
    }
  }
  return product;
}

BatchedProduct y_product(const MatmulShape& s) {
  const int64_t m = s.x.op_rows();
  const int64_t n = s.y.op_columns();
  const int64_t k = s.x.op_columns();
  BatchedProduct product = {.shape = {},
                            .count = s.batch == 0 ? 1 : s.batch,
                            .a_stride = stride_of(s.x),
                            .b_stride = m * n,
                            .c_stride = stride_of(s.y)};
  if (s.y.transpose) {
    product.shape = {.m = n, .n = k, .k = m, .transpose_a = true, .transpose_b = s.x.transpose};
    std::swap(product.a_stride, product.b_stride);
  } else {
    product.shape = {.m = k, .n = n, .k = m, .transpose_a = !s.x.transpose, .transpose_b = false};
  }
  if (s.x.batch != 0 && s.y.batch == 0 && !s.x.transpose) {
    product.shape.k *= product.count;
    product.count = 1;
  }
  return product;
}

}  // namespace fleet::fluid
