#include "fluid/ops/append.h"
#include "fluid/ops/math/scale.h"
#include "fluid/ops/optimize/optimize.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid::optimizer {
namespace {

// Of Adam, where variables give them.
constexpr double kBeta1 = 0.9;
constexpr double kBeta2 = 0.999;

float f(double value) {
  return static_cast<float>(value);
}

// Those that are variables.
std::map<std::string, Variable> variables_of(const std::map<std::string, layers::Real>& given) {
  std::map<std::string, Variable> found;
  for (const auto& [slot, number] : given) {
    if (!number.known()) found[slot] = number.variable();
  }
  return found;
}

}  // namespace

SGD::SGD(const SGDOptions& options) : Optimizer({.type = "sgd"}, common_of(options)) {}

Momentum::Momentum(const MomentumOptions& options)
    : Optimizer({.type = "momentum",
                 .states = {{"Velocity", "VelocityOut", "velocity"}},
                 .attrs = to_attributes(MomentumAttrs{.mu = f(options.momentum),
                                                      .use_nesterov = options.use_nesterov})},
                common_of(options)) {}

LarsMomentum::LarsMomentum(const LarsMomentumOptions& options)
    : Optimizer({.type = "lars_momentum",
                 .states = {{"Velocity", "VelocityOut", "velocity"}},
                 .attrs = to_attributes(
                     LarsMomentumAttrs{.mu = f(options.momentum),
                                       .lars_coeff = f(options.lars_coeff),
                                       .lars_weight_decay = f(options.lars_weight_decay)})},
                common_of(options)) {}

Adagrad::Adagrad(const AdagradOptions& options)
    : Optimizer({.type = "adagrad",
                 .states = {{"Moment", "MomentOut", "moment", options.initial_accumulator_value}},
                 .attrs = to_attributes(AdagradAttrs{.epsilon = f(options.epsilon)})},
                common_of(options)) {}

DecayedAdagrad::DecayedAdagrad(const DecayedAdagradOptions& options)
    : Optimizer({.type = "decayed_adagrad",
                 .states = {{"Moment", "MomentOut", "moment"}},
                 .attrs = to_attributes(DecayedAdagradAttrs{.decay = f(options.decay),
                                                            .epsilon = f(options.epsilon)})},
                common_of(options)) {}

Adadelta::Adadelta(const AdadeltaOptions& options)
    : Optimizer({.type = "adadelta",
                 .states = {{"AvgSquaredGrad", "AvgSquaredGradOut", "_avg_squared_grad"},
                            {"AvgSquaredUpdate", "AvgSquaredUpdateOut", "_avg_squared_update"}},
                 .attrs = to_attributes(AdadeltaAttrs{.rho = f(options.rho),
                                                      .epsilon = f(options.epsilon),
                                                      .paddle_form = options.paddle_form}),
                 .takes_rate = false},
                common_of(options)) {}

Adam::Adam(const AdamOptions& options)
    : Optimizer({.type = "adam",
                 .states = {{"Moment1", "Moment1Out", "moment1"},
                            {"Moment2", "Moment2Out", "moment2"},
                            {"Beta1Pow", "Beta1PowOut", "beta1_pow_acc",
                             options.beta1.value_or(kBeta1), true, true},
                            {"Beta2Pow", "Beta2PowOut", "beta2_pow_acc",
                             options.beta2.value_or(kBeta2), true, true}},
                 .attrs = to_attributes(AdamAttrs{.beta1 = f(options.beta1.value_or(kBeta1)),
                                                  .beta2 = f(options.beta2.value_or(kBeta2)),
                                                  .epsilon = f(options.epsilon),
                                                  .lazy_mode = options.lazy_mode,
                                                  .paddle_form = options.paddle_form}),
                 .inputs = variables_of(
                     {{"Beta1Tensor", options.beta1}, {"Beta2Tensor", options.beta2}})},
                common_of(options)) {}

Adamax::Adamax(const AdamaxOptions& options)
    : Optimizer({.type = "adamax",
                 .states = {{"Moment", "MomentOut", "moment"},
                            {"InfNorm", "InfNormOut", "inf_norm"},
                            {"Beta1Pow", "", "beta1_pow_acc", options.beta1, true}},
                 .attrs = to_attributes(AdamaxAttrs{.beta1 = f(options.beta1),
                                                    .beta2 = f(options.beta2),
                                                    .epsilon = f(options.epsilon)})},
                common_of(options)),
      beta1_(options.beta1) {}

void Adamax::finish_update(const Context& context, const std::vector<ParamGrad>& pairs) {
  for (const auto& [param, grad] : pairs) {
    if (!param.desc().trainable) continue;
    const RoleGuard role(context.main, OpRole::kOptimize, {param.name(), grad.name()});
    const NameScopeGuard scope(context.main, "adamx");
    const std::string power = accumulator(context, "beta1_pow_acc", param).name();
    Operator op;
    op.type = "scale";
    op.inputs["X"] = {power};
    op.outputs["Out"] = {power};
    op.attrs = to_attributes(ScaleAttrs{.scale = beta1_});
    append_op(context.main.global_block(), std::move(op));
  }
}

RMSProp::RMSProp(const RMSPropOptions& options)
    : Optimizer({.type = "rmsprop",
                 .states = {{"Moment", "MomentOut", "momentum"},
                            {"MeanSquare", "MeanSquareOut", "mean_square"},
                            {"MeanGrad", "MeanGradOut", "mean_grad"}},
                 .attrs = to_attributes(RmspropAttrs{.epsilon = f(options.epsilon),
                                                     .decay = f(options.rho),
                                                     .momentum = f(options.momentum),
                                                     .centered = options.centered})},
                common_of(options)) {}

Ftrl::Ftrl(const FtrlOptions& options)
    : Optimizer(
          {.type = "ftrl",
           .states = {{"SquaredAccumulator", "SquaredAccumOut", "squared"},
                      {"LinearAccumulator", "LinearAccumOut", "linear"}},
           .attrs = to_attributes(FtrlAttrs{.l1 = f(options.l1),
                                            .l2 = f(options.paddle_form ? options.l1 : options.l2),
                                            .lr_power = f(options.lr_power)})},
          common_of(options)) {}

Lamb::Lamb(const LambOptions& options)
    : Optimizer({.type = "lamb",
                 .states = {{"Moment1", "Moment1Out", "moment1"},
                            {"Moment2", "Moment2Out", "moment2"},
                            {"Beta1Pow", options.paddle_form ? "" : "Beta1PowOut", "beta1_pow_acc",
                             options.beta1, true, true},
                            {"Beta2Pow", options.paddle_form ? "" : "Beta2PowOut", "beta2_pow_acc",
                             options.beta2, true, true}}},
                common_of(options)),
      options_(options) {}

AttributeMap Lamb::attributes_of(const Variable& param) const {
  const auto& exclude = options_.exclude_from_weight_decay;
  const double decay = exclude && exclude(param) ? 0.0 : options_.lamb_weight_decay;
  return to_attributes(LambAttrs{.weight_decay = f(decay),
                                 .beta1 = f(options_.beta1),
                                 .beta2 = f(options_.beta2),
                                 .epsilon = f(options_.epsilon),
                                 .paddle_form = options_.paddle_form});
}

Dpsgd::Dpsgd(const DpsgdOptions& options)
    : Optimizer({.type = "dpsgd",
                 .attrs = to_attributes(DpsgdAttrs{.clip = f(options.clip),
                                                   .batch_size = f(options.batch_size),
                                                   .sigma = f(options.sigma),
                                                   .seed = options.seed})},
                common_of(options)) {}

}  // namespace fleet::fluid::optimizer
