#include "fluid/ops/math/scale.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

std::vector<Operator> scale_gradient(const GradContext& context) {
  Operator op;
  op.type = "scale";
  op.inputs["X"] = context.grad_of_output("Out");
  set_slot(op.inputs, "ScaleTensor", context.input("ScaleTensor"));
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  const auto scale = context.forward().attrs.find("scale");
  if (scale != context.forward().attrs.end()) op.attrs["scale"] = scale->second;
  return {op};
}

void infer_scale(InferContext& context) {
  require_number(context, "ScaleTensor", context.input("X").dtype);
  context.share("X", "Out");
}

void infer_increment(InferContext& context) {
  const Shape& shape = context.input("X").shape;
  context.require(shape.numel() == 1, "X", "one element", shape.to_string());
  context.share("X", "Out");
}

void infer_clip(InferContext& context) {
  const auto attrs = context.attrs<ClipAttrs>();
  const bool given = context.has_input("Min") || context.has_input("Max");
  for (const char* slot : {"Min", "Max"}) require_number(context, slot, context.input("X").dtype);
  context.require(given || attrs.min < attrs.max, "X", "min < max",
                  str_cat("min ", attrs.min, ", max ", attrs.max), "swap the bounds");
  context.share("X", "Out");
}

}  // namespace

void add_scale_ops(OpTable& table) {
  table.add(make_schema<ScaleAttrs>("scale", {one("X"), maybe("ScaleTensor")}, {one("Out")},
                                    infer_scale, scale_gradient));
  table.add(make_schema<IncrementAttrs>("increment", {one("X")}, {one("Out")}, infer_increment));
  table.add(make_schema<ClipAttrs>("clip", {one("X"), maybe("Min"), maybe("Max")}, {one("Out")},
                                   infer_clip, usual_gradient({.inputs = {"X", "Min", "Max"}})));
  table.add(make_schema<ClipAttrs>("clip_grad",
                                   {one("X"), maybe("Min"), maybe("Max"), one("Out@GRAD")},
                                   {one("X@GRAD")}, infer_shape_like({{"X", "X@GRAD"}})));
  OpSchema clip = make_schema<ClipByNormAttrs>("clip_by_norm", {one("X"), maybe("SquaredRowSums")},
                                               {one("Out")}, infer_like({{"X", "Out"}}));
  clip.norms = {{"X", "SquaredRowSums"}};
  table.add(std::move(clip));
}

}  // namespace fleet::fluid
