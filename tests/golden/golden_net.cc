#include "tests/golden/golden_net.h"

#include <functional>
#include <map>
#include <set>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
using fluid::DType;
using fluid::ParamAttr;
using fluid::Shape;
using fluid::Variable;

// The arguments of one layer; those that nobody asked for are not yet known.
class Arguments {
 public:
  Arguments(std::string owner, const Json& args) : owner_(std::move(owner)), args_(args) {}

  const Json* find(const std::string& name) {
    asked_.insert(name);
    const auto found = args_.find(name);
    return found == args_.end() || found->is_null() ? nullptr : &*found;
  }
  template <class T>
  T get(const std::string& name, T otherwise) {
    const Json* found = find(name);
    return found == nullptr ? otherwise : found->get<T>();
  }
  void finish() const {
    if (!args_.is_object()) return;
    for (const auto& [name, value] : args_.items()) {
      if (!asked_.contains(name) && !value.is_null()) {
        throw NotYetKnown(str_cat(owner_, ", argument ", name));
      }
    }
  }
  const std::string& owner() const { return owner_; }

 private:
  std::string owner_;
  const Json& args_;
  std::set<std::string> asked_;
};

fluid::Penalty make_decay(const Json& json) {
  for (const auto& [kind, coefficient] : json.items()) {
    if (kind == "L2Decay") return fluid::regularizer::L2Decay(coefficient.get<double>());
    if (kind == "L1Decay") return fluid::regularizer::L1Decay(coefficient.get<double>());
    throw NotYetKnown("regularizer " + kind);
  }
  throw NotYetKnown("regularizer without a kind");
}

fluid::Initializer make_initializer(const Json& json) {
  for (const auto& [kind, value] : json.items()) {
    const Json list = value.is_array() ? value : Json::array({value});
    const auto number = [&](size_t i, double otherwise) {
      return i < list.size() ? list[i].get<double>() : otherwise;
    };
    if (kind == "Constant") return fluid::initializer::Constant{.value = number(0, 0.0)};
    if (kind == "Uniform") {
      return fluid::initializer::Uniform{.low = number(0, -1.0), .high = number(1, 1.0)};
    }
    if (kind == "Normal") {
      return fluid::initializer::Normal{.loc = number(0, 0.0), .scale = number(1, 1.0)};
    }
    throw NotYetKnown("initializer " + kind);
  }
  throw NotYetKnown("initializer without a kind");
}

ParamAttr make_attr(const Json* json) {
  ParamAttr attr;
  if (json == nullptr) return attr;
  if (json->is_boolean()) {
    attr.omit = !json->get<bool>();
    return attr;
  }
  Arguments args("ParamAttr", json->at("ParamAttr"));
  attr.name = args.get<std::string>("name", "");
  attr.trainable = args.get<bool>("trainable", true);
  attr.learning_rate = args.get<double>("learning_rate", 1.0);
  if (const Json* found = args.find("initializer")) attr.initializer = make_initializer(*found);
  if (const Json* found = args.find("regularizer")) attr.regularizer = make_decay(*found);
  args.finish();
  return attr;
}

// One layer of a net: its inputs by argument, its arguments.
struct Call {
  std::map<std::string, std::vector<Variable>>& inputs;
  Arguments& args;

  const Variable& in(const std::string& name) { return all(name).front(); }
  const std::vector<Variable>& all(const std::string& name) {
    const auto found = inputs.find(name);
    if (found == inputs.end()) throw NotYetKnown(str_cat(args.owner(), " without input ", name));
    return found->second;
  }
};

using Outputs = std::vector<Variable>;
using Builder = std::function<Outputs(Call&)>;

Outputs build_data(Call& call) {
  const auto shape = call.args.get<std::vector<int64_t>>("shape", {});
  return {layers::data(call.args.get<std::string>("name", ""), Shape(shape),
                       fluid::parse_dtype(call.args.get<std::string>("dtype", "float32")),
                       {.append_batch_size = call.args.get<bool>("append_batch_size", true),
                        .lod_level = call.args.get<int>("lod_level", 0),
                        .stop_gradient = call.args.get<bool>("stop_gradient", true)})};
}

