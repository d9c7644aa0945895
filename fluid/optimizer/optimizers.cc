#include "fluid/ops/optimize.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid::optimizer {

SGD::SGD(SGDOptions options)
    : Optimizer("sgd",
                {options.learning_rate, options.regularization, options.grad_clip, options.name}) {}

void SGD::append_update(const Context& context, const ParamGrad& pair) {
  const std::string param = pair.param.name();
  append(context,
         {{"Param", {param}},
          {"Grad", {pair.grad.name()}},
          {"LearningRate", {rate_of(context, pair.param).name()}}},
         {{"ParamOut", {param}}});
}

Momentum::Momentum(MomentumOptions options)
    : Optimizer("momentum",
                {options.learning_rate, options.regularization, options.grad_clip, options.name}),
      momentum_(options.momentum),
      use_nesterov_(options.use_nesterov) {}

void Momentum::create_accumulators(const Context& context, const Variable& param) {
  add_accumulator(context, "velocity", param);
}

void Momentum::append_update(const Context& context, const ParamGrad& pair) {
  const std::string param = pair.param.name();
  const std::string velocity = accumulator(context, "velocity", pair.param).name();
  append(context,
         {{"Param", {param}},
          {"Grad", {pair.grad.name()}},
          {"Velocity", {velocity}},
          {"LearningRate", {rate_of(context, pair.param).name()}}},
         {{"ParamOut", {param}}, {"VelocityOut", {velocity}}},
         to_attributes(
             MomentumAttrs{.mu = static_cast<float>(momentum_), .use_nesterov = use_nesterov_}));
}

Adam::Adam(AdamOptions options)
    : Optimizer("adam",
                {options.learning_rate, options.regularization, options.grad_clip, options.name}),
      options_(std::move(options)) {}

void Adam::create_accumulators(const Context& context, const Variable& param) {
  add_accumulator(context, "moment1", param);
  add_accumulator(context, "moment2", param);
  add_accumulator(context, "beta1_pow_acc", param,
                  {.fill_value = options_.beta1, .shape = Shape{1}, .on_host = true});
  add_accumulator(context, "beta2_pow_acc", param,
                  {.fill_value = options_.beta2, .shape = Shape{1}, .on_host = true});
}

void Adam::append_update(const Context& context, const ParamGrad& pair) {
  const std::string param = pair.param.name();
  const std::string moment1 = accumulator(context, "moment1", pair.param).name();
  const std::string moment2 = accumulator(context, "moment2", pair.param).name();
  const std::string beta1_pow = accumulator(context, "beta1_pow_acc", pair.param).name();
  const std::string beta2_pow = accumulator(context, "beta2_pow_acc", pair.param).name();
  append(context,
         {{"Param", {param}},
          {"Grad", {pair.grad.name()}},
          {"LearningRate", {rate_of(context, pair.param).name()}},
          {"Moment1", {moment1}},
          {"Moment2", {moment2}},
          {"Beta1Pow", {beta1_pow}},
          {"Beta2Pow", {beta2_pow}}},
         {{"ParamOut", {param}},
          {"Moment1Out", {moment1}},
          {"Moment2Out", {moment2}},
          {"Beta1PowOut", {beta1_pow}},
          {"Beta2PowOut", {beta2_pow}}},
         to_attributes(AdamAttrs{.beta1 = static_cast<float>(options_.beta1),
                                 .beta2 = static_cast<float>(options_.beta2),
                                 .epsilon = static_cast<float>(options_.epsilon),
                                 .lazy_mode = options_.lazy_mode}));
}

}  // namespace fleet::fluid::optimizer
