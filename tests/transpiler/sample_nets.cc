#include "tests/transpiler/sample_nets.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <optional>
#include <random>

#include "base/strings.h"
#include "fluid/backward/gradient_clip.h"
#include "fluid/backward/regularizer.h"
#include "fluid/layers/conv.h"
#include "fluid/layers/embedding.h"
#include "fluid/layers/layers.h"
#include "fluid/layers/norm.h"
#include "fluid/layers/sampled.h"
#include "fluid/layers/sequence.h"
#include "fluid/optimizer/averages.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::transpiler {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fluid::DType;
using fluid::ParamAttr;
using fluid::Variable;

SampleNet build(const std::function<void()>& net) {
  SampleNet built;
  const fluid::ProgramGuard programs(built.main, built.startup);
  const fluid::unique_name::Guard names;
  net();
  return built;
}

Variable reference_loss() {
  const Variable x = layers::data("x", {1000});
  const Variable y = layers::data("y", {1});
  const Variable prediction =
      layers::fc(x, 1000, {.param_attr = {.name = "fc_w"}, .bias_attr = {.name = "fc_b"}});
  return layers::mean(layers::square_error_cost(prediction, y));
}

// Two lookups of each table.
Variable loss_of_lookups(int lookups, bool distributed) {
  std::vector<Variable> pooled;
  for (int i = 0; i < lookups; ++i) {
    const Variable ids = layers::data(str_cat("ids_", i), {1}, DType::kInt64);
    pooled.push_back(layers::embedding(ids, {1000, 16},
                                       {.is_sparse = true,
                                        .is_distributed = distributed,
                                        .param_attr = {.name = str_cat("table_", i / 2)}}));
  }
  const Variable y = layers::data("y", {1});
  return layers::mean(layers::square_error_cost(layers::fc(layers::concat(pooled, 1), 1), y));
}

struct Draw {
  explicit Draw(uint64_t seed) : generator(seed) {}
  int number(int below) { return static_cast<int>(generator() % static_cast<uint64_t>(below)); }
  bool chance(int percent) { return number(100) < percent; }

  std::mt19937_64 generator;
};

ParamAttr random_attr(Draw& draw) {
  ParamAttr attr;
  if (draw.chance(20)) attr.learning_rate = 2.0;
  if (draw.chance(20)) attr.trainable = false;
  if (draw.chance(20)) attr.regularizer = fluid::regularizer::L2Decay(0.001);
  return attr;
}

// A number in [0, count) for each row, which the values of a layer's input choose.
Variable chosen_of(const Variable& x, int count) {
  const auto most = static_cast<float>(count - 1);
  const Variable sum = layers::reduce_sum(x, {.dim = {1}, .keep_dim = true});
  const Variable scaled = layers::scale(sum, {.scale = 20.0F, .bias = most / 2});
  return layers::cast(layers::clip(scaled, 0, most), DType::kInt64);
}

// Rows of a table that the values of a layer's input choose, beside the layer itself.
Variable with_table(const Variable& x, Draw& draw) {
  constexpr int kHeight = 1200;
  const bool sparse = draw.chance(70);
  const Variable rows = layers::embedding(chosen_of(x, kHeight), {kHeight, 16},
                                          {.is_sparse = sparse,
                                           .is_distributed = sparse && draw.chance(60),
                                           .param_attr = random_attr(draw)});
  return layers::concat({x, rows}, 1);
}

// What an LSTM makes of a sequence for each row, beside the layer itself.
Variable with_sequence(const Variable& x, Draw& draw) {
  constexpr int64_t kCells = 24;  // or 64, whose recurrent weight is cut
  const int64_t width = 4 * (draw.chance(50) ? kCells : 64);
  const Variable steps = layers::data("steps", {5}, DType::kFloat32, {.lod_level = 1});
  const Variable gates = layers::fc(steps, width, {.param_attr = random_attr(draw)});
  const auto made = layers::dynamic_lstm(gates, width,
                                         {.param_attr = random_attr(draw),
                                          .bias_attr = random_attr(draw),
                                          .use_peepholes = draw.chance(50),
                                          .is_reverse = draw.chance(50)});
  const char* const kPools[] = {"sum", "max", "last", "average"};
  return layers::concat({x, layers::sequence_pool(made.hidden, kPools[draw.number(4)])}, 1);
}

