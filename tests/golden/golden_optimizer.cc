// The optimizer of a golden file. Where Paddle departs from its own formulas the form that
// it has is asked for, since the file holds what it made.
#include <functional>
#include <map>

#include "fluid/backward/gradient_clip.h"
#include "fluid/layers/learning_rate_scheduler.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_arguments.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fluid::Variable;
using layers::DecayForm;

using Schedule = std::function<Variable(Arguments&, Form)>;

DecayForm decay_form(Form form) {
  return form == Form::kPaddle ? DecayForm::kPaddle : DecayForm::kExact;
}

template <class Decay>
Schedule decay_by_rate(Decay decay) {
  return [decay](Arguments& args, Form form) {
    return decay(args.get<double>("learning_rate", 1.0), args.get<double>("decay_steps", 0.0),
                 args.get<double>("decay_rate", 0.0), args.get<bool>("staircase", false),
                 decay_form(form));
  };
}

Variable make_polynomial(Arguments& args, Form form) {
  return layers::polynomial_decay(
      args.get<double>("learning_rate", 1.0), args.get<double>("decay_steps", 0.0),
      args.get<double>("end_learning_rate", 0.0001), args.get<double>("power", 1.0),
      args.get<bool>("cycle", false), decay_form(form));
}

Variable make_warmup(Arguments& args, Form form) {
  const Json* inner = args.find("learning_rate");
  const auto rate = inner == nullptr ? optimizer::LearningRate(1.0) : make_rate(*inner, form);
  return layers::linear_lr_warmup(rate, args.get<double>("warmup_steps", 1.0),
                                  args.get<double>("start_lr", 0.0),
                                  args.get<double>("end_lr", 0.0));
}

const std::map<std::string, Schedule>& schedules() {
  static const std::map<std::string, Schedule> kSchedules = {
      {"exponential_decay", decay_by_rate(layers::exponential_decay)},
      {"natural_exp_decay", decay_by_rate(layers::natural_exp_decay)},
      {"inverse_time_decay", decay_by_rate(layers::inverse_time_decay)},
      {"polynomial_decay", make_polynomial},
      {"linear_lr_warmup", make_warmup},
      {"piecewise_decay",
       [](Arguments& args, Form) {
         return layers::piecewise_decay(args.get<std::vector<double>>("boundaries", {}),
                                        args.get<std::vector<double>>("values", {}));
       }},
      {"cosine_decay",
       [](Arguments& args, Form form) {
         return layers::cosine_decay(args.get<double>("learning_rate", 1.0),
                                     args.get<double>("step_each_epoch", 1.0),
                                     args.get<double>("epochs", 1.0), decay_form(form));
       }},
      {"noam_decay",
       [](Arguments& args, Form) {
         return layers::noam_decay(args.get<double>("d_model", 1.0),
                                   args.get<double>("warmup_steps", 1.0),
                                   args.get<double>("learning_rate", 1.0));
       }},
  };
  return kSchedules;
}

optimizer::ClipFilter make_filter(const Json* clip) {
  if (clip == nullptr || !clip->contains("need_clip")) return {};
  const auto names = clip->at("need_clip").get<std::set<std::string>>();
  return [names](const Variable& param) { return names.contains(param.name()); };
}

// What all optimizers are told.
struct Common {
  optimizer::LearningRate learning_rate = 0.001;
  std::optional<fluid::Penalty> regularization;
  std::optional<fluid::Penalty> grad_clip;
  optimizer::ClipFilter need_clip;
  bool paddle_form;
};

using Made = std::unique_ptr<optimizer::Optimizer>;
using Maker = std::function<Made(Arguments&, const Common&)>;

// An optimizer whose own options `fill` sets.
template <class Kind, class Options, class Fill>
Maker maker(Fill fill) {
  return [fill](Arguments& args, const Common& common) -> Made {
    Options options;
    options.learning_rate = common.learning_rate;
    options.regularization = common.regularization;
    options.grad_clip = common.grad_clip;
    options.need_clip = common.need_clip;
    if constexpr (requires { options.paddle_form; }) {
      options.paddle_form = common.paddle_form;
    }
    fill(args, options);
    return std::make_unique<Kind>(options);
  };
}

void take(Arguments& args, const char* name, double& value) {
  value = args.get<double>(name, value);
}
void take(Arguments& args, const char* name, fluid::layers::Real& value) {
  value = args.get<double>(name, value.value());
}
void take(Arguments& args, const char* name, bool& value) {
  value = args.get<bool>(name, value);
}

void add_first_makers(std::map<std::string, Maker>& makers) {
  using namespace optimizer;  // NOLINT: the names below are all from there
  makers["SGD"] = maker<SGD, SGDOptions>([](Arguments&, SGDOptions&) {});
  makers["Momentum"] =
      maker<Momentum, MomentumOptions>([](Arguments& args, MomentumOptions& options) {
        take(args, "momentum", options.momentum);
        take(args, "use_nesterov", options.use_nesterov);
      });
  makers["LarsMomentum"] =
      maker<LarsMomentum, LarsMomentumOptions>([](Arguments& args, LarsMomentumOptions& options) {
        take(args, "momentum", options.momentum);
        take(args, "lars_coeff", options.lars_coeff);
        take(args, "lars_weight_decay", options.lars_weight_decay);
      });
  makers["Adagrad"] = maker<Adagrad, AdagradOptions>([](Arguments& args, AdagradOptions& options) {
    take(args, "epsilon", options.epsilon);
    take(args, "initial_accumulator_value", options.initial_accumulator_value);
  });
  makers["DecayedAdagrad"] = maker<DecayedAdagrad, DecayedAdagradOptions>(
      [](Arguments& args, DecayedAdagradOptions& options) {
        take(args, "decay", options.decay);
        take(args, "epsilon", options.epsilon);
      });
  makers["Adadelta"] =
      maker<Adadelta, AdadeltaOptions>([](Arguments& args, AdadeltaOptions& options) {
        take(args, "epsilon", options.epsilon);
        take(args, "rho", options.rho);
      });
}

