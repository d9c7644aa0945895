#include "fluid/ops/loss/regression_loss.h"

#include <algorithm>

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// `slot` has the shape and element type of `like`.
void require_like(const InferContext& context, const char* slot, const char* like) {
  const VarDesc& wanted = context.input(like);
  const VarDesc& given = context.input(slot);
  context.require(given.shape.compatible(wanted.shape), slot,
                  str_cat("the shape of ", like, " '", wanted.name, "', ", wanted.shape),
                  given.shape.to_string());
  context.require_dtype(slot, wanted.dtype);
}

// Every output of `slots` is like the input `like`; the inputs of `same` must be like it too.
InferFunction infer_same(std::string like, std::vector<std::string> same,
                         std::vector<std::string> outputs) {
  return [=](InferContext& context) {
    for (const std::string& slot : same) require_like(context, slot.c_str(), like.c_str());
    for (const std::string& slot : outputs) context.share(like, slot);
  };
}

void infer_smooth_l1(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() >= 2, "X", "two dimensions or more", x.shape.to_string());
  require_like(context, "Y", "X");
  const bool inside = context.has_input("InsideWeight");
  context.require(inside == context.has_input("OutsideWeight"), "X",
                  "InsideWeight and OutsideWeight, or neither", "one of them", "give both weights");
  if (inside) {
    require_like(context, "InsideWeight", "X");
    require_like(context, "OutsideWeight", "X");
  }
  context.share("X", "Diff");
  context.set_output("Out", Shape{x.shape[0], 1}, x.dtype);
}

void infer_bpr(InferContext& context) {
  const VarDesc& x = context.input("X");
  const int rank = x.shape.rank();
  context.require(rank >= 2 && x.shape[-1] != 1, "X", "[..., two classes or more]",
                  x.shape.to_string());
  Shape wanted = x.shape;
  wanted.set(-1, 1);
  const VarDesc& label = context.input("Label");
  context.require(label.shape.compatible(wanted), "Label", str_cat(wanted, ", one index a row"),
                  label.shape.to_string(), "give labels a last dimension of 1");
  context.require_dtype("Label", DType::kInt64);
  context.set_output("Y", wanted, x.dtype, 0, x.lod_level);
}

void infer_margin_rank(InferContext& context) {
  require_like(context, "X2", "X1");
  require_like(context, "Label", "X1");
  context.share("X1", "Out");
  context.share("X1", "Activated");
}

void infer_kldiv(InferContext& context) {
  require_like(context, "Target", "X");
  const VarDesc& x = context.input("X");
  const auto reduction = context.attrs<KldivLossAttrs>().reduction;
  const bool known =
      reduction == "none" || reduction == "mean" || reduction == "sum" || reduction == "batchmean";
  context.require(known, "X", "reduction: none, mean, sum or batchmean", reduction,
                  "use one of these");
  context.set_output("Loss", reduction == "none" ? x.shape : Shape{1}, x.dtype);
}

void infer_label_smooth(InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.shape.rank() >= 1, "X", "[..., classes]", x.shape.to_string());
  if (context.has_input("PriorDist")) {
    const Shape& prior = context.input("PriorDist").shape;
    const int64_t classes = x.shape[-1];
    context.require(classes < 0 || prior.numel() < 0 || prior.numel() == classes, "PriorDist",
                    str_cat(classes, " elements, one a class"), prior.to_string());
    context.require_dtype("PriorDist", x.dtype);
  }
  context.share("X", "Out");
}

