#include "fluid/ops/loss/metric.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_top_k(InferContext& context) {
  const VarDesc& x = context.input("X");
  const bool given = context.has_input("K");
  require_whole_numbers(context, "K", 1);
  const int64_t k = given ? Shape::kUnknown : context.attrs<TopKAttrs>().k;
  check_axis(context, -1, x.shape.rank(), "X");
  context.require(given || (k >= 1 && (x.shape[-1] < 0 || k <= x.shape[-1])), "X",
                  str_cat("1 <= k <= ", x.shape[-1], ", the last dimension"), str_cat("k = ", k),
                  "ask for fewer values");
  Shape out = x.shape;
  out.set(-1, k);
  context.set_output("Out", out, x.dtype, 0, x.lod_level);
  context.set_output("Indices", out, DType::kInt64, 0, x.lod_level);
}

void infer_accuracy(InferContext& context) {
  const VarDesc& indices = context.input("Indices");
  const VarDesc& label = context.input("Label");
  context.require_dtype("Indices", DType::kInt64);
  context.require_dtype("Label", DType::kInt64);
  const bool column = label.shape.rank() == 2 && label.shape[1] == 1;
  context.require(column && indices.shape.rank() == 2, "Label", "[n, 1], one index a row",
                  label.shape.to_string(), "give labels a last dimension of 1");
  const int64_t rows = indices.shape[0];
  context.require(rows < 0 || label.shape[0] < 0 || rows == label.shape[0], "Label",
                  str_cat(rows, " rows, as the predictions"), label.shape.to_string());
  context.set_output("Accuracy", Shape{1}, DType::kFloat32, 0, context.input("Out").lod_level);
  context.set_output("Correct", Shape{1}, DType::kInt32);
  context.set_output("Total", Shape{1}, DType::kInt32);
}

void require_column(const InferContext& context, const char* slot, DType dtype, int64_t rows) {
  const Shape& shape = context.input(slot).shape;
  context.require(shape.rank() == 2 && shape[1] == 1, slot, "[n, 1], one value a row",
                  shape.to_string(), "give it a last dimension of 1");
  context.require(rows < 0 || shape[0] < 0 || shape[0] == rows, slot,
                  str_cat(rows, " rows, as the predictions"), shape.to_string());
  context.require_dtype(slot, dtype);
}

void infer_auc(InferContext& context) {
  const VarDesc& predict = context.input("Predict");
  const auto attrs = context.attrs<AucAttrs>();
  context.require(predict.shape.rank() == 2 && is_floating(predict.dtype), "Predict",
                  "probabilities, [n, classes]", str_cat(dtype_name(predict.dtype), predict.shape));
  context.require(attrs.curve == "ROC" || attrs.curve == "PR", "AUC", "curve: ROC or PR",
                  attrs.curve, "use one of these");
  context.require(attrs.num_thresholds >= 1 && attrs.slide_steps >= 0, "AUC",
                  "num_thresholds >= 1 and slide_steps >= 0",
                  str_cat(attrs.num_thresholds, " and ", attrs.slide_steps));
  require_column(context, "Label", DType::kInt64, predict.shape[0]);
  const int64_t buckets = int64_t{attrs.num_thresholds} + 1;
  const int64_t states = attrs.slide_steps == 0 ? buckets : (attrs.slide_steps + 1) * buckets + 1;
  for (const char* slot : {"StatPos", "StatNeg"}) {
    context.require_dtype(slot, DType::kInt64);
    const int64_t given = context.input(slot).shape.numel();
    const bool spare = attrs.slide_steps == 0 && given == buckets + 1;
    context.require(given == states || spare, slot,
                    str_cat(states, " numbers for num_thresholds ", attrs.num_thresholds,
                            " and slide_steps ", attrs.slide_steps),
                    str_cat(given), "let layers::auc make the states");
  }
  context.set_output("AUC", Shape{1}, DType::kFloat64);
  const Shape kept = attrs.slide_steps == 0 ? Shape{1, buckets} : Shape{states};
  context.set_output("StatPosOut", kept, DType::kInt64);
  context.set_output("StatNegOut", kept, DType::kInt64);
}

void infer_precision_recall(InferContext& context) {
  const VarDesc& probabilities = context.input("MaxProbs");
  const int64_t classes = context.attrs<PrecisionRecallAttrs>().class_number;
  context.require(classes >= 1, "MaxProbs", "class_number >= 1", str_cat(classes),
                  "give the number of classes");
  require_column(context, "MaxProbs", probabilities.dtype, -1);
  const int64_t rows = probabilities.shape[0];
  require_column(context, "Indices", DType::kInt32, rows);
  require_column(context, "Labels", DType::kInt32, rows);
  if (context.has_input("Weights")) {
    require_column(context, "Weights", probabilities.dtype, rows);
  }
  const Shape states{classes, 4};
  if (context.has_input("StatesInfo")) {
    const Shape& given = context.input("StatesInfo").shape;
    context.require(given.compatible(states), "StatesInfo", states.to_string(), given.to_string());
    context.require_dtype("StatesInfo", probabilities.dtype);
  }
  context.set_output("BatchMetrics", Shape{6}, DType::kFloat64);
  context.set_output("AccumMetrics", Shape{6}, DType::kFloat64);
  context.set_output("AccumStatesInfo", states, probabilities.dtype);
}

}  // namespace

void add_metric_ops(OpTable& table) {
  table.add(make_schema<TopKAttrs>("top_k", {one("X"), maybe_attribute("K")},
                                   {one("Out"), one("Indices")}, infer_top_k,
                                   usual_gradient({.inputs = {"X"}, .outputs = {"Indices"}})));
  table.add(make_schema<TopKAttrs>("top_k_grad", {one("X"), one("Indices"), one("Out@GRAD")},
                                   {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("accuracy", {one("Out"), one("Indices"), one("Label")},
                                 {typed(one("Accuracy")), one("Correct"), one("Total")},
                                 infer_accuracy));
  table.add(
      make_schema<AucAttrs>("auc", {one("Predict"), one("Label"), one("StatPos"), one("StatNeg")},
                            {typed(one("AUC")), one("StatPosOut"), one("StatNegOut")}, infer_auc));
  table.add(make_schema<PrecisionRecallAttrs>(
      "precision_recall",
      {one("MaxProbs"), one("Indices"), one("Labels"), maybe("Weights"), maybe("StatesInfo")},
      {one("BatchMetrics"), typed(one("AccumMetrics")), one("AccumStatesInfo")},
      infer_precision_recall));
}

}  // namespace fleet::fluid
