#include "fluid/ops/nn/sampled.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/grad_names.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// A matrix of `input`'s width, its slot named.
void check_weight(const InferContext& context, std::string_view input, std::string_view weight) {
  const Shape& x = context.input(input).shape;
  const Shape& w = context.input(weight).shape;
  context.require(x.rank() == 2, input, "[rows, width]", x.to_string());
  context.require(w.rank() == 2 && (x[1] < 0 || w[1] == x[1]), weight,
                  str_cat("[classes, ", x[1], "]"), w.to_string());
  context.require_dtype(weight, context.input(input).dtype);
  context.require_dtype("Label", DType::kInt64);
}

// An element for each row of the weight, of `input`'s type.
void check_bias(const InferContext& context, std::string_view input, int64_t classes) {
  if (!context.has_input("Bias")) return;
  const VarDesc& bias = context.input("Bias");
  context.require(bias.shape.numel() == classes, "Bias", str_cat("[", classes, ", 1]"),
                  bias.shape.to_string());
  context.require_dtype("Bias", context.input(input).dtype);
}

void check_sample_weight(const InferContext& context) {
  if (!context.has_input("SampleWeight")) return;
  const VarDesc& input = context.input("Input");
  const Shape& weight = context.input("SampleWeight").shape;
  const int64_t rows = input.shape[0];
  context.require(rows < 0 || weight.numel() < 0 || weight.numel() == rows, "SampleWeight",
                  str_cat("[", rows, ", 1]"), weight.to_string());
  context.require_dtype("SampleWeight", input.dtype);
}

void check_noise(const InferContext& context, const NceAttrs& attrs) {
  context.require(attrs.num_neg_samples >= 1, "Label", "num_neg_samples of at least 1",
                  str_cat(attrs.num_neg_samples), "draw at least one noise class");
  const auto custom = static_cast<int32_t>(attrs.custom_neg_classes.size());
  context.require(custom == 0 || custom == attrs.num_neg_samples, "Label",
                  str_cat(attrs.num_neg_samples, " custom_neg_classes"), str_cat(custom));
  const int32_t classes = attrs.num_total_classes;
  const auto outside =
      std::find_if(attrs.custom_neg_classes.begin(), attrs.custom_neg_classes.end(),
                   [classes](int32_t index) { return index < 0 || index >= classes; });
  const bool inside = outside == attrs.custom_neg_classes.end();
  context.require(inside, "Label", str_cat("custom_neg_classes in [0, ", classes, ")"),
                  inside ? "" : str_cat(*outside),
                  "name known classes, or raise num_total_classes");
  context.require(attrs.sampler >= 0 && attrs.sampler <= 2, "Label",
                  "sampler 0 (uniform), 1 (log uniform) or 2 (custom)", str_cat(attrs.sampler));
  if (attrs.sampler == static_cast<int32_t>(NceSampler::kCustom)) {
    for (const char* slot : {"CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"}) {
      context.require(context.has_input(slot) && context.input(slot).shape.numel() == classes, slot,
                      str_cat("[", classes, "]"),
                      context.has_input(slot) ? context.input(slot).shape.to_string() : "nothing",
                      "give the distribution with layers::nce(…, {.custom_dist = …})");
    }
  }
}

void infer_nce(InferContext& context) {
  check_weight(context, "Input", "Weight");
  const VarDesc& input = context.input("Input");
  const VarDesc& label = context.input("Label");
  const auto attrs = context.attrs<NceAttrs>();
  const int64_t classes = context.input("Weight").shape[0];
  context.require(classes == attrs.num_total_classes, "Weight",
                  str_cat(attrs.num_total_classes, " rows, num_total_classes"), str_cat(classes));
  context.require(label.shape.rank() == 1 || label.shape.rank() == 2, "Label",
                  "[rows] or [rows, labels]", label.shape.to_string(),
                  "reshape it: all labels of a row in one dimension");
  check_noise(context, attrs);
  check_bias(context, "Input", classes);
  check_sample_weight(context);
  const int64_t labels = label.shape.rank() == 2 ? label.shape[1] : 1;
  const Shape samples{input.shape[0], labels < 0 ? labels : labels + attrs.num_neg_samples};
  context.set_output("Cost", Shape{input.shape[0], 1}, input.dtype);
  context.set_output("SampleLogits", samples, input.dtype);
  context.set_output("SampleLabels", samples, DType::kInt64);
}