void add_elementwise_losses(OpTable& table) {
  table.add(make_schema<SigmoidCrossEntropyAttrs>(
      "sigmoid_cross_entropy_with_logits", {one("X"), one("Label")}, {one("Out")},
      infer_same("X", {"Label"}, {"Out"}), usual_gradient({.inputs = {"X", "Label"}})));
  table.add(make_schema<SigmoidCrossEntropyAttrs>(
      "sigmoid_cross_entropy_with_logits_grad", {one("X"), one("Label"), one("Out@GRAD")},
      {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<LogLossAttrs>(
      "log_loss", {one("Predicted"), one("Labels")}, {typed(one("Loss"))},
      infer_same("Predicted", {"Labels"}, {"Loss"}),
      usual_gradient(
          {.inputs = {"Predicted", "Labels"}, .incoming = {"Loss"}, .wanted = {"Predicted"}})));
  table.add(make_schema<LogLossAttrs>(
      "log_loss_grad", {one("Predicted"), one("Labels"), typed(one("Loss@GRAD"))},
      {one("Predicted@GRAD")}, infer_shape_like({{"Predicted", "Predicted@GRAD"}})));
  table.add(make_schema<NoAttrs>(
      "hinge_loss", {one("Logits"), one("Labels")}, {one("Loss")},
      infer_same("Logits", {"Labels"}, {"Loss"}),
      usual_gradient(
          {.inputs = {"Logits", "Labels"}, .incoming = {"Loss"}, .wanted = {"Logits"}})));
  table.add(
      make_schema<NoAttrs>("hinge_loss_grad", {one("Logits"), one("Labels"), one("Loss@GRAD")},
                           {one("Logits@GRAD")}, infer_shape_like({{"Logits", "Logits@GRAD"}})));
  table.add(make_schema<HuberLossAttrs>(
      "huber_loss", {one("X"), one("Y")}, {one("Residual"), one("Out")},
      infer_same("X", {"Y"}, {"Residual", "Out"}),
      usual_gradient({.inputs = {}, .outputs = {"Residual"}, .wanted = {"X", "Y"}})));
  table.add(make_schema<HuberLossAttrs>(
      "huber_loss_grad", {one("Residual"), typed(one("Out@GRAD"))},
      {maybe("X@GRAD"), maybe("Y@GRAD")},
      infer_shape_like({{"Residual", "X@GRAD"}, {"Residual", "Y@GRAD"}})));
}

void add_row_losses(OpTable& table) {
  table.add(make_schema<SmoothL1LossAttrs>(
      "smooth_l1_loss", {one("X"), one("Y"), maybe("InsideWeight"), maybe("OutsideWeight")},
      {one("Diff"), one("Out")}, infer_smooth_l1,
      usual_gradient({.inputs = {"InsideWeight", "OutsideWeight"},
                      .outputs = {"Diff"},
                      .wanted = {"X", "Y"}})));
  table.add(make_schema<SmoothL1LossAttrs>(
      "smooth_l1_loss_grad",
      {one("Diff"), maybe("InsideWeight"), maybe("OutsideWeight"), typed(one("Out@GRAD"))},
      {maybe("X@GRAD"), maybe("Y@GRAD")},
      infer_shape_like({{"Diff", "X@GRAD"}, {"Diff", "Y@GRAD"}})));
  table.add(make_schema<NoAttrs>("bpr_loss", {one("X"), one("Label")}, {one("Y")}, infer_bpr,
                                 usual_gradient({.inputs = {"X", "Label"}, .incoming = {"Y"}})));
  table.add(make_schema<NoAttrs>("bpr_loss_grad", {one("X"), one("Label"), one("Y@GRAD")},
                                 {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<KldivLossAttrs>(
      "kldiv_loss", {one("X"), one("Target")}, {one("Loss")}, infer_kldiv,
      usual_gradient({.inputs = {"X", "Target"}, .incoming = {"Loss"}})));
  table.add(make_schema<KldivLossAttrs>("kldiv_loss_grad",
                                        {one("X"), one("Target"), one("Loss@GRAD")},
                                        {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  table.add(make_schema<LabelSmoothAttrs>("label_smooth", {one("X"), maybe("PriorDist")},
                                          {one("Out")}, infer_label_smooth,
                                          usual_gradient({.inputs = {}})));
  table.add(make_schema<LabelSmoothAttrs>("label_smooth_grad", {one("Out@GRAD")}, {one("X@GRAD")},
                                          infer_shape_like({{"Out@GRAD", "X@GRAD"}})));
}

void add_ranking_losses(OpTable& table) {
  table.add(make_schema<NoAttrs>(
      "rank_loss", {one("Label"), one("Left"), one("Right")}, {typed(one("Out"))},
      infer_same("Left", {"Right", "Label"}, {"Out"}),
      usual_gradient({.inputs = {"Label", "Left", "Right"}, .wanted = {"Left", "Right"}})));
  table.add(make_schema<NoAttrs>(
      "rank_loss_grad", {one("Label"), one("Left"), one("Right"), typed(one("Out@GRAD"))},
      {maybe("Left@GRAD"), maybe("Right@GRAD")},
      infer_shape_like({{"Left", "Left@GRAD"}, {"Right", "Right@GRAD"}})));
  table.add(make_schema<MarginRankLossAttrs>(
      "margin_rank_loss", {one("X1"), one("X2"), one("Label")},
      {one("Out"), typed(one("Activated"))}, infer_margin_rank,
      usual_gradient({.inputs = {"Label"}, .outputs = {"Activated"}, .wanted = {"X1", "X2"}})));
  table.add(make_schema<MarginRankLossAttrs>(
      "margin_rank_loss_grad", {one("Label"), one("Activated"), typed(one("Out@GRAD"))},
      {maybe("X1@GRAD"), maybe("X2@GRAD")},
      infer_shape_like({{"Label", "X1@GRAD"}, {"Label", "X2@GRAD"}})));
}

}  // namespace

void add_regression_loss_ops(OpTable& table) {
  add_elementwise_losses(table);
  add_row_losses(table);
  add_ranking_losses(table);
}

}  // namespace fleet::fluid
