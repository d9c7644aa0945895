#include "fluid/ops/nn/dropout.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_dropout(InferContext& context) {
  const auto attrs = context.attrs<DropoutAttrs>();
  context.require(attrs.dropout_prob >= 0 && attrs.dropout_prob <= 1, "X", "dropout_prob in [0, 1]",
                  str_cat(attrs.dropout_prob), "give a probability");
  context.require(attrs.upscales() || attrs.dropout_implementation == "downgrade_in_infer", "X",
                  "dropout_implementation downgrade_in_infer or upscale_in_train",
                  attrs.dropout_implementation, "use one of the two");
  require_number(context, "Seed", DType::kInt32);
  context.share("X", "Out");
  if (attrs.is_test) return;  // Paddle's models say nothing of a mask that is not made
  context.set_output("Mask", context.input("X").shape, DType::kUInt8);
}

}  // namespace

void add_dropout_ops(OpTable& table) {
  table.add(draws_numbers(make_schema<DropoutAttrs>(
      "dropout", {one("X"), maybe_attribute("Seed")}, {one("Out"), maybe("Mask")}, infer_dropout,
      usual_gradient({.inputs = {}, .outputs = {"Mask"}}))));
  table.add(make_schema<DropoutAttrs>("dropout_grad", {one("Mask"), typed(one("Out@GRAD"))},
                                      {one("X@GRAD")}, infer_like({{"Out@GRAD", "X@GRAD"}})));
}

}  // namespace fleet::fluid
