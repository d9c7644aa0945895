// Saved models: what a job of some servers wrote goes on at any other number of them, and locally,
// with the bits of a run that was never interrupted.
#include <algorithm>
#include <atomic>
#include <filesystem>
#include <functional>
#include <gmock/gmock.h>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/io/checkpoint.h"
#include "fluid/io/inference_model.h"
#include "fluid/io/persistables.h"
#include "fluid/io/table_files.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/table_ops.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

namespace optimizer = fluid::optimizer;
using ::testing::HasSubstr;

constexpr int kShards = 2;
constexpr int kSteps = 4;

class ModelFiles : public ::testing::Test {
 protected:
  ModelFiles() {
    folder_ = ::testing::TempDir() + "models-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~ModelFiles() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }
  std::filesystem::path path(const std::string& name) const {
    return std::filesystem::path(folder_) / name;
  }

 private:
  std::string folder_;
};

// The steps from `first` on.
TrainingTask part_of(TrainingTask task, int first, int steps) {
  task.feed = [feed = task.feed, first](int step, int begin, int end, int parts) {
    return feed(first + step, begin, end, parts);
  };
  task.steps = steps;
  return task;
}

ThreadJob job_of(int servers, const transpiler::DistributeTranspilerConfig& config = {}) {
  ThreadJob job{.workers = kShards, .servers = servers};
  job.config = config;
  return job;
}

ThreadOutcome run(const TrainingTask& task, const ThreadJob& job) {
  ThreadOutcome outcome = train_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

// Worker 0 writes what all hold.
std::function<void(int, strategies::WorkerRuntime&, fluid::Executor&)> saving(
    const TrainingTask& task, const std::filesystem::path& directory) {
  return [&task, directory](int, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    runtime.barrier_worker();
    fluid::Scope gathered(&executor.scope());
    if (runtime.gather_persistables(gathered)) {
      fluid::save_persistables(gathered, directory, *task.main);
    }
  };
}

void expect_same(const Values& values, const Values& expected) {
  EXPECT_EQ(values.size(), expected.size());
  for (const auto& [name, bytes] : expected) {
    const auto found = values.find(name);
    ASSERT_NE(found, values.end()) << name;
    EXPECT_TRUE(found->second == bytes) << name << " differs";
  }
}

std::string bytes_of(const std::filesystem::path& directory) {
  const auto bytes = fluid::NamedTensors(fluid::load_tensors(directory));
  const auto encoded = fluid::encode_safetensors(bytes);
  return {reinterpret_cast<const char*>(encoded.data()), encoded.size()};
}

// Trains the first half on so many servers, which save the model.
void train_and_save(const TrainingTask& whole, int servers, const std::filesystem::path& model) {
  const TrainingTask first = part_of(whole, 0, kSteps);
  ThreadJob saves = job_of(servers);
  saves.after_steps = saving(first, model);
  run(first, saves);
}

TrainingTask whole_run(const SparseNet& net) {
  return part_of(net.task(2 * kSteps), 0, 2 * kSteps);
}

void by_adam(const fluid::Variable& loss) {
  optimizer::Adam({.learning_rate = fluid::layers::exponential_decay(0.01, 3, 0.9)}).minimize(loss);
}

SparseNetOptions adam_net(bool distributed, RowKind kind = RowKind::kLookup) {
  return {.kind = kind, .minimize = by_adam, .is_distributed = distributed};
}

TEST_F(ModelFiles, GoOnAtAnyNumberOfServers) {
  for (const bool distributed : {false, true}) {
    const SparseNet net(adam_net(distributed));
    const TrainingTask whole = whole_run(net);
    const TrainingTask rest = part_of(whole, kSteps, kSteps);
    const Values expected = train_locally(whole, kShards).persistables;
    std::set<std::string> files;
    for (const int servers : {1, 2, 3}) {
      const auto directory = path(str_cat("from_", servers, distributed ? "_distributed" : ""));
      train_and_save(whole, servers, directory);
      files.insert(bytes_of(directory));
      for (const int others : {1, 2, 4}) {
        SCOPED_TRACE(str_cat(servers, " servers to ", others, distributed ? ", distributed" : ""));
        ThreadJob loads = job_of(others);
        loads.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
          fluid::io::load_slices(startup, scope, directory);
        };
        expect_same(run(rest, loads).persistables, expected);
      }
    }
    EXPECT_EQ(files.size(), 1u) << "the files of different numbers of servers differ";
  }
}

TEST_F(ModelFiles, GoOnWhereSlicesOfAParameterShareAServer) {
  const SparseNet net(adam_net(false));
  const TrainingTask whole = whole_run(net);
  train_and_save(whole, 2, path("model"));
  std::atomic<bool> shared = false;
  for (const int servers : {3, 4, 5}) {
    SCOPED_TRACE(servers);
    ThreadJob loads = job_of(servers, {.split_method = "HashName"});
    loads.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
      for (const auto& row : startup.distribution().vars) {
        if (row.vtype == "Optimizer" && row.slice != row.origin) shared = true;
      }
      fluid::io::load_slices(startup, scope, path("model"));
    };
    expect_same(run(part_of(whole, kSteps, kSteps), loads).persistables,
                train_locally(whole, kShards).persistables);
  }
  EXPECT_TRUE(shared) << "choose other numbers of servers: no server has two slices";
}

