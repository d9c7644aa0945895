// What ops that take or put rows check, on every device: positions of inputs and outputs, -1 for
// those that are not there or that nobody wants. Each throws ProgramError that names the slot.
#pragma once

#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Indices of int32 or int64.
struct IndexInput {
  int input = -1;
  bool wide = true;
  int64_t count = 0;

  // As int64, in host memory.
  int64_t operator()(const KernelContext& c, int64_t i) const {
    return wide ? c.in<int64_t>(input)[i] : c.in<int32_t>(input)[i];
  }
};

// Of op gather, or of its gradient: rows of `width` elements.
struct GatherRows {
  IndexInput index;
  int64_t rows = 0;
  int64_t width = 0;
  bool overwrite = false;  // of gradients for one row, the last counts
  int from = -1;           // X, or Out@GRAD
  int out = -1;
};
GatherRows gather_of(PrepareContext& context);
GatherRows gather_back_of(PrepareContext& context);

struct ScatterRows {
  IndexInput index;
  int64_t rows = 0;
  int64_t width = 0;
  bool overwrite = true;  // of updates to one row, the last counts; else they are added
  int x = -1;
  int updates = -1;
  int out = -1;
};
ScatterRows scatter_of(PrepareContext& context, DType dtype);

struct ScatterRowsBack {
  IndexInput index;
  int64_t rows = 0;
  int64_t width = 0;
  bool keeps_named_rows = false;  // X@GRAD has the gradient of rows that were replaced, too
  bool last_only = false;         // of updates to one row, only the last has a gradient
  int grad = -1;
  int x_grad = -1;
  int update_grad = -1;
};
ScatterRowsBack scatter_back_of(PrepareContext& context, DType dtype);

}  // namespace fleet::fluid
