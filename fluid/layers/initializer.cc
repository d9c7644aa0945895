#include "fluid/layers/initializer.h"

#include <cmath>
#include <utility>

#include "fluid/ops/append.h"
#include "fluid/ops/fill.h"

namespace fleet::fluid {
namespace {

std::pair<double, double> fans(const Shape& shape) {
  if (shape.rank() == 0) return {1.0, 1.0};
  const auto first = static_cast<double>(shape[0]);
  if (shape.rank() == 1) return {first, first};
  const auto second = static_cast<double>(shape[1]);
  if (shape.rank() == 2) return {first, second};
  const auto field = static_cast<double>(shape.numel(2, shape.rank()));
  return {second * field, first * field};
}

Operator uniform_op(const VarDesc& var, double low, double high, int32_t seed) {
  Operator op;
  op.type = "uniform_random";
  op.attrs = to_attributes(UniformRandomAttrs{.shape = var.shape.to_vector(),
                                              .dtype = var.dtype,
                                              .min = static_cast<float>(low),
                                              .max = static_cast<float>(high),
                                              .seed = seed});
  return op;
}

Operator normal_op(const VarDesc& var, double loc, double scale, int32_t seed) {
  Operator op;
  op.type = "gaussian_random";
  op.attrs = to_attributes(GaussianRandomAttrs{.shape = var.shape.to_vector(),
                                               .dtype = var.dtype,
                                               .mean = static_cast<float>(loc),
                                               .std = static_cast<float>(scale),
                                               .seed = seed});
  return op;
}

struct MakeOp {
  const VarDesc& var;

  Operator operator()(const initializer::Constant& how) const {
    Operator op;
    op.type = "fill_constant";
    op.attrs = to_attributes(FillConstantAttrs{.shape = var.shape.to_vector(),
                                               .dtype = var.dtype,
                                               .value = static_cast<float>(how.value),
                                               .force_cpu = how.force_cpu,
                                               .op_device = how.op_device});
    return op;
  }
  Operator operator()(const initializer::Uniform& how) const {
    return uniform_op(var, how.low, how.high, how.seed);
  }
  Operator operator()(const initializer::Normal& how) const {
    return normal_op(var, how.loc, how.scale, how.seed);
  }
  Operator operator()(const initializer::Xavier& how) const {
    const auto [in, out] = fans(var.shape);
    const double sum = how.fan_in.value_or(in) + how.fan_out.value_or(out);
    if (!how.uniform) return normal_op(var, 0.0, std::sqrt(2.0 / sum), how.seed);
    const double limit = std::sqrt(6.0 / sum);
    return uniform_op(var, -limit, limit, how.seed);
  }
};

}  // namespace

void prepend_initializer(Program& startup, const VarDesc& var, const Initializer& how) {
  Operator op = std::visit(MakeOp{var}, how);
  op.outputs["Out"] = {var.name};
  insert_op(startup.global_block(), 0, std::move(op));
}

}  // namespace fleet::fluid