TEST_F(ModelFiles, GoOnWhenAWorkerSpreadsThem) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SparseNet net(adam_net(distributed));
    const TrainingTask whole = whole_run(net);
    train_and_save(whole, 3, path("model"));
    ThreadJob loads = job_of(2);
    loads.before_steps = [&](strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
      fluid::load_persistables(executor, path("model"), *whole.main);
      runtime.spread_persistables(executor.scope());
    };
    expect_same(run(part_of(whole, kSteps, kSteps), loads).persistables,
                train_locally(whole, kShards).persistables);
  }
}

// One worker that waits for the values of each step: whatever a server keeps several copies of, all
// of them go on.
TEST_F(ModelFiles, GoOnWhenAnAsynchronousWorkerSpreadsThem) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SparseNet net(adam_net(distributed));
    const TrainingTask whole = whole_run(net);
    AsyncThreadJob job{.workers = 1, .servers = 3};
    job.options.staleness_bound = 1;
    const auto trained = [&job](const TrainingTask& task) {
      AsyncThreadOutcome outcome = train_async_in_threads(task, job);
      for (const auto& error : outcome.errors) ADD_FAILURE() << error;
      return std::move(outcome.persistables);
    };
    const Values expected = trained(whole);
    const TrainingTask first = part_of(whole, 0, kSteps);
    job.after_steps = saving(first, path("model"));
    trained(first);
    job.after_steps = nullptr;
    job.servers = 2;
    job.before_steps = [&](strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
      fluid::load_persistables(executor, path("model"), *whole.main);
      runtime.spread_persistables(executor.scope());
    };
    expect_same(trained(part_of(whole, kSteps, kSteps)), expected);
  }
}

TEST_F(ModelFiles, GoOnLocally) {
  const SparseNet net(adam_net(true));
  const TrainingTask whole = whole_run(net);
  train_and_save(whole, 3, path("model"));
  fluid::ExecutorOptions options;
  options.logical_shards = kShards;
  fluid::Executor executor(fluid::CPUPlace(), options);
  executor.run(*whole.startup);
  fluid::load_persistables(executor, path("model"), *whole.main);
  for (int step = kSteps; step < 2 * kSteps; ++step) {
    executor.run(*whole.main, whole.feed(step, 0, kShards, kShards), {whole.loss});
  }
  const Values expected = train_locally(whole, kShards).parameters;
  for (const auto& [name, bytes] : expected) {
    const fluid::Tensor& value = executor.scope().tensor(name);
    EXPECT_TRUE(std::equal(bytes.begin(), bytes.end(), value.raw())) << name;
  }
}

// ---- programs for inference

std::vector<fluid::Variable> loss_of(const TrainingTask& task) {
  auto& block = const_cast<fluid::Program&>(*task.main).global_block();
  return {fluid::Variable(block, task.loss)};
}

