#include "fluid/layers/learning_rate_scheduler.h"

#include <cmath>
#include <numbers>

#include "fluid/layers/layer_helper.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/scale.h"

namespace fleet::fluid::layers {
namespace {

constexpr const char* kCounterName = "@LR_DECAY_COUNTER@";

// The step as float32; the first call in a program makes the counter, which `begin` starts.
Variable step_counter(int begin = 0) {
  const LayerHelper helper("global_step_counter");
  Block& block = helper.main().global_block();
  if (VarDesc* there = block.find_var(kCounterName)) {
    return cast(Variable(block, *there), DType::kFloat32);
  }
  VarDesc desc;
  desc.name = kCounterName;
  desc.dtype = DType::kInt64;
  desc.shape = Shape{1};
  desc.persistable = true;
  desc.stop_gradient = true;
  const Variable counter = helper.global(std::move(desc));
  const initializer::Constant before_first{.value = begin - 1.0, .force_cpu = true};
  helper.initialize(counter, before_first);
  Operator op;
  op.type = "increment";
  op.inputs["X"] = {counter.name()};
  op.outputs["Out"] = {counter.name()};
  op.attrs = to_attributes(IncrementAttrs{.step = 1.0f});
  insert_op(block, 0, std::move(op));
  return cast(counter, DType::kFloat32);
}

Variable decay_quotient(double decay_steps, bool staircase) {
  const Variable quotient = step_counter() / decay_steps;
  return staircase ? floor(quotient) : quotient;
}

RoleGuard schedule_role() {
  return RoleGuard(default_main_program(), OpRole::kLrSched);
}

}  // namespace

Variable exponential_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase);
  return learning_rate * pow(decay_rate, quotient);
}

Variable natural_exp_decay(double learning_rate, double decay_steps, double decay_rate,
                           bool staircase) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase);
  return learning_rate * exp((-1.0 * decay_rate) * quotient);
}

Variable inverse_time_decay(double learning_rate, double decay_steps, double decay_rate,
                            bool staircase) {
  const RoleGuard guard = schedule_role();
  const Variable quotient = decay_quotient(decay_steps, staircase);
  return learning_rate / (1.0 + decay_rate * quotient);
}

Variable polynomial_decay(double learning_rate, double decay_steps, double end_learning_rate,
                          double power) {
  const RoleGuard guard = schedule_role();
  Variable step = step_counter();
  step = elementwise_min(step, fill_constant(Shape{1}, DType::kFloat32, decay_steps));
  return (learning_rate - end_learning_rate) * pow(1.0 - step / decay_steps, power) +
         end_learning_rate;
}

Variable cosine_decay(double learning_rate, double step_each_epoch, double epochs) {
  const RoleGuard guard = schedule_role();
  const Variable epoch = floor(step_counter() / step_each_epoch);
  return (learning_rate * 0.5) * (cos(epoch * std::numbers::pi / epochs) + 1.0);
}

Variable noam_decay(double d_model, double warmup_steps, double learning_rate) {
  const RoleGuard guard = schedule_role();
  const Variable step = step_counter(1);
  const Variable falling = pow(step, -0.5);
  const Variable rising = std::pow(warmup_steps, -1.5) * step;
  return (learning_rate * std::pow(d_model, -0.5)) * elementwise_min(falling, rising);
}

}  // namespace fleet::fluid::layers
