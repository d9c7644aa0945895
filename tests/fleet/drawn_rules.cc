#include "tests/fleet/drawn_rules.h"

#include <memory>
#include <optional>

#include "base/strings.h"

namespace fleet::testing {
namespace {

namespace clip = fluid::clip;
namespace optimizer = fluid::optimizer;
namespace regularizer = fluid::regularizer;
using fluid::Penalty;
using fluid::Variable;

struct Extras {
  std::function<optimizer::LearningRate(double rate)> rate;
  std::optional<Penalty> clip;
  std::optional<Penalty> decay;
  bool looks_ahead = false;
  std::string name;
};

Extras draw_extras(Draw& draw, const RuleChoice& choice) {
  Extras extras;
  const auto known = schedules();
  const int schedule = draw.between(-3, static_cast<int>(known.size()) - 1);
  if (schedule >= 0 && choice.schedules) {
    const Schedule& drawn = known[static_cast<size_t>(schedule)];
    extras.rate = drawn.rate;
    extras.name += str_cat(", ", drawn.name);
  } else {
    extras.rate = [](double rate) { return rate; };
  }
  const std::vector<std::pair<std::string, std::optional<Penalty>>> clips = {
      {"", {}},
      {", by value", clip::GradientClipByValue(1e-3)},
      {", by norm", clip::GradientClipByNorm(1e-2)},
      {", by global norm", clip::GradientClipByGlobalNorm(0.05)}};
  const auto& [clip_name, chosen_clip] = clips[static_cast<size_t>(draw.between(0, 3))];
  extras.clip = chosen_clip;
  const std::vector<std::pair<std::string, std::optional<Penalty>>> decays = {
      {"", {}}, {", L2", regularizer::L2Decay(1e-3)}, {", L1", regularizer::L1Decay(1e-3)}};
  const auto& [decay_name, chosen_decay] = decays[static_cast<size_t>(draw.between(0, 2))];
  extras.decay = chosen_decay;
  extras.looks_ahead = draw.between(0, 3) == 0;
  extras.name += clip_name + decay_name + (extras.looks_ahead ? ", Lookahead" : "");
  return extras;
}

template <class Optimizer, class Options>
UpdateRule with_extras(Options options, double rate, const Extras& extras) {
  options.regularization = extras.decay;
  options.grad_clip = extras.clip;
  return {extras.name, [options, rate, extras](const Variable& loss) {
            Options all = options;
            all.learning_rate = extras.rate(rate);
            Optimizer inner(all);
            if (extras.looks_ahead) {
              optimizer::Lookahead(inner, {.alpha = 0.6, .k = 2}).minimize(loss);
            } else {
              inner.minimize(loss);
            }
          }};
}

UpdateRule draw_options(Draw& draw, int number, const Extras& extras) {
  using namespace fluid::optimizer;
  const bool coin = draw.coin();
  switch (number) {
    case 0:
      return with_extras<SGD>(SGDOptions{}, 0.1, extras);
    case 1:
      return with_extras<Momentum>(MomentumOptions{.use_nesterov = coin}, 0.05, extras);
    case 2:
      return with_extras<LarsMomentum>(LarsMomentumOptions{}, 0.5, extras);
    case 3:
      return with_extras<Adagrad>(AdagradOptions{.initial_accumulator_value = coin ? 0.1 : 0.0},
                                  0.05, extras);
    case 4:
      return with_extras<DecayedAdagrad>(DecayedAdagradOptions{}, 0.05, extras);
    case 5:
      return with_extras<Adadelta>(AdadeltaOptions{.paddle_form = coin}, 0.5, extras);
    case 6:
      return with_extras<Adam>(AdamOptions{.lazy_mode = coin}, 0.01, extras);
    case 7:
      return with_extras<Adamax>(AdamaxOptions{}, 0.01, extras);
    case 8:
      return with_extras<RMSProp>(
          RMSPropOptions{.momentum = coin ? 0.5 : 0.0, .centered = draw.coin()}, 0.01, extras);
    case 9:
      return with_extras<Ftrl>(FtrlOptions{.l1 = 1e-4, .l2 = 1e-4}, 0.05, extras);
    case 10:
      return with_extras<Lamb>(LambOptions{.paddle_form = coin}, 0.01, extras);
    default:
      return with_extras<Dpsgd>(DpsgdOptions{.clip = 0.5, .sigma = 1e-3}, 0.05, extras);
  }
}

}  // namespace

UpdateRule draw_rule(Draw& draw, const RuleChoice& choice) {
  UpdateRule rule = draw_options(draw, choice.optimizer, draw_extras(draw, choice));
  rule.name = str_cat("optimizer ", choice.optimizer, rule.name);
  return rule;
}

}  // namespace fleet::testing
