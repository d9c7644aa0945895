// The program of one op of the harness: its inputs' values, its outputs and its gradients.
#pragma once

#include <string>
#include <vector>

#include "fluid/executor/executor.h"
#include "tests/fluid/kernels/op_cases.h"

namespace fleet::fluid {

// Values of a case's inputs, for one element type of those that take it.
class OneOp {
 public:
  OneOp(const OpCase& op_case, DType dtype);

  Block& block() { return program_.global_block(); }
  Feed& feed() { return feed_; }

  // The outputs, by the kernel at a position of the op's list (-1: the last).
  std::vector<Tensor> run(int position = 0);

  // Appends the sum of the outputs, each element with a weight of its own, and its gradient.
  void append_loss();
  // Appends the op's own backward ops: gradients of inputs for fed gradients of outputs, and
  // returns their names. Empty when they have no kernel of the type.
  std::vector<std::string> append_gradients();

  Tensor fetch(Executor& executor, const std::string& name) {
    return executor.run(program_, feed_, {name})[0];
  }

 private:
  // As the run has it; tensors may give it.
  Shape shape_of(const std::string& name);
  Variable add_var(const std::string& name, DType dtype);
  // A variable that is fed these values.
  void add_fed(const std::string& name, const Input& input, DType dtype);

  const OpCase& case_;
  DType dtype_;
  Operator forward_;
  Program program_;
  Feed feed_;
};

// An element of any type as a number.
double element(const Tensor& tensor, int64_t i);
void set_element(Tensor& tensor, int64_t i, double value);

}  // namespace fleet::fluid
