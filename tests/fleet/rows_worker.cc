// A small program of a user whose gradients are of rows, for tests that start real processes.
//
//   --shards N       logical shards of a step (default: 2)
//   --distributed    the table is on servers only
//   --loss NAME      what follows the table: classes (default), nce or hsigmoid, whose weights are
//                    tables too; v2 looks two tables up by lookup_table_v2
//   --rule NAME      adam (default), clip: adam under a bound on the norm of all gradients, or lamb
//   --strategy NAME  async or half_async, where servers train, or geo (default: synchronous)
//   --first N        the step to begin with
//   --load DIR       workers load a saved model before their first step
//   --model DIR      servers load it before they serve
//   --tables DIR     servers save the rows of the table that they have, at the end
//   --save DIR       at the end
//   --infer DIR      saves the loss for inference, at the end, by which the process then computes
//   it
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/table_ops.h"

namespace {

constexpr int kSteps = 12;
constexpr int64_t kRows = 16;
constexpr int64_t kWords = 3;
constexpr int64_t kHeight = 3000;

struct Options {
  int shards = 2;
  bool distributed = false;
  int first = 0;
  std::string loss = "classes";
  std::string rule = "adam";
  std::string strategy;
  std::string load;
  std::string model;
  std::string tables;
  std::string save;
  std::string infer;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--distributed") == 0) options.distributed = true;
    if (std::strcmp(argv[i], "--loss") == 0) options.loss = argv[++i];
    if (std::strcmp(argv[i], "--shards") == 0) options.shards = std::stoi(argv[++i]);
    if (std::strcmp(argv[i], "--rule") == 0) options.rule = argv[++i];
    if (std::strcmp(argv[i], "--strategy") == 0) options.strategy = argv[++i];
    if (std::strcmp(argv[i], "--first") == 0) options.first = std::stoi(argv[++i]);
    if (std::strcmp(argv[i], "--load") == 0) options.load = argv[++i];
    if (std::strcmp(argv[i], "--model") == 0) options.model = argv[++i];
    if (std::strcmp(argv[i], "--tables") == 0) options.tables = argv[++i];
    if (std::strcmp(argv[i], "--save") == 0) options.save = argv[++i];
    if (std::strcmp(argv[i], "--infer") == 0) options.infer = argv[++i];
  }
  return options;
}

// This worker's part of the rows of a step.
fluid::Feed batch(int step, int worker, int workers) {
  std::vector<int64_t> ids;
  std::vector<int64_t> label;
  const int64_t each = kRows / workers;
  for (int64_t row = worker * each; row < (worker + 1) * each; ++row) {
    for (int64_t k = 0; k < kWords; ++k) {
      const uint64_t draw = fleet::mix64(static_cast<uint64_t>((step * kRows + row) * kWords + k));
      ids.push_back(static_cast<int64_t>(draw % 4 == 0 ? draw % 11 : draw % kHeight));
    }
    label.push_back(ids.back() % 5);
  }
  return {{"ids", fluid::Tensor::from(ids, {each, kWords, 1})},
          {"label", fluid::Tensor::from(label, {each, 1})}};
}

fleet::DistributedOptimizer distributed(fluid::optimizer::Optimizer& optimizer,
                                        const Options& options) {
  using namespace fleet::strategies;  // NOLINT(google-build-using-namespace)
  if (fleet::mode() != "local" && options.strategy == "async") {
    // Values come in step, so that one worker is a local run.
    return fleet::distributed_optimizer(
        optimizer,
        AsyncStrategy{.trainer_runtime_config = {.communicator_independent_recv_thread = false}});
  }
  if (fleet::mode() != "local" && options.strategy == "half_async") {
    return fleet::distributed_optimizer(optimizer, HalfAsyncStrategy{});
  }
  if (fleet::mode() == "parameter_server" && options.strategy == "geo") {
    return fleet::distributed_optimizer(optimizer, GeoStrategy{.update_frequency = 5});
  }
  return fleet::distributed_optimizer(optimizer, {.logical_shards = options.shards});
}

