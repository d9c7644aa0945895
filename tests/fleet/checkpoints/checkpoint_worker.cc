// Trains a small net in any mode, for tests of checkpoints.
//
//   --optimizer NAME   sgd (with a schedule), plain, momentum, adam, lamb, adagrad, rmsprop, ftrl,
//                      dpsgd, dgc
//   --strategy NAME    as facade_worker's; default the job's
//   --shards N         logical shards of a step; default 4
//   --steps N          --short_by M --short_worker W: that one takes M fewer
//   --folder F --every N --every_ms N --keep N   CheckpointPolicy
//   --copy_to F        save_checkpoint behind the last step
//   --copy_every N     of steps, the same
//   --load F           load_checkpoint instead of resume
//   --paddle F         load_check_point, and save_check_point behind the last step
//   --width N          of the net; --batch_norm: it has one; --growing: and a growing table
//   --sleep_ms N       in each step
//   --meet             all workers meet behind their last step
//   --count            a net whose parameters count: each gradient takes 1 from all of them
//   --print            the status that training begins with, and the reader's position at the end
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "base/hash.h"
#include "base/philox.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fluid::Variable;

constexpr int kRows = 24;
constexpr int kFeatures = 12;

using Flags = std::map<std::string, std::string>;

Flags parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    const bool has_value = i + 1 < argc && std::strncmp(argv[i + 1], "--", 2) != 0;
    flags[name] = has_value ? argv[++i] : "";
  }
  return flags;
}

std::string text(const Flags& flags, const std::string& name, const std::string& otherwise = "") {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : found->second;
}

int number(const Flags& flags, const std::string& name, int otherwise) {
  const auto found = flags.find(name);
  return found == flags.end() ? otherwise : std::stoi(found->second);
}

using Minimize = std::function<void(optimizer::Optimizer&)>;

// Calls it with the optimizer of that name.
void with_optimizer(const std::string& name, const Minimize& minimize) {
  const auto use = [&](auto&& made) { minimize(made); };
  const auto decay = [] { return layers::exponential_decay(0.05, 3, 0.9, true); };
  if (name == "momentum") {
    use(optimizer::Momentum({.learning_rate = decay(),
                             .momentum = 0.9,
                             .grad_clip = fluid::clip::GradientClipByGlobalNorm(0.5)}));
  } else if (name == "adam") {
    use(optimizer::Adam({.learning_rate = layers::noam_decay(64, 4)}));
  } else if (name == "lamb") {
    use(optimizer::Lamb({.learning_rate = 0.01}));
  } else if (name == "adagrad") {
    use(optimizer::Adagrad(
        {.learning_rate = 0.05, .regularization = fluid::regularizer::L2Decay(1e-3)}));
  } else if (name == "adagrad_plain") {
    use(optimizer::Adagrad({.learning_rate = 0.05}));
  } else if (name == "rmsprop") {
    use(optimizer::RMSProp({.learning_rate = 0.01}));
  } else if (name == "ftrl") {
    use(optimizer::Ftrl({.learning_rate = 0.05}));
  } else if (name == "dpsgd") {
    use(optimizer::Dpsgd({.learning_rate = 0.05, .clip = 1.0, .batch_size = 4.0, .sigma = 0.1}));
  } else if (name == "dgc") {
    use(optimizer::DGCMomentum(
        {.learning_rate = 0.05, .momentum = 0.9, .sparsity = {0.75}, .min_numel = 64}));
  } else if (name == "counting") {
    use(optimizer::SGD({.learning_rate = 1.0}));
  } else if (name == "plain") {
    use(optimizer::SGD({.learning_rate = 0.05}));
  } else {
    use(optimizer::SGD({.learning_rate = decay()}));
  }
}

strategies::DistributedStrategy strategy_of(const std::string& asked, int shards) {
  const std::string mode = fleet::mode();
  if (mode == "local") return strategies::LocalStrategy{.logical_shards = shards};
  const std::string usual = mode == "collective" ? "all_reduce" : "sync";
  const std::string name = asked.empty() ? usual : asked;
  if (name == "sync") return strategies::SyncStrategy{.logical_shards = shards};
  if (name == "all_reduce") return strategies::GradAllReduceStrategy{.logical_shards = shards};
  if (name == "local_sgd") return strategies::LocalSgdStrategy{{.interval = 3}};
  if (name == "async") return strategies::AsyncStrategy{};
  if (name == "half_async") return strategies::HalfAsyncStrategy{};
  if (name == "dc_asgd") return strategies::AsyncStrategy{.enable_dc_asgd = true};
  if (name == "geo") return strategies::GeoStrategy{.update_frequency = 3};
  if (name == "easgd") return strategies::EasgdStrategy{.tau = 3};
  return {};
}

// Rows [begin, end) of a step's batch, made of their numbers.
fluid::Feed rows(int step, int begin, int end) {
  const auto key = fleet::RandomKey::of(11, "rows");
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int row = begin; row < end; ++row) {
    for (int i = 0; i < kFeatures; ++i) {
      const auto at = static_cast<uint64_t>(row) * kFeatures + static_cast<uint64_t>(i);
      x.push_back(static_cast<float>(fleet::uniform_double(key, at, static_cast<uint64_t>(step))) -
                  0.5F);
    }
    y.push_back((row + step) % 3);
  }
  return {{"x", fluid::Tensor::from(x, {end - begin, kFeatures})},
          {"y", fluid::Tensor::from(y, {end - begin, 1})}};
}