Outputs build_fc(Call& call) {
  layers::FcOptions options{.num_flatten_dims = call.args.get<int>("num_flatten_dims", 1),
                            .bias_attr = make_attr(call.args.find("bias_attr")),
                            .act = call.args.get<std::string>("act", ""),
                            .name = call.args.get<std::string>("name", "")};
  const Json* attr = call.args.find("param_attr");
  if (attr != nullptr && attr->is_array()) {
    for (const Json& one : *attr) options.param_attrs.push_back(make_attr(&one));
  } else {
    options.param_attr = make_attr(attr);
  }
  return {layers::fc(call.all("input"), call.args.get<int64_t>("size", 0), options)};
}

Outputs build_cross_entropy(Call& call) {
  return {layers::cross_entropy(call.in("input"), call.in("label"),
                                {.soft_label = call.args.get<bool>("soft_label", false),
                                 .ignore_index = call.args.get<int>("ignore_index", -100)})};
}

Outputs build_softmax_with_cross_entropy(Call& call) {
  const layers::SoftmaxWithCrossEntropyOptions options{
      .soft_label = call.args.get<bool>("soft_label", false),
      .ignore_index = call.args.get<int>("ignore_index", -100),
      .numeric_stable_mode = call.args.get<bool>("numeric_stable_mode", true),
      .axis = call.args.get<int>("axis", -1)};
  const auto both =
      layers::softmax_with_cross_entropy_full(call.in("logits"), call.in("label"), options);
  if (call.args.get<bool>("return_softmax", false)) return {both.loss, both.softmax};
  return {both.loss};
}

Outputs build_split(Call& call) {
  const int dim = call.args.get<int>("dim", -1);
  const Json* parts = call.args.find("num_or_sections");
  if (parts == nullptr) throw NotYetKnown("split without num_or_sections");
  const auto name = call.args.get<std::string>("name", "");
  if (parts->is_number()) return layers::split(call.in("input"), parts->get<int>(), dim, name);
  return layers::split(call.in("input"), parts->get<std::vector<int>>(), dim, name);
}

Outputs build_create_parameter(Call& call) {
  const auto shape = call.args.get<std::vector<int64_t>>("shape", {});
  return {layers::create_parameter(
      Shape(shape), fluid::parse_dtype(call.args.get<std::string>("dtype", "float32")),
      {.name = call.args.get<std::string>("name", ""),
       .attr = make_attr(call.args.find("attr")),
       .is_bias = call.args.get<bool>("is_bias", false)})};
}

Outputs build_scale(Call& call) {
  return {layers::scale(call.in("x"),
                        {.scale = call.args.get<double>("scale", 1.0),
                         .bias = call.args.get<double>("bias", 0.0),
                         .bias_after_scale = call.args.get<bool>("bias_after_scale", true),
                         .act = call.args.get<std::string>("act", ""),
                         .name = call.args.get<std::string>("name", "")})};
}

Outputs build_stop_gradient(Call& call) {
  call.in("x").set_stop_gradient(true);
  return {};
}

Outputs build_topk(Call& call) {
  const auto top = layers::topk(call.in("input"), call.args.get<int>("k", 1));
  return {top.values, top.indices};
}

layers::ReduceOptions reduce_options(Call& call) {
  layers::ReduceOptions options{.keep_dim = call.args.get<bool>("keep_dim", false),
                                .name = call.args.get<std::string>("name", "")};
  if (const Json* dim = call.args.find("dim")) {
    options.dim = dim->is_array() ? dim->get<std::vector<int>>() : std::vector{dim->get<int>()};
  }
  return options;
}

using UnaryLayer = Variable (*)(const Variable&, const std::string&);
using BinaryLayer = Variable (*)(const Variable&, const Variable&,
                                 const layers::ElementwiseOptions&);

