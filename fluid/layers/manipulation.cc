// The layers of tensor.h that take, move and compare elements.
#include "base/strings.h"
#include "fluid/layers/nn.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/math/mul.h"
#include "fluid/ops/math/similarity.h"
#include "fluid/ops/shape/index_ops.h"
#include "fluid/ops/shape/shape_ops.h"

namespace fleet::fluid::layers {
namespace {

// Ops of one input whose outputs are Out and XShape.
Variable relabelled(const LayerHelper& helper, const char* op, const Variable& x,
                    AttributeMap attrs) {
  const Variable out = helper.temp(x.dtype());
  const Variable carried = helper.temp(x.dtype());
  helper.append(op, {{"X", {x.name()}}}, {{"Out", {out.name()}}, {"XShape", {carried.name()}}},
                std::move(attrs));
  return out;
}

// Ops of one input whose output has a type of its own and no gradient.
Variable found(const char* op, const Variable& x, const char* slot, DType dtype,
               AttributeMap attrs = {}, bool stop_gradient = true) {
  const LayerHelper helper(op);
  helper.check_input(x, "x");
  const Variable out = helper.temp(dtype, stop_gradient);
  helper.append(op, {{slot, {x.name()}}}, {{"Out", {out.name()}}}, std::move(attrs));
  return out;
}

Variable moved(const char* op, const Variable& x, const std::string& name, AttributeMap attrs) {
  const LayerHelper helper(op, name);
  helper.check_input(x, "x");
  return helper.append_unary(op, x, std::move(attrs));
}

Variable product(const char* op, const Variable& x, const Variable& y, const std::string& name,
                 AttributeMap attrs) {
  const LayerHelper helper(op, name);
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  const Variable out = helper.temp(x.dtype());
  helper.append(op, {{"X", {x.name()}}, {"Y", {y.name()}}}, {{"Out", {out.name()}}},
                std::move(attrs));
  return out;
}

// 1 where the program knows a range, else -1.
std::vector<int32_t> infer_flags(const Numbers& starts, const Numbers& ends, size_t axes) {
  std::vector<int32_t> flags(axes, 1);
  for (const auto& known : {starts.known(), ends.known()}) {
    for (size_t i = 0; i < axes; ++i) {
      if (i >= known.size() || !known[i]) flags[i] = -1;
    }
  }
  return flags;
}

}  // namespace

Variable matmul(const Variable& x, const Variable& y, const MatmulOptions& options) {
  const MatmulAttrs attrs{.transpose_x = options.transpose_x,
                          .transpose_y = options.transpose_y,
                          .alpha = static_cast<float>(options.alpha)};
  return product("matmul", x, y, options.name, to_attributes(attrs));
}

Variable mul(const Variable& x, const Variable& y, const MulOptions& options) {
  const MulAttrs attrs{.x_num_col_dims = options.x_num_col_dims,
                       .y_num_col_dims = options.y_num_col_dims};
  return product("mul", x, y, options.name, to_attributes(attrs));
}

Variable squeeze(const Variable& x, const std::vector<int>& axes, const std::string& name) {
  const LayerHelper helper("squeeze", name);
  helper.check_input(x, "input");
  return relabelled(helper, "squeeze2", x, to_attributes(AxesAttrs{.axes = axes}));
}

Variable unsqueeze(const Variable& x, const Numbers& axes, const std::string& name) {
  const LayerHelper helper("unsqueeze2", name);
  helper.check_input(x, "input");
  SlotMap inputs = {{"X", {x.name()}}};
  AxesAttrs attrs{.axes = axes.attribute(helper, "AxesTensor", "AxesTensorList", inputs)};
  if (inputs.count("AxesTensorList") != 0) attrs.axes.clear();
  const Variable out = helper.temp(x.dtype());
  const Variable carried = helper.temp(x.dtype());
  helper.append("unsqueeze2", std::move(inputs),
                {{"Out", {out.name()}}, {"XShape", {carried.name()}}}, to_attributes(attrs));
  return out;
}

Variable flatten(const Variable& x, int axis, const std::string& name) {
  const LayerHelper helper("flatten", name);
  helper.check_input(x, "x");
  return relabelled(helper, "flatten2", x, to_attributes(FlattenAttrs{.axis = axis}));
}

Variable stack(const std::vector<Variable>& xs, int axis) {
  const LayerHelper helper("stack");
  helper.check_inputs(xs, "x");
  const Variable out = helper.temp(xs.front().dtype());
  helper.append("stack", {{"X", names_of(xs)}}, {{"Y", {out.name()}}},
                to_attributes(StackAttrs{.axis = axis}));
  return out;
}

std::vector<Variable> unstack(const Variable& x, int axis, int num) {
  const LayerHelper helper("unstack");
  helper.check_input(x, "x");
  const int rank = x.shape().rank();
  if (axis < -rank || axis >= rank) {
    helper.fail("the axis is outside", str_cat("an axis in [", -rank, ", ", rank, ")"),
                str_cat("axis ", axis, " of '", x.name(), "' ", x.shape()),
                "give an axis that it has");
  }
  const int64_t parts = num > 0 ? num : x.shape()[axis];
  if (parts < 1) {
    helper.fail("how many parts there are is not known", "num",
                str_cat("'", x.name(), "' ", x.shape()), "give num");
  }
  std::vector<Variable> outs;
  for (int64_t i = 0; i < parts; ++i) outs.push_back(helper.temp(x.dtype()));
  helper.append("unstack", {{"X", {x.name()}}}, {{"Y", names_of(outs)}},
                to_attributes(UnstackAttrs{.axis = axis, .num = static_cast<int32_t>(parts)}));
  return outs;
}

Variable slice(const Variable& x, const std::vector<int>& axes, const Numbers& starts,
               const Numbers& ends) {
  const LayerHelper helper("slice");
  helper.check_input(x, "input");
  SlotMap inputs = {{"Input", {x.name()}}};
  const SliceAttrs attrs{
      .axes = axes,
      .starts = starts.attribute(helper, "StartsTensor", "StartsTensorList", inputs),
      .ends = ends.attribute(helper, "EndsTensor", "EndsTensorList", inputs),
      .decrease_axis = {},
      .infer_flags = infer_flags(starts, ends, axes.size())};
  const Variable out = helper.temp(x.dtype());
  helper.append("slice", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

Variable gather(const Variable& x, const Variable& index, bool overwrite) {
  const LayerHelper helper("gather");
  helper.check_input(x, "input");
  helper.check_input(index, "index");
  const Variable out = helper.temp(x.dtype());
  helper.append("gather", {{"X", {x.name()}}, {"Index", {index.name()}}}, {{"Out", {out.name()}}},
                to_attributes(GatherAttrs{.overwrite = overwrite}));
  return out;
}

Variable scatter(const Variable& x, const Variable& index, const Variable& updates, bool overwrite,
                 const std::string& name) {
  const LayerHelper helper("scatter", name);
  helper.check_input(x, "input");
  helper.check_input(index, "index");
  helper.check_input(updates, "updates");
  const Variable out = helper.temp(x.dtype());
  helper.append("scatter",
                {{"X", {x.name()}}, {"Ids", {index.name()}}, {"Updates", {updates.name()}}},
                {{"Out", {out.name()}}}, to_attributes(ScatterAttrs{.overwrite = overwrite}));
  return out;
}

Variable expand(const Variable& x, const Numbers& expand_times, const std::string& name) {
  const LayerHelper helper("expand", name);
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const ExpandAttrs attrs{
      .expand_times = expand_times.attribute(helper, "ExpandTimes", "expand_times_tensor", inputs)};
  const Variable out = helper.temp(x.dtype());
  helper.append("expand", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

Variable pad(const Variable& x, const std::vector<int>& paddings, double pad_value,
             const std::string& name) {
  const PadAttrs attrs{.paddings = paddings, .pad_value = static_cast<float>(pad_value)};
  return moved("pad", x, name, to_attributes(attrs));
}

Variable reverse(const Variable& x, const std::vector<int>& axis) {
  return moved("reverse", x, {}, to_attributes(ReverseAttrs{.axis = axis}));
}

Variable cumsum(const Variable& x, const CumsumOptions& options) {
  const CumsumAttrs attrs{.axis = options.axis.value_or(-1),
                          .flatten = !options.axis.has_value(),
                          .exclusive = options.exclusive,
                          .reverse = options.reverse};
  return moved("cumsum", x, {}, to_attributes(attrs));
}

Variable one_hot(const Variable& x, const Number& depth, bool allow_out_of_range) {
  const LayerHelper helper("one_hot");
  helper.check_input(x, "x");
  SlotMap inputs = {{"X", {x.name()}}};
  const OneHotAttrs attrs{
      .depth = static_cast<int32_t>(depth.attribute(helper, "depth_tensor", inputs, -1)),
      .allow_out_of_range = allow_out_of_range};
  const Variable out = helper.temp(DType::kFloat32, true);
  helper.append("one_hot", std::move(inputs), {{"Out", {out.name()}}}, to_attributes(attrs));
  return out;
}

Variable hash(const Variable& input, int64_t hash_size, int num_hash, const std::string& name) {
  const LayerHelper helper("hash", name);
  helper.check_input(input, "input");
  const Variable out = helper.temp(input.dtype(), true);
  helper.append("hash", {{"X", {input.name()}}}, {{"Out", {out.name()}}},
                to_attributes(HashAttrs{.num_hash = num_hash, .mod_by = hash_size}));
  return out;
}

Variable argmax(const Variable& x, int axis) {
  return found("arg_max", x, "X", DType::kInt64, to_attributes(ArgMaxAttrs{.axis = axis}));
}

Variable argmin(const Variable& x, int axis) {
  return found("arg_min", x, "X", DType::kInt64, to_attributes(ArgMaxAttrs{.axis = axis}));
}

Sorted argsort(const Variable& x, int axis, bool descending, const std::string& name) {
  const LayerHelper helper("argsort", name);
  helper.check_input(x, "input");
  const Variable values = helper.temp(x.dtype(), true);
  const Variable indices = helper.temp(DType::kInt64, true);
  helper.append("argsort", {{"X", {x.name()}}},
                {{"Out", {values.name()}}, {"Indices", {indices.name()}}},
                to_attributes(ArgsortAttrs{.axis = axis, .descending = descending}));
  return {values, indices};
}

Variable where(const Variable& condition) {
  return found("where_index", condition, "Condition", DType::kInt64, {}, false);
}

Variable where(const Variable& condition, const Variable& x, const Variable& y) {
  const LayerHelper helper("where");
  helper.check_input(condition, "condition");
  helper.check_input(x, "x");
  helper.check_input(y, "y");
  const Variable out = helper.temp(x.dtype());
  helper.append("where", {{"Condition", {condition.name()}}, {"X", {x.name()}}, {"Y", {y.name()}}},
                {{"Out", {out.name()}}});
  return out;
}

Variable isfinite(const Variable& x) {
  return found("isfinite", x, "X", DType::kBool, {}, false);
}
Variable has_inf(const Variable& x) {
  return found("isinf", x, "X", x ? x.dtype() : DType::kFloat32, {}, false);
}
Variable has_nan(const Variable& x) {
  return found("isnan", x, "X", x ? x.dtype() : DType::kFloat32, {}, false);
}
Variable shape(const Variable& x) {
  return found("shape", x, "Input", DType::kInt32, {}, false);
}

Variable l2_normalize(const Variable& x, int axis, double epsilon, const std::string& name) {
  const LayerHelper helper("l2_normalize", name);
  helper.check_input(x, "x");
  const Variable out = helper.temp(x.dtype());
  const Variable norm = helper.temp(x.dtype());
  const NormAttrs attrs{.axis = x.shape().rank() == 1 ? 0 : axis,
                        .epsilon = static_cast<float>(epsilon)};
  helper.append("norm", {{"X", {x.name()}}}, {{"Out", {out.name()}}, {"Norm", {norm.name()}}},
                to_attributes(attrs));
  return out;
}

Variable cos_sim(const Variable& x, const Variable& y) {
  const LayerHelper helper("cos_sim");
  helper.check_input(x, "X");
  helper.check_input(y, "Y");
  const Variable out = helper.temp(x.dtype());
  const Variable x_norm = helper.temp(x.dtype());
  const Variable y_norm = helper.temp(x.dtype());
  helper.append("cos_sim", {{"X", {x.name()}}, {"Y", {y.name()}}},
                {{"Out", {out.name()}}, {"XNorm", {x_norm.name()}}, {"YNorm", {y_norm.name()}}});
  return out;
}

Variable log_softmax(const Variable& x, int axis) {
  return log(softmax(x, {.axis = axis}));
}

}  // namespace fleet::fluid::layers