template <class Attrs>
InferFunction infer_grads(const char* weight, std::vector<std::string> others) {
  return [weight = std::string(weight), others = std::move(others)](InferContext& context) {
    for (const std::string& slot : others) {
      if (context.has_input(slot)) context.share(slot, grad_name(slot));
    }
    context.share(weight, grad_name(weight));
    if (context.attrs<Attrs>().is_sparse) {
      context.set_kind(grad_name(weight), VarKind::kSelectedRows);
    }
  };
}

void infer_hierarchical_sigmoid(InferContext& context) {
  check_weight(context, "X", "W");
  const VarDesc& x = context.input("X");
  const auto attrs = context.attrs<HierarchicalSigmoidAttrs>();
  const bool custom = context.has_input("PathTable");
  context.require(custom == context.has_input("PathCode"), "Label",
                  "PathTable and PathCode together", "one of them", "give both or none");
  context.require(attrs.num_classes >= 2, "Label", "num_classes of at least 2",
                  str_cat(attrs.num_classes));
  const int64_t nodes = context.input("W").shape[0];
  context.require(custom || nodes == attrs.num_classes - 1, "W",
                  str_cat(attrs.num_classes - 1, " rows, one per inner node"), str_cat(nodes));
  if (custom) {
    for (const char* slot : {"PathTable", "PathCode"}) context.require_dtype(slot, DType::kInt64);
  }
  check_bias(context, "X", nodes);
  context.set_output("Out", Shape{x.shape[0], 1}, x.dtype);
}

}  // namespace

void add_sampled_ops(OpTable& table) {
  const std::vector<SlotSpec> nce_inputs = {one("Input"),
                                            one("Label"),
                                            one("Weight"),
                                            maybe("Bias"),
                                            maybe("SampleWeight"),
                                            maybe("CustomDistProbs"),
                                            maybe("CustomDistAlias"),
                                            maybe("CustomDistAliasProbs")};
  std::vector<SlotSpec> nce_grad_inputs = nce_inputs;
  nce_grad_inputs.insert(nce_grad_inputs.end(),
                         {one("SampleLogits"), one("SampleLabels"), one("Cost@GRAD")});
  std::vector<std::string> forward_inputs;
  forward_inputs.reserve(nce_inputs.size());
  for (const SlotSpec& slot : nce_inputs) forward_inputs.push_back(slot.name);
  auto nce = make_schema<NceAttrs>(
      "nce", nce_inputs, {one("Cost"), one("SampleLogits"), one("SampleLabels")}, infer_nce,
      usual_gradient({.inputs = forward_inputs,
                      .outputs = {"SampleLogits", "SampleLabels"},
                      .incoming = {"Cost"},
                      .wanted = {"Input", "Weight", "Bias"}}));
  nce.table_slot = "Weight";
  table.add(draws_numbers(std::move(nce)));
  table.add(make_schema<NceAttrs>("nce_grad", nce_grad_inputs,
                                  {maybe("Input@GRAD"), maybe("Weight@GRAD"), maybe("Bias@GRAD")},
                                  infer_grads<NceAttrs>("Weight", {"Input", "Bias"})));

  const std::vector<SlotSpec> tree_inputs = {one("X"),           one("W"),          one("Label"),
                                             maybe("PathTable"), maybe("PathCode"), maybe("Bias")};
  std::vector<SlotSpec> tree_grad_inputs = tree_inputs;
  tree_grad_inputs.insert(tree_grad_inputs.end(), {one("PreOut"), one("Out@GRAD")});
  auto tree = make_schema<HierarchicalSigmoidAttrs>(
      "hierarchical_sigmoid", tree_inputs, {one("Out"), one("PreOut"), maybe("W_Out")},
      infer_hierarchical_sigmoid,
      usual_gradient({.inputs = {"X", "W", "Label", "PathTable", "PathCode", "Bias"},
                      .outputs = {"PreOut"},
                      .wanted = {"X", "W", "Bias"}}));
  tree.table_slot = "W";
  table.add(std::move(tree));
  table.add(make_schema<HierarchicalSigmoidAttrs>(
      "hierarchical_sigmoid_grad", tree_grad_inputs,
      {maybe("X@GRAD"), maybe("W@GRAD"), maybe("Bias@GRAD")},
      infer_grads<HierarchicalSigmoidAttrs>("W", {"X", "Bias"})));
}

}  // namespace fleet::fluid