// What the loaded model says of a batch that nobody trained on.
float loaded_loss(const std::filesystem::path& directory, const TrainingTask& task) {
  fluid::Executor executor;
  const auto model = fluid::io::load_inference_model(directory, executor);
  return executor.run(model.program, task.feed(100, 0, 1, 1), {model.fetches.front()})
      .front()
      .item<float>();
}

TEST_F(ModelFiles, OfInferenceGatherWhatServersHave) {
  for (const RowKind kind : {RowKind::kLookup, RowKind::kLookupV2, RowKind::kTwoPaddings,
                             RowKind::kTwoTables, RowKind::kNce, RowKind::kHsigmoid}) {
    for (const bool distributed : {false, true}) {
      const SparseNet net(adam_net(distributed, kind));
      const TrainingTask task = net.task(kSteps);
      fluid::ExecutorOptions options;
      options.logical_shards = kShards;
      fluid::Executor local(fluid::CPUPlace(), options);
      local.run(*task.startup);
      for (int step = 0; step < kSteps; ++step) {
        local.run(*task.main, task.feed(step, 0, kShards, kShards), {task.loss});
      }
      const std::vector<std::string> feeds = {"ids", "label"};
      fluid::io::save_inference_model(path("local"), feeds, loss_of(task), local, *task.main);
      for (const int servers : {1, 3}) {
        SCOPED_TRACE(str_cat(static_cast<int>(kind), distributed ? ", distributed, " : ", ",
                             servers, " servers"));
        ThreadJob job = job_of(servers);
        job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
          runtime.barrier_worker();
          fluid::io::save_inference_model(path("job"), feeds, loss_of(task), executor, *task.main,
                                          runtime);
        };
        run(task, job);
        EXPECT_TRUE(bytes_of(path("job")) == bytes_of(path("local")));
        EXPECT_EQ(loaded_loss(path("job"), task), loaded_loss(path("local"), task));
        std::filesystem::remove_all(path("job"));
      }
    }
  }
}

// Values of the servers, whatever the workers have meanwhile.
TEST_F(ModelFiles, OfInferenceGatherInEveryAsynchronousMode) {
  using fluid::ServerMode;
  for (const ServerMode mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    for (const bool distributed : {false, true}) {
      SCOPED_TRACE(str_cat(to_string(mode), distributed ? ", distributed" : ""));
      const SparseNet net(adam_net(distributed, RowKind::kTwoTables));
      const TrainingTask task = net.task(7);
      AsyncThreadJob job;
      job.workers = 1;
      job.servers = 3;
      job.options.mode = mode;
      job.options.geo_update_frequency = 3;
      job.options.easgd_tau = 3;
      job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor& own) {
        fluid::io::save_inference_model(path("job"), {"ids", "label"}, loss_of(task), own,
                                        *task.main, runtime);
      };
      const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
      for (const auto& error : outcome.errors) ADD_FAILURE() << error;
      const auto saved = fluid::load_tensors(path("job"));
      EXPECT_EQ(saved.size(), task.main->global_block().parameters().size());
      for (const auto& [name, value] : saved) {
        ASSERT_TRUE(outcome.persistables.contains(name)) << name;
        EXPECT_TRUE(std::ranges::equal(outcome.persistables.at(name),
                                       std::span(value.raw(), value.bytes())))
            << name;
      }
    }
  }
}

std::string text_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST_F(ModelFiles, AreNeverWrittenWithEmptyTables) {
  for (const bool distributed : {false, true}) {
    SCOPED_TRACE(distributed);
    const SparseNet net(adam_net(distributed));
    const TrainingTask task = net.task(1);
    std::vector<std::string> texts;
    ThreadJob job{.workers = 1, .servers = 2};
    job.after_step = [&](int, const fluid::Program& main, fluid::Executor& executor) {
      const std::vector<std::string> feeds = {"ids", "label"};
      for (const fluid::Program* program : {task.main, &main}) {
        texts.push_back(text_of([&] {
          fluid::io::save_inference_model(path("none"), feeds, loss_of(task), executor, *program);
        }));
      }
      texts.push_back(text_of(
          [&] { fluid::save_persistables(executor, path("none"), task.main->clone(true)); }));
      texts.push_back(text_of([&] {
        fluid::io::save_paddle_persistables(path("none"), executor, task.main->clone(true),
                                            "params");
      }));
    };
    run(task, job);
    ASSERT_EQ(texts.size(), 4u);
    for (const auto& text : texts) EXPECT_THAT(text, HasSubstr("fleet::save_inference_model"));
    EXPECT_FALSE(std::filesystem::exists(path("none")));
  }
}

