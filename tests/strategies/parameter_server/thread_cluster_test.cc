// Jobs of threads with real programs over real sockets end with the very bits of one machine.
#include "tests/testing/thread_cluster.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <optional>
#include <stdexcept>
#include <string>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/mixed_precision/mixed_precision.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using transport::TransportChoice;

constexpr int kFeatures = 32;

uint64_t mix(uint64_t a, uint64_t b) {
  return mix64(a * 1000003 + b);
}

class Net {
 public:
  enum class Rule { kSgd, kMomentum, kAdam, kSgdDecayed };
  explicit Net(Rule rule, int width = 128, std::optional<fluid::mixed_precision::Options> amp = {})
      : amp_(std::move(amp)) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    const auto y = layers::data("y", {1}, fluid::DType::kInt64);
    auto hidden = layers::fc(x, width, {.act = "tanh"});
    hidden = layers::fc(hidden, width, {.act = "tanh"});
    const auto prediction = layers::fc(hidden, 10, {.act = "softmax"});
    const auto loss = layers::mean(layers::cross_entropy(prediction, y));
    loss_ = loss.name();
    minimize(rule, loss);
  }

  TrainingTask task(int steps) const {
    TrainingTask task;
    task.main = &main_;
    task.startup = &startup_;
    task.loss = loss_;
    task.steps = steps;
    task.feed = [this](int step, int begin, int end, int parts) {
      return feed(step, batch_ / parts * begin, batch_ / parts * end);
    };
    return task;
  }

 private:
  void minimize(Rule rule, const fluid::Variable& loss) {
    switch (rule) {
      case Rule::kSgd:
        fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
        return;
      case Rule::kMomentum: {
        fluid::optimizer::Momentum momentum({.learning_rate = 0.1, .momentum = 0.9});
        if (amp_) {
          fluid::mixed_precision::decorate(momentum, *amp_).minimize(loss);
        } else {
          momentum.minimize(loss);
        }
        return;
      }
      case Rule::kAdam:
        fluid::optimizer::Adam({.learning_rate = 0.01}).minimize(loss);
        return;
      case Rule::kSgdDecayed:
        fluid::optimizer::SGD({.learning_rate = layers::exponential_decay(0.2, 3, 0.5, true)})
            .minimize(loss);
        return;
    }
  }

  fluid::Feed feed(int step, int begin, int end) const {
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int row = begin; row < end; ++row) {
      const uint64_t id = mix(static_cast<uint64_t>(step), static_cast<uint64_t>(row));
      for (uint64_t i = 0; i < kFeatures; ++i) {
        x.push_back(static_cast<float>(mix(id, i) % 10000) / 10000.0F);
      }
      y.push_back(static_cast<int64_t>(id % 10));
    }
    const int64_t rows = end - begin;
    return {{"x", fluid::Tensor::from(x, {rows, kFeatures})},
            {"y", fluid::Tensor::from(y, {rows, 1})}};
  }

  std::optional<fluid::mixed_precision::Options> amp_;
  int batch_ = 24;
  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
};

void expect_local_bits(const TrainingTask& task, const ThreadJob& job, uint64_t* cuts = nullptr) {
  const int shards = job.shards == 0 ? job.workers : job.shards;
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers, ", shards, " shards"));
  const LocalOutcome local = train_locally(task, shards);
  const ThreadOutcome threads = train_in_threads(task, job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;
  if (cuts != nullptr) *cuts += threads.cuts;
  ASSERT_TRUE(threads.errors.empty());
  ASSERT_FALSE(local.parameters.empty());
  for (const auto& parameters : threads.parameters) {
    for (const auto& [name, bytes] : local.parameters) {
      ASSERT_TRUE(parameters.contains(name)) << name;
      EXPECT_TRUE(parameters.at(name) == bytes) << name << " differs";
    }
  }
  for (const auto& [name, bytes] : threads.persistables) {
    ASSERT_TRUE(local.persistables.contains(name)) << name;
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name << " on the servers differs";
  }
  EXPECT_GE(threads.persistables.size(), local.parameters.size());
}

TEST(ThreadCluster, EndsWithTheBitsOfOneMachine) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(20);
  expect_local_bits(task, {.workers = 2, .servers = 2});
  expect_local_bits(task, {.workers = 4, .servers = 1});
  expect_local_bits(task, {.workers = 1, .servers = 3});
}

TEST(ThreadCluster, EndsWithTheSameBitsForEveryNumberOfWorkers) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(20);
  for (const int workers : {1, 2, 4}) {
    expect_local_bits(task, {.workers = workers, .servers = 2, .shards = 4});
  }
  expect_local_bits(task, {.workers = 2, .servers = 1, .shards = 3});
}

TEST(ThreadCluster, UsesTcpOrUnixSocketsAsAsked) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(5);
  expect_local_bits(task, {.transport = TransportChoice::kTcp});
  expect_local_bits(task, {.transport = TransportChoice::kUnix});
}

