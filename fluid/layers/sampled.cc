#include "fluid/layers/sampled.h"

#include <algorithm>
#include <deque>

#include "base/strings.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/ops/append.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid::layers {
namespace {

// The width of an input; fails unless it is a matrix of known width.
int64_t width_of(const LayerHelper& helper, const Variable& input) {
  helper.check_input(input, "input");
  const Shape& shape = input.shape();
  if (shape.rank() != 2 || shape[1] < 1) {
    helper.fail(str_cat("variable '", input.name(), "' is no matrix of known width"),
                "[rows, width]", shape.to_string(), "reshape it, or declare the width");
  }
  return shape[1];
}

int32_t sampler_code(const LayerHelper& helper, const NceOptions& options, int classes) {
  const std::vector<std::string> known = {"uniform", "log_uniform", "custom_dist"};
  const auto found = std::find(known.begin(), known.end(), options.sampler);
  if (found == known.end()) {
    helper.fail(
        str_cat("unknown sampler '", options.sampler, "'", did_you_mean(options.sampler, known)),
        join(known, ", "), options.sampler, "use a known one");
  }
  const bool custom = options.sampler == "custom_dist";
  if (custom && options.custom_dist.size() != static_cast<size_t>(classes)) {
    helper.fail("custom_dist does not fit the classes", str_cat(classes, " probabilities"),
                str_cat(options.custom_dist.size()), "give one per class");
  }
  return static_cast<int32_t>(found - known.begin());
}

// Walker's alias tables.
struct Alias {
  std::vector<double> probabilities;
  std::vector<double> aliases;  // -1: none
};

Alias make_alias(const std::vector<double>& distribution) {
  const size_t n = distribution.size();
  Alias alias{.probabilities = std::vector<double>(n, 0.0), .aliases = std::vector<double>(n, 0.0)};
  std::deque<std::pair<size_t, double>> big;
  std::deque<std::pair<size_t, double>> little;
  const auto place = [&](size_t i, double share) {
    if (share > 1.0) {
      big.emplace_back(i, share);
    } else if (share < 1.0) {
      little.emplace_back(i, share);
    } else {
      alias.probabilities[i] = share;
      alias.aliases[i] = -1;
    }
  };
  for (size_t i = 0; i < n; ++i) place(i, distribution[i] * static_cast<double>(n));
  while (!big.empty() && !little.empty()) {
    const auto [rich, plenty] = big.front();
    const auto [poor, rest] = little.front();
    big.pop_front();
    little.pop_front();
    alias.probabilities[poor] = rest;
    alias.aliases[poor] = static_cast<double>(rich);
    place(rich, plenty + rest - 1.0);
  }
  for (const auto& left : {big, little}) {
    for (const auto& [i, share] : left) {
      alias.probabilities[i] = 1.0;
      alias.aliases[i] = -1;
    }
  }
  return alias;
}

// A parameter that the startup program sets to the values, and nothing moves.
std::vector<std::string> constant(const LayerHelper& helper, const std::vector<double>& values,
                                  DType dtype) {
  const Shape shape{static_cast<int64_t>(values.size())};
  const std::string name = unique_name::generate(helper.name() + ".w");
  VarDesc desc;
  desc.name = name;
  desc.dtype = dtype;
  desc.shape = shape;
  desc.persistable = true;
  helper.startup().global_block().add_var(desc);
  Operator op;
  op.type = "assign_value";
  op.outputs["Out"] = {name};
  op.attrs = {{"shape", shape.to_vector()}, {"dtype", std::string(dtype_name(dtype))}};
  if (dtype == DType::kInt32) {
    op.attrs["int32_values"] = std::vector<int64_t>(values.begin(), values.end());
  } else {
    std::vector<double> rounded;
    rounded.reserve(values.size());
    for (const double value : values) rounded.push_back(static_cast<float>(value));
    op.attrs["fp32_values"] = std::move(rounded);
  }
  insert_op(helper.startup().global_block(), 0, std::move(op));
  const Variable made = helper.parameter({.name = name}, shape, dtype, false);
  made.set_stop_gradient(true);
  return {name};
}

}  // namespace

