// Every stride-th row of a tensor, from row `first` on, as a tensor of their own and back. A part
// may have rows behind the whole's last, which are zeros.
#pragma once

#include <cstdint>

#include "fluid/core/tensor.h"

namespace fleet::fluid {

inline Tensor take_rows(const Tensor& whole, int64_t first, int64_t stride, int64_t count) {
  Shape shape = whole.shape();
  shape.set(0, count);
  Tensor part = Tensor::zeros(whole.dtype(), shape);
  for (int64_t i = 0, from = first; i < count && from < whole.shape()[0]; ++i, from += stride) {
    part.rows(i, i + 1).copy_from(whole.rows(from, from + 1));
  }
  return part;
}

inline void put_rows(const Tensor& part, int64_t first, int64_t stride, Tensor& whole) {
  int64_t to = first;
  for (int64_t i = 0; i < part.shape()[0] && to < whole.shape()[0]; ++i, to += stride) {
    whole.rows(to, to + 1).copy_from(part.rows(i, i + 1));
  }
}

}  // namespace fleet::fluid
