// The products of matrices that op matmul and its gradient are made of, for every device.
#pragma once

#include <cstdint>

#include "fluid/kernels/kernel.h"
#include "fluid/ops/math/mul.h"

namespace fleet::fluid {

// C[m, n] = op(A) * op(B), row-major and dense. A is [m, k], or [k, m] when transposed; B is
// [k, n], or [n, k] when transposed.
struct GemmShape {
  int64_t m = 0;
  int64_t n = 0;
  int64_t k = 0;
  bool transpose_a = false;
  bool transpose_b = false;
};

// A product of matmul and where its parts lie: operand and result strides of a batch, 0 for a
// single matrix. Several products may add up in one result.
struct BatchedProduct {
  GemmShape shape;
  int64_t count = 1;
  int64_t a_stride = 0;
  int64_t b_stride = 0;
  int64_t c_stride = 0;
};

// Of inputs X and Y; throws ProgramError where they do not multiply.
MatmulShape checked_matmul_shape(const PrepareContext& context);

BatchedProduct forward_product(const MatmulShape& s);
// dX = G op(Y)^T, stored as X is: A is G and B is Y; with X transposed, A is Y and B is G.
BatchedProduct x_product(const MatmulShape& s);
// dY = op(X)^T G, stored as Y is: A is X and B is G; with Y transposed, A is G and B is X.
BatchedProduct y_product(const MatmulShape& s);

}  // namespace fleet::fluid
