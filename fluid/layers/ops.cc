#include "fluid/layers/ops.h"

#include "fluid/layers/layer_helper.h"
#include "fluid/ops/elementwise.h"
#include "fluid/ops/reduce.h"
#include "fluid/ops/scale.h"

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

}  // namespace

Variable abs(const Variable& x, const std::string& name) {
  return unary("abs", x, name);
}
Variable ceil(const Variable& x, const std::string& name) {
  return unary("ceil", x, name);
}
Variable cos(const Variable& x, const std::string& name) {
  return unary("cos", x, name);
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
Variable reciprocal(const Variable& x, const std::string& name) {
  return unary("reciprocal", x, name);
}
Variable relu(const Variable& x, const std::string& name) {
  return unary("relu", x, name);
}
Variable round(const Variable& x, const std::string& name) {
  return unary("round", x, name);
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
Variable sqrt(const Variable& x, const std::string& name) {
  return unary("sqrt", x, name);
}
Variable square(const Variable& x, const std::string& name) {
  return unary("square", x, name);
}
Variable tanh(const Variable& x, const std::string& name) {
  return unary("tanh", x, name);
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

Variable reduce_sum(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_sum", x, options);
}
Variable reduce_mean(const Variable& x, const ReduceOptions& options) {
  return reduce("reduce_mean", x, options);
}

Variable scale(const Variable& x, const ScaleOptions& options) {
  const LayerHelper helper("scale", options.name);
  helper.check_input(x, "x");
  const ScaleAttrs attrs{
      .scale = options.scale, .bias = options.bias, .bias_after_scale = options.bias_after_scale};
  return helper.activate(helper.append_unary("scale", x, to_attributes(attrs)), options.act);
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
