#include "fluid/ops/distributed/server_ops.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/optimize/optimize.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_ref_by_trainer_id(InferContext& context) {
  context.require_dtype("TrainerId", DType::kInt64);
  context.share("X", "Out");
}

void infer_dc_compensate(InferContext& context) {
  const auto form = context.attrs<DcCompensateAttrs>().form;
  const bool known = form == "constant" || form == "adaptive" || form == "clipped";
  context.require(known, "Param", "attribute form 'constant', 'adaptive' or 'clipped'",
                  "form '" + form + "'");
  const VarDesc& param = context.input("Param");
  const bool averages = form != "constant";
  context.require(context.has_input("MeanSquare") == averages, "MeanSquare",
                  averages ? "a variable, as form is '" + form + "'" : "none with form 'constant'",
                  averages ? "none" : "one");
  for (const char* slot : {"Grad", "Backup", "MeanSquare"}) {
    if (!context.has_input(slot)) continue;
    context.require_dtype(slot, param.dtype);
    context.require(context.input(slot).shape.compatible(param.shape), slot,
                    param.shape.to_string(), context.input(slot).shape.to_string());
  }
  context.share("Param", "Out");
  context.set_kind("Out", context.input("Grad").kind);
  if (averages) context.share("MeanSquare", "MeanSquareOut");
}

void infer_squared_row_sums(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() > 0, "X", "at least one dimension", x.shape.to_string());
  context.set_output("Out", Shape{x.shape[0]}, DType::kFloat64);
}

void infer_marked_row_sums(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.kind == VarKind::kSelectedRows, "X", "selected rows",
                  std::string(var_kind_name(x.kind)));
  context.set_output("Out", Shape{x.shape[0], 2}, x.dtype);
}

void infer_sum_marked_rows(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() == 2 && x.shape[1] == 2, "X", "shape [rows, 2]",
                  x.shape.to_string());
  context.set_output("Out", Shape{1}, x.dtype);
}

void infer_interleave_rows(InferContext& context) {
  const VarDesc& x = context.input("X");
  const auto [parts, rows] = context.attrs<InterleaveRowsAttrs>();
  const bool fits = parts > 0 && rows > 0 && x.shape.rank() > 0 &&
                    x.shape[0] == (rows + parts - 1) / parts * parts;
  context.require(fits, "X", str_cat("parts of equal height that hold ", rows, " rows"),
                  str_cat(x.shape.to_string(), " for ", parts, " parts"));
  Shape shape = x.shape;
  shape.set(0, rows);
  context.set_output("Out", shape, x.dtype);
}

void infer_lamb_direction(InferContext& context) {
  const VarDesc& param = context.input("Param");
  for (const char* slot : {"Grad", "Moment1", "Moment2"}) {
    context.require(context.input(slot).shape.compatible(param.shape), slot,
                    param.shape.to_string(), context.input(slot).shape.to_string());
  }
  context.share("Param", "Direction");
  for (const char* slot : {"Moment1", "Moment2", "Beta1Pow", "Beta2Pow"}) {
    if (context.has_output(std::string(slot) + "Out")) {
      context.share(slot, std::string(slot) + "Out");
    }
  }
}

void infer_lamb_apply(InferContext& context) {
  context.require(context.input("Direction").shape.compatible(context.input("Param").shape),
                  "Direction", context.input("Param").shape.to_string(),
                  context.input("Direction").shape.to_string());
  context.require_dtype("ParamSquaredRowSums", DType::kFloat64);
  context.require_dtype("DirectionSquaredRowSums", DType::kFloat64);
  context.share("Param", "ParamOut");
}

}  // namespace

void add_server_ops(OpTable& table) {
  table.add(make_schema<NoAttrs>("ref_by_trainer_id", {many("X"), one("TrainerId")}, {one("Out")},
                                 infer_ref_by_trainer_id));
  table.add(make_schema<DcCompensateAttrs>(
      "dc_compensate", {one("Param"), one("Grad"), one("Backup"), maybe("MeanSquare")},
      {one("Out"), maybe("MeanSquareOut")}, infer_dc_compensate));
  OpSchema direction = make_schema<LambAttrs>(
      "lamb_direction",
      {one("Param"), one("Grad"), one("Moment1"), one("Moment2"), one("Beta1Pow"), one("Beta2Pow")},
      {one("Direction"), one("Moment1Out"), one("Moment2Out"), maybe("Beta1PowOut"),
       maybe("Beta2PowOut")},
      infer_lamb_direction);
  direction.updates_parts = true;
  table.add(std::move(direction));
  OpSchema apply =
      make_schema<NoAttrs>("lamb_apply",
                           {one("Param"), one("Direction"), one("LearningRate"),
                            one("ParamSquaredRowSums"), one("DirectionSquaredRowSums")},
                           {one("ParamOut")}, infer_lamb_apply);
  apply.norms = {{"Param", "ParamSquaredRowSums"}, {"Direction", "DirectionSquaredRowSums"}};
  table.add(std::move(apply));
  table.add(
      make_schema<NoAttrs>("squared_row_sums", {one("X")}, {one("Out")}, infer_squared_row_sums));
  table.add(
      make_schema<NoAttrs>("marked_row_sums", {one("X")}, {one("Out")}, infer_marked_row_sums));
  table.add(
      make_schema<NoAttrs>("sum_marked_rows", {one("X")}, {one("Out")}, infer_sum_marked_rows));
  table.add(make_schema<InterleaveRowsAttrs>("interleave_rows", {one("X")}, {one("Out")},
                                             infer_interleave_rows));
}

}  // namespace fleet::fluid
