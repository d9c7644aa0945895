// What ops along one axis check, on every device: positions of inputs and outputs, -1 for those
// that nobody wants. Each throws ProgramError that names the slot.
#pragma once

#include "fluid/kernels/kernel.h"
#include "fluid/kernels/shape/axis_view.h"

namespace fleet::fluid {

struct CumulativeSum {
  AxisView lines;
  bool exclusive = false;
  bool reverse = false;
  int x = -1;
  int out = -1;
};
CumulativeSum cumsum_of(PrepareContext& context, DType dtype);

// Of arg_max and arg_min.
struct ExtremePlaces {
  AxisView lines;
  bool wide = true;  // int64, else int32
  int x = -1;
  int out = -1;
};
ExtremePlaces extreme_places_of(PrepareContext& context);

// Of argsort.
struct SortedLines {
  AxisView lines;
  bool descending = false;
  int x = -1;
  int out = -1;
  int indices = -1;
};
SortedLines sorted_lines_of(PrepareContext& context, DType dtype);

// Of argsort_grad: element j of a line of `out` is where Indices say that element j of X is.
struct SortedLinesBack {
  AxisView lines;
  int indices = -1;
  int grad = -1;
  int out = -1;
};
SortedLinesBack sorted_lines_back_of(PrepareContext& context, DType dtype);

// Of one_hot and one_hot_v2.
struct OneHotRows {
  int64_t count = 0;
  int64_t depth = 0;
  bool allow_outside = false;  // a class that is none is a row of zeros
  DType dtype = DType::kFloat32;
  int x = -1;
  int out = -1;
};
OneHotRows one_hot_of(PrepareContext& context);

}  // namespace fleet::fluid
