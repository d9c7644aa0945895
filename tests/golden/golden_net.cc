#include "tests/golden/golden_net.h"

#include <functional>
#include <map>
#include <set>

#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"
#include "tests/golden/golden_arguments.h"
#include "tests/golden/golden_layers.h"

namespace fleet::golden {
namespace {

namespace layers = fluid::layers;
using fluid::ParamAttr;
using fluid::Shape;
using fluid::Variable;

// Arguments of an initialiser: named, in order, or one alone.
class InitializerArguments {
 public:
  InitializerArguments(const std::string& kind, const Json& value) : kind_(kind), given_(value) {
    if (value.is_null()) given_ = Json::object();
    if (!given_.is_structured()) given_ = Json::array({value});
  }
  // None where it is not given, or null.
  template <class T>
  std::optional<T> find(const char* name) {
    const size_t place = place_++;
    Json found;
    if (given_.is_array()) {
      if (place < given_.size()) found = given_[place];
    } else if (given_.contains(name)) {
      found = given_[name];
      given_.erase(name);
    }
    if (found.is_null()) return std::nullopt;
    return found.get<T>();
  }
  template <class T>
  T get(const char* name, T otherwise) {
    return find<T>(name).value_or(otherwise);
  }
  void finish() const {
    const bool all = given_.is_array() ? given_.size() <= place_ : given_.empty();
    if (!all) throw NotYetKnown("initializer " + kind_ + " with " + given_.dump());
  }

 private:
  std::string kind_;
  Json given_;
  size_t place_ = 0;
};

fluid::Initializer initializer_of(const std::string& kind, InitializerArguments& args) {
  namespace initializer = fluid::initializer;
  const auto number = [&args](const char* name, double otherwise) {
    return args.get<double>(name, otherwise);
  };
  const auto seed = [&args] { return args.get<int32_t>("seed", 0); };
  if (kind == "Constant") {
    const double value = number("value", 0.0);
    return initializer::Constant{.value = value, .force_cpu = args.get<bool>("force_cpu", false)};
  }
  if (kind == "Uniform") {
    const double low = number("low", -1.0);
    const double high = number("high", 1.0);
    return initializer::Uniform{.low = low, .high = high, .seed = seed()};
  }
  if (kind == "Normal" || kind == "TruncatedNormal") {
    const double loc = number("loc", 0.0);
    const double scale = number("scale", 1.0);
    if (kind == "Normal") return initializer::Normal{.loc = loc, .scale = scale, .seed = seed()};
    return initializer::TruncatedNormal{.loc = loc, .scale = scale, .seed = seed()};
  }
  if (kind == "Xavier") {
    initializer::Xavier xavier{.uniform = args.get<bool>("uniform", true)};
    xavier.fan_in = args.find<double>("fan_in");
    xavier.fan_out = args.find<double>("fan_out");
    xavier.seed = seed();
    return xavier;
  }
  if (kind == "MSRA") {
    initializer::MSRA msra{.uniform = args.get<bool>("uniform", true)};
    msra.fan_in = args.find<double>("fan_in");
    msra.seed = seed();
    return msra;
  }
  if (kind == "Bilinear") return initializer::Bilinear{.paddle_form = true};
  throw NotYetKnown("initializer " + kind);
}

fluid::Initializer make_initializer(const Json& json) {
  for (const auto& [kind, value] : json.items()) {
    InitializerArguments args(kind, value);
    const fluid::Initializer made = initializer_of(kind, args);
    args.finish();
    return made;
  }
  throw NotYetKnown("initializer without a kind");
}

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

layers::LossAndSoftmax loss_and_softmax(Call& call) {
  const layers::SoftmaxWithCrossEntropyOptions options{
      .soft_label = call.args.get<bool>("soft_label", false),
      .ignore_index = call.args.get<int>("ignore_index", -100),
      .numeric_stable_mode = call.args.get<bool>("numeric_stable_mode", true),
      .axis = call.args.get<int>("axis", -1)};
  return layers::softmax_with_cross_entropy_full(call.in("logits"), call.in("label"), options);
}

Outputs build_softmax_with_cross_entropy(Call& call) {
  const auto both = loss_and_softmax(call);
  if (call.args.get<bool>("return_softmax", false)) return {both.loss, both.softmax};
  return {both.loss};
}

Outputs build_softmax_with_cross_entropy_full(Call& call) {
  const auto both = loss_and_softmax(call);
  return {both.loss, both.softmax};
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

Outputs build_error_clip(Call& call) {
  const double max = call.args.get<double>("max", 0.0);
  fluid::clip::set_error_clip(call.in("x"), max, call.args.get<double>("min", -max));
  return {};
}

Outputs build_topk(Call& call) {
  const auto top = layers::topk(call.in("input"), call.args.get<int>("k", 1),
                                call.args.get<std::string>("name", ""));
  return {top.values, top.indices};
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
                         call.args.get<double>("max", 0.0),
                         call.args.get<std::string>("name", ""))};
  };
  builders["clip_by_norm"] = [](Call& call) -> Outputs {
    return {layers::clip_by_norm(call.in("x"), call.args.get<double>("max_norm", 0.0),
                                 call.args.get<std::string>("name", ""))};
  };
  builders["concat"] = [](Call& call) -> Outputs {
    return {layers::concat(call.all("input"), call.args.get<int>("axis", 0),
                           call.args.get<std::string>("name", ""))};
  };
  builders["reshape"] = [](Call& call) -> Outputs {
    return {layers::reshape(call.in("x"), call.args.get<std::vector<int>>("shape", {}),
                            {.act = call.args.get<std::string>("act", ""),
                             .name = call.args.get<std::string>("name", "")})};
  };
  builders["softmax"] = [](Call& call) -> Outputs {
    return {layers::softmax(call.in("input"), {.axis = call.args.get<int>("axis", -1),
                                               .name = call.args.get<std::string>("name", "")})};
  };
  builders["square_error_cost"] = [](Call& call) -> Outputs {
    return {layers::square_error_cost(call.in("input"), call.in("label"))};
  };
  builders["sums"] = [](Call& call) -> Outputs { return {layers::sums(call.all("input"))}; };
  builders["transpose"] = [](Call& call) -> Outputs {
    return {layers::transpose(call.in("x"), call.args.get<std::vector<int>>("perm", {}),
                              call.args.get<std::string>("name", ""))};
  };
}

