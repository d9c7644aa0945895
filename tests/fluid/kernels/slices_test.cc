// Slices of a parameter are initialised and moved by the bits of the whole.
#include <cstring>
#include <gtest/gtest.h>

#include "fluid/executor/executor.h"

namespace fleet::fluid {
namespace {

VarDesc variable(const std::string& name, const Shape& shape) {
  VarDesc var;
  var.name = name;
  var.shape = shape;
  var.persistable = true;
  return var;
}

Tensor initialise(const VarDesc& var, const std::string& type, uint64_t seed) {
  Program program;
  program.set_random_seed(seed);
  program.global_block().add_var(var);
  Operator op;
  op.type = type;
  op.outputs["Out"] = {var.name};
  op.attrs = {{"shape", var.shape.to_vector()}};
  program.global_block().append_op(op);
  Executor executor;
  executor.run(program);
  return executor.scope().tensor(var.name);
}

TEST(Slices, AreInitialisedAsPartsOfTheWhole) {
  for (const char* type : {"uniform_random", "gaussian_random"}) {
    const Tensor whole = initialise(variable("w", {10, 7}), type, 5);
    EXPECT_NE(std::memcmp(whole.raw(), initialise(variable("w", {10, 7}), type, 6).raw(), 280), 0);
    EXPECT_NE(std::memcmp(whole.raw(), initialise(variable("v", {10, 7}), type, 5).raw(), 280), 0);
    for (int64_t row = 0; row < 9; ++row) {
      VarDesc slice = variable("w.block1", {2, 7});
      slice.slice = SliceInfo{.origin = "w", .origin_shape = {10, 7}, .offset = row * 7};
      const Tensor part = initialise(slice, type, 5);
      EXPECT_EQ(std::memcmp(part.raw(), whole.rows(row, row + 2).raw(), part.bytes()), 0);
    }
  }
}

// One update of elements [begin, end) of a parameter of 53 elements.
std::vector<Tensor> update(const std::string& type, int64_t begin, int64_t end) {
  const auto values = [&](const char* name, double shift) {
    Tensor tensor(DType::kFloat32, Shape{end - begin});
    for (int64_t i = begin; i < end; ++i) {
      tensor.data<float>()[i - begin] = static_cast<float>(
          uniform_double(RandomKey::of(1, name), static_cast<uint64_t>(i)) - shift);
    }
    return tensor;
  };
  Program program;
  Executor executor;
  Operator op;
  op.type = type;
  const auto add = [&](const std::string& slot, Tensor value, bool out) {
    program.global_block().add_var(variable(slot, value.shape()));
    executor.scope().var(slot) = std::move(value);
    op.inputs[slot] = {slot};
    if (out) op.outputs[slot + "Out"] = {slot};
  };
  add("Param", values("p", 0.5), true);
  add("Grad", values("g", 0.5), false);
  add("LearningRate", Tensor::scalar(0.1f), false);
  std::vector<std::string> states = {"Param"};
  if (type == "momentum") {
    add("Velocity", values("v", 0.5), true);
    states.push_back("Velocity");
    op.attrs = {{"mu", 0.9}, {"use_nesterov", true}};
  }
  if (type == "adam") {
    add("Moment1", values("m", 0.5), true);
    add("Moment2", values("n", 0), true);
    add("Beta1Pow", Tensor::scalar(0.9f), true);
    add("Beta2Pow", Tensor::scalar(0.999f), true);
    states.insert(states.end(), {"Moment1", "Moment2"});
  }
  program.global_block().append_op(op);
  executor.run(program);
  std::vector<Tensor> results;
  results.reserve(states.size());
  for (const std::string& state : states) results.push_back(executor.scope().tensor(state).clone());
  return results;
}

TEST(Slices, AreMovedAsPartsOfTheWhole) {
  for (const char* type : {"sgd", "momentum", "adam"}) {
    const auto whole = update(type, 0, 53);
    for (const auto& [begin, end] : {std::pair{0, 1}, {1, 9}, {3, 50}, {17, 53}, {52, 53}}) {
      const auto part = update(type, begin, end);
      for (size_t i = 0; i < whole.size(); ++i) {
        EXPECT_EQ(std::memcmp(part[i].raw(), whole[i].rows(begin, end).raw(), part[i].bytes()), 0)
            << type << " state " << i << " from " << begin;
      }
    }
  }
}

// A step of lamb in one op or in its two halves.
class LambStep {
 public:
  explicit LambStep(const Shape& shape) : shape_(shape) {
    for (const char* name : {"Param", "Grad", "Moment1", "Moment2"}) {
      Tensor tensor(DType::kFloat32, shape);
      const RandomKey key = RandomKey::of(1, name);
      for (int64_t i = 0; i < shape.numel(); ++i) {
        tensor.data<float>()[i] = static_cast<float>(uniform_double(key, static_cast<uint64_t>(i)));
      }
      add(name, std::move(tensor));
    }
    add("LearningRate", Tensor::scalar(0.1f));
    add("Beta1Pow", Tensor::scalar(0.9f));
    add("Beta2Pow", Tensor::scalar(0.999f));
  }