// As many ids, of which some come often.
void add_ids(int step, int begin, int end, fluid::Feed& feed) {
  std::vector<int64_t> ids;
  for (int row = begin; row < end; ++row) {
    const uint64_t draw = fleet::mix64(static_cast<uint64_t>(step * kRows + row));
    ids.push_back(static_cast<int64_t>(draw % 3 == 0 ? draw : draw % 9));
  }
  feed.emplace_back("ids", fluid::Tensor::from(ids, {end - begin, 1}));
}

fluid::Feed ones() {
  return {{"x", fluid::Tensor::from(std::vector<float>(kFeatures, 1.0F), {1, kFeatures})}};
}

Variable counting_loss() {
  auto x = layers::data("x", {kFeatures});
  return layers::mean(layers::fc(
      x, 1,
      {.param_attr = {.name = "count", .initializer = fluid::initializer::Constant{.value = 0.0}},
       .bias_attr = {.omit = true}}));
}

Variable training_loss(const Flags& flags) {
  const int width = number(flags, "--width", 16);
  auto x = layers::data("x", {kFeatures});
  auto y = layers::data("y", {1}, fluid::DType::kInt64);
  if (flags.contains("--growing")) {
    const auto ids = layers::data("ids", {1}, fluid::DType::kInt64);
    x = layers::concat({x, layers::sparse_embedding(ids, 5, {.param_attr = {.name = "grown"}})}, 1);
  }
  auto hidden = layers::fc(x, width, {.act = "tanh"});
  if (flags.contains("--batch_norm")) hidden = layers::batch_norm(hidden);
  hidden = layers::dropout(layers::fc(hidden, width, {.act = "relu"}), 0.3);
  return layers::mean(layers::softmax_with_cross_entropy(layers::fc(hidden, 3), y));
}

// What a reader of the user's own reads does not matter here: its position does.
fluid::data::DataLoader make_reader() {
  std::vector<float> numbers(64);
  return {std::make_shared<fluid::data::TensorDataset>(
              fluid::Feed{{"n", fluid::Tensor::from(numbers, {64, 1})}}),
          {.batch_size = 4, .threads = 0}};
}

fleet::TrainStatus begin(fluid::Executor& exe, const fleet::CheckpointPolicy& policy,
                         const Flags& flags) {
  if (flags.contains("--load")) return fleet::load_checkpoint(exe, flags.at("--load")).value();
  if (flags.contains("--paddle")) {
    return fleet::load_check_point(exe, flags.at("--paddle")).value_or(fleet::TrainStatus());
  }
  return fleet::resume(exe, policy);
}

int train(const Flags& flags) {
  const int shards = number(flags, "--shards", 4);
  fluid::default_startup_program().set_random_seed(5);
  fluid::default_main_program().set_random_seed(5);
  const bool counts = flags.contains("--count");
  auto loss = counts ? counting_loss() : training_loss(flags);

  fleet::init(role_maker::PaddleCloudRoleMaker());
  with_optimizer(counts ? "counting" : text(flags, "--optimizer"), [&](optimizer::Optimizer& made) {
    fleet::distributed_optimizer(made, strategy_of(text(flags, "--strategy"), shards))
        .minimize(loss);
  });
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe;
  exe.run(fluid::default_startup_program());
  fluid::data::DataLoader reader = make_reader();
  fleet::CheckpointPolicy policy{.folder = text(flags, "--folder"),
                                 .every_steps = number(flags, "--every", 0),
                                 .every_seconds = number(flags, "--every_ms", 0) / 1000.0,
                                 .keep = number(flags, "--keep", 3),
                                 .readers = {{"numbers", &reader}}};
  policy.values = [] { return std::map<std::string, std::string>{{"mine", "of the user"}}; };
  const fleet::TrainStatus status = begin(exe, policy, flags);
  if (flags.contains("--print")) {
    std::printf("begins with step %d, position %d, mine '%s'\n", static_cast<int>(status.step),
                static_cast<int>(reader.position()),
                status.values.contains("mine") ? status.values.at("mine").c_str() : "");
  }
  const auto own = fleet::owned_shards(fleet::worker_index(), fleet::worker_num(), shards);
  const int each = kRows / shards;
  const bool is_short =
      fleet::worker_num() > 1 && fleet::worker_index() == number(flags, "--short_worker", 1);
  const int steps = number(flags, "--steps", 10) - (is_short ? number(flags, "--short_by", 0) : 0);
  const std::string copy = text(flags, "--copy_to");
  const int copy_every = number(flags, "--copy_every", 0);
  for (auto step = static_cast<int>(status.step); step < steps; ++step) {
    (void)reader.next();
    fluid::Feed feed = counts ? ones() : rows(step, each * own.begin, each * own.end);
    if (flags.contains("--growing")) add_ids(step, each * own.begin, each * own.end, feed);
    exe.run(fluid::default_main_program(), feed, {loss});
    std::this_thread::sleep_for(std::chrono::milliseconds(number(flags, "--sleep_ms", 0)));
    if (copy_every > 0 && (step + 1) % copy_every == 0) {
      fleet::save_checkpoint(exe, copy, {.step = step + 1});
    }
  }
  if (flags.contains("--meet")) {
    const double sum = fleet::all_reduce_worker(std::vector<double>{1}).front();
    std::printf("%d workers met\n", static_cast<int>(sum));
    fleet::barrier_worker();
  }
  if (!copy.empty() && copy_every == 0) {
    fleet::save_checkpoint(exe, copy, {.step = std::max<int64_t>(steps, status.step)});
  }
  if (flags.contains("--paddle")) {
    fleet::save_check_point(exe, flags.at("--paddle"), {.epoch_no = steps / 4},
                            flags.contains("--keep"));
  }
  fleet::stop_worker();
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return fleet::exit_code(error);
  }
}
