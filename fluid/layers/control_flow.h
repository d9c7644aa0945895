// Conditions, loops and arrays of tensors. See nn.h for what all layers have in common. Blocks are
// built by functions that call layers: `loop.block([&] { … })`.
#pragma once

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "fluid/layers/parameters/param_attr.h"
#include "fluid/program/variable.h"

namespace fleet::fluid::layers {

// An array of tensors of one element type, empty at the begin of every step.
Variable create_array(DType dtype);
// Element i (int64 [1]) becomes x; gives the array, a new one unless `array` is given.
Variable array_write(const Variable& x, const Variable& i, const Variable& array = {});
Variable array_read(const Variable& array, const Variable& i);
Variable array_length(const Variable& array);  // int64 [1]

struct ArrayToTensor {
  Variable out;
  Variable sizes;  // int32, of the elements along the axis
};
// The elements joined along `axis`, or stacked along a new one.
ArrayToTensor tensor_array_to_tensor(const Variable& input, int axis = 1, bool use_stack = false,
                                     const std::string& name = {});

// Repeats its block while `cond` (bool [1]) is true; the block must write `cond`. What goes from
// one repetition to the next is written to variables from outside: layers::assign(value, variable),
// layers::increment, array_write.
class While {
 public:
  explicit While(const Variable& cond, bool is_test = false, const std::string& name = {});
  // Builds the block; called once.
  void block(const std::function<void()>& build);

 private:
  Variable cond_;
  bool is_test_;
  std::string name_;
};

// Repeats body while cond holds, from `loop_vars` on; gives their last values. body gives as many
// variables as it takes, of the same shapes.
std::vector<Variable> while_loop(
    const std::function<Variable(const std::vector<Variable>&)>& cond,
    const std::function<std::vector<Variable>(const std::vector<Variable>&)>& body,
    const std::vector<Variable>& loop_vars, bool is_test = false, const std::string& name = {});

// The results of one of the two functions: pred (bool [1]) says which. Both give as many variables,
// of the same shapes.
std::vector<Variable> cond(const Variable& pred,
                           const std::function<std::vector<Variable>()>& true_fn,
                           const std::function<std::vector<Variable>()>& false_fn,
                           const std::string& name = {});

// Of several blocks runs the first one whose condition (bool [1]) holds.
//
//   Switch cases;
//   cases.when(less_than(step, limit), [&] { assign(low, rate); });
//   cases.otherwise([&] { assign(high, rate); });
class Switch {
 public:
  void when(const Variable& condition, const std::function<void()>& build);
  // When none of those before holds; there is one at least.
  void otherwise(const std::function<void()>& build);

 private:
  Variable none_;  // no condition so far held
};

struct PrintOptions {
  int first_n = -1;  // only in so many steps; negative: in all
  std::string message = {};
  int summarize = 20;  // elements at most; negative: all
  bool print_tensor_name = true;
  bool print_tensor_type = true;
  bool print_tensor_shape = true;
  bool print_tensor_lod = true;
  std::string print_phase =
      "both";  // the values ("forward"), their gradients ("backward"), or both
};
// The same values; each run writes a line about them to standard output. Use the result in
// `input`'s place: gradients are shown where they flow through it.
Variable Print(const Variable& input, const PrintOptions& options = {});

// Copies `input` to an existing variable.
void assign(const Variable& input, const Variable& output);

// A recurrent net over sequences of one known length: the first dimension of its inputs.
//
//   StaticRNN rnn;
//   rnn.step([&] {
//     const Variable word = rnn.step_input(x);                  // [batch, …] of x [time, batch, …]
//     const Variable before = rnn.memory({.shape = {-1, 32}, .batch_ref = word});
//     const Variable hidden = fc({word, before}, 32, {.act = "tanh"});
//     rnn.update_memory(before, hidden);
//     rnn.step_output(hidden);
//   });
//   const Variable out = rnn()[0];                              // [time, batch, 32]
class StaticRNN {
 public:
  explicit StaticRNN(const std::string& name = {});

  void step(const std::function<void()>& build);
  // The rest may be called inside of step's function only.
  Variable step_input(const Variable& x);

  struct MemoryOptions {
    Variable init = {};  // the first value; without it, a constant of `shape`
    Shape shape = {};    // its first unknown dimension is batch_ref's
    Variable batch_ref = {};
    double init_value = 0.0;
    int init_batch_dim_idx = 0;
    int ref_batch_dim_idx = 1;  // of the step input's whole variable: time comes first
  };
  Variable memory(const MemoryOptions& options);
  void update_memory(const Variable& memory, const Variable& value);
  void step_output(const Variable& out);
  void output(const std::vector<Variable>& outs);

  // After step: what step_output gathered, [time, …] each.
  std::vector<Variable> operator()() const { return results_; }

 private:
  struct Memory {
    std::string init;
    std::string before;
    std::string after;
  };
  void complete(Block& outer, Block& inner);

  std::string name_;
  int64_t length_ = -1;
  bool building_ = false;
  std::vector<std::pair<Variable, Variable>> inputs_;  // outside, in the block
  std::vector<Memory> memories_;
  std::vector<Variable> outputs_;  // in the block
  std::vector<Variable> results_;
};

}  // namespace fleet::fluid::layers
