// What norms and angles check and compute, on every device: positions of inputs and outputs, -1 for
// those that nobody wants. Each throws ProgramError that names the slot.
#pragma once

#include "fluid/kernels/kernel.h"
#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid {

// Of op norm, or of its gradient.
struct LineNorm {
  AxisView lines;
  double epsilon = 0;
  int x = -1;
  int norm = -1;  // output, or input of the gradient
  int grad = -1;
  int out = -1;
};
LineNorm norm_of(PrepareContext& context, DType dtype);
LineNorm norm_back_of(PrepareContext& context, DType dtype);

// Rows of X against rows of Y, of which there may be one for all.
struct CosineRows {
  int64_t rows = 0;
  int64_t length = 0;
  bool shared = false;
  int x = -1;
  int y = -1;
  int x_norm = -1;  // outputs, or inputs of the gradient
  int y_norm = -1;
  int cosine = -1;
  int grad = -1;
  int x_grad = -1;
  int y_grad = -1;

  int64_t y_row(int64_t row) const { return shared ? 0 : row; }
  int64_t y_rows() const { return shared ? 1 : rows; }
};
CosineRows cosine_of(PrepareContext& context, DType dtype);
CosineRows cosine_back_of(PrepareContext& context, DType dtype);

}  // namespace fleet::fluid