// Workers of GEO train on values of their own.
TEST_F(ModelFiles, ThatAreSavedChangeNothingOfTheTraining) {
  const SparseNet net({.minimize = by_adam});
  const TrainingTask task = net.task(7);
  AsyncThreadJob job;
  job.workers = 1;
  job.options.mode = fluid::ServerMode::kGeo;
  job.options.geo_update_frequency = 3;
  const AsyncThreadOutcome plain = train_async_in_threads(task, job);
  for (const auto& error : plain.errors) ADD_FAILURE() << error;
  job.after_step = [&](int, const fluid::Program& main, fluid::Executor& executor) {
    fluid::io::save_persistables(executor, path("model"), main);
  };
  const AsyncThreadOutcome saved = train_async_in_threads(task, job);
  for (const auto& error : saved.errors) ADD_FAILURE() << error;
  EXPECT_EQ(saved.losses, plain.losses);
  EXPECT_TRUE(saved.parameters == plain.parameters);
}

// The first loss of each of two workers, of the parameters in a scope.
std::vector<float> first_losses(const TrainingTask& task, const fluid::Executor& executor) {
  std::vector<float> losses;
  const fluid::Program test = task.main->clone(/*for_test=*/true);
  for (int worker = 0; worker < 2; ++worker) {
    fluid::Executor reader = executor.share();
    losses.push_back(
        reader.run(test, task.feed(0, worker, worker + 1, 2), {task.loss})[0].item<float>());
  }
  return losses;
}

TEST_F(ModelFiles, ThatServersLoadAreWhatWorkersThatUpdateThemselvesBeginWith) {
  using fluid::ServerMode;
  for (const RowKind kind : {RowKind::kLookup, RowKind::kLookupV2, RowKind::kTwoTables}) {
    for (const ServerMode mode : {ServerMode::kGeo, ServerMode::kEasgd}) {
      SCOPED_TRACE(str_cat(static_cast<int>(kind), " ", to_string(mode)));
      const SparseNet net({.kind = kind});
      const TrainingTask task = net.task(3);
      fluid::Executor local;
      local.run(*task.startup);
      const std::vector<float> fresh = first_losses(task, local);
      for (int step = 0; step < 5; ++step) local.run(*task.main, task.feed(step, 0, 1, 1));
      fluid::io::save_persistables(local, path("model"), *task.main);
      const std::vector<float> trained = first_losses(task, local);
      ASSERT_NE(trained, fresh);
      AsyncThreadJob job;
      job.options.mode = mode;
      job.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
        fluid::io::load_slices(startup, scope, path("model"));
      };
      const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
      for (const auto& error : outcome.errors) ADD_FAILURE() << error;
      EXPECT_EQ(outcome.losses[0].front(), trained[0]);
      EXPECT_EQ(outcome.losses[1].front(), trained[1]);
    }
  }
}

// ---- distributed tables, saved by their servers

fluid::Program notify(const std::vector<std::string>& endpoints, const std::string& table,
                      const std::string& directory) {
  fluid::Program program;
  fluid::Operator op;
  op.type = "checkpoint_notify";
  op.attrs = fluid::to_attributes(
      fluid::CheckpointNotifyAttrs{.epmap = endpoints, .dir = directory, .lookup_table = table});
  fluid::append_op(program.global_block(), std::move(op));
  return program;
}

std::vector<std::string> endpoints_of(int servers) {
  std::vector<std::string> endpoints;
  endpoints.reserve(static_cast<size_t>(servers));
  for (int i = 0; i < servers; ++i) endpoints.push_back(str_cat("127.0.0.1:", 6174 + i));
  return endpoints;
}

std::string table_of(const SparseNet& net) {
  for (const auto* param : net.main().global_block().parameters()) {
    if (param->shape[0] > 1000) return param->name;
  }
  return {};
}

