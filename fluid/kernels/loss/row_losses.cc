#include "fluid/kernels/loss/row_losses.h"

#include "base/strings.h"
#include "fluid/kernels/checked_inputs.h"
#include "fluid/ops/loss/regression_loss.h"

namespace fleet::fluid {
namespace {

int weight_input(const PrepareContext& context, const char* slot, const char* like) {
  return context.has_input(slot) ? input_like(context, slot, like) : -1;
}

BprLoss bpr_inputs(const PrepareContext& context) {
  const Shape& shape = context.in("X").shape;
  const ValueSpec& label = context.in("Label");
  context.require(shape.rank() >= 1 && shape[-1] >= 2, "X", "two classes or more",
                  shape.to_string());
  const int64_t rows = shape.numel(0, shape.rank() - 1);
  context.require(label.dtype == DType::kInt64 && label.shape.numel() == rows, "Label",
                  str_cat("int64, ", rows, " elements"),
                  str_cat(dtype_name(label.dtype), label.shape));
  return {
      .rows = rows, .classes = shape[-1], .x = context.input("X"), .label = context.input("Label")};
}

KldivLoss kldiv_inputs(const PrepareContext& context) {
  const Shape& shape = context.in("X").shape;
  const std::string reduction = context.attrs<KldivLossAttrs>().reduction;
  KldivLoss loss{.n = shape.numel(),
                 .summed = reduction != "none",
                 .x = context.input("X"),
                 .target = input_like(context, "Target", "X")};
  if (reduction == "mean") loss.divisor = shape.numel();
  if (reduction == "batchmean") loss.divisor = shape[0];
  return loss;
}

}  // namespace

SmoothL1 smooth_l1_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() >= 2, "X", "[n, ...]", shape.to_string());
  return {.rows = shape[0],
          .length = shape.numel(1, shape.rank()),
          .sigma = static_cast<double>(context.attrs<SmoothL1LossAttrs>().sigma),
          .x = context.input("X"),
          .y = input_like(context, "Y", "X"),
          .inside = weight_input(context, "InsideWeight", "X"),
          .outside = weight_input(context, "OutsideWeight", "X"),
          .difference = context.set_output("Diff", shape, dtype),
          .out = context.set_output("Out", Shape{shape[0], 1}, dtype)};
}

SmoothL1Back smooth_l1_back_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("Diff").shape;
  context.require(shape.rank() >= 2, "Diff", "[n, ...]", shape.to_string());
  return {.rows = shape[0],
          .length = shape.numel(1, shape.rank()),
          .sigma = static_cast<double>(context.attrs<SmoothL1LossAttrs>().sigma),
          .difference = sized_input(context, "Diff", shape.numel(), dtype, "one an element of X"),
          .inside = weight_input(context, "InsideWeight", "Diff"),
          .outside = weight_input(context, "OutsideWeight", "Diff"),
          .grad = sized_input(context, "Out@GRAD", shape[0], dtype, "one a row"),
          .x_grad = context.set_output("X@GRAD", shape, dtype),
          .y_grad = context.set_output("Y@GRAD", shape, dtype)};
}

BprLoss bpr_of(PrepareContext& context, DType dtype) {
  BprLoss loss = bpr_inputs(context);
  Shape shape = context.in("X").shape;
  shape.set(-1, 1);
  loss.out = context.set_output("Y", shape, dtype);
  return loss;
}

BprLoss bpr_back_of(PrepareContext& context, DType dtype) {
  BprLoss loss = bpr_inputs(context);
  loss.grad = sized_input(context, "Y@GRAD", loss.rows, dtype, "one a row");
  loss.out = context.set_output("X@GRAD", context.in("X").shape, dtype);
  return loss;
}

KldivLoss kldiv_of(PrepareContext& context, DType dtype) {
  KldivLoss loss = kldiv_inputs(context);
  loss.out = context.set_output("Loss", loss.summed ? Shape{1} : context.in("X").shape, dtype);
  return loss;
}

KldivLoss kldiv_back_of(PrepareContext& context, DType dtype) {
  KldivLoss loss = kldiv_inputs(context);
  loss.grad = sized_input(context, "Loss@GRAD", loss.summed ? 1 : loss.n, dtype,
                          loss.summed ? "that of the sum" : "one an element of X");
  loss.out = context.set_output("X@GRAD", context.in("X").shape, dtype);
  return loss;
}

LabelSmoothing label_smoothing_of(PrepareContext& context, DType dtype) {
  const Shape shape = context.in("X").shape;
  context.require(shape.rank() >= 1, "X", "[..., classes]", shape.to_string());
  LabelSmoothing smoothing{
      .n = shape.numel(),
      .classes = shape[-1],
      .epsilon = static_cast<double>(context.attrs<LabelSmoothAttrs>().epsilon),
      .x = context.input("X"),
      .out = context.set_output("Out", shape, dtype)};
  if (context.has_input("PriorDist")) {
    smoothing.prior = sized_input(context, "PriorDist", smoothing.classes, dtype, "one a class");
  }
  return smoothing;
}

}  // namespace fleet::fluid
