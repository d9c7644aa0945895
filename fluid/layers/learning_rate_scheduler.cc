#include "fluid/layers/learning_rate_scheduler.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/control_flow.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/distributed/names.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/shape/fill.h"

namespace fleet::fluid::layers {
namespace {

// The step as float32.
Variable step_counter(int64_t begin = 0) {
  return cast(autoincreased_step_counter(kStepCounter, begin), DType::kFloat32);
}

enum class Rounding : uint8_t { kNone, kDown, kUp };

// step / steps as a product with a float32, so rounded that a multiple of `steps` does not slip
// over the edge of floor (kDown) or ceil (kUp).
Variable divide(const Variable& step, double steps, Rounding rounding, DecayForm form) {
  float factor = static_cast<float>(1.0 / steps);
  const double error = static_cast<double>(factor) * steps - 1.0;
  if (form == DecayForm::kExact && rounding == Rounding::kDown && error < 0) {
    factor = std::nextafter(factor, std::numeric_limits<float>::infinity());
  }
  if (form == DecayForm::kExact && rounding == Rounding::kUp && error > 0) {
    factor = std::nextafter(factor, 0.0f);
  }
  if (rounding == Rounding::kNone || form == DecayForm::kPaddle) return step / steps;
  return step * static_cast<double>(factor);
}

Variable decay_quotient(double decay_steps, bool staircase, DecayForm form) {
  if (!staircase) return step_counter() / decay_steps;
  return floor(divide(step_counter(), decay_steps, Rounding::kDown, form));
}

// A persistable variable [1] that blocks assign to.
Variable make_rate(const char* name) {
  return create_global_var(Shape{1}, 0.0, DType::kFloat32, {.persistable = true, .name = name});
}

Variable compare(const char* type, const Variable& x, const Variable& y) {
  Block& block = x.program().current_block();
  VarDesc desc;
  desc.name = unique_name::generate("tmp");
  desc.dtype = DType::kBool;
  const Variable out(block, block.add_var(std::move(desc)));
  Operator op;
  op.type = type;
  op.inputs = {{"X", {x.name()}}, {"Y", {y.name()}}};
  op.outputs["Out"] = {out.name()};
  append_op(block, std::move(op));
  return out;
}

// A number as an operand, named like the result of an operator.
Variable number(double value) {
  Block& block = default_main_program().current_block();
  VarDesc desc;
  desc.name = unique_name::generate("tmp");
  const Variable out(block, block.add_var(std::move(desc)));
  Operator op;
  op.type = "fill_constant";
  op.outputs["Out"] = {out.name()};
  op.attrs = to_attributes(FillConstantAttrs{.shape = {1}, .value = static_cast<float>(value)});
  append_op(block, std::move(op));
  out.set_stop_gradient(true);
  return out;
}

RoleGuard schedule_role() {
  return RoleGuard(default_main_program(), OpRole::kLrSched);
}

}  // namespace

Variable autoincreased_step_counter(const std::string& counter_name, int64_t begin, int64_t step) {
  const LayerHelper helper("global_step_counter");
  Block& block = helper.main().global_block();
  if (VarDesc* there = block.find_var(counter_name)) return Variable(block, *there);
  VarDesc desc;
  desc.name = counter_name;
  desc.dtype = DType::kInt64;
  desc.shape = Shape{1};
  desc.persistable = true;
  desc.stop_gradient = true;
  const Variable counter = helper.global(std::move(desc));
  helper.initialize(counter, initializer::Constant{.value = static_cast<double>(begin - step),
                                                   .force_cpu = true});
  Operator op;
  op.type = "increment";
  op.inputs["X"] = {counter_name};
  op.outputs["Out"] = {counter_name};
  op.attrs = to_attributes(IncrementAttrs{.step = static_cast<float>(step)});
  insert_op(block, 0, std::move(op));
  return counter;
}

Variable exponential_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase, DecayForm form) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase, form);
  return learning_rate * pow(decay_rate, quotient);
}

