// Numbers about the elements of tensors of any type.
#pragma once

#include <cstdint>

#include "fluid/core/tensor.h"

namespace fleet::inspect {

// Of the elements that are finite; 0 where there are none.
struct ValueSummary {
  double norm = 0;  // L2
  double least = 0;
  double most = 0;
  int64_t nonfinite = 0;  // how many are not
};
ValueSummary summarize(const fluid::Tensor& tensor);

// Of several tensors, as if they were one.
class ValueSummarizer {
 public:
  void add(const fluid::Tensor& tensor);
  ValueSummary summary() const;

 private:
  ValueSummary so_far_;  // but for the norm
  long double squares_ = 0;
  bool any_ = false;  // that is finite
};

struct ValueDifference {
  int64_t elements = 0;  // of other bits
  // Infinite where only one of two elements is a number, or one of them is infinite.
  double absolute = 0;  // the largest
  double relative = 0;  // the largest, by the larger of the two elements
};
// Two tensors of one type and shape, in host memory.
ValueDifference difference(const fluid::Tensor& a, const fluid::Tensor& b);

}  // namespace fleet::inspect
