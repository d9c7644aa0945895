#include "tests/golden/numeric/numeric_nets.h"

#include <set>
#include <stdexcept>
#include <string_view>
#include <vector>

#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::golden {
namespace {

using TensorOf = std::function<bool(const std::string& name, Tensor& value)>;

// What the nets are made of, with the file's names, shapes and first values.
class Builder {
 public:
  Builder(const Json& settings, const TensorOf& tensor) : settings_(settings), tensor_(tensor) {}

  double number(const char* name) const { return settings_.at(name).get<double>(); }
  int64_t size(const char* name) const { return settings_.at(name).get<int64_t>(); }

  Variable input(const std::string& name, DType dtype = DType::kFloat32) const {
    Tensor pool;
    if (!tensor_("data/" + name, pool)) throw std::runtime_error("no data of input " + name);
    Shape shape = pool.shape();
    shape.set(0, Shape::kUnknown);
    return layers::data(name, shape, dtype, {.append_batch_size = false});
  }
  Variable sequence(const std::string& name) const {
    return layers::data(name, {1}, DType::kInt64, {.lod_level = 1});
  }
  Variable labels() const { return input("y", DType::kInt64); }

  ParamAttr parameter(const std::string& name) const {
    ParamAttr attr{.name = name};
    Tensor first;
    if (tensor_("init/" + name, first)) attr.initializer = initializer::Assign{first};
    return attr;
  }
  Variable dense(const Variable& x, int layer, int64_t width, const std::string& act = "") const {
    return layers::fc(x, width,
                      {.param_attr = parameter(str_cat("fc", layer, ".w")),
                       .bias_attr = parameter(str_cat("fc", layer, ".b")),
                       .act = act});
  }
  Variable convolution(const Variable& x, int layer, int64_t filters) const {
    const Variable maps = layers::conv2d(x, filters, 5,
                                         {.param_attr = parameter(str_cat("conv", layer, ".w")),
                                          .bias_attr = parameter(str_cat("conv", layer, ".b")),
                                          .act = "relu"});
    return layers::pool2d(maps, {.pool_size = 2, .pool_type = "max", .pool_stride = 2});
  }
  Variable normalised(const Variable& x, int layer, double momentum) const {
    const Variable hidden =
        layers::fc(x, size("h"),
                   {.param_attr = parameter(str_cat("fc", layer, ".w")), .bias_attr = no_bias()});
    const std::string name = str_cat("bn", layer);
    return layers::batch_norm(hidden, {.act = "relu",
                                       .momentum = momentum,
                                       .param_attr = parameter(name + ".scale"),
                                       .bias_attr = parameter(name + ".bias"),
                                       .moving_mean_name = name + ".mean",
                                       .moving_variance_name = name + ".variance"});
  }
  Variable pooled(const std::string& ids, const std::string& table, const std::string& how) const {
    const Variable rows = layers::embedding(sequence(ids), {size("v"), size("d")},
                                            {.is_sparse = true, .param_attr = parameter(table)});
    return layers::sequence_pool(rows, how);
  }
  static Variable classified(const Variable& prediction, const Variable& y) {
    return layers::mean(layers::cross_entropy(prediction, y));
  }

