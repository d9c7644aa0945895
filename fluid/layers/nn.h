// Inputs, the fully connected layer, and losses. Layers append to this thread's default programs
// (fluid/program/default_programs.h) and return what they made; wrong shapes, element types and
// arguments throw ProgramError or UsageError that names layer, variable, what was expected and
// what came.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "fluid/layers/numbers.h"
#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

struct DataOptions {
  // Puts an unknown batch dimension in front, unless `shape` has an unknown one itself.
  bool append_batch_size = true;
  int lod_level = 0;
  bool stop_gradient = true;
};
// A variable that each step feeds. Asked for again with the same facts, the same variable.
Variable data(const std::string& name, const Shape& shape, DType dtype = DType::kFloat32,
              const DataOptions& options = {});

struct FcOptions {
  // x's first num_flatten_dims dimensions are rows, the others are flattened; -1: all but the last.
  int num_flatten_dims = 1;
  ParamAttr param_attr = {};
  // One per input; when given, instead of param_attr.
  std::vector<ParamAttr> param_attrs = {};
  ParamAttr bias_attr = {};
  std::string act = {};
  std::string name = {};
};
// act(sum_i x_i W_i + b), with W_i [columns of x_i, size] and b [size].
Variable fc(const Variable& x, int64_t size, const FcOptions& options = {});
Variable fc(const std::vector<Variable>& xs, int64_t size, const FcOptions& options = {});

struct SoftmaxOptions {
  int axis = -1;
  std::string name = {};
};
Variable softmax(const Variable& x, const SoftmaxOptions& options = {});

struct CrossEntropyOptions {
  bool soft_label = false;
  int ignore_index = -100;
};
// -log of the probability that each row of `input` gives to its label: [..., 1].
Variable cross_entropy(const Variable& input, const Variable& label,
                       const CrossEntropyOptions& options = {});

struct SoftmaxWithCrossEntropyOptions {
  bool soft_label = false;
  int ignore_index = -100;
  bool numeric_stable_mode = true;
  int axis = -1;
};
struct LossAndSoftmax {
  Variable loss;
  Variable softmax;
};
LossAndSoftmax softmax_with_cross_entropy_full(const Variable& logits, const Variable& label,
                                               const SoftmaxWithCrossEntropyOptions& options = {});
// The loss alone.
Variable softmax_with_cross_entropy(const Variable& logits, const Variable& label,
                                    const SoftmaxWithCrossEntropyOptions& options = {});

// (input - label)^2, element by element.
Variable square_error_cost(const Variable& input, const Variable& label);

// The mean of all elements: [1].
Variable mean(const Variable& x, const std::string& name = {});

struct TopK {
  Variable values;
  Variable indices;  // int64
};
// The k largest of each row, in falling order.
TopK topk(const Variable& input, const Number& k, const std::string& name = {});

// The share of rows whose label is among the k largest predictions: [1], float32.
Variable accuracy(const Variable& input, const Variable& label, int k = 1);

}  // namespace fleet::fluid::layers
