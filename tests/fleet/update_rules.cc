#include "tests/fleet/update_rules.h"

#include <functional>
#include <utility>

namespace fleet::testing {
namespace {

namespace clip = fluid::clip;
namespace layers = fluid::layers;
using namespace fluid::optimizer;
using fluid::Variable;

template <class Optimizer, class Options>
UpdateRule rule(std::string name, Options options) {
  return {std::move(name), [options](const Variable& loss) { Optimizer(options).minimize(loss); }};
}

// One that stays, one that a schedule computes.
UpdateRule adam_of_given_decays() {
  return {"AdamOfGivenDecays", [](const Variable& loss) {
            const Variable stays = layers::create_global_var(
                {1}, 0.8, fluid::DType::kFloat32, {.persistable = true, .name = "beta1"});
            Adam({.learning_rate = 0.01,
                  .beta1 = stays,
                  .beta2 = layers::exponential_decay(0.99, 4, 0.9)})
                .minimize(loss);
          }};
}

}  // namespace

std::vector<UpdateRule> optimizer_rules() {
  const auto l2 = fluid::regularizer::L2Decay(1e-3);
  const auto l1 = fluid::regularizer::L1Decay(1e-3);
  return {
      rule<SGD>("SgdL2", SGDOptions{.learning_rate = 0.1, .regularization = l2}),
      rule<SGD>("SgdL1", SGDOptions{.learning_rate = 0.1, .regularization = l1}),
      rule<Momentum>("Momentum", MomentumOptions{.learning_rate = 0.05}),
      rule<Momentum>("Nesterov", MomentumOptions{.learning_rate = 0.05, .use_nesterov = true}),
      rule<Adagrad>("Adagrad", AdagradOptions{.learning_rate = 0.05}),
      rule<DecayedAdagrad>("DecayedAdagrad", DecayedAdagradOptions{.learning_rate = 0.05}),
      rule<Adadelta>("Adadelta", AdadeltaOptions{.learning_rate = 0.5}),
      rule<Adam>("Adam", AdamOptions{.learning_rate = 0.01}),
      adam_of_given_decays(),
      rule<Adamax>("Adamax", AdamaxOptions{.learning_rate = 0.01}),
      rule<RMSProp>("RmsProp", RMSPropOptions{.learning_rate = 0.01, .momentum = 0.5}),
      rule<RMSProp>("RmsPropCentered", RMSPropOptions{.learning_rate = 0.01, .centered = true}),
      rule<Ftrl>("Ftrl", FtrlOptions{.learning_rate = 0.05, .l1 = 1e-4, .l2 = 1e-4}),
      rule<LarsMomentum>("LarsMomentum", LarsMomentumOptions{.learning_rate = 0.5}),
      rule<Lamb>("Lamb", LambOptions{.learning_rate = 0.01}),
      rule<Lamb>("LambPaddle", LambOptions{.learning_rate = 0.01, .paddle_form = true}),
      rule<Dpsgd>("Dpsgd", DpsgdOptions{.learning_rate = 0.05, .clip = 0.5, .sigma = 1e-3}),
  };
}

std::vector<UpdateRule> clip_rules() {
  const auto l2 = fluid::regularizer::L2Decay(1e-3);
  return {
      rule<SGD>("Value",
                SGDOptions{.learning_rate = 0.1, .grad_clip = clip::GradientClipByValue(1e-3)}),
      rule<SGD>("Norm",
                SGDOptions{.learning_rate = 0.1, .grad_clip = clip::GradientClipByNorm(1e-2)}),
      rule<SGD>("GlobalNorm", SGDOptions{.learning_rate = 0.1,
                                         .grad_clip = clip::GradientClipByGlobalNorm(1e-2)}),
      rule<Adam>("GlobalNormAdamL2", AdamOptions{.learning_rate = 0.01,
                                                 .regularization = l2,
                                                 .grad_clip = clip::GradientClipByGlobalNorm(0.1)}),
      rule<Lamb>("GlobalNormLamb", LambOptions{.learning_rate = 0.01,
                                               .grad_clip = clip::GradientClipByGlobalNorm(0.1)}),
  };
}

std::vector<Schedule> schedules() {
  return {
      {"Exponential", [](double rate) { return layers::exponential_decay(rate, 3, 0.7, true); }},
      {"NaturalExp", [](double rate) { return layers::natural_exp_decay(rate, 3, 0.7); }},
      {"InverseTime", [](double rate) { return layers::inverse_time_decay(rate, 2, 0.5); }},
      {"Polynomial", [](double rate) { return layers::polynomial_decay(rate, 4, rate / 10, 2.0); }},
      {"PolynomialCycle",
       [](double rate) { return layers::polynomial_decay(rate, 3, rate / 10, 1.0, true); }},
      {"Piecewise",
       [](double rate) {
         return layers::piecewise_decay({2, 4}, {rate, rate / 2, rate / 5});
       }},
      {"Cosine", [](double rate) { return layers::cosine_decay(rate, 2, 5); }},
      {"Noam", [](double rate) { return layers::noam_decay(64, 4, rate * 10); }},
      {"WarmUp", [](double rate) { return layers::linear_lr_warmup(rate, 3, rate / 10, rate); }},
      {"WarmUpOfDecay",
       [](double rate) {
         return layers::linear_lr_warmup(layers::exponential_decay(rate, 2, 0.5), 3, rate / 10,
                                         rate);
       }},
  };
}

std::vector<UpdateRule> schedule_rules() {
  std::vector<UpdateRule> rules;
  for (const Schedule& schedule : schedules()) {
    rules.push_back({schedule.name, [schedule](const Variable& loss) {
                       SGD({.learning_rate = schedule.rate(0.1)}).minimize(loss);
                     }});
  }
  return rules;
}

std::vector<UpdateRule> average_rules() {
  return {
      {"ExponentialMovingAverage",
       [](const Variable& loss) {
         Momentum({.learning_rate = 0.05}).minimize(loss);
         ExponentialMovingAverage({.decay = 0.9}).update();
       }},
      {"ModelAverage",
       [](const Variable& loss) {
         Adam({.learning_rate = 0.01}).minimize(loss);
         ModelAverage({.average_window_rate = 0.5, .min_average_window = 2});
       }},
  };
}

std::vector<UpdateRule> lookahead_rules() {
  return {
      {"Lookahead",
       [](const Variable& loss) {
         SGD sgd({.learning_rate = 0.1});
         Lookahead(sgd, {.alpha = 0.5, .k = 2}).minimize(loss);
       }},
      {"LookaheadAdamGlobalNorm",
       [](const Variable& loss) {
         Adam adam({.learning_rate = 0.01, .grad_clip = clip::GradientClipByGlobalNorm(0.1)});
         Lookahead(adam, {.alpha = 0.8, .k = 3}).minimize(loss);
       }},
      {"LookaheadLambAverage",
       [](const Variable& loss) {
         Lamb lamb({.learning_rate = 0.01});
         Lookahead(lamb, {.alpha = 0.5, .k = 2}).minimize(loss);
         ExponentialMovingAverage({.decay = 0.9}).update();
       }},
  };
}

std::string name_of(const ::testing::TestParamInfo<UpdateRule>& info) {
  return info.param.name;
}

}  // namespace fleet::testing
