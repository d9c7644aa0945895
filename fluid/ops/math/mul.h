// Products of matrices.
//
//   mul       X, Y -> Out: X's first x_num_col_dims dimensions are the rows, the rest the columns;
//             likewise Y. Out has X's row dimensions and Y's column dimensions.
//   mul_grad  X, Y, Out@GRAD -> X@GRAD, Y@GRAD (each optional)
//   matmul       X, Y -> Out: alpha * op(X) op(Y), the last two dimensions being matrices and the
//                others, equal or absent on one side, a batch of them; op transposes when asked. A
//                vector is a row on the left and a column on the right, and its dimension of 1 is
//                left out of Out again.
//   matmul_grad  X, Y, Out@GRAD -> X@GRAD, Y@GRAD (each optional)
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

struct MatmulAttrs {
  bool transpose_x = false;  // attribute transpose_X
  bool transpose_y = false;  // attribute transpose_Y
  float alpha = 1.0f;
  int32_t head_number = 1;  // only 1 is known
  template <class Archive>
  void serialize(Archive& ar) {
    ar(cereal::make_nvp("transpose_X", transpose_x), cereal::make_nvp("transpose_Y", transpose_y),
       CEREAL_NVP(alpha), CEREAL_NVP(head_number));
  }
};

void add_mul_ops(OpTable& table);

// One side of a matmul as a batch of stored matrices (rows x columns, before op); batch 0: a single
// matrix that serves every product. Unknown sizes are -1.
struct MatmulSide {
  int64_t batch = 0;
  int64_t rows = 0;
  int64_t columns = 0;
  bool transpose = false;

  int64_t op_rows() const { return transpose ? columns : rows; }
  int64_t op_columns() const { return transpose ? rows : columns; }
};
struct MatmulShape {
  MatmulSide x;
  MatmulSide y;
  int64_t batch = 0;  // of the result; 0: a single product
  Shape out;
};
// Throws ProgramError that names `where` when the shapes do not multiply.
MatmulShape matmul_shape(const Shape& x, const Shape& y, const MatmulAttrs& attrs,
                         std::string_view where);

}  // namespace fleet::fluid