// Every server writes the rows that it has.
void save_tables(fluid::Executor& exe, const std::string& table, const std::string& folder) {
  fluid::Program program;
  fluid::Operator op;
  op.type = "checkpoint_notify";
  op.attrs = fluid::to_attributes(fluid::CheckpointNotifyAttrs{
      .epmap = fleet::server_endpoints(), .dir = folder, .lookup_table = table});
  fluid::append_op(program.global_block(), std::move(op));
  program.set_runtime(fluid::default_main_program().runtime());
  exe.run(program);
}

fluid::Variable loss_of(const Options& options, const fluid::Variable& ids,
                        const fluid::Variable& label) {
  namespace layers = fluid::layers;
  const fluid::EmbeddingOptions table{
      .is_sparse = true, .is_distributed = options.distributed, .param_attr = {.name = "table"}};
  if (options.loss == "v2") {
    const auto flat = layers::reshape(ids, {-1, kWords});
    auto other = table;
    other.param_attr = {.name = "other"};
    const auto words = layers::elementwise_add(fluid::embedding(flat, {kHeight, 8}, table),
                                               fluid::embedding(flat, {kHeight, 8}, other));
    const auto prediction = layers::fc(words, 5, {.act = "softmax"});
    return layers::mean(layers::cross_entropy(prediction, label));
  }
  const auto words = layers::embedding(ids, {kHeight, 8}, table);
  if (options.loss == "nce") {
    const auto hidden = layers::fc(words, 8, {.act = "tanh"});
    return layers::mean(
        layers::nce(hidden, label, kHeight, {.num_neg_samples = 5, .is_sparse = true}));
  }
  if (options.loss == "hsigmoid") {
    const auto hidden = layers::fc(words, 8, {.act = "tanh"});
    return layers::mean(
        layers::hsigmoid(hidden, label, kHeight, {.is_sparse = true, .rows_without_paths = true}));
  }
  const auto prediction = layers::fc(words, 5, {.act = "softmax"});
  return layers::mean(layers::cross_entropy(prediction, label));
}

std::unique_ptr<fluid::optimizer::Optimizer> rule_of(const Options& options) {
  using namespace fluid::optimizer;  // NOLINT(google-build-using-namespace)
  if (options.rule == "lamb") return std::make_unique<Lamb>(LambOptions{.learning_rate = 0.01});
  AdamOptions adam{.learning_rate = 0.01};
  if (options.rule == "clip") adam.grad_clip = fluid::clip::GradientClipByGlobalNorm(0.05);
  return std::make_unique<Adam>(adam);
}

int train(const Options& options) {
  fluid::default_startup_program().set_random_seed(7);
  auto ids = fluid::layers::data("ids", {kWords, 1}, fluid::DType::kInt64);
  auto label = fluid::layers::data("label", {1}, fluid::DType::kInt64);
  auto cost = loss_of(options, ids, label);
  const auto rule = rule_of(options);
  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = distributed(*rule, options);
  optimizer.minimize(cost);
  if (fleet::is_server()) {
    fleet::default_fleet().init_server(options.model);
    return fleet::run_server();
  }
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  if (!options.load.empty()) fluid::io::load_persistables(exe, options.load);
  // Both begin before either changes what the servers have.
  if (options.strategy == "geo") fleet::barrier_worker();
  float loss = 0;
  for (int step = options.first; step < options.first + kSteps; ++step) {
    const auto rows = batch(step, fleet::worker_index(), fleet::worker_num());
    loss = exe.run(fluid::default_main_program(), rows, {cost})[0].item<float>();
    if (step == options.first) std::printf("the first loss is %g\n", static_cast<double>(loss));
  }
  if (!options.tables.empty() && fleet::is_first_worker()) {
    save_tables(exe, "table", options.tables);
  }
  if (!options.save.empty()) fluid::io::save_persistables(exe, options.save);
  if (!options.infer.empty()) {
    fleet::barrier_worker();
    fleet::save_inference_model(exe, options.infer, {"ids", "label"}, {cost});
    fleet::barrier_worker();
    fluid::Executor user(fluid::CPUPlace());
    const auto model = fluid::io::load_inference_model(options.infer, user);
    const auto told = user.run(model.program, batch(100, 0, 1), {model.fetches[0]})[0];
    std::printf("the model says %a\n", static_cast<double>(told.item<float>()));
  }
  fleet::stop_worker();
  std::printf("worker %d ended with loss %g\n", fleet::worker_index(), static_cast<double>(loss));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return train(parse(argc, argv));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