  void run_in_one() {
    Operator op = of_moments("lamb");
    op.inputs["LearningRate"] = {"LearningRate"};
    op.outputs["ParamOut"] = {"Param"};
    program_.global_block().append_op(op);
    executor_.run(program_);
  }
  void run_in_halves() {
    add("Direction", Tensor(DType::kFloat32, shape_));
    Operator first = of_moments("lamb_direction");
    first.outputs["Direction"] = {"Direction"};
    program_.global_block().append_op(first);
    Operator second;
    second.type = "lamb_apply";
    second.inputs["LearningRate"] = {"LearningRate"};
    second.outputs["ParamOut"] = {"Param"};
    for (const std::string name : {"Param", "Direction"}) {
      const std::string sums = name + "SquaredRowSums";
      add(sums, Tensor(DType::kFloat64, Shape{shape_[0]}));
      Operator squares;
      squares.type = "squared_row_sums";
      squares.inputs["X"] = {name};
      squares.outputs["Out"] = {sums};
      program_.global_block().append_op(squares);
      second.inputs[name] = {name};
      second.inputs[sums] = {sums};
    }
    program_.global_block().append_op(second);
    executor_.run(program_);
  }
  const Tensor& value(const std::string& name) { return executor_.scope().tensor(name); }

 private:
  void add(const std::string& name, Tensor value) {
    VarDesc var = variable(name, value.shape());
    var.dtype = value.dtype();
    program_.global_block().add_var(var);
    executor_.scope().var(name) = std::move(value);
  }
  static Operator of_moments(const std::string& type) {
    Operator op;
    op.type = type;
    for (const char* name : {"Param", "Grad"}) op.inputs[name] = {name};
    for (const std::string name : {"Moment1", "Moment2", "Beta1Pow", "Beta2Pow"}) {
      op.inputs[name] = {name};
      op.outputs[name + "Out"] = {name};
    }
    return op;
  }

  Shape shape_;
  Program program_;
  Executor executor_;
};

// The largest is one whose direction is not kept.
TEST(Slices, OfLambMoveAsItsOneOpDoes) {
  for (const Shape& shape : {Shape{5}, Shape{300, 7}, Shape{90, 50}, Shape{4100, 1024}}) {
    LambStep whole(shape);
    whole.run_in_one();
    LambStep halves(shape);
    halves.run_in_halves();
    for (const char* name : {"Param", "Moment1", "Moment2"}) {
      const Tensor& is = halves.value(name);
      EXPECT_EQ(std::memcmp(is.raw(), whole.value(name).raw(), is.bytes()), 0)
          << name << " of " << shape.to_string();
    }
  }
}

}  // namespace
}  // namespace fleet::fluid
