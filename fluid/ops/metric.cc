#include "fluid/ops/metric.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_top_k(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto k = context.attrs<TopKAttrs>().k;
  check_axis(context, -1, x.shape.rank(), "X");
  context.require(k >= 1 && (x.shape[-1] < 0 || k <= x.shape[-1]), "X",
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

}  // namespace

void add_metric_ops(OpTable& table) {
  table.add(make_schema<TopKAttrs>("top_k", {one("X"), maybe("K")}, {one("Out"), one("Indices")},
                                   infer_top_k,
                                   usual_gradient({.inputs = {"X"}, .outputs = {"Indices"}})));
  table.add(make_schema<TopKAttrs>("top_k_grad", {one("X"), one("Indices"), one("Out@GRAD")},
                                   {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<NoAttrs>("accuracy", {one("Out"), one("Indices"), one("Label")},
                                 {one("Accuracy"), one("Correct"), one("Total")}, infer_accuracy));
}

}  // namespace fleet::fluid