// The values of a layer's input as an image of one row.
Variable with_image(const Variable& x, Draw& draw) {
  const Variable image = layers::reshape(x, {-1, 1, 1, static_cast<int>(x.shape()[-1])});
  Variable made = layers::conv2d(image, 3, {1, 1}, {.param_attr = random_attr(draw)});
  if (draw.chance(50)) made = layers::batch_norm(made);
  return layers::reshape(made, {-1, 3 * static_cast<int>(x.shape()[-1])});
}

// A loss over classes of which each row looks at a few, [n, 1].
Variable sampled_cost(const Variable& x, Draw& draw) {
  constexpr int kClasses = 700;
  const Variable label = chosen_of(x, kClasses);
  const bool sparse = draw.chance(60);
  if (draw.chance(50)) {
    return layers::hsigmoid(x, label, kClasses,
                            {.param_attr = random_attr(draw),
                             .is_sparse = sparse,
                             .rows_without_paths = draw.chance(50)});
  }
  return layers::nce(x, label, kClasses,
                     {.param_attr = random_attr(draw),
                      .num_neg_samples = 4,
                      .sampler = draw.chance(50) ? "uniform" : "log_uniform",
                      .seed = draw.number(2),
                      .is_sparse = sparse});
}

Variable random_loss(Draw& draw) {
  constexpr int64_t kWidths[] = {1, 7, 64, 130, 300};
  Variable hidden = layers::data("x", {kWidths[draw.number(5)]});
  const int tables = draw.chance(30) ? 1 + draw.number(3) : 0;
  for (int i = 0; i < tables; ++i) hidden = with_table(hidden, draw);
  if (draw.chance(30)) hidden = with_image(hidden, draw);
  if (draw.chance(30)) hidden = with_sequence(hidden, draw);
  const int depth = 1 + draw.number(4);
  for (int i = 0; i < depth; ++i) {
    const int64_t width = kWidths[draw.number(5)];
    ParamAttr weight = random_attr(draw);
    // A direction of one number has no gradient, and updates of rules like Ftrl's make it 0.
    if (hidden.shape()[-1] > 1 && draw.chance(20)) {
      const bool by_output = draw.chance(50);
      weight = fluid::WeightNormParamAttr(by_output ? std::optional<int>(1) : std::nullopt, weight);
    }
    if (hidden.shape()[-1] == width && draw.chance(30)) {
      weight = {.name = str_cat("shared_", width)};  // square ones may meet again
    }
    hidden = layers::fc(hidden, width,
                        {.param_attr = weight,
                         .bias_attr = draw.chance(20) ? fluid::no_bias() : ParamAttr{},
                         .act = draw.chance(50) ? "tanh" : ""});
  }
  // The last layer always trains, so that there is something to transpile.
  const Variable y = layers::data("y", {1});
  Variable cost = layers::square_error_cost(layers::fc(hidden, 1), y);
  if (draw.chance(30)) cost = layers::elementwise_add(cost, sampled_cost(hidden, draw));
  return layers::mean(cost);
}

std::optional<fluid::Penalty> random_clip(Draw& draw) {
  switch (draw.number(3)) {
    case 0:
      return fluid::clip::GradientClipByValue(0.1);
    case 1:
      return fluid::clip::GradientClipByNorm(0.5);
    default:
      return fluid::clip::GradientClipByGlobalNorm(0.5);
  }
}

// What every optimizer of a draw is given.
struct Common {
  optimizer::LearningRate rate = 0.02;
  std::optional<fluid::Penalty> decay;
  std::optional<fluid::Penalty> clip;
};

using Made = std::unique_ptr<optimizer::Optimizer>;

template <class Optimizer, class Options>
Made make(const Common& common, Options options) {
  options.learning_rate = common.rate;
  options.regularization = common.decay;
  options.grad_clip = common.clip;
  return std::make_unique<Optimizer>(std::move(options));
}

// Updates that need the whole parameter or gradient.
Made rule_of_wholes(Draw& draw, const Common& common) {
  using namespace fluid::optimizer;
  switch (draw.number(3)) {
    case 0:
      return make<LarsMomentum>(common, LarsMomentumOptions());
    case 1:
      return make<Dpsgd>(common, DpsgdOptions{.clip = 0.5, .sigma = 1e-3});
    default:
      return make<Lamb>(common, LambOptions());
  }
}

