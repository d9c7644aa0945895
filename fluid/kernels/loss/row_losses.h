// What losses over rows, and those that are summed, check and compute, on every device: positions
// of inputs and outputs, -1 for those that are not there. Each throws ProgramError that names the
// slot.
#pragma once

#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

struct SmoothL1 {
  int64_t rows = 0;
  int64_t length = 0;  // of a row
  double sigma = 1;
  int x = -1;
  int y = -1;
  int inside = -1;
  int outside = -1;
  int difference = -1;  // output
  int out = -1;
};
SmoothL1 smooth_l1_of(PrepareContext& context, DType dtype);

struct SmoothL1Back {
  int64_t rows = 0;
  int64_t length = 0;
  double sigma = 1;
  int difference = -1;
  int inside = -1;
  int outside = -1;
  int grad = -1;
  int x_grad = -1;
  int y_grad = -1;
};
SmoothL1Back smooth_l1_back_of(PrepareContext& context, DType dtype);

// Of bpr_loss, or of its gradient.
struct BprLoss {
  int64_t rows = 0;
  int64_t classes = 0;
  int x = -1;
  int label = -1;
  int grad = -1;
  int out = -1;
};
BprLoss bpr_of(PrepareContext& context, DType dtype);
BprLoss bpr_back_of(PrepareContext& context, DType dtype);

// Of kldiv_loss, or of its gradient.
struct KldivLoss {
  int64_t n = 0;
  bool summed = false;
  int64_t divisor = 1;  // of the sum
  int x = -1;
  int target = -1;
  int grad = -1;
  int out = -1;
};
KldivLoss kldiv_of(PrepareContext& context, DType dtype);
KldivLoss kldiv_back_of(PrepareContext& context, DType dtype);

struct LabelSmoothing {
  int64_t n = 0;
  int64_t classes = 0;
  double epsilon = 0;
  int x = -1;
  int prior = -1;
  int out = -1;
};
LabelSmoothing label_smoothing_of(PrepareContext& context, DType dtype);

}  // namespace fleet::fluid