TEST(ThreadCluster, ServesEachLaneInAThreadOfItsOwn) {
  const Net net(Net::Rule::kSgd);
  expect_local_bits(net.task(10), {.lanes = 3});
  expect_local_bits(net.task(10), {.workers = 6, .servers = 1, .lanes = 2});
  const Net decayed(Net::Rule::kSgdDecayed);
  expect_local_bits(decayed.task(10),
                    {.workers = 3, .lanes = 4, .transport = TransportChoice::kTcp});
}

// Large slices are updated by the pool, the others by the lanes.
TEST(ThreadCluster, UpdatesOnLanesBesideThePool) {
  const Net net(Net::Rule::kAdam, 800);
  expect_local_bits(net.task(3), {.servers = 1, .lanes = 3});
}

TEST(ThreadCluster, MovesLargeGradientsInPieces) {
  const Net net(Net::Rule::kSgd, 640);  // slices of 800 KB, which leave before backward is done
  expect_local_bits(net.task(3), {});
  expect_local_bits(net.task(3), {.shards = 4, .transport = TransportChoice::kTcp});
}

TEST(ThreadCluster, SeveralSlicesOfAParameterLiveOnOneServer) {
  ThreadJob job;
  job.config.slices_per_server = 4;
  for (const auto rule : {Net::Rule::kSgd, Net::Rule::kAdam}) {
    const Net net(rule, 640);
    for (const int servers : {1, 2}) {
      job.servers = servers;
      expect_local_bits(net.task(3), job);
    }
  }
}

// Workers hold back what a server has no room for; the gradients' memory is used again meanwhile.
TEST(ThreadCluster, TrainsWhereServersHaveRoomForFewPieces) {
  const Net net(Net::Rule::kMomentum, 640);
  for (const uint64_t window : {1U, 2'000'000U}) {
    ThreadJob job;
    job.window_bytes = window;
    job.config.slices_per_server = 2;
    expect_local_bits(net.task(3), job);
    job.workers = 3;
    job.shards = 8;
    job.lanes = 2;
    expect_local_bits(net.task(3), job);
    job.workers = 4;
    job.shards = 0;
    job.faults = bad_network(window);
    expect_local_bits(net.task(3), job);
  }
}

TEST(ThreadCluster, UpdatesLargeSlicesInOtherThreads) {
  const Net net(Net::Rule::kAdam, 800);  // slices of 1.3 MB
  expect_local_bits(net.task(3), {});
  expect_local_bits(net.task(3), {.workers = 1, .servers = 1, .shards = 2});
}

TEST(ThreadCluster, KeepsTheStateOfOptimizersOnTheServers) {
  const Net momentum(Net::Rule::kMomentum);
  expect_local_bits(momentum.task(10), {});
  const Net adam(Net::Rule::kAdam);
  expect_local_bits(adam.task(10), {.workers = 2, .servers = 3});
}

TEST(ThreadCluster, TrainsInMixedPrecision) {
  using fluid::mixed_precision::Options;
  for (const Options& options :
       {Options{.dtype = fluid::DType::kBFloat16},
        Options{.scaling = {.init_loss_scaling = 1000, .use_dynamic_loss_scaling = false}}}) {
    const Net net(Net::Rule::kMomentum, 32, options);
    expect_local_bits(net.task(10), {.workers = 2, .servers = 2});
  }
}

TEST(ThreadCluster, RefusesAnOptimizerThatLooksAtAllGradients) {
  const Net net(Net::Rule::kMomentum, 32, fluid::mixed_precision::Options{});
  transpiler::DistributeTranspiler transpiler;
  try {
    transpiler.transpile({.program = net.task(1).main,
                          .pservers = "127.0.0.1:6174",
                          .trainers = 2,
                          .startup_program = net.task(1).startup});
    ADD_FAILURE() << "dynamic loss scaling with servers";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("use_dynamic_loss_scaling = false"), std::string::npos)
        << error.what();
  }
}

TEST(ThreadCluster, RunsTheLearningRateBlockOncePerStep) {
  const Net net(Net::Rule::kSgdDecayed);
  expect_local_bits(net.task(10), {});
}

TEST(ThreadCluster, RunsTheRuntimeSplitForm) {
  ThreadJob job;
  job.config.runtime_split_send_recv = true;
  job.config.sync_mode = false;
  job.config.completely_not_async = true;
  const Net net(Net::Rule::kSgd);
  expect_local_bits(net.task(5), job);
  // Whose trainers report their steps, which the servers count themselves.
  const Net decayed(Net::Rule::kSgdDecayed);
  expect_local_bits(decayed.task(10), job);
}