Made rule_of_elements(Draw& draw, const Common& common) {
  using namespace fluid::optimizer;
  switch (draw.number(9)) {
    case 0:
      return make<SGD>(common, SGDOptions());
    case 1:
      return make<Momentum>(common, MomentumOptions{.use_nesterov = draw.chance(50)});
    case 2:
      return make<Ftrl>(common, FtrlOptions{.l2 = 1e-4});
    case 3:
      return make<Adagrad>(common, AdagradOptions());
    case 4:
      return make<Adamax>(common, AdamaxOptions());
    case 5:
      return make<RMSProp>(common, RMSPropOptions{.centered = draw.chance(50)});
    case 6:
      return make<DecayedAdagrad>(common, DecayedAdagradOptions());
    case 7:
      return make<Adadelta>(common, AdadeltaOptions());
    default:
      return make<Adam>(common, AdamOptions());
  }
}

Made random_optimizer(Draw& draw) {
  Common common;
  if (draw.chance(30)) common.rate = layers::exponential_decay(0.2, 10, 0.5, draw.chance(50));
  if (draw.chance(30)) common.decay = fluid::regularizer::L2Decay(0.01);
  if (draw.chance(40)) common.clip = random_clip(draw);
  return draw.chance(25) ? rule_of_wholes(draw, common) : rule_of_elements(draw, common);
}

}  // namespace

SampleNet reference_net() {
  return build([] { optimizer::SGD({.learning_rate = 0.1}).minimize(reference_loss()); });
}

SampleNet adam_net() {
  return build([] { optimizer::Adam({.learning_rate = 0.1}).minimize(reference_loss()); });
}

SampleNet scheduled_net() {
  return build([] {
    const Variable loss = reference_loss();
    optimizer::SGD({.learning_rate = layers::exponential_decay(1.0, 10, 0.5)}).minimize(loss);
  });
}

SampleNet half_scheduled_net(fluid::OpRole role) {
  return build([role] {
    const Variable loss = reference_loss();
    const Variable rate = layers::exponential_decay(1.0, 10, 0.5);
    const fluid::RoleGuard guard(rate.block().program(), role);
    const Variable half = layers::scale(rate, {.scale = 0.5});
    optimizer::SGD({.learning_rate = half}).minimize(loss);
  });
}

SampleNet deep_net(int depth, int64_t width) {
  return build([depth, width] {
    Variable hidden = layers::data("x", {width});
    for (int i = 0; i < depth; ++i) hidden = layers::fc(hidden, width);
    optimizer::SGD({.learning_rate = 0.1}).minimize(layers::mean(hidden));
  });
}

SampleNet clipped_net(const fluid::Penalty& clip) {
  return build([&clip] {
    optimizer::SGD({.learning_rate = 0.1, .grad_clip = clip}).minimize(reference_loss());
  });
}

SampleNet averaged_net() {
  return build([] {
    optimizer::SGD({.learning_rate = 0.1}).minimize(reference_loss());
    optimizer::ExponentialMovingAverage({.decay = 0.99}).update();
  });
}

SampleNet lamb_net() {
  return build([] { optimizer::Lamb({.learning_rate = 0.1}).minimize(reference_loss()); });
}

SampleNet table_net(int lookups, bool distributed) {
  return build([lookups, distributed] {
    optimizer::Adam({.learning_rate = 0.1}).minimize(loss_of_lookups(lookups, distributed));
  });
}

SampleNet clipped_table_net(const fluid::Penalty& clip) {
  return build([&clip] {
    optimizer::SGD({.learning_rate = 0.1, .grad_clip = clip}).minimize(loss_of_lookups(4, true));
  });
}

SampleNet normalised_net() {
  return build([] {
    const Variable x = layers::data("x", {3, 8, 8});
    const Variable y = layers::data("y", {1});
    const Variable normal = layers::batch_norm(layers::conv2d(x, 4, 3));
    optimizer::SGD({.learning_rate = 0.1})
        .minimize(layers::mean(layers::square_error_cost(layers::fc(normal, 1), y)));
  });
}