void add_more_makers(std::map<std::string, Maker>& makers) {
  using namespace optimizer;  // NOLINT: the names below are all from there
  const auto take_betas = [](Arguments& args, auto& options) {
    take(args, "beta1", options.beta1);
    take(args, "beta2", options.beta2);
    take(args, "epsilon", options.epsilon);
  };
  makers["Adam"] = maker<Adam, AdamOptions>([=](Arguments& args, AdamOptions& options) {
    take_betas(args, options);
    take(args, "lazy_mode", options.lazy_mode);
  });
  makers["Adamax"] = maker<Adamax, AdamaxOptions>(
      [=](Arguments& args, AdamaxOptions& options) { take_betas(args, options); });
  makers["Lamb"] = maker<Lamb, LambOptions>([=](Arguments& args, LambOptions& options) {
    take_betas(args, options);
    take(args, "lamb_weight_decay", options.lamb_weight_decay);
  });
  makers["RMSProp"] = maker<RMSProp, RMSPropOptions>([](Arguments& args, RMSPropOptions& options) {
    take(args, "rho", options.rho);
    take(args, "epsilon", options.epsilon);
    take(args, "momentum", options.momentum);
    take(args, "centered", options.centered);
  });
  makers["Ftrl"] = maker<Ftrl, FtrlOptions>([](Arguments& args, FtrlOptions& options) {
    take(args, "l1", options.l1);
    take(args, "l2", options.l2);
    take(args, "lr_power", options.lr_power);
  });
  makers["Dpsgd"] = maker<Dpsgd, DpsgdOptions>([](Arguments& args, DpsgdOptions& options) {
    take(args, "clip", options.clip);
    take(args, "batch_size", options.batch_size);
    take(args, "sigma", options.sigma);
  });
}

}  // namespace

fluid::Penalty make_decay(const Json& json) {
  for (const auto& [kind, coefficient] : json.items()) {
    if (kind == "L2Decay") return fluid::regularizer::L2Decay(coefficient.get<double>());
    if (kind == "L1Decay") return fluid::regularizer::L1Decay(coefficient.get<double>());
    throw NotYetKnown("regularizer " + kind);
  }
  throw NotYetKnown("regularizer without a kind");
}

namespace {

fluid::Penalty clip_of(const std::string& type, Arguments& values) {
  const auto number = [&](const char* name) {
    const Json* value = values.find(name);
    if (value == nullptr) throw NotYetKnown(str_cat("grad_clip ", type, " without ", name));
    return value->get<double>();
  };
  if (type == "ByValue") {
    const double max = number("max");
    return fluid::clip::GradientClipByValue(max, values.get<double>("min", -max));
  }
  if (type == "ByNorm") return fluid::clip::GradientClipByNorm(number("clip_norm"));
  if (type == "ByGlobalNorm") return fluid::clip::GradientClipByGlobalNorm(number("clip_norm"));
  throw NotYetKnown("grad_clip " + type);
}

}  // namespace

std::optional<fluid::Penalty> make_clip(const Json* json) {
  if (json == nullptr) return std::nullopt;
  Arguments args("grad_clip", *json);
  const auto type = args.get<std::string>("type", "");
  const Json* given = args.find("args");
  args.find("need_clip");
  args.finish();
  if (given == nullptr) throw NotYetKnown("grad_clip without args");
  Arguments values("grad_clip " + type, *given);
  const auto made = clip_of(type, values);
  values.finish();
  return made;
}

fluid::optimizer::LearningRate make_rate(const Json& json, Form form) {
  if (json.is_number()) return json.get<double>();
  const auto name = json.at("schedule").get<std::string>();
  const auto found = schedules().find(name);
  if (found == schedules().end()) throw NotYetKnown("schedule " + name);
  Arguments args(name, json.at("args"));
  const Variable rate = found->second(args, form);
  args.finish();
  return rate;
}

std::unique_ptr<fluid::optimizer::Optimizer> make_optimizer(const Json& golden, Form form) {
  const Json config = golden.value("config", Json::object());
  const auto found = config.find("optimizer");
  if (found == config.end() || found->is_null()) return nullptr;
  Arguments given("optimizer", *found);
  const auto type = given.get<std::string>("type", "");
  std::map<std::string, Maker> makers;
  add_first_makers(makers);
  add_more_makers(makers);
  const auto maker = makers.find(type);
  if (maker == makers.end()) throw NotYetKnown("optimizer " + type);
  const Json none = Json::object();
  const Json* options = given.find("args");
  Arguments args("optimizer " + type, options == nullptr ? none : *options);
  Common common{};
  common.paddle_form = form == Form::kPaddle;
  if (const Json* decay = given.find("regularization")) common.regularization = make_decay(*decay);
  common.grad_clip = make_clip(given.find("grad_clip"));
  common.need_clip = make_filter(given.find("grad_clip"));
  const Json* rate = given.find("learning_rate");
  const auto noted = make_clip(given.find("set_gradient_clip"));
  given.finish();
  if (noted) fluid::clip::set_gradient_clip(*noted, fluid::default_main_program());
  common.learning_rate = rate == nullptr ? 0.001 : make_rate(*rate, form);
  auto made = maker->second(args, common);
  args.finish();
  return made;
}

}  // namespace fleet::golden
