#include "fluid/layers/norm.h"

#include "base/strings.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/nn/dropout.h"
#include "fluid/ops/nn/norm.h"

namespace fleet::fluid::layers {
namespace {

ParamAttr starting_at(ParamAttr attr, double value) {
  if (!attr.initializer) attr.initializer = initializer::Constant{.value = value};
  return attr;
}

// Running statistics: parameters that no optimizer moves.
Variable running(const LayerHelper& helper, const std::string& name, double value, bool averaged,
                 const Variable& like) {
  const ParamAttr attr{.name = name,
                       .initializer = initializer::Constant{.value = value},
                       .trainable = false,
                       .do_model_average = averaged};
  const Variable made = helper.parameter(attr, like.shape(), like.dtype(), false);
  made.set_stop_gradient(true);
  return made;
}

int64_t known_size(const LayerHelper& helper, const Variable& input, int64_t size) {
  if (size < 1) {
    helper.fail(str_cat("variable '", input.name(), "' has no known size to normalise"),
                "known dimensions except for the batch", input.shape().to_string(),
                "declare them in data, or reshape");
  }
  return size;
}

int64_t known_channels(const LayerHelper& helper, const Variable& input,
                       const std::string& data_layout) {
  helper.check_input(input, "input");
  const int rank = input.shape().rank();
  if (rank < 2) {
    helper.fail(str_cat("variable '", input.name(), "' has no channels"), "at least two dimensions",
                input.shape().to_string(), "reshape it");
  }
  const int axis = channel_axis(data_layout, rank, str_cat("layer '", helper.type(), "'"));
  return known_size(helper, input, input.shape()[axis]);
}

struct RowOutputs {
  Variable mean;
  Variable variance;
  Variable out;
};

// layer_norm and group_norm: optional scale and bias.
Variable normalize_rows(const LayerHelper& helper, const Variable& input, int64_t width,
                        const ParamAttr& scale_attr, const ParamAttr& bias_attr, AttributeMap attrs,
                        const std::string& act, const RowOutputs& outputs) {
  SlotMap inputs = {{"X", {input.name()}}};
  if (!scale_attr.omit) {
    inputs["Scale"] = {
        helper.parameter(starting_at(scale_attr, 1.0), Shape{width}, input.dtype(), false).name()};
  }
  if (!bias_attr.omit) {
    inputs["Bias"] = {helper.parameter(bias_attr, Shape{width}, input.dtype(), true).name()};
  }
  helper.append(helper.type(), std::move(inputs),
                {{"Y", {outputs.out.name()}},
                 {"Mean", {outputs.mean.name()}},
                 {"Variance", {outputs.variance.name()}}},
                std::move(attrs));
  return helper.activate(outputs.out, act);
}

// A variable that is not named after its layer.
Variable unnamed(const LayerHelper& helper, DType dtype, bool stop_gradient = false) {
  VarDesc desc;
  desc.name = unique_name::generate("_generated_var");
  desc.dtype = dtype;
  desc.stop_gradient = stop_gradient;
  return Variable(helper.block(), helper.block().add_var(std::move(desc)).name);
}

}  // namespace

Variable batch_norm(const Variable& input, const BatchNormOptions& options) {
  const LayerHelper helper("batch_norm", options.name);
  const int64_t channels = known_channels(helper, input, options.data_layout);
  const DType dtype = input.dtype();
  const Shape shape{channels};
  const Variable scale =
      helper.parameter(starting_at(options.param_attr, 1.0), shape, dtype, false);
  const Variable bias = helper.parameter(options.bias_attr, shape, dtype, true);
  const bool averaged = options.do_model_average_for_mean_and_var;
  const Variable mean = running(helper, options.moving_mean_name, 0.0, averaged, scale);
  const Variable variance = running(helper, options.moving_variance_name, 1.0, averaged, scale);
  const Variable saved_mean = helper.temp(dtype, true);
  const Variable saved_variance = helper.temp(dtype, true);
  const Variable out = options.in_place ? input : helper.temp(dtype);
  SlotMap inputs = {{"X", {input.name()}},
                    {"Scale", {scale.name()}},
                    {"Bias", {bias.name()}},
                    {"Mean", {mean.name()}},
                    {"Variance", {variance.name()}}};
  BatchNormAttrs attrs;
  attrs.momentum =
      static_cast<float>(options.momentum.attribute(helper, "MomentumTensor", inputs, 0.9));
  attrs.epsilon = static_cast<float>(options.epsilon);
  attrs.data_layout = options.data_layout;
  attrs.is_test = options.is_test;
  attrs.use_global_stats = options.use_global_stats;
  helper.append("batch_norm", std::move(inputs),
                {{"Y", {out.name()}},
                 {"MeanOut", {mean.name()}},
                 {"VarianceOut", {variance.name()}},
                 {"SavedMean", {saved_mean.name()}},
                 {"SavedVariance", {saved_variance.name()}}},
                to_attributes(attrs));
  return helper.activate(out, options.act);
}

Variable layer_norm(const Variable& input, const LayerNormOptions& options) {
  const LayerHelper helper("layer_norm", options.name);
  helper.check_input(input, "input");
  const int rank = input.shape().rank();
  const int axis = options.begin_norm_axis;
  if (axis < 1 || axis >= rank) {
    helper.fail(str_cat("begin_norm_axis does not fit variable '", input.name(), "'"),
                str_cat("1 to ", rank - 1, " for shape ", input.shape()), str_cat(axis),
                "leave at least one dimension to normalise over");
  }
  ParamAttr scale = options.param_attr;
  ParamAttr shift = options.bias_attr;
  scale.omit = scale.omit || !options.scale;
  shift.omit = shift.omit || !options.shift;
  const LayerNormAttrs attrs{.epsilon = static_cast<float>(options.epsilon),
                             .begin_norm_axis = axis};
  const int64_t width = known_size(helper, input, input.shape().numel(axis, rank));
  const RowOutputs outputs{.mean = helper.temp(input.dtype(), true),
                           .variance = helper.temp(input.dtype(), true),
                           .out = helper.temp(input.dtype())};
  return normalize_rows(helper, input, width, scale, shift, to_attributes(attrs), options.act,
                        outputs);
}

Variable group_norm(const Variable& input, int groups, const GroupNormOptions& options) {
  const LayerHelper helper("group_norm", options.name);
  const int64_t channels = known_channels(helper, input, options.data_layout);
  const GroupNormAttrs attrs{.epsilon = static_cast<float>(options.epsilon),
                             .groups = groups,
                             .data_layout = options.data_layout};
  const RowOutputs outputs{.mean = unnamed(helper, input.dtype(), true),
                           .variance = unnamed(helper, input.dtype(), true),
                           .out = unnamed(helper, input.dtype())};
  return normalize_rows(helper, input, channels, options.param_attr, options.bias_attr,
                        to_attributes(attrs), options.act, outputs);
}

Variable dropout(const Variable& x, double dropout_prob, const DropoutOptions& options) {
  const LayerHelper helper("dropout", options.name);
  helper.check_input(x, "x");
  const auto program_seed = static_cast<int32_t>(helper.main().random_seed());
  const int32_t seed = options.seed != 0 ? options.seed : program_seed;
  const DropoutAttrs attrs{.dropout_prob = static_cast<float>(dropout_prob),
                           .is_test = options.is_test,
                           .fix_seed = seed != 0,
                           .seed = seed,
                           .dropout_implementation = options.dropout_implementation};
  const Variable out = helper.temp(x.dtype());
  const Variable mask = helper.temp(DType::kUInt8, true);
  helper.append("dropout", {{"X", {x.name()}}}, {{"Out", {out.name()}}, {"Mask", {mask.name()}}},
                to_attributes(attrs));
  return out;
}

}  // namespace fleet::fluid::layers
