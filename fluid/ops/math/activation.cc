#include "fluid/ops/math/activation.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// What the backward op looks at besides Out@GRAD.
enum class Needs { kOut, kX, kNothing };

template <class Attrs>
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
  inputs.push_back(needs == Needs::kOut ? typed(one("Out@GRAD")) : one("Out@GRAD"));
  table.add(make_schema<Attrs>(type, {one("X")}, {one("Out")}, infer_like({{"X", "Out"}}),
                               usual_gradient(spec)));
  table.add(make_schema<Attrs>(type + "_grad", inputs, {one("X@GRAD")},
                               infer_like({{"Out@GRAD", "X@GRAD"}})));
}

// Out has the sign of X while the slope is not negative.
std::vector<Operator> leaky_gradient(const GradContext& context) {
  const auto attrs = parse_attributes<LeakyReluAttrs>("leaky_relu", context.forward().attrs);
  const GradSpec from_x{.inputs = {"X"}};
  const GradSpec from_out{.inputs = {}, .outputs = {"Out"}};
  return usual_gradient(attrs.alpha < 0 ? from_x : from_out)(context);
}

void add_leaky_relu(OpTable& table) {
  table.add(make_schema<LeakyReluAttrs>("leaky_relu", {one("X")}, {one("Out")},
                                        infer_like({{"X", "Out"}}), leaky_gradient));
  table.add(make_schema<LeakyReluAttrs>("leaky_relu_grad",
                                        {typed(maybe("X")), maybe("Out"), typed(one("Out@GRAD"))},
                                        {one("X@GRAD")}, infer_like({{"Out@GRAD", "X@GRAD"}})));
}

std::vector<Operator> zero_gradient(const GradContext& context) {
  Operator op;
  op.type = "scale";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  op.attrs = {{"scale", 0.0}};
  return {op};
}

void infer_prelu(InferContext& context) {
  const VarDesc& x = context.input("X");
  const VarDesc& alpha = context.input("Alpha");
  const std::string mode = context.attrs<PreluAttrs>().mode;
  context.require(mode == "all" || mode == "channel" || mode == "element", "Alpha",
                  "mode: all, channel or element", mode, "use one of these modes");
  context.require_dtype("Alpha", x.dtype);
  const int rank = x.shape.rank();
  context.require(mode == "all" || rank >= 2, "X", "two dimensions or more in this mode",
                  x.shape.to_string(), "use mode 'all'");
  const int64_t wanted = mode == "all"       ? 1
                         : mode == "channel" ? x.shape[1]
                                             : x.shape.numel(1, rank);
  const int64_t given = alpha.shape.numel();
  context.require(wanted < 0 || given < 0 || wanted == given, "Alpha",
                  str_cat(wanted, " elements in mode '", mode, "' for X ", x.shape),
                  alpha.shape.to_string());
  context.share("X", "Out");
}

void add_prelu(OpTable& table) {
  table.add(make_schema<PreluAttrs>(
      "prelu", {one("X"), one("Alpha")}, {one("Out")}, infer_prelu,
      usual_gradient({.inputs = {"X", "Alpha"}, .wanted = {"X", "Alpha"}})));
  table.add(make_schema<PreluAttrs>("prelu_grad", {one("X"), one("Alpha"), one("Out@GRAD")},
                                    {maybe("X@GRAD"), maybe("Alpha@GRAD")},
                                    infer_shape_like({{"X", "X@GRAD"}, {"Alpha", "Alpha@GRAD"}})));
}

void infer_pow(InferContext& context) {
  require_number(context, "FactorTensor", context.input("X").dtype);
  context.share("X", "Out");
}

void add_pow(OpTable& table) {
  table.add(make_schema<PowAttrs>("pow", {one("X"), maybe("FactorTensor")}, {one("Out")}, infer_pow,
                                  usual_gradient({.inputs = {"X", "FactorTensor"}})));
  table.add(make_schema<PowAttrs>("pow_grad", {one("X"), maybe("FactorTensor"), one("Out@GRAD")},
                                  {one("X@GRAD")}, infer_like({{"Out@GRAD", "X@GRAD"}})));
}

}  // namespace

void add_activation_ops(OpTable& table) {
  for (const char* type : {"relu", "sigmoid", "tanh", "sqrt", "rsqrt", "exp", "reciprocal"}) {
    add_activation<ActivationAttrs>(table, type, Needs::kOut);
  }
  for (const char* type :
       {"square", "abs", "log", "log1p", "sin", "cos", "asin", "acos", "atan", "sinh", "cosh",
        "erf", "softplus", "softsign", "logsigmoid", "tanh_shrink"}) {
    add_activation<ActivationAttrs>(table, type, Needs::kX);
  }
  for (const char* type : {"floor", "ceil", "round"}) {
    add_activation<ActivationAttrs>(table, type, Needs::kNothing);
  }
  table.add(make_schema<ActivationAttrs>("sign", {one("X")}, {one("Out")},
                                         infer_like({{"X", "Out"}}), zero_gradient));
  add_activation<ThresholdAttrs>(table, "relu6", Needs::kOut);
  add_activation<HardShrinkAttrs>(table, "hard_shrink", Needs::kX);
  add_activation<ThresholdedReluAttrs>(table, "thresholded_relu", Needs::kX);
  add_activation<SoftReluAttrs>(table, "soft_relu", Needs::kOut);
  add_activation<SoftShrinkAttrs>(table, "softshrink", Needs::kX);
  add_leaky_relu(table);
  add_activation<EluAttrs>(table, "elu", Needs::kX);
  add_activation<GeluAttrs>(table, "gelu", Needs::kX);
  add_activation<HardSigmoidAttrs>(table, "hard_sigmoid", Needs::kOut);
  add_activation<SwishAttrs>(table, "swish", Needs::kX);
  add_activation<HardSwishAttrs>(table, "hard_swish", Needs::kX);
  add_activation<StanhAttrs>(table, "stanh", Needs::kX);
  add_activation<BreluAttrs>(table, "brelu", Needs::kX);
  add_pow(table);
  add_prelu(table);
}

}  // namespace fleet::fluid