 private:
  const Json& settings_;
  const TensorOf& tensor_;
};

Variable mlp(const Builder& b) {
  const Variable x = b.input("x");
  const Variable y = b.labels();
  Variable hidden = b.dense(x, 0, b.size("h"), "tanh");
  hidden = b.dense(hidden, 1, b.size("h"), "tanh");
  const Variable loss = Builder::classified(b.dense(hidden, 2, b.size("k"), "softmax"), y);
  optimizer::SGD({.learning_rate = b.number("lr")}).minimize(loss);
  return loss;
}

Variable lenet(const Builder& b) {
  const Variable x = b.input("x");
  const Variable y = b.labels();
  const Variable maps = b.convolution(b.convolution(x, 0, b.size("c1")), 1, b.size("c2"));
  const Variable loss = Builder::classified(b.dense(maps, 0, b.size("k"), "softmax"), y);
  optimizer::Momentum({.learning_rate = b.number("lr"),
                       .momentum = b.number("mom"),
                       .regularization = regularizer::L2Decay(b.number("l2"))})
      .minimize(loss);
  return loss;
}

Variable bag_of_words(const Builder& b, const Json& settings) {
  const Variable pooled = b.pooled("ids", "emb.w", settings.at("pt").get<std::string>());
  const Variable y = b.labels();
  const Variable loss = Builder::classified(b.dense(pooled, 0, b.size("k"), "softmax"), y);
  optimizer::Adagrad({.learning_rate = b.number("lr")}).minimize(loss);
  return loss;
}

Variable regression(const Builder& b, const Json& settings, const NetForms& forms) {
  const Variable x = b.input("x");
  const Variable y = b.input("y");
  Variable hidden = x;
  for (int layer = 0; layer < 3; ++layer) hidden = b.dense(hidden, layer, b.size("h"), "relu");
  const Variable loss = layers::mean(layers::square_error_cost(b.dense(hidden, 3, 1), y));
  optimizer::AdamOptions options{
      .learning_rate = layers::exponential_decay(b.number("lr"), b.number("ds"), b.number("dr"),
                                                 settings.at("stair").get<bool>(), forms.decay)};
  if (!settings.at("clip").is_null()) {
    options.grad_clip = clip::GradientClipByGlobalNorm(b.number("clip"));
  }
  optimizer::Adam(options).minimize(loss);
  return loss;
}

Variable normalised(const Builder& b) {
  const Variable x = b.input("x");
  const Variable y = b.labels();
  const Variable first = layers::dropout(b.normalised(x, 0, 0.9), 0.0);
  const Variable second = b.normalised(first, 1, 0.8);
  const Variable loss =
      layers::mean(layers::softmax_with_cross_entropy(b.dense(second, 2, b.size("k")), y));
  optimizer::RMSProp({.learning_rate = b.number("lr"),
                      .rho = b.number("rho"),
                      .momentum = b.number("mom"),
                      .centered = true})
      .minimize(loss);
  return loss;
}

Variable click_through(const Builder& b, const NetForms& forms) {
  std::vector<Variable> parts;
  for (int64_t slot = 0; slot < b.size("slots"); ++slot) {
    parts.push_back(b.pooled(str_cat("slot", slot), str_cat("emb", slot, ".w"), "sum"));
  }
  parts.push_back(b.input("dense"));
  const Variable y = b.labels();
  Variable hidden = b.dense(layers::concat(parts, 1), 0, b.size("h"), "relu");
  hidden = b.dense(hidden, 1, b.size("h") / 2, "relu");
  const Variable loss = Builder::classified(b.dense(hidden, 2, 2, "softmax"), y);
  optimizer::Adam(
      {.learning_rate = b.number("lr"), .lazy_mode = true, .paddle_form = forms.paddle_adam})
      .minimize(loss);
  return loss;
}

// A net's sentence begins so; the settings that its files have.
struct Net {
  std::string_view sentence;
  std::set<std::string> settings;
  std::function<Variable(const Builder&, const Json&, const NetForms&)> append;
};

const std::vector<Net>& nets() {
  static const std::vector<Net> kNets = {
      {"quick-start mlp",
       {"din", "h", "k", "lr"},
       [](const auto& b, auto&, auto&) { return mlp(b); }},
      {"LeNet-like",
       {"c1", "c2", "k", "lr", "mom", "l2"},
       [](const auto& b, auto&, auto&) { return lenet(b); }},
      {"embedding (sparse gradient)",
       {"v", "d", "k", "lr", "pt"},
       [](const auto& b, const auto& settings, auto&) { return bag_of_words(b, settings); }},
      {"fc relu three times", {"din", "h", "lr", "clip", "ds", "dr", "stair"}, regression},
      {"fc without bias, batch_norm relu",
       {"din", "h", "k", "lr", "rho", "mom"},
       [](const auto& b, auto&, auto&) { return normalised(b); }},
      {"click-through net",
       {"slots", "v", "d", "dense", "h", "lr"},
       [](const auto& b, auto&, const auto& forms) { return click_through(b, forms); }},
  };
  return kNets;
}

Variable append_net(const std::string& sentence, const Json& settings, const Builder& b,
                    const NetForms& forms) {
  for (const Net& net : nets()) {
    if (!sentence.starts_with(net.sentence)) continue;
    for (const auto& [name, value] : settings.items()) {
      const bool of_data = name == "batch" || name == "pool";
      if (of_data || net.settings.contains(name)) continue;
      throw std::runtime_error("a setting that is not known: " + name);
    }
    return net.append(b, settings, forms);
  }
  throw std::runtime_error("a net that is not known: " + sentence);
}

}  // namespace

NumericNet build_net(const std::string& sentence, const Json& settings, const TensorOf& tensor,
                     const NetForms& forms) {
  NumericNet net;
  const ProgramGuard programs(net.main, net.startup);
  const unique_name::Guard names;
  net.loss = append_net(sentence, settings, Builder(settings, tensor), forms).name();
  return net;
}

}  // namespace fleet::fluid::golden
