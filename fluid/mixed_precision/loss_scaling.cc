#include "fluid/mixed_precision/loss_scaling.h"

#include <cmath>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/control_flow.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"

namespace fleet::fluid::mixed_precision {
namespace {

void require(bool holds, const char* field, const char* expected, double got) {
  if (holds) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "loss scaling cannot work like this",
               .where = str_cat("LossScalingOptions::", field),
               .expected = expected,
               .got = str_cat(got),
               .fix = str_cat("correct ", field, ", or leave it at its default")});
}

Variable make_state(const char* name, double value, DType dtype) {
  return layers::create_global_var(Shape{1}, value, dtype,
                                   {.persistable = true, .name = unique_name::generate(name)});
}

Variable constant(double value, DType dtype) {
  return layers::fill_constant(Shape{1}, dtype, value);
}

bool is_rows(const Variable& grad) {
  return grad.desc().kind == VarKind::kSelectedRows;
}

// One number that is finite if all elements are.
Variable sum_of(const Variable& grad) {
  if (!is_rows(grad)) return layers::reduce_sum(grad);
  const LayerHelper helper("get_tensor_from_selected_rows");
  return layers::reduce_sum(helper.append_unary("get_tensor_from_selected_rows", grad));
}

void set_to_zero(const Variable& grad) {
  if (!is_rows(grad)) {
    layers::assign(layers::zeros_like(grad), grad);
    return;
  }
  const LayerHelper helper("zeros_like");
  helper.append("fill_zeros_like", {{"X", {grad.name()}}}, {{"Out", {grad.name()}}});
}

}  // namespace

void validate(const LossScalingOptions& options) {
  const double factor = options.init_loss_scaling;
  require(std::isfinite(factor) && factor > 0, "init_loss_scaling", "a number above 0", factor);
  if (!options.use_dynamic_loss_scaling) return;
  require(options.incr_every_n_steps >= 1, "incr_every_n_steps", "1 or more",
          options.incr_every_n_steps);
  require(options.decr_every_n_nan_or_inf >= 1, "decr_every_n_nan_or_inf", "1 or more",
          options.decr_every_n_nan_or_inf);
  require(std::isfinite(options.incr_ratio) && options.incr_ratio > 1, "incr_ratio", "above 1",
          options.incr_ratio);
  require(options.decr_ratio > 0 && options.decr_ratio < 1, "decr_ratio", "between 0 and 1",
          options.decr_ratio);
}

LossScaling::LossScaling(const LossScalingOptions& options)
    : options_(options),
      factor_(make_state("loss_scaling", options.init_loss_scaling, DType::kFloat32)) {
  if (!options.use_dynamic_loss_scaling) return;
  good_steps_ = make_state("num_good_steps", 0, DType::kInt32);
  bad_steps_ = make_state("num_bad_steps", 0, DType::kInt32);
}

Variable LossScaling::scaled(const Variable& loss) const {
  return loss * factor_;
}

std::vector<ParamGrad> LossScaling::unscaled(const std::vector<ParamGrad>& pairs) const {
  Program& program = factor_.program();
  Variable inverse;
  std::vector<ParamGrad> result;
  for (const auto& [param, grad] : pairs) {
    const RoleGuard role(program, OpRole::kOptimize, {param.name(), grad.name()});
    if (!is_rows(grad)) {
      result.push_back({param, grad / factor_});
      continue;
    }
    if (!inverse) inverse = 1.0 / factor_;
    const Variable divided = grad * inverse;
    divided.edit().kind = VarKind::kSelectedRows;
    result.push_back({param, divided});
  }
  return result;
}

void LossScaling::follow(const std::vector<ParamGrad>& pairs) const {
  if (!options_.use_dynamic_loss_scaling) return;
  using layers::assign;
  const RoleGuard role(factor_.program(), OpRole::kOptimize);
  const Variable most_good = constant(options_.incr_every_n_steps, DType::kInt32);
  const Variable most_bad = constant(options_.decr_every_n_nan_or_inf, DType::kInt32);
  std::vector<Variable> sums;
  sums.reserve(pairs.size());
  for (const ParamGrad& pair : pairs) sums.push_back(sum_of(pair.grad));
  const Variable finite = layers::isfinite(layers::reduce_sum(layers::concat(sums)));
  const Variable zero = constant(0, DType::kInt32);
  const auto count_anew = [&] {
    assign(zero, good_steps_);
    assign(zero, bad_steps_);
  };

  layers::Switch update;
  update.when(finite, [&] {
    layers::Switch by_count;
    by_count.when(layers::less_than(most_good, good_steps_ + 1.0), [&] {
      const Variable larger = factor_ * options_.incr_ratio;
      layers::Switch by_size;
      by_size.when(layers::isfinite(larger), [&] { assign(larger, factor_); });
      by_size.otherwise([] {});
      count_anew();
    });
    by_count.otherwise([&] {
      layers::increment(good_steps_);
      assign(zero, bad_steps_);
    });
  });
  update.otherwise([&] {
    layers::Switch by_count;
    by_count.when(layers::less_than(most_bad, bad_steps_ + 1.0), [&] {
      const Variable smaller = factor_ * options_.decr_ratio;
      const Variable one = constant(1.0, DType::kFloat32);
      layers::Switch by_size;
      by_size.when(layers::less_than(smaller, one), [&] { assign(one, factor_); });
      by_size.otherwise([&] { assign(smaller, factor_); });
      count_anew();
    });
    by_count.otherwise([&] {
      assign(zero, good_steps_);
      layers::increment(bad_steps_);
    });
  });

  layers::Switch skip;
  skip.when(finite, [] {});
  skip.otherwise([&] {
    for (const ParamGrad& pair : pairs) set_to_zero(pair.grad);
  });
}

}  // namespace fleet::fluid::mixed_precision