void add_simple_layers(std::map<std::string, Builder>& builders) {
  const std::map<std::string, UnaryLayer> unary = {
      {"abs", layers::abs},         {"ceil", layers::ceil},
      {"cos", layers::cos},         {"exp", layers::exp},
      {"floor", layers::floor},     {"log", layers::log},
      {"mean", layers::mean},       {"reciprocal", layers::reciprocal},
      {"relu", layers::relu},       {"round", layers::round},
      {"sigmoid", layers::sigmoid}, {"sin", layers::sin},
      {"sqrt", layers::sqrt},       {"square", layers::square},
      {"tanh", layers::tanh}};
  for (const auto& [name, layer] : unary) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), call.args.get<std::string>("name", ""))};
    };
  }
  const std::map<std::string, BinaryLayer> binary = {
      {"elementwise_add", layers::elementwise_add}, {"elementwise_sub", layers::elementwise_sub},
      {"elementwise_mul", layers::elementwise_mul}, {"elementwise_div", layers::elementwise_div},
      {"elementwise_max", layers::elementwise_max}, {"elementwise_min", layers::elementwise_min},
      {"elementwise_pow", layers::elementwise_pow}};
  for (const auto& [name, layer] : binary) {
    builders[name] = [layer = layer](Call& call) -> Outputs {
      return {layer(call.in("x"), call.in("y"),
                    {.axis = call.args.get<int>("axis", -1),
                     .act = call.args.get<std::string>("act", ""),
                     .name = call.args.get<std::string>("name", "")})};
    };
  }
}

void add_other_layers(std::map<std::string, Builder>& builders) {
  builders["accuracy"] = [](Call& call) -> Outputs {
    return {layers::accuracy(call.in("input"), call.in("label"), call.args.get<int>("k", 1))};
  };
  builders["cast"] = [](Call& call) -> Outputs {
    const auto dtype = call.args.get<std::string>("dtype", "float32");
    return {layers::cast(call.in("x"), fluid::parse_dtype(dtype))};
  };
  builders["clip"] = [](Call& call) -> Outputs {
    return {layers::clip(call.in("x"), call.args.get<double>("min", 0.0),
                         call.args.get<double>("max", 0.0))};
  };
  builders["clip_by_norm"] = [](Call& call) -> Outputs {
    return {layers::clip_by_norm(call.in("x"), call.args.get<double>("max_norm", 0.0))};
  };
  builders["concat"] = [](Call& call) -> Outputs {
    return {layers::concat(call.all("input"), call.args.get<int>("axis", 0))};
  };
  builders["reduce_mean"] = [](Call& call) -> Outputs {
    return {layers::reduce_mean(call.in("input"), reduce_options(call))};
  };
  builders["reduce_sum"] = [](Call& call) -> Outputs {
    return {layers::reduce_sum(call.in("input"), reduce_options(call))};
  };
  builders["reshape"] = [](Call& call) -> Outputs {
    return {layers::reshape(call.in("x"), call.args.get<std::vector<int>>("shape", {}),
                            {.act = call.args.get<std::string>("act", "")})};
  };
  builders["softmax"] = [](Call& call) -> Outputs {
    return {layers::softmax(call.in("input"), {.axis = call.args.get<int>("axis", -1)})};
  };
  builders["square_error_cost"] = [](Call& call) -> Outputs {
    return {layers::square_error_cost(call.in("input"), call.in("label"))};
  };
  builders["sums"] = [](Call& call) -> Outputs { return {layers::sums(call.all("input"))}; };
  builders["transpose"] = [](Call& call) -> Outputs {
    return {layers::transpose(call.in("x"), call.args.get<std::vector<int>>("perm", {}))};
  };
}

std::map<std::string, Builder> all_builders() {
  std::map<std::string, Builder> builders = {
      {"data", build_data},
      {"fc", build_fc},
      {"cross_entropy", build_cross_entropy},
      {"softmax_with_cross_entropy", build_softmax_with_cross_entropy},
      {"split", build_split},
      {"create_parameter", build_create_parameter},
      {"scale", build_scale},
      {"stop_gradient", build_stop_gradient},
      {"topk", build_topk},
  };
  add_simple_layers(builders);
  add_other_layers(builders);
  return builders;
}

