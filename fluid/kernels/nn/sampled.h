// What losses over many classes check, on every device: positions of inputs and outputs, -1 for
// those that are not there or that nobody wants. Each throws ProgramError that names the slot.
#pragma once

#include <string>
#include <vector>

#include "base/philox.h"
#include "fluid/kernels/functions/sampled.h"
#include "fluid/kernels/kernel.h"

namespace fleet::fluid {

// Of op nce, or of its gradient.
struct NceSlots {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t labels = 0;   // per row
  int64_t samples = 0;  // per row: labels and noise
  int64_t classes = 0;
  functions::NoiseClasses::Kind kind = functions::NoiseClasses::kUniform;
  RandomKey key;
  std::vector<int32_t> custom;  // noise of every row, in place of what is drawn
  int input = -1;
  int weight = -1;
  int bias = -1;
  int row_weight = -1;
  int label = -1;
  int probabilities = -1;
  int alias = -1;
  int alias_probabilities = -1;
  int logits = -1;  // outputs, or inputs of the gradient
  int picked = -1;
  int cost = -1;
  int grad = -1;

  // With pointers to the memory of the kernel's device.
  functions::NoiseClasses noise(const KernelContext& c) const;
  // The stream of random numbers of a step; sample i has numbers 2 i and 2 i + 1.
  uint64_t word(const KernelContext& c) const;
};
// What labels and samplers need, without Weight, Bias and SampleWeight.
NceSlots nce_inputs_of(const PrepareContext& context);
NceSlots nce_of(PrepareContext& context, DType dtype);
NceSlots nce_back_of(const PrepareContext& context, DType dtype);

// Of op hierarchical_sigmoid, or of its gradient.
struct TreeSlots {
  int64_t rows = 0;
  int64_t width = 0;
  int64_t classes = 0;
  int64_t nodes = 0;
  int64_t length = 0;  // of the longest path
  std::string where;
  int label = -1;
  int table = -1;  // -1: the complete tree
  int code = -1;
  int x = -1;
  int weight = -1;
  int bias = -1;
  int pre_out = -1;  // output, or input of the gradient
  int out = -1;
  int grad = -1;

  // With pointers to the memory of the kernel's device.
  functions::TreePaths paths(const KernelContext& c) const;
};
TreeSlots tree_inputs_of(const PrepareContext& context, DType dtype);
TreeSlots tree_of(PrepareContext& context, DType dtype);
TreeSlots tree_back_of(const PrepareContext& context, DType dtype);

// Where the gradients of such a loss go.
struct ClassGradients {
  int x = -1;
  int weight = -1;
  int bias = -1;
  bool sparse = false;  // the weight's as selected rows: each class that was looked at once
  int64_t classes = 0;
  int64_t width = 0;
};
ClassGradients class_gradients_of(PrepareContext& context, const char* x, const char* weight,
                                  bool sparse, DType dtype);

}  // namespace fleet::fluid