Variable nce(const Variable& input, const Variable& label, int num_total_classes,
             const NceOptions& options) {
  const LayerHelper helper("nce", options.name);
  const int64_t width = width_of(helper, input);
  helper.check_input(label, "label");
  NceAttrs attrs;
  attrs.num_total_classes = num_total_classes;
  attrs.num_neg_samples = options.num_neg_samples;
  attrs.sampler = sampler_code(helper, options, num_total_classes);
  attrs.seed = options.seed;
  attrs.is_sparse = options.is_sparse;
  attrs.remote_prefetch = options.is_sparse;
  SlotMap inputs = {{"Input", {input.name()}}, {"Label", {label.name()}}};
  const Variable w =
      helper.parameter(options.param_attr, Shape{num_total_classes, width}, input.dtype(), false);
  inputs["Weight"] = {w.name()};
  if (!options.bias_attr.omit) {
    inputs["Bias"] = {
        helper.parameter(options.bias_attr, Shape{num_total_classes, 1}, input.dtype(), true)
            .name()};
  }
  if (options.sample_weight) {
    helper.check_input(options.sample_weight, "sample_weight");
    inputs["SampleWeight"] = {options.sample_weight.name()};
  }
  if (attrs.sampler == static_cast<int32_t>(NceSampler::kCustom)) {
    const Alias alias = make_alias(options.custom_dist);
    inputs["CustomDistProbs"] = constant(helper, options.custom_dist, DType::kFloat32);
    inputs["CustomDistAlias"] = constant(helper, alias.aliases, DType::kInt32);
    inputs["CustomDistAliasProbs"] = constant(helper, alias.probabilities, DType::kFloat32);
  }
  const Variable cost = helper.temp(input.dtype());
  const Variable logits = helper.temp(input.dtype());
  const Variable labels = helper.temp(label.dtype());
  helper.append("nce", std::move(inputs),
                {{"Cost", {cost.name()}},
                 {"SampleLogits", {logits.name()}},
                 {"SampleLabels", {labels.name()}}},
                to_attributes(attrs));
  return cost / static_cast<double>(options.num_neg_samples + 1);
}

Variable hsigmoid(const Variable& input, const Variable& label, int num_classes,
                  const HsigmoidOptions& options) {
  const LayerHelper helper("hierarchical_sigmoid", options.name);
  const int64_t width = width_of(helper, input);
  helper.check_input(label, "label");
  const bool paths = options.path_table && options.path_code;
  if (options.is_custom != paths || (options.path_table ? 1 : 0) != (options.path_code ? 1 : 0)) {
    helper.fail("a custom tree needs is_custom, path_table and path_code together",
                "all of them or none",
                str_cat("is_custom ", options.is_custom ? "on" : "off", ", ",
                        options.path_table ? "a" : "no", " path_table, ",
                        options.path_code ? "a" : "no", " path_code"),
                "give all three, or leave all out");
  }
  const int64_t nodes = options.is_custom ? num_classes : num_classes - 1;
  if (nodes < 1) {
    helper.fail("num_classes is too small", options.is_custom ? ">= 1" : ">= 2",
                str_cat(num_classes), "give the number of classes");
  }
  HierarchicalSigmoidAttrs attrs;
  attrs.num_classes = num_classes;
  attrs.is_sparse = options.is_sparse && (options.is_custom || options.rows_without_paths);
  attrs.remote_prefetch = attrs.is_sparse;
  const Variable out = helper.temp(input.dtype());
  const Variable pre_out = helper.temp(input.dtype());
  const Variable w =
      helper.parameter(options.param_attr, Shape{nodes, width}, input.dtype(), false);
  SlotMap inputs = {{"X", {input.name()}}, {"W", {w.name()}}, {"Label", {label.name()}}};
  if (paths) {
    inputs["PathTable"] = {options.path_table.name()};
    inputs["PathCode"] = {options.path_code.name()};
  }
  if (!options.bias_attr.omit) {
    inputs["Bias"] = {
        helper.parameter(options.bias_attr, Shape{nodes, 1}, input.dtype(), true).name()};
  }
  helper.append("hierarchical_sigmoid", std::move(inputs),
                {{"Out", {out.name()}}, {"PreOut", {pre_out.name()}}, {"W_Out", {w.name()}}},
                to_attributes(attrs));
  return out;
}

}  // namespace fleet::fluid::layers