std::vector<std::string> name_list(const Json& json) {
  if (json.is_array()) return json.get<std::vector<std::string>>();
  return {json.get<std::string>()};
}

std::set<std::string> name_set(const Json& json) {
  const auto names = json.get<std::vector<std::string>>();
  return {names.begin(), names.end()};
}

fluid::optimizer::LearningRate make_rate(const Json& json) {
  if (json.is_number()) return json.get<double>();
  const auto schedule = json.at("schedule").get<std::string>();
  Arguments args(schedule, json.at("args"));
  if (const Json* inner = args.find("learning_rate"); inner != nullptr && inner->is_object()) {
    throw NotYetKnown(schedule + " around another schedule");
  }
  const double rate = args.get<double>("learning_rate", 1.0);
  const double steps = args.get<double>("decay_steps", 0.0);
  const double decay = args.get<double>("decay_rate", 0.0);
  const bool staircase = args.get<bool>("staircase", false);
  if (args.get<bool>("cycle", false)) throw NotYetKnown(schedule + " with cycle");
  std::function<Variable()> make;
  if (schedule == "exponential_decay") {
    make = [&] { return layers::exponential_decay(rate, steps, decay, staircase); };
  } else if (schedule == "natural_exp_decay") {
    make = [&] { return layers::natural_exp_decay(rate, steps, decay, staircase); };
  } else if (schedule == "inverse_time_decay") {
    make = [&] { return layers::inverse_time_decay(rate, steps, decay, staircase); };
  } else if (schedule == "polynomial_decay") {
    const double end = args.get<double>("end_learning_rate", 0.0001);
    make = [&, end, power = args.get<double>("power", 1.0)] {
      return layers::polynomial_decay(rate, steps, end, power);
    };
  } else if (schedule == "cosine_decay") {
    const double each = args.get<double>("step_each_epoch", 1.0);
    make = [&, each, epochs = args.get<double>("epochs", 1.0)] {
      return layers::cosine_decay(rate, each, epochs);
    };
  } else if (schedule == "noam_decay") {
    const double model = args.get<double>("d_model", 1.0);
    make = [&, model, warmup = args.get<double>("warmup_steps", 1.0)] {
      return layers::noam_decay(model, warmup, rate);
    };
  } else {
    throw NotYetKnown("schedule " + schedule);
  }
  args.finish();
  return make();
}

std::optional<fluid::Penalty> make_clip(const Json* json) {
  if (json == nullptr) return std::nullopt;
  Arguments args("grad_clip", *json);
  const auto type = args.get<std::string>("type", "");
  const Json& values = *args.find("args");
  args.finish();
  if (type == "ByValue") {
    const double max = values.at("max").get<double>();
    return fluid::clip::GradientClipByValue(max, values.value("min", -max));
  }
  const double norm = values.at("clip_norm").get<double>();
  if (type == "ByNorm") return fluid::clip::GradientClipByNorm(norm);
  if (type == "ByGlobalNorm") return fluid::clip::GradientClipByGlobalNorm(norm);
  throw NotYetKnown("grad_clip " + type);
}

}  // namespace

Variable build_layers(const Json& golden) {
  const auto builders = all_builders();
  std::map<std::string, Variable> known;
  for (const Json& layer : golden.at("net").at("layers")) {
    const auto type = layer.at("layer").get<std::string>();
    const auto builder = builders.find(type);
    if (builder == builders.end()) throw NotYetKnown("layer " + type);
    std::map<std::string, std::vector<Variable>> inputs;
    const Json given = layer.value("in", Json::object());
    for (const auto& [argument, names] : given.items()) {
      for (const std::string& name : name_list(names)) inputs[argument].push_back(known.at(name));
    }
    const Json values = layer.value("args", Json::object());
    Arguments args("layer " + type, values);
    Call call{inputs, args};
    const Outputs outputs = builder->second(call);
    args.finish();
    if (!layer.contains("out")) continue;
    const auto names = name_list(layer.at("out"));
    if (names.size() != outputs.size()) throw NotYetKnown(type + " with other outputs");
    for (size_t i = 0; i < names.size(); ++i) known[names[i]] = outputs[i];
  }
  return known.at(golden.at("net").at("loss").get<std::string>());
}

