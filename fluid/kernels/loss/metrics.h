// What ops that judge predictions check, on every device: positions of inputs and outputs, -1 for
// those that nobody wants. Each throws ProgramError that names the slot.
#pragma once

#include <span>

#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Of top_k, or of its gradient: k of the n elements of each row.
struct TopK {
  int64_t rows = 0;
  int64_t n = 0;
  int64_t k = 0;
  int x = -1;
  int indices = -1;  // output, or input of the gradient
  int grad = -1;
  int out = -1;
};
TopK top_k_of(PrepareContext& context, DType dtype);
TopK top_k_back_of(PrepareContext& context, DType dtype);

struct Accuracy {
  int64_t rows = 0;
  int64_t k = 0;
  int indices = -1;
  int label = -1;
  int share = -1;  // outputs
  int correct = -1;
  int total = -1;
};
Accuracy accuracy_of(PrepareContext& context);

// The area under the curve of true over false positives: as many positive and negative examples
// have predictions in each bucket, from the lowest on. 0 where one kind is missing.
double roc_area(std::span<const int64_t> positives, std::span<const int64_t> negatives);

}  // namespace fleet::fluid