std::vector<std::string> name_list(const Json& json) {
  if (json.is_array()) return json.get<std::vector<std::string>>();
  return {json.get<std::string>()};
}

std::set<std::string> name_set(const Json& json) {
  const auto names = json.get<std::vector<std::string>>();
  return {names.begin(), names.end()};
}

// Appends the layers of a list; variables go by their local names.
class NetBuilder {
 public:
  void append(const Json& list) {
    for (const Json& layer : list) append_layer(layer);
  }
  const Variable& known(const std::string& name) const { return known_.at(name); }

 private:
  void append_layer(const Json& layer) {
    const auto type = layer.at("layer").get<std::string>();
    const auto builder = builders_.find(type);
    if (builder == builders_.end()) throw NotYetKnown("layer " + type);
    std::map<std::string, std::vector<Variable>> inputs;
    const Json given = layer.value("in", Json::object());
    for (const auto& [argument, names] : given.items()) {
      for (const std::string& name : name_list(names)) inputs[argument].push_back(known_.at(name));
    }
    const Json values = layer.value("args", Json::object());
    Arguments args("layer " + type, values);
    Call call{inputs, args, [this](const Json& function, const Outputs& variables) {
                return call_function(function, variables);
              }};
    const Outputs outputs = builder->second(call);
    args.finish();
    if (layer.contains("out")) name_variables(type, name_list(layer.at("out")), outputs);
  }

  // What the function names is its own; it sees what is around it.
  Outputs call_function(const Json& function, const Outputs& given) {
    const std::map<std::string, Variable> around = known_;
    name_variables("function", name_list(function.value("in", Json::array())), given);
    append(function.at("layers"));
    Outputs outputs;
    for (const std::string& name : name_list(function.at("out"))) outputs.push_back(known(name));
    known_ = around;
    return outputs;
  }

  void name_variables(const std::string& owner, const std::vector<std::string>& names,
                      const Outputs& variables) {
    if (names.size() != variables.size()) throw NotYetKnown(owner + " with other variables");
    for (size_t i = 0; i < names.size(); ++i) known_[names[i]] = variables[i];
  }

  const std::map<std::string, Builder> builders_ = all_builders();
  std::map<std::string, Variable> known_;
};

}  // namespace

std::map<std::string, Builder> all_builders() {
  std::map<std::string, Builder> builders = {
      {"data", build_data},
      {"fc", build_fc},
      {"cross_entropy", build_cross_entropy},
      {"softmax_with_cross_entropy", build_softmax_with_cross_entropy},
      {"softmax_with_cross_entropy_full", build_softmax_with_cross_entropy_full},
      {"split", build_split},
      {"create_parameter", build_create_parameter},
      {"scale", build_scale},
      {"stop_gradient", build_stop_gradient},
      {"error_clip", build_error_clip},
      {"topk", build_topk},
  };
  add_math_layers(builders);
  add_network_layers(builders);
  add_value_layers(builders);
  add_other_layers(builders);
  return builders;
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

Variable build_layers(const Json& golden) {
  NetBuilder net;
  net.append(golden.at("net").at("layers"));
  return net.known(golden.at("net").at("loss").get<std::string>());
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
