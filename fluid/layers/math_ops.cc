#include "fluid/layers/math_ops.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/append.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

// Results live where the left operand's program is being built.
Variable make_tmp(const Variable& like) {
  Block& block = like.program().current_block();
  VarDesc desc;
  desc.name = unique_name::generate("tmp");
  desc.dtype = like.dtype();
  return Variable(block, block.add_var(std::move(desc)));
}

void check_operand(const Variable& x, std::string_view operation) {
  if (x) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "an operand is an empty variable",
                                            .where = str_cat("operator ", operation),
                                            .expected = "what a layer returned",
                                            .got = "Variable()",
                                            .fix = "pass a variable"});
}

Variable scaled(const Variable& x, double scale, double bias, std::string_view operation) {
  check_operand(x, operation);
  const Variable out = make_tmp(x);
  Operator op;
  op.type = "scale";
  op.inputs["X"] = {x.name()};
  op.outputs["Out"] = {out.name()};
  op.attrs = to_attributes(ScaleAttrs{.scale = scale, .bias = bias});
  append_op(out.block(), std::move(op));
  return out;
}

Variable filled(const Variable& like, const Shape& shape, double value) {
  if (!shape.known()) {
    throw_error(ErrorCode::kShapeMismatch,
                {.what = "a number cannot take a shape that is not known yet",
                 .where = str_cat("an operator with variable '", like.name(), "' on the right"),
                 .expected = "a variable of known shape",
                 .got = shape.to_string(),
                 .fix = "write it with the variable on the left"});
  }
  const Variable out = make_tmp(like);
  Operator op;
  op.type = "fill_constant";
  op.outputs["Out"] = {out.name()};
  op.attrs = to_attributes(FillConstantAttrs{
      .shape = shape.to_vector(), .dtype = like.dtype(), .value = static_cast<float>(value)});
  append_op(out.block(), std::move(op));
  out.set_stop_gradient(true);
  return out;
}

Variable combined(const char* type, const Variable& x, const Variable& y, bool compares = false) {
  check_operand(x, type);
  check_operand(y, type);
  const Variable out = make_tmp(x);
  if (compares) out.edit().dtype = DType::kBool;
  const bool batch_first = y.shape().rank() > 0 && y.shape()[0] < 0;
  Operator op;
  op.type = type;
  op.inputs = {{"X", {x.name()}}, {"Y", {y.name()}}};
  op.outputs["Out"] = {out.name()};
  op.attrs = to_attributes(ElementwiseAttrs{.axis = batch_first ? 0 : -1});
  append_op(out.block(), std::move(op));
  return out;
}

}  // namespace

Variable operator+(const Variable& x, const Variable& y) {
  return combined("elementwise_add", x, y);
}
Variable operator-(const Variable& x, const Variable& y) {
  return combined("elementwise_sub", x, y);
}
Variable operator*(const Variable& x, const Variable& y) {
  return combined("elementwise_mul", x, y);
}
Variable operator/(const Variable& x, const Variable& y) {
  return combined("elementwise_div", x, y);
}

Variable operator+(const Variable& x, double y) {
  return scaled(x, 1.0, y, "+");
}
Variable operator-(const Variable& x, double y) {
  return scaled(x, 1.0, -y, "-");
}
Variable operator*(const Variable& x, double y) {
  return scaled(x, y, 0.0, "*");
}
Variable operator/(const Variable& x, double y) {
  check_operand(x, "/");
  if (is_floating(x.dtype())) return scaled(x, 1.0 / y, 0.0, "/");
  return combined("elementwise_div", x, filled(x, Shape{1}, y));
}

Variable operator+(double x, const Variable& y) {
  return y + x;
}
Variable operator-(double x, const Variable& y) {
  return scaled(y, -1.0, x, "-");
}
Variable operator*(double x, const Variable& y) {
  return y * x;
}
Variable operator/(double x, const Variable& y) {
  check_operand(y, "/");
  return combined("elementwise_div", filled(y, y.shape(), x), y);
}

Variable operator-(const Variable& x) {
  return scaled(x, -1.0, 0.0, "-");
}

Variable operator<(const Variable& x, const Variable& y) {
  return combined("less_than", x, y, true);
}
Variable operator<=(const Variable& x, const Variable& y) {
  return combined("less_equal", x, y, true);
}
Variable operator>(const Variable& x, const Variable& y) {
  return combined("greater_than", x, y, true);
}
Variable operator>=(const Variable& x, const Variable& y) {
  return combined("greater_equal", x, y, true);
}

namespace layers {

Variable pow(const Variable& x, double y) {
  check_operand(x, "pow");
  return combined("elementwise_pow", x, filled(x, Shape{1}, y));
}
Variable pow(double x, const Variable& y) {
  check_operand(y, "pow");
  return combined("elementwise_pow", filled(y, y.shape(), x), y);
}

}  // namespace layers
}  // namespace fleet::fluid
