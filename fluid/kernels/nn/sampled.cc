#include "fluid/kernels/nn/sampled.h"

#include <bit>
#include <string_view>

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/nn/sampled.h"

namespace fleet::fluid {
namespace {

void check_sampler(const PrepareContext& context, int64_t classes) {
  for (const char* slot : {"CustomDistProbs", "CustomDistAlias", "CustomDistAliasProbs"}) {
    const DType wanted =
        slot == std::string_view("CustomDistAlias") ? DType::kInt32 : DType::kFloat32;
    const ValueSpec& spec = context.in(slot);
    context.require(spec.dtype == wanted && spec.shape.numel() == classes, slot,
                    str_cat(dtype_name(wanted), "[", classes, "]"),
                    str_cat(dtype_name(spec.dtype), spec.shape));
  }
}

// With Weight, Bias and SampleWeight.
NceSlots typed_nce_of(const PrepareContext& context, DType dtype) {
  NceSlots nce = nce_inputs_of(context);
  const ValueSpec& weight = context.in("Weight");
  const Shape wanted{nce.classes, nce.width};
  context.require(weight.shape == wanted && weight.dtype == dtype, "Weight",
                  str_cat(dtype_name(dtype), wanted),
                  str_cat(dtype_name(weight.dtype), weight.shape));
  if (context.has_input("Bias")) {
    nce.bias = sized_input(context, "Bias", nce.classes, dtype, "one a class");
  }
  if (context.has_input("SampleWeight")) {
    nce.row_weight = sized_input(context, "SampleWeight", nce.rows, dtype, "one a row of Input");
  }
  return nce;
}

// Sets the length of paths.
void find_paths(const PrepareContext& context, TreeSlots& tree) {
  if (tree.table < 0) {
    tree.length = std::bit_width(static_cast<uint64_t>(tree.classes - 1));
    context.require(tree.nodes >= tree.classes - 1, "W", str_cat(tree.classes - 1, " rows"),
                    context.in("W").shape.to_string());
    return;
  }
  for (const char* slot : {"PathTable", "PathCode"}) {
    const ValueSpec& path = context.in(slot);
    const Shape& shape = path.shape;
    context.require(path.dtype == DType::kInt64 && shape.rank() == 2 && shape[0] == tree.rows, slot,
                    str_cat("int64[", tree.rows, ", length]"),
                    str_cat(dtype_name(path.dtype), shape));
  }
  input_like(context, "PathCode", "PathTable");
  tree.length = context.in("PathTable").shape[1];
}

}  // namespace

functions::NoiseClasses NceSlots::noise(const KernelContext& c) const {
  functions::NoiseClasses noise{.kind = kind, .classes = classes};
  if (kind == functions::NoiseClasses::kCustom) {
    noise.probabilities = c.in<float>(probabilities);
    noise.alias = c.in<int32_t>(alias);
    noise.alias_probabilities = c.in<float>(alias_probabilities);
  }
  return noise;
}

uint64_t NceSlots::word(const KernelContext& c) const {
  return (c.step() + 1) << 16 | static_cast<uint64_t>(c.shard() < 0 ? 0 : c.shard());
}

NceSlots nce_inputs_of(const PrepareContext& context) {
  const auto attrs = context.attrs<NceAttrs>();
  const Shape& input = context.in("Input").shape;
  const ValueSpec& label = context.in("Label");
  context.require(input.rank() == 2, "Input", "[rows, width]", input.to_string());
  const bool fits = label.shape.rank() == 1 || label.shape.rank() == 2;
  context.require(label.dtype == DType::kInt64 && fits && label.shape[0] == input[0], "Label",
                  str_cat("int64[", input[0], "] or int64[", input[0], ", labels]"),
                  str_cat(dtype_name(label.dtype), label.shape));
  const int64_t labels = label.shape.rank() == 2 ? label.shape[1] : 1;
  NceSlots nce{.rows = input[0],
               .width = input[1],
               .labels = labels,
               .samples = labels + attrs.num_neg_samples,
               .classes = attrs.num_total_classes,
               .kind = static_cast<functions::NoiseClasses::Kind>(attrs.sampler),
               .custom = attrs.custom_neg_classes,
               .input = context.input("Input"),
               .weight = context.input("Weight"),
               .label = context.input("Label"),
               .probabilities = context.input("CustomDistProbs"),
               .alias = context.input("CustomDistAlias"),
               .alias_probabilities = context.input("CustomDistAliasProbs")};
  const auto& names = context.op().output("SampleLabels");
  const uint64_t program = context.block().program().random_seed();
  const uint64_t seed = attrs.seed != 0 ? static_cast<uint64_t>(attrs.seed) : program;
  if (!names.empty()) nce.key = RandomKey::of(seed, names.front());
  if (nce.kind == functions::NoiseClasses::kCustom) check_sampler(context, nce.classes);
  return nce;
}

NceSlots nce_of(PrepareContext& context, DType dtype) {
  NceSlots nce = typed_nce_of(context, dtype);
  const Shape samples{nce.rows, nce.samples};
  nce.cost = context.set_output("Cost", Shape{nce.rows, 1}, dtype);
  nce.logits = context.set_output("SampleLogits", samples, dtype);
  nce.picked = context.set_output("SampleLabels", samples, DType::kInt64);
  return nce;
}

NceSlots nce_back_of(const PrepareContext& context, DType dtype) {
  NceSlots nce = typed_nce_of(context, dtype);
  const int64_t samples = nce.rows * nce.samples;
  nce.logits = sized_input(context, "SampleLogits", samples, dtype, "one a sample");
  nce.picked = sized_input(context, "SampleLabels", samples, DType::kInt64, "one a sample");
  nce.grad = sized_input(context, "Cost@GRAD", nce.rows, dtype, "one a row of Input");
  return nce;
}

functions::TreePaths TreeSlots::paths(const KernelContext& c) const {
  functions::TreePaths paths{.label = c.in<int64_t>(label), .classes = classes, .length = length};
  if (table >= 0) {
    paths.table = c.in<int64_t>(table);
    paths.code = c.in<int64_t>(code);
  }
  return paths;
}

TreeSlots tree_inputs_of(const PrepareContext& context, DType dtype) {
  const Shape& x = context.in("X").shape;
  const ValueSpec& w = context.in("W");
  const ValueSpec& label = context.in("Label");
  context.require(x.rank() == 2, "X", "[rows, width]", x.to_string());
  context.require(w.dtype == dtype && w.shape.rank() == 2 && w.shape[1] == x[1], "W",
                  str_cat(dtype_name(dtype), "[nodes, ", x[1], "]"),
                  str_cat(dtype_name(w.dtype), w.shape));
  context.require(label.dtype == DType::kInt64 && label.shape.numel() == x[0], "Label",
                  str_cat("int64[", x[0], ", 1]"), str_cat(dtype_name(label.dtype), label.shape));
  TreeSlots tree{.rows = x[0],
                 .width = x[1],
                 .classes = context.attrs<HierarchicalSigmoidAttrs>().num_classes,
                 .nodes = w.shape[0],
                 .where = str_cat("op '", context.op().type, "', labels '",
                                  context.op().input("Label").front(), "'"),
                 .label = context.input("Label"),
                 .table = context.input("PathTable"),
                 .code = context.input("PathCode"),
                 .x = context.input("X"),
                 .weight = context.input("W")};
  if (context.has_input("Bias")) {
    tree.bias = sized_input(context, "Bias", tree.nodes, dtype, "one a node");
  }
  find_paths(context, tree);
  return tree;
}

TreeSlots tree_of(PrepareContext& context, DType dtype) {
  TreeSlots tree = tree_inputs_of(context, dtype);
  tree.out = context.set_output("Out", Shape{tree.rows, 1}, dtype);
  tree.pre_out = context.set_output("PreOut", Shape{tree.rows, tree.length}, dtype);
  return tree;
}

TreeSlots tree_back_of(const PrepareContext& context, DType dtype) {
  TreeSlots tree = tree_inputs_of(context, dtype);
  tree.pre_out = sized_input(context, "PreOut", tree.rows * tree.length, dtype,
                             "one a place of each row's path");
  tree.grad = sized_input(context, "Out@GRAD", tree.rows, dtype, "one a row of X");
  return tree;
}

ClassGradients class_gradients_of(PrepareContext& context, const char* x, const char* weight,
                                  bool sparse, DType dtype) {
  const Shape& rows = context.in(x).shape;
  const Shape& classes = context.in(weight).shape;
  const std::string of_weight = str_cat(weight, "@GRAD");
  ClassGradients at{.x = context.set_output(str_cat(x, "@GRAD"), rows, dtype),
                    .sparse = sparse,
                    .classes = classes[0],
                    .width = rows[1]};
  at.weight =
      sparse ? context.own_output(of_weight) : context.set_output(of_weight, classes, dtype);
  if (context.has_input("Bias")) {
    at.bias = context.set_output("Bias@GRAD", context.in("Bias").shape, dtype);
  }
  return at;
}

}  // namespace fleet::fluid