TEST(ThreadCluster, GivesInitialValuesToTheServers) {
  const Net net(Net::Rule::kSgd);
  ThreadJob job;
  std::vector<float> got(2);
  const TrainingTask task = net.task(0);
  job.after_steps = [&](int worker, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    fluid::Tensor& weight = executor.scope().tensor("fc_1.w_0");
    for (int64_t i = 0; i < weight.numel(); ++i) weight.data<float>()[i] = 0.25F;
    runtime.spread_persistables(executor.scope());
    fluid::Scope scope;
    EXPECT_TRUE(runtime.pull({"fc_1.w_0"}, scope).empty());
    got[static_cast<size_t>(worker)] = scope.tensor("fc_1.w_0").values<float>().back();
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_EQ(got, (std::vector<float>{0.25F, 0.25F}));
}

TEST(ThreadCluster, DividesByTheShardsOfTheWorkersThatAreLeft) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(6);
  ThreadJob job;
  job.uneven_steps = {4, 6};
  const ThreadOutcome threads = train_in_threads(task, job);
  for (const auto& error : threads.errors) ADD_FAILURE() << error;

  // Four steps of both shards, then two of the second one alone.
  fluid::Executor both(fluid::CPUPlace(), {.logical_shards = 2});
  both.run(*task.startup);
  for (int step = 0; step < 4; ++step) both.run(*task.main, task.feed(step, 0, 2, 2));
  fluid::Executor second(fluid::CPUPlace(), both.scope());
  for (int step = 4; step < 6; ++step) second.run(*task.main, task.feed(step, 1, 2, 2));
  for (const auto& [name, bytes] : threads.parameters[1]) {
    const fluid::Tensor& expected = both.scope().tensor(name);
    EXPECT_TRUE(
        std::equal(bytes.begin(), bytes.end(), expected.raw(), expected.raw() + expected.bytes()))
        << name;
  }
}

TEST(ThreadCluster, LetsWorkersComeBeforeServers) {
  const Net net(Net::Rule::kSgd);
  expect_local_bits(net.task(3), {.transport = TransportChoice::kUnix, .workers_first = true});
}

TEST(ThreadCluster, GivesUpOnServersThatNeverCome) {
  const Net net(Net::Rule::kSgd);
  const TrainingTask task = net.task(1);
  strategies::ParameterServerConfig config;
  config.servers = {{"127.0.0.1", 1}};
  config.job_id = "nobody";
  config.secret = transport::Secret::of_text("a secret of one alone", "test");
  config.rpc_deadline = std::chrono::milliseconds(300);
  strategies::WorkerRuntime runtime(config,
                                    strategies::AsyncOptions{.mode = strategies::ServerMode::kSync},
                                    TransportChoice::kUnix, *task.main);
  try {
    runtime.begin_step(*task.main, 0);
    FAIL() << "nobody listens";
  } catch (const PeerError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("server 0"), std::string::npos) << text;
    EXPECT_NE(text.find("worker 0"), std::string::npos) << text;
    EXPECT_NE(text.find("connecting"), std::string::npos) << text;
  }
}

TEST(ThreadCluster, EveryoneNamesAWorkerThatDies) {
  const Net net(Net::Rule::kSgd);
  TrainingTask task = net.task(20);
  const auto feed = task.feed;
  task.feed = [&](int step, int begin, int end, int parts) {
    if (begin == 1 && step == 7) throw std::runtime_error("this worker has had enough");
    return feed(step, begin, end, parts);
  };
  // On a busy machine the lane to the coordinator may take longer than those to the servers.
  for (const int late_worker : {-1, 1}) {
    SCOPED_TRACE(late_worker);
    const ThreadOutcome outcome = train_in_threads(task, {.late_worker = late_worker});
    ASSERT_EQ(outcome.errors.size(), 4U);
    for (const auto& error : outcome.errors) {
      if (error.starts_with("worker 1")) continue;
      EXPECT_NE(error.find("worker 1"), std::string::npos) << error;
      EXPECT_NE(error.find("in phase computing at step 8"), std::string::npos) << error;
    }
  }
}

// As the simulated clusters have it (sim_cluster_test.cc), over real sockets: connections that lag,
// overtake each other and break.
TEST(ThreadCluster, ABadNetworkDoesNotShowInTheBits) {
  const Net net(Net::Rule::kMomentum);
  const TrainingTask task = net.task(8);
  uint64_t cuts = 0;
  for (uint64_t seed = 1; seed <= bad_network_seeds(12); ++seed) {
    SCOPED_TRACE(str_cat("seed ", seed));
    ThreadJob job;
    job.workers = 1 + static_cast<int>(seed % 3);
    job.lanes = 1 + static_cast<uint32_t>(seed % 2);
    job.faults = bad_network(seed);
    expect_local_bits(task, job, &cuts);
    if (::testing::Test::HasFailure()) return;
  }
  std::printf("  %llu connections were cut\n", static_cast<unsigned long long>(cuts));
  EXPECT_GT(cuts, 0U);
}

}  // namespace
}  // namespace fleet::testing