SampleNet random_net(uint64_t seed) {
  return build([seed] {
    Draw draw(seed);
    const Variable loss = random_loss(draw);
    const auto first = random_optimizer(draw);
    if (draw.chance(70)) {
      first->minimize(loss);
      return;
    }
    // Two rules, each for some of the parameters.
    auto pairs = first->backward(loss);
    const auto middle = pairs.begin() + static_cast<std::ptrdiff_t>(pairs.size() / 2);
    const auto second = random_optimizer(draw);
    if (middle != pairs.begin()) first->apply_gradients({pairs.begin(), middle});
    second->apply_gradients({middle, pairs.end()});
  });
}

namespace {

bool has_row_gradients(const fluid::Block& block) {
  return std::ranges::any_of(block.parameters(), [&block](const fluid::VarDesc* param) {
    const fluid::VarDesc* gradient = block.find_var(param->name + "@GRAD");
    return gradient != nullptr && gradient->kind == fluid::VarKind::kSelectedRows;
  });
}

}  // namespace

bool refuses_compensation(const SampleNet& net, const DistributeTranspilerConfig& config) {
  return config.enable_dc_asgd && config.dc_asgd_form == "paddle" &&
         has_row_gradients(net.main.global_block());
}

std::vector<NamedConfig> synchronous_modes() {
  const DistributeTranspilerConfig split{
      .sync_mode = false, .runtime_split_send_recv = true, .completely_not_async = true};
  DistributeTranspilerConfig half_split = split;
  half_split.half_async = true;
  return {{"classic", {}}, {"split", split}, {"half async split", half_split}};
}

std::vector<NamedConfig> asynchronous_modes() {
  std::vector<NamedConfig> modes;
  for (const bool split : {false, true}) {
    const DistributeTranspilerConfig async{.sync_mode = false, .runtime_split_send_recv = split};
    DistributeTranspilerConfig half_async = async;
    half_async.half_async = true;
    const std::string suffix = split ? ", split" : "";
    modes.push_back({"async" + suffix, async});
    modes.push_back({"half async" + suffix, half_async});
    for (const char* form : {"paddle", "constant", "adaptive", "clipped"}) {
      DistributeTranspilerConfig compensated = async;
      compensated.enable_dc_asgd = true;
      compensated.dc_asgd_form = form;
      modes.push_back({form + suffix, compensated});
    }
  }
  return modes;
}

namespace {

std::vector<NamedConfig> server_modes() {
  std::vector<NamedConfig> modes = synchronous_modes();
  for (NamedConfig& mode : asynchronous_modes()) modes.push_back(std::move(mode));
  for (const bool split : {false, true}) {
    modes.push_back(
        {"geo", {.sync_mode = false, .runtime_split_send_recv = split, .geo_sgd_mode = true}});
  }
  return modes;
}

}  // namespace

SplitMethod split_method_of(uint64_t seed) {
  const auto names = split_method_names();
  return std::string(names[seed % names.size()]);
}

RandomJob random_job(uint64_t seed) {
  static const std::vector<NamedConfig> modes = server_modes();
  RandomJob job{.net = random_net(seed),
                .servers = 1 + static_cast<int>(seed % 5),
                .shards = 1 + static_cast<int>(seed % 4),
                .config = modes[seed % modes.size()].config};
  if (refuses_compensation(job.net, job.config)) {
    job.config.enable_dc_asgd = false;
    job.config.dc_asgd_form = DistributeTranspilerConfig().dc_asgd_form;
  }
  job.config.slice_var_up = seed % 7 != 0;
  job.config.split_method = split_method_of(seed);
  job.config.slices_per_server = job.config.slice_var_up && seed % 4 == 0 ? 3 : 1;
  return job;
}

std::vector<std::string> server_endpoints(int servers) {
  std::vector<std::string> endpoints;
  endpoints.reserve(static_cast<size_t>(servers));
  for (int i = 0; i < servers; ++i) endpoints.push_back(str_cat("127.0.0.1:", 6174 + i));
  return endpoints;
}

TranspileOptions options_for(const SampleNet& net, int servers, int trainers, int trainer_id,
                             bool verify_each_pass) {
  return {.trainer_id = trainer_id,
          .program = &net.main,
          .pservers = join(server_endpoints(servers), ","),
          .trainers = trainers,
          .startup_program = &net.startup,
          .verify_each_pass = verify_each_pass};
}

std::vector<std::string> op_types(const fluid::Block& block) {
  std::vector<std::string> types;
  for (const auto& op : block.ops()) types.push_back(op->type);
  return types;
}

}  // namespace fleet::transpiler
