#include "fluid/ops/activation.h"

#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// What the backward op looks at besides Out@GRAD.
enum class Needs { kOut, kX, kNothing };

void add_activation(OpTable& table, const std::string& type, Needs needs) {
  GradSpec spec{.inputs = {}};
  std::vector<SlotSpec> inputs;
  if (needs == Needs::kX) {
    spec.inputs = {"X"};
    inputs.push_back(one("X"));
  } else if (needs == Needs::kOut) {
    spec.outputs = {"Out"};
    inputs.push_back(one("Out"));
  }
  inputs.push_back(one("Out@GRAD"));
  table.add(make_schema<ActivationAttrs>(type, {one("X")}, {one("Out")}, infer_like({{"X", "Out"}}),
                                         usual_gradient(spec)));
  table.add(make_schema<ActivationAttrs>(type + "_grad", inputs, {one("X@GRAD")},
                                         infer_like({{"Out@GRAD", "X@GRAD"}})));
}

}  // namespace

void add_activation_ops(OpTable& table) {
  for (const char* type : {"relu", "sigmoid", "tanh", "sqrt", "exp", "reciprocal"}) {
    add_activation(table, type, Needs::kOut);
  }
  for (const char* type : {"square", "abs", "log", "sin", "cos"}) {
    add_activation(table, type, Needs::kX);
  }
  for (const char* type : {"floor", "ceil", "round"}) {
    add_activation(table, type, Needs::kNothing);
  }
  table.add(
      make_schema<ActivationAttrs>("sign", {one("X")}, {one("Out")}, infer_like({{"X", "Out"}})));
}

}  // namespace fleet::fluid
