#include "fluid/layers/tensor.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid::layers {
namespace {

std::vector<Variable> split_parts(const LayerHelper& helper, const Variable& x, const Number& dim,
                                  SplitAttrs attrs, size_t parts, SlotMap inputs) {
  helper.check_input(x, "input");
  if (parts < 1) helper.fail("a split needs parts", ">= 1", "0", "give how many");
  inputs["X"] = {x.name()};
  attrs.axis = static_cast<int32_t>(dim.attribute(helper, "AxisTensor", inputs, 0));
  if (attrs.axis < 0) attrs.axis += x.shape().rank();
  std::vector<Variable> outs;
  for (size_t i = 0; i < parts; ++i) outs.push_back(helper.temp(x.dtype()));
  helper.append("split", std::move(inputs), {{"Out", names_of(outs)}}, to_attributes(attrs));
  return outs;
}

// An op whose output has the shape asked for.
template <class Attrs>
Variable filled(const LayerHelper& helper, const Numbers& shape, Attrs attrs, SlotMap inputs = {},
                bool stop_gradient = false) {
  attrs.shape = shape.attribute<int64_t>(helper, "ShapeTensor", "ShapeTensorList", inputs);
  const bool given = inputs.count("ShapeTensor") + inputs.count("ShapeTensorList") != 0;
  if (!given && !Shape(attrs.shape).known()) {
    helper.fail("the shape must be known", "dimensions >= 0", Shape(attrs.shape).to_string(),
                "give every dimension, by a number or a variable");
  }
  const Variable out = helper.temp(attrs.dtype, stop_gradient);
  helper.append(helper.type(), std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

}  // namespace

Variable sums(const std::vector<Variable>& xs) {
  const LayerHelper helper("sum");
  helper.check_inputs(xs, "input");
  const Variable out = helper.temp(xs.front().dtype());
  helper.append("sum", {{"X", names_of(xs)}}, {{"Out", {out.name()}}});
  return out;
}

Variable concat(const std::vector<Variable>& xs, const Number& axis, const std::string& name) {
  const LayerHelper helper("concat", name);
  helper.check_inputs(xs, "input");
  SlotMap inputs = {{"X", names_of(xs)}};
  const ConcatAttrs attrs{
      .axis = static_cast<int32_t>(axis.attribute(helper, "AxisTensor", inputs, 0))};
  const Variable out = helper.temp(xs.front().dtype());
  helper.append("concat", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

std::vector<Variable> split(const Variable& x, int num, const Number& dim,
                            const std::string& name) {
  const auto parts = static_cast<size_t>(num > 0 ? num : 0);
  return split_parts(LayerHelper("split", name), x, dim, SplitAttrs{.num = num}, parts, {});
}

std::vector<Variable> split(const Variable& x, const Numbers& sections, const Number& dim,
                            const std::string& name) {
  const LayerHelper helper("split", name);
  SlotMap inputs;
  const SplitAttrs attrs{
      .sections = sections.attribute(helper, "SectionsTensor", "SectionsTensorList", inputs)};
  return split_parts(helper, x, dim, attrs, attrs.sections.size(), std::move(inputs));
}

Variable reshape(const Variable& x, const Numbers& shape, const ReshapeOptions& options) {
  const LayerHelper helper("reshape2", options.name);
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const Reshape2Attrs attrs{.shape = shape.attribute(helper, "Shape", "ShapeTensor", inputs)};
  const Variable out = helper.temp(x.dtype());
  const Variable carried = helper.temp(x.dtype());
  helper.append("reshape2", std::move(inputs),
                {{"Out", {out.name()}}, {"XShape", {carried.name()}}}, to_attributes(attrs));
  return helper.activate(out, options.act);
}

Variable transpose(const Variable& x, const std::vector<int>& perm, const std::string& name) {
  const LayerHelper helper("transpose", name);
  helper.check_input(x, "x");
  const Variable out = helper.temp(x.dtype());
  const Variable carried = helper.temp(x.dtype());
  helper.append("transpose2", {{"X", {x.name()}}},
                {{"Out", {out.name()}}, {"XShape", {carried.name()}}},
                to_attributes(Transpose2Attrs{.axis = perm}));
  return out;
}

Variable cast(const Variable& x, DType dtype) {
  const LayerHelper helper("cast");
  helper.check_input(x, "x");
  const Variable out = helper.temp(dtype);
  helper.append("cast", {{"X", {x.name()}}}, {{"Out", {out.name()}}},
                to_attributes(CastAttrs{.in_dtype = x.dtype(), .out_dtype = dtype}));
  return out;
}

Variable assign(const Variable& x) {
  const LayerHelper helper("assign");
  helper.check_input(x, "input");
  return helper.append_unary("assign", x);
}

Variable increment(const Variable& x, double step) {
  const LayerHelper helper("increment");
  helper.check_input(x, "x");
  helper.append("increment", {{"X", {x.name()}}}, {{"Out", {x.name()}}},
                to_attributes(IncrementAttrs{.step = static_cast<float>(step)}));
  return x;
}

Variable fill_constant(const Numbers& shape, DType dtype, const Real& value, bool force_cpu) {
  const LayerHelper helper("fill_constant");
  SlotMap inputs;
  FillConstantAttrs attrs{.dtype = dtype, .force_cpu = force_cpu};
  const double number = value.attribute(helper, "ValueTensor", inputs, 0.0);
  if (value.known()) {
    attrs.value = static_cast<float>(number);
    attrs.str_value =
        is_floating(dtype) ? float_text(number) : str_cat(static_cast<int64_t>(number));
  }
  return filled(helper, shape, attrs, std::move(inputs), true);
}

Variable uniform_random(const Numbers& shape, const UniformRandomOptions& options) {
  return filled(LayerHelper("uniform_random"), shape,
                UniformRandomAttrs{.dtype = options.dtype,
                                   .min = static_cast<float>(options.min),
                                   .max = static_cast<float>(options.max),
                                   .seed = options.seed});
}

Variable gaussian_random(const Numbers& shape, const GaussianRandomOptions& options) {
  return filled(LayerHelper("gaussian_random"), shape,
                GaussianRandomAttrs{.dtype = options.dtype,
                                    .mean = static_cast<float>(options.mean),
                                    .std = static_cast<float>(options.std),
                                    .seed = options.seed});
}

Variable fill_constant_batch_size_like(const Variable& input, const Shape& shape, DType dtype,
                                       double value, const BatchSizeLikeOptions& options) {
  const LayerHelper helper("fill_constant_batch_size_like");
  helper.check_input(input, "input");
  const bool integer = !is_floating(dtype);
  const FillConstantBatchSizeLikeAttrs attrs{
      .shape = shape.to_vector(),
      .dtype = dtype,
      .value = static_cast<float>(value),
      .str_value = integer ? str_cat(static_cast<int64_t>(value)) : float_text(value),
      .input_dim_idx = options.input_dim_idx,
      .output_dim_idx = options.output_dim_idx,
      .force_cpu = options.force_cpu};
  const Variable out = helper.temp(dtype);
  helper.append("fill_constant_batch_size_like", {{"Input", {input.name()}}},
                {{"Out", {out.name()}}}, to_attributes(attrs));
  out.set_stop_gradient(true);
  return out;
}

Variable ones(const Shape& shape, DType dtype, bool force_cpu) {
  return fill_constant(shape, dtype, 1.0, force_cpu);
}

Variable zeros(const Shape& shape, DType dtype, bool force_cpu) {
  return fill_constant(shape, dtype, 0.0, force_cpu);
}

Variable zeros_like(const Variable& x) {
  const LayerHelper helper("zeros_like");
  helper.check_input(x, "x");
  const Variable out = helper.append_unary("fill_zeros_like", x);
  out.set_stop_gradient(true);
  return out;
}

Variable range(double start, double end, double step, DType dtype) {
  const auto one = [dtype](double value) { return fill_constant(Shape{1}, dtype, value); };
  return range(one(start), one(end), one(step));
}

Variable range(const Variable& start, const Variable& end, const Variable& step) {
  const LayerHelper helper("range");
  helper.check_inputs({start, end, step}, "start, end, step");
  const Variable out = helper.temp(start.dtype(), true);
  helper.append("range",
                {{"Start", {start.name()}}, {"End", {end.name()}}, {"Step", {step.name()}}},
                {{"Out", {out.name()}}});
  return out;
}

Variable create_parameter(const Shape& shape, DType dtype, const ParameterOptions& options) {
  const LayerHelper helper("create_parameter");
  ParamAttr attr = options.attr;
  if (attr.name.empty()) attr.name = options.name;
  return helper.parameter(attr, shape, dtype, options.is_bias);
}

Variable create_global_var(const Shape& shape, double value, DType dtype,
                           const GlobalVarOptions& options) {
  const LayerHelper helper("global_var");
  VarDesc desc;
  desc.name = options.name.empty() ? unique_name::generate("_generated_var") : options.name;
  desc.dtype = dtype;
  desc.shape = shape;
  desc.persistable = options.persistable;
  desc.stop_gradient = true;
  const Variable var = helper.global(std::move(desc));
  helper.initialize(var, initializer::Constant{.value = value, .force_cpu = options.force_cpu});
  return var;
}

}  // namespace fleet::fluid::layers