std::unique_ptr<fluid::optimizer::Optimizer> make_optimizer(const Json& golden) {
  const Json config = golden.value("config", Json::object());
  const auto found = config.find("optimizer");
  if (found == config.end() || found->is_null()) return nullptr;
  Arguments given("optimizer", *found);
  const auto type = given.get<std::string>("type", "");
  const std::set<std::string> types = {"SGD", "Momentum", "Adam"};
  if (!types.contains(type)) throw NotYetKnown("optimizer " + type);
  const Json none = Json::object();
  const Json* options = given.find("args");
  Arguments args("optimizer " + type, options == nullptr ? none : *options);
  const Json* decay = given.find("regularization");
  std::optional<fluid::Penalty> regularization;
  if (decay != nullptr) regularization = make_decay(*decay);
  const auto clip = make_clip(given.find("grad_clip"));
  const Json* rate = given.find("learning_rate");
  const auto noted = make_clip(given.find("set_gradient_clip"));
  given.finish();
  if (noted) fluid::clip::set_gradient_clip(*noted, fluid::default_main_program());
  const auto learning_rate = rate == nullptr ? 0.001 : make_rate(*rate);
  std::unique_ptr<fluid::optimizer::Optimizer> made;
  if (type == "SGD") {
    made = std::make_unique<fluid::optimizer::SGD>(fluid::optimizer::SGDOptions{
        .learning_rate = learning_rate, .regularization = regularization, .grad_clip = clip});
  } else if (type == "Momentum") {
    made = std::make_unique<fluid::optimizer::Momentum>(
        fluid::optimizer::MomentumOptions{.learning_rate = learning_rate,
                                          .momentum = args.get<double>("momentum", 0.9),
                                          .use_nesterov = args.get<bool>("use_nesterov", false),
                                          .regularization = regularization,
                                          .grad_clip = clip});
  } else {
    made = std::make_unique<fluid::optimizer::Adam>(
        fluid::optimizer::AdamOptions{.learning_rate = learning_rate,
                                      .beta1 = args.get<double>("beta1", 0.9),
                                      .beta2 = args.get<double>("beta2", 0.999),
                                      .epsilon = args.get<double>("epsilon", 1e-8),
                                      .lazy_mode = args.get<bool>("lazy_mode", false),
                                      .regularization = regularization,
                                      .grad_clip = clip});
  }
  args.finish();
  return made;
}

BuiltNet build_net(const Json& golden) {
  BuiltNet net;
  const Json config = golden.value("config", Json::object());
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.main.set_random_seed(config.value("random_seed", 0));
  net.startup.set_random_seed(config.value("random_seed", 0));
  const Variable loss = build_layers(golden);
  net.main_forward = net.main;
  const auto optimizer = make_optimizer(golden);
  std::vector<fluid::ParamGrad> pairs;
  if (optimizer != nullptr) {
    pairs = optimizer->minimize(loss).params_grads;
  } else {
    const Json options = config.value("append_backward", Json::object());
    Arguments args("append_backward", options);
    fluid::BackwardOptions backward;
    if (const Json* list = args.find("parameter_list")) {
      backward.parameter_list = list->get<std::vector<std::string>>();
    }
    if (const Json* set = args.find("no_grad_set")) backward.no_grad_set = name_set(*set);
    args.finish();
    pairs = fluid::append_backward(loss, backward);
  }
  for (const auto& [param, grad] : pairs) net.params_grads.emplace_back(param.name(), grad.name());
  return net;
}

}  // namespace fleet::golden