Variable natural_exp_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase, DecayForm form) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase, form);
  return learning_rate * exp((-1.0 * decay_rate) * quotient);
}

Variable inverse_time_decay(double learning_rate, double decay_steps, double decay_rate,
                            bool staircase, DecayForm form) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase, form);
  return learning_rate / (1.0 + decay_rate * quotient);
}

Variable polynomial_decay(double learning_rate, double decay_steps, double end_learning_rate,
                          double power, bool cycle, DecayForm form) {
  const RoleGuard guard = schedule_role();
  Variable step = step_counter();
  const auto rate = [&](const Variable& done) {
    return (learning_rate - end_learning_rate) * pow(1.0 - done, power) + end_learning_rate;
  };
  if (!cycle) {
    step = elementwise_min(step, fill_constant(Shape{1}, DType::kFloat32, decay_steps));
    return rate(step / decay_steps);
  }
  const Variable cycles = ceil(divide(step, decay_steps, Rounding::kUp, form));
  const Variable zero = fill_constant(Shape{1}, DType::kFloat32, 0.0);
  const Variable one = fill_constant(Shape{1}, DType::kFloat32, 1.0);
  Switch first_step;
  first_step.when(compare("equal", step, zero), [&] { assign(one, cycles); });
  return rate(step / (decay_steps * cycles));
}

Variable piecewise_decay(const std::vector<double>& boundaries, const std::vector<double>& values) {
  if (values.size() != boundaries.size() + 1 || boundaries.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "a piecewise rate needs one value more than boundaries",
                 .where = "piecewise_decay",
                 .expected = str_cat(boundaries.size() + 1, " values"),
                 .got = str_cat(boundaries.size(), " boundaries, ", values.size(), " values"),
                 .fix = "give the rate before each boundary, and the last one"});
  }
  const RoleGuard guard = schedule_role();
  const Variable step = step_counter();
  const Variable rate = make_rate("learning_rate");
  Switch cases;
  for (size_t i = 0; i < boundaries.size(); ++i) {
    const Variable boundary = fill_constant(Shape{1}, DType::kFloat32, boundaries[i], true);
    const Variable value = fill_constant(Shape{1}, DType::kFloat32, values[i]);
    cases.when(compare("less_than", step, boundary), [&] { assign(value, rate); });
  }
  const Variable last = fill_constant(Shape{1}, DType::kFloat32, values.back());
  cases.otherwise([&] { assign(last, rate); });
  return rate;
}

Variable cosine_decay(double learning_rate, double step_each_epoch, double epochs, DecayForm form) {
  const RoleGuard guard = schedule_role();
  const Variable epoch = floor(divide(step_counter(), step_each_epoch, Rounding::kDown, form));
  return (learning_rate * 0.5) * (cos(epoch * std::numbers::pi / epochs) + 1.0);
}

Variable noam_decay(double d_model, double warmup_steps, double learning_rate) {
  const RoleGuard guard = schedule_role();
  const Variable step = step_counter(1);
  const Variable falling = pow(step, -0.5);
  const Variable rising = std::pow(warmup_steps, -1.5) * step;
  return (learning_rate * std::pow(d_model, -0.5)) * elementwise_min(falling, rising);
}

Variable linear_lr_warmup(const Real& learning_rate, double warmup_steps, double start_lr,
                          double end_lr) {
  const RoleGuard guard = schedule_role();
  const Variable rate = make_rate("learning_rate_warmup");
  const Variable step = step_counter();
  Switch cases;
  cases.when(compare("less_than", step, number(warmup_steps)), [&] {
    const Variable risen = (end_lr - start_lr) * (step / warmup_steps) + start_lr;
    assign(risen, rate);
  });
  cases.otherwise([&] {
    const bool known = learning_rate.known();
    assign(known ? fill_constant(Shape{1}, DType::kFloat32, learning_rate.value())
                 : learning_rate.variable(),
           rate);
  });
  return rate;
}

}  // namespace fleet::fluid::layers
