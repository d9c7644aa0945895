#include "fluid/layers/ops.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/math/activation.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/reduce.h"
#include "fluid/ops/math/scale.h"

namespace fleet::fluid::layers {
namespace {

Variable unary(const char* type, const Variable& x, const std::string& name,
               AttributeMap attrs = {}) {
  const LayerHelper helper(type, name);
  helper.check_input(x, "x");
  return helper.append_unary(type, x, std::move(attrs));
}

Variable elementwise(const char* type, const Variable& x, const Variable& y,
                     const ElementwiseOptions& options) {
  const LayerHelper helper(type, options.name);
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  const Variable out = helper.temp(x.dtype());
  helper.append(type, {{"X", {x.name()}}, {"Y", {y.name()}}}, {{"Out", {out.name()}}},
                to_attributes(ElementwiseAttrs{.axis = options.axis}));
  return helper.activate(out, options.act);
}

Variable reduce(const char* type, const Variable& x, const ReduceOptions& options) {
  ReduceAttrs attrs{.keep_dim = options.keep_dim};
  const auto rank = static_cast<size_t>(x ? x.shape().rank() : 0);
  attrs.reduce_all = options.dim.empty() || options.dim.size() == rank;
  if (!options.dim.empty()) attrs.dim.assign(options.dim.begin(), options.dim.end());
  return unary(type, x, options.name, to_attributes(attrs));
}

// Truth values of two variables, in `out` when it is given.
Variable truth(const char* type, const Variable& x, const Variable& y, const Variable& out,
               const std::string& name, bool stop_gradient) {
  const LayerHelper helper(type, name);
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  const Variable result = out ? out : helper.temp(DType::kBool, stop_gradient);
  helper.append(type, {{"X", {x.name()}}, {"Y", {y.name()}}}, {{"Out", {result.name()}}});
  return result;
}

}  // namespace

Variable abs(const Variable& x, const std::string& name) {
  return unary("abs", x, name);
}
Variable acos(const Variable& x, const std::string& name) {
  return unary("acos", x, name);
}
Variable asin(const Variable& x, const std::string& name) {
  return unary("asin", x, name);
}
Variable atan(const Variable& x, const std::string& name) {
  return unary("atan", x, name);
}
Variable ceil(const Variable& x, const std::string& name) {
  return unary("ceil", x, name);
}
Variable cos(const Variable& x, const std::string& name) {
  return unary("cos", x, name);
}
Variable cosh(const Variable& x, const std::string& name) {
  return unary("cosh", x, name);
}
Variable erf(const Variable& x, const std::string& name) {
  return unary("erf", x, name);
}
Variable exp(const Variable& x, const std::string& name) {
  return unary("exp", x, name);
}
Variable floor(const Variable& x, const std::string& name) {
  return unary("floor", x, name);
}
Variable log(const Variable& x, const std::string& name) {
  return unary("log", x, name);
}
Variable log1p(const Variable& x, const std::string& name) {
  return unary("log1p", x, name);
}
Variable logsigmoid(const Variable& x, const std::string& name) {
  return unary("logsigmoid", x, name);
}
Variable reciprocal(const Variable& x, const std::string& name) {
  return unary("reciprocal", x, name);
}
Variable relu(const Variable& x, const std::string& name) {
  return unary("relu", x, name);
}
Variable round(const Variable& x, const std::string& name) {
  return unary("round", x, name);
}
Variable rsqrt(const Variable& x, const std::string& name) {
  return unary("rsqrt", x, name);
}
Variable sigmoid(const Variable& x, const std::string& name) {
  return unary("sigmoid", x, name);
}
Variable sign(const Variable& x) {
  return unary("sign", x, {});
}
Variable sin(const Variable& x, const std::string& name) {
  return unary("sin", x, name);
}
Variable sinh(const Variable& x, const std::string& name) {
  return unary("sinh", x, name);
}
Variable softplus(const Variable& x, const std::string& name) {
  return unary("softplus", x, name);
}
Variable softsign(const Variable& x, const std::string& name) {
  return unary("softsign", x, name);
}
Variable sqrt(const Variable& x, const std::string& name) {
  return unary("sqrt", x, name);
}
Variable square(const Variable& x, const std::string& name) {
  return unary("square", x, name);
}
Variable tanh(const Variable& x, const std::string& name) {
  return unary("tanh", x, name);
}
Variable tanh_shrink(const Variable& x, const std::string& name) {
  return unary("tanh_shrink", x, name);
}

Variable relu6(const Variable& x, double threshold, const std::string& name) {
  return unary("relu6", x, name,
               to_attributes(ThresholdAttrs{.threshold = static_cast<float>(threshold)}));
}
Variable leaky_relu(const Variable& x, double alpha, const std::string& name) {
  return unary("leaky_relu", x, name,
               to_attributes(LeakyReluAttrs{.alpha = static_cast<float>(alpha)}));
}
Variable elu(const Variable& x, double alpha, const std::string& name) {
  return unary("elu", x, name, to_attributes(EluAttrs{.alpha = static_cast<float>(alpha)}));
}
Variable gelu(const Variable& x, bool approximate) {
  return unary("gelu", x, {}, to_attributes(GeluAttrs{.approximate = approximate}));
}
Variable swish(const Variable& x, double beta, const std::string& name) {
  return unary("swish", x, name, to_attributes(SwishAttrs{.beta = static_cast<float>(beta)}));
}
Variable soft_relu(const Variable& x, double threshold, const std::string& name) {
  return unary("soft_relu", x, name,
               to_attributes(SoftReluAttrs{.threshold = static_cast<float>(threshold)}));
}
Variable softshrink(const Variable& x, double alpha, const std::string& name) {
  return unary("softshrink", x, name,
               to_attributes(SoftShrinkAttrs{.lambda = static_cast<float>(alpha)}));
}
Variable hard_shrink(const Variable& x, double threshold, const std::string& name) {
  return unary("hard_shrink", x, name,
               to_attributes(HardShrinkAttrs{.threshold = static_cast<float>(threshold)}));
}
Variable thresholded_relu(const Variable& x, double threshold, const std::string& name) {
  return unary("thresholded_relu", x, name,
               to_attributes(ThresholdedReluAttrs{.threshold = static_cast<float>(threshold)}));
}
Variable brelu(const Variable& x, double t_min, double t_max, const std::string& name) {
  const BreluAttrs attrs{.t_min = static_cast<float>(t_min), .t_max = static_cast<float>(t_max)};
  return unary("brelu", x, name, to_attributes(attrs));
}

Variable hard_sigmoid(const Variable& x, const HardSigmoidOptions& options) {
  const HardSigmoidAttrs attrs{.slope = static_cast<float>(options.slope),
                               .offset = static_cast<float>(options.offset)};
  return unary("hard_sigmoid", x, options.name, to_attributes(attrs));
}

Variable hard_swish(const Variable& x, const HardSwishOptions& options) {
  const HardSwishAttrs attrs{.threshold = static_cast<float>(options.threshold),
                             .scale = static_cast<float>(options.scale),
                             .offset = static_cast<float>(options.offset)};
  return unary("hard_swish", x, options.name, to_attributes(attrs));
}

Variable stanh(const Variable& x, const StanhOptions& options) {
  const StanhAttrs attrs{.scale_a = static_cast<float>(options.scale_a),
                         .scale_b = static_cast<float>(options.scale_b)};
  return unary("stanh", x, options.name, to_attributes(attrs));
}

Variable pow(const Variable& x, const PowOptions& options) {
  const LayerHelper helper("pow", options.name);
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const PowAttrs attrs{
      .factor = static_cast<float>(options.factor.attribute(helper, "FactorTensor", inputs, 1.0))};
  const Variable out = helper.temp(x.dtype());
  helper.append("pow", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

Variable prelu(const Variable& x, const std::string& mode, const PreluOptions& options) {
  const LayerHelper helper("prelu", options.name);
  helper.check_input(x, "x");
  if (mode != "all" && mode != "channel" && mode != "element") {
    helper.fail("unknown mode '" + mode + "'", "all, channel or element", mode,
                "use one of these modes");
  }
  const int rank = x.shape().rank();
  if (mode != "all" && rank < 2) {
    helper.fail("this mode needs channels", "an input of two dimensions or more",
                str_cat("'", x.name(), "' ", x.shape()), "use mode 'all'");
  }
  std::vector<int64_t> dims = {1};
  for (int i = 1; mode != "all" && i < rank; ++i) {
    dims.push_back(mode == "element" || i == 1 ? x.shape()[i] : 1);
  }
  ParamAttr attr = options.param_attr;
  if (!attr.initializer) attr.initializer = initializer::Constant{.value = 0.25};
  const Variable alpha = helper.parameter(attr, Shape(dims), x.dtype(), false);
  const Variable out = helper.temp(x.dtype());
  helper.append("prelu", {{"X", {x.name()}}, {"Alpha", {alpha.name()}}}, {{"Out", {out.name()}}},
                to_attributes(PreluAttrs{.mode = mode}));
  return out;
}

Variable elementwise_add(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_add", x, y, options);
}
Variable elementwise_sub(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_sub", x, y, options);
}
Variable elementwise_mul(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_mul", x, y, options);
}
Variable elementwise_div(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_div", x, y, options);
}
Variable elementwise_max(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_max", x, y, options);
}
Variable elementwise_min(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_min", x, y, options);
}
Variable elementwise_pow(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_pow", x, y, options);
}

Variable elementwise_floordiv(const Variable& x, const Variable& y,
                              const ElementwiseOptions& options) {
  return elementwise("elementwise_floordiv", x, y, options);
}
Variable elementwise_mod(const Variable& x, const Variable& y, const ElementwiseOptions& options) {
  return elementwise("elementwise_mod", x, y, options);
}

Variable less_than(const Variable& x, const Variable& y, const Variable& out) {
  return truth("less_than", x, y, out, {}, true);
}
Variable less_equal(const Variable& x, const Variable& y, const Variable& out) {
  return truth("less_equal", x, y, out, {}, true);
}
Variable greater_than(const Variable& x, const Variable& y, const Variable& out) {
  return truth("greater_than", x, y, out, {}, true);
}
Variable greater_equal(const Variable& x, const Variable& y, const Variable& out) {
  return truth("greater_equal", x, y, out, {}, true);
}
Variable equal(const Variable& x, const Variable& y, const Variable& out) {
  return truth("equal", x, y, out, {}, true);
}
Variable not_equal(const Variable& x, const Variable& y, const Variable& out) {
  return truth("not_equal", x, y, out, {}, true);
}
Variable logical_and(const Variable& x, const Variable& y, const Variable& out,
                     const std::string& name) {
  return truth("logical_and", x, y, out, name, false);
}
Variable logical_or(const Variable& x, const Variable& y, const Variable& out,
                    const std::string& name) {
  return truth("logical_or", x, y, out, name, false);
}
Variable logical_xor(const Variable& x, const Variable& y, const Variable& out,
                     const std::string& name) {
  return truth("logical_xor", x, y, out, name, false);
}
Variable logical_not(const Variable& x, const Variable& out, const std::string& name) {
  const LayerHelper helper("logical_not", name);
  helper.check_input(x, "x");
  const Variable result = out ? out : helper.temp(DType::kBool);
  helper.append("logical_not", {{"X", {x.name()}}}, {{"Out", {result.name()}}});
  return result;
}

Variable reduce_sum(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_sum", x, options);
}
Variable reduce_mean(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_mean", x, options);
}
Variable reduce_max(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_max", x, options);
}
Variable reduce_min(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_min", x, options);
}
Variable reduce_prod(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_prod", x, options);
}
Variable reduce_all(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_all", x, options);
}
Variable reduce_any(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_any", x, options);
}

Variable scale(const Variable& x, const ScaleOptions& options) {
  const LayerHelper helper("scale", options.name);
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const ScaleAttrs attrs{.scale = options.scale.attribute(helper, "ScaleTensor", inputs, 1.0),
                         .bias = options.bias,
                         .bias_after_scale = options.bias_after_scale};
  const Variable out = helper.temp(x.dtype());
  helper.append("scale", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return helper.activate(out, options.act);
}

Variable clip(const Variable& x, double min, double max, const std::string& name) {
  const ClipAttrs attrs{.min = static_cast<float>(min), .max = static_cast<float>(max)};
  return unary("clip", x, name, to_attributes(attrs));
}

Variable clip_by_norm(const Variable& x, double max_norm, const std::string& name) {
  const ClipByNormAttrs attrs{.max_norm = static_cast<float>(max_norm)};
  return unary("clip_by_norm", x, name, to_attributes(attrs));
}

}  // namespace fleet::fluid::layers
