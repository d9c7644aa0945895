// mul: the product of two tensors taken as matrices.
//
//   mul       X, Y -> Out: X's first x_num_col_dims dimensions are the rows, the rest the columns;
//             likewise Y. Out has X's row dimensions and Y's column dimensions.
//   mul_grad  X, Y, Out@GRAD -> X@GRAD, Y@GRAD (each optional)
#pragma once

#include "fluid/ops/op_schema.h"

namespace fleet::fluid {

struct MulAttrs {
  int32_t x_num_col_dims = 1;
  int32_t y_num_col_dims = 1;
  template <class Archive>
  void serialize(Archive& ar) {
    ar(CEREAL_NVP(x_num_col_dims), CEREAL_NVP(y_num_col_dims));
  }
};

void add_mul_ops(OpTable& table);

}  // namespace fleet::fluid
