#include "fluid/ops/loss/loss.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_softmax(InferContext& context) {
  const VarDesc& x = context.input("X");
  check_axis(context, context.attrs<SoftmaxAttrs>().axis, x.shape.rank(), "X");
  context.share("X", "Out");
}

// Labels fit `x`: indices with last dimension 1, or a distribution of the same shape.
void check_label(const InferContext& context, std::string_view x_slot, bool soft, int axis) {
  const VarDesc& x = context.input(x_slot);
  const VarDesc& label = context.input("Label");
  Shape wanted = x.shape;
  if (!soft) wanted.set(axis, 1);
  context.require(label.shape.compatible(wanted), "Label",
                  str_cat(wanted, soft ? ", the shape of the predictions" : ", one index a row"),
                  label.shape.to_string(),
                  soft ? "give a distribution per row, or leave soft_label off"
                       : "give labels a last dimension of 1, or set soft_label");
  if (soft) {
    context.require_dtype("Label", x.dtype);
  } else {
    context.require_dtype("Label", DType::kInt64);
  }
}

void infer_cross_entropy(InferContext& context) {
  const VarDesc& x = context.input("X");
  check_axis(context, -1, x.shape.rank(), "X");
  check_label(context, "X", context.attrs<CrossEntropyAttrs>().soft_label, -1);
  Shape out = x.shape;
  out.set(-1, 1);
  context.set_output("Y", out, x.dtype, 0, x.lod_level);
}

void infer_cross_entropy2(InferContext& context) {
  const VarDesc& x = context.input("X");
  check_axis(context, -1, x.shape.rank(), "X");
  check_label(context, "X", false, -1);
  Shape out = x.shape;
  out.set(-1, 1);
  Shape carried = x.shape;
  carried.push_back(0);
  context.set_output("Y", out, x.dtype, 0, x.lod_level);
  context.set_output("MatchX", out, x.dtype);
  context.set_output("XShape", carried, x.dtype, 0, x.lod_level);
}

void infer_cross_entropy2_grad(InferContext& context) {
  const VarDesc& carried = context.input("XShape");
  const int rank = carried.shape.rank() - 1;
  context.require(rank >= 1, "XShape", "X's shape and a 0", carried.shape.to_string());
  const Shape shape(carried.shape.dims().first(static_cast<size_t>(rank)));
  context.set_output("X@GRAD", shape, carried.dtype, 0, carried.lod_level);
}

void infer_softmax_with_cross_entropy(InferContext& context) {
  const VarDesc& logits = context.input("Logits");
  const auto attrs = context.attrs<SoftmaxWithCrossEntropyAttrs>();
  const int axis = check_axis(context, attrs.axis, logits.shape.rank(), "Logits");
  check_label(context, "Logits", attrs.soft_label, axis);
  Shape loss = logits.shape;
  loss.set(axis, 1);
  context.share("Logits", "Softmax");
  context.set_output("Loss", loss, logits.dtype, 0, logits.lod_level);
}

}  // namespace

void add_loss_ops(OpTable& table) {
  table.add(make_schema<SoftmaxAttrs>("softmax", {one("X")}, {one("Out")}, infer_softmax,
                                      usual_gradient({.inputs = {}, .outputs = {"Out"}})));
  table.add(make_schema<SoftmaxAttrs>("softmax_grad", {one("Out"), typed(one("Out@GRAD"))},
                                      {one("X@GRAD")}, infer_shape_like({{"Out", "X@GRAD"}})));

  table.add(make_schema<CrossEntropyAttrs>(
      "cross_entropy", {one("X"), one("Label")}, {one("Y")}, infer_cross_entropy,
      usual_gradient({.inputs = {"X", "Label"}, .incoming = {"Y"}})));
  table.add(make_schema<CrossEntropyAttrs>("cross_entropy_grad",
                                           {one("X"), one("Label"), one("Y@GRAD")}, {one("X@GRAD")},
                                           infer_like({{"X", "X@GRAD"}})));

  table.add(make_schema<CrossEntropy2Attrs>("cross_entropy2", {one("X"), one("Label")},
                                            {one("Y"), one("MatchX"), one("XShape")},
                                            infer_cross_entropy2,
                                            usual_gradient({.inputs = {"Label"},
                                                            .outputs = {"MatchX", "XShape"},
                                                            .incoming = {"Y"},
                                                            .type = "cross_entropy_grad2"})));
  table.add(make_schema<CrossEntropy2Attrs>(
      "cross_entropy_grad2", {one("Label"), one("MatchX"), one("XShape"), typed(one("Y@GRAD"))},
      {one("X@GRAD")}, infer_cross_entropy2_grad));

  table.add(make_schema<SoftmaxWithCrossEntropyAttrs>(
      "softmax_with_cross_entropy", {one("Logits"), one("Label")}, {one("Softmax"), one("Loss")},
      infer_softmax_with_cross_entropy,
      usual_gradient({.inputs = {"Label"},
                      .outputs = {"Softmax"},
                      .incoming = {"Loss"},
                      .wanted = {"Logits"}})));
  table.add(make_schema<SoftmaxWithCrossEntropyAttrs>(
      "softmax_with_cross_entropy_grad", {one("Label"), one("Softmax"), typed(one("Loss@GRAD"))},
      {one("Logits@GRAD")}, infer_shape_like({{"Softmax", "Logits@GRAD"}})));
}

}  // namespace fleet::fluid