// A runtime that its owner keeps.
std::shared_ptr<fluid::ProgramRuntime> borrowed(strategies::WorkerRuntime& runtime) {
  return {&runtime, [](fluid::ProgramRuntime*) {}};
}

TEST_F(ModelFiles, ServersSaveTheirRowsOfADistributedTable) {
  const SparseNet net(adam_net(true, RowKind::kTwoLookups));
  const std::string table = table_of(net);
  const TrainingTask whole = whole_run(net);
  const TrainingTask first = part_of(whole, 0, kSteps);
  const auto tables = path("model") / fluid::io::kLookupTableDirectory;
  ThreadJob saves = job_of(3);
  const auto save_all = saving(first, path("whole"));
  saves.after_steps = [&](int worker, strategies::WorkerRuntime& runtime,
                          fluid::Executor& executor) {
    save_all(worker, runtime, executor);
    if (worker != 0) return;
    fluid::Program program = notify(endpoints_of(3), table, tables.string());
    program.set_runtime(borrowed(runtime));
    executor.run(program);
  };
  run(first, saves);
  // Each file has one server's rows; together they are the table.
  fluid::NamedTensors saved = fluid::load_tensors(path("whole"));
  const fluid::Tensor expected = saved.at(table);
  const fluid::Tensor loaded = fluid::io::load_table_rows(tables, table, 0, 1, expected.shape()[0]);
  EXPECT_TRUE(loaded.shape() == expected.shape());
  EXPECT_TRUE(std::equal(loaded.raw(), loaded.raw() + loaded.bytes(), expected.raw()));
  EXPECT_FALSE(std::filesystem::exists(tables / (table + "_3")));
  // The table's parameters need not be elsewhere.
  saved.erase(table);
  fluid::save_tensors(path("model"), saved);
  for (const int servers : {1, 2, 3}) {
    SCOPED_TRACE(servers);
    ThreadJob loads = job_of(servers);
    loads.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
      fluid::io::load_slices(startup, scope, path("model"));
    };
    expect_same(run(part_of(whole, kSteps, kSteps), loads).persistables,
                train_locally(whole, kShards).persistables);
  }
  std::filesystem::remove(tables / (table + "_1"));
  EXPECT_THROW(fluid::io::load_table_rows(tables, table, 0, 1, 2000), Error);
}

// What worker 0 is told when it runs the op at the end of a job.
std::string refusal(const SparseNet& net, const fluid::Program& program) {
  ThreadJob job = job_of(2);
  std::string text;
  job.after_steps = [&](int worker, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    if (worker != 0) return;
    fluid::Program copy = program;
    copy.set_runtime(borrowed(runtime));
    try {
      executor.run(copy);
    } catch (const Error& error) {
      text = error.what();
      throw;
    }
  };
  train_in_threads(net.task(1), job);
  return text;
}

TEST_F(ModelFiles, TablesThatServersDoNotHaveAreNamed) {
  const std::string directory = path("none").string();
  const SparseNet net(adam_net(true));
  EXPECT_THAT(refusal(net, notify(endpoints_of(2), "tabel", directory)),
              HasSubstr("no such table to save"));
  const SparseNet plain(adam_net(false));
  EXPECT_THAT(refusal(plain, notify(endpoints_of(2), table_of(plain), directory)),
              HasSubstr("without distributed tables"));
  EXPECT_FALSE(std::filesystem::exists(directory));
}

TEST_F(ModelFiles, OfAnotherNetAreRefused) {
  const SparseNet net(adam_net(false));
  const TrainingTask task = net.task(1);
  fluid::save_tensors(path("model"),
                      {{"other", fluid::Tensor::zeros(fluid::DType::kFloat32, {2})}});
  ThreadJob job = job_of(1);
  std::string text;
  job.before_serving = [&](const fluid::Program& startup, fluid::Scope& scope) {
    try {
      fluid::io::load_slices(startup, scope, path("model"));
    } catch (const Error& error) {
      text = error.what();
    }
  };
  run(task, job);
  EXPECT_THAT(text, HasSubstr("the checkpoint lacks a variable of this server"));
}

}  // namespace
}  // namespace fleet::testing
