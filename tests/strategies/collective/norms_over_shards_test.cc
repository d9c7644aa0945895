// Batch norms over all shards of a step: in one process, on several threads, and over ranks.
#include <gmock/gmock.h>
#include <thread>

#include "base/error.h"
#include "fluid/executor/compiled_program.h"
#include "fluid/ops/nn/sync_batch_norm.h"
#include "strategies/collective/collective_runtime.h"
#include "tests/strategies/collective/small_net.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using small_net::batch;
using small_net::kBatch;
using small_net::largest_difference;
using small_net::Net;
using small_net::Parameters;
using ::testing::Each;
using ::testing::HasSubstr;

namespace layers = fluid::layers;

constexpr int kSteps = 5;

// Images of 16 channels, which kernels may keep in blocks, then rows.
void build(Net& net, const std::string& data_layout = "NCHW") {
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.startup.set_random_seed(11);
  const auto x = layers::data("x", {6}, fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  const auto image = layers::reshape(layers::fc(x, 32), {-1, 2, 4, 4});
  auto maps = layers::conv2d(image, 16, 3, {.padding = 1, .bias_attr = {.omit = true}});
  if (data_layout == "NHWC") maps = layers::transpose(maps, {0, 2, 3, 1});
  const auto normal = layers::batch_norm(maps, {.act = "relu", .data_layout = data_layout});
  const auto momentum = layers::fill_constant({1}, fluid::DType::kFloat32, 0.7);
  const auto rows = layers::batch_norm(layers::fc(normal, 5), {.momentum = momentum});
  const auto prediction = layers::fc(rows, 3, {.act = "softmax"});
  const auto cost = layers::mean(layers::cross_entropy(prediction, y));
  fluid::optimizer::Momentum({.learning_rate = 0.05, .momentum = 0.9}).minimize(cost);
  net.cost = cost.name();
}

// Parameters, running means and variances.
Parameters values_of(const fluid::Scope& scope, const Net& net) {
  Parameters found;
  for (const auto* var : net.main.global_block().vars()) {
    if (!var->persistable || var->dtype != fluid::DType::kFloat32) continue;
    const auto values = scope.tensor(var->name).values<float>();
    found[var->name] = {values.begin(), values.end()};
  }
  return found;
}

Parameters train_locally(int shards, int threads, bool sync,
                         const std::string& data_layout = "NCHW", int steps = kSteps) {
  Net net;
  build(net, data_layout);
  const int found = sync ? fluid::synchronize_batch_norms(net.main) : 2;
  EXPECT_EQ(found, 2);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards, .threads = threads});
  exe.run(net.startup);
  for (int step = 0; step < steps; ++step) exe.run(net.main, batch(step, 0, kBatch));
  return values_of(exe.scope(), net);
}

struct Job {
  int workers = 2;
  int shards = 2;
  size_t bucket_bytes = 1 << 20;
  std::vector<int> steps = {};  // by rank; empty: kSteps
};

Parameters run_rank(const Job& job, int rank, transport::InProcessGroup& group) {
  Net net;
  build(net);
  const role_maker::ClusterSpec cluster = small_net::cluster_of(rank, job.workers);
  auto programs = small_net::transpiled(net, cluster, job.shards);
  fluid::synchronize_batch_norms(programs.main);
  const auto runtime = std::make_shared<CollectiveRuntime>(
      cluster, [&] { return group.member(rank); },
      CollectiveRuntimeOptions{.logical_shards = job.shards,
                               .reducer = {.bucket_bytes = job.bucket_bytes}});
  runtime->expect(programs.main);
  programs.main.set_runtime(runtime);
  programs.startup.set_runtime(runtime);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(programs.startup);
  const auto own = owned_shards(rank, job.workers, job.shards);
  const int64_t rows = kBatch / job.shards;
  const int steps = job.steps.empty() ? kSteps : job.steps[static_cast<size_t>(rank)];
  for (int step = 0; step < steps; ++step) {
    exe.run(programs.main, batch(step, own.begin * rows, own.end * rows));
  }
  runtime->leave();
  return values_of(exe.scope(), net);
}

std::vector<Parameters> run(const Job& job) {
  transport::InProcessGroup group(job.workers);
  std::vector<Parameters> results(static_cast<size_t>(job.workers));
  std::vector<std::jthread> threads;
  threads.reserve(results.size());
  for (int rank = 0; rank < job.workers; ++rank) {
    threads.emplace_back(
        [&, rank] { results[static_cast<size_t>(rank)] = run_rank(job, rank, group); });
  }
  threads.clear();
  return results;
}

TEST(SyncBatchNormTest, ComesToThePlainBatchsNormWhateverTheShards) {
  // Float rounds every step, and training carries that on.
  for (const auto& [steps, bound] : {std::pair(1, 1e-6F), std::pair(kSteps, 1e-5F)}) {
    for (const char* layout : {"NCHW", "NHWC"}) {
      const Parameters whole = train_locally(1, 1, false, layout, steps);
      for (const int shards : {1, 2, 3, 4, 8}) {
        EXPECT_LT(largest_difference(train_locally(shards, 1, true, layout, steps), whole), bound)
            << shards << " shards, " << layout << ", " << steps << " steps";
      }
    }
  }
  EXPECT_GT(largest_difference(train_locally(4, 1, false), train_locally(1, 1, false)), 1e-4F);
}

TEST(SyncBatchNormTest, ThreadsGiveTheSameBits) {
  for (const int shards : {2, 3, 8}) {
    const Parameters alone = train_locally(shards, 1, true);
    for (const int threads : {2, 3, 8}) {
      EXPECT_EQ(train_locally(shards, threads, true), alone) << shards << ", " << threads;
    }
  }
}

TEST(SyncBatchNormTest, RanksGiveTheBitsOfALocalRun) {
  for (const auto& [workers, shards] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 4}, {3, 8}}) {
    const Parameters local = train_locally(shards, 1, true);
    for (const size_t bucket : {size_t{1}, size_t{100}, size_t{1} << 20}) {
      EXPECT_THAT(run({.workers = workers, .shards = shards, .bucket_bytes = bucket}), Each(local))
          << workers << " workers, " << shards << " shards, buckets of " << bucket;
    }
  }
}

// Ranks that have no more data give nothing to the sums of the others, and nobody waits for them.
TEST(SyncBatchNormTest, RanksMayTakeOtherNumbersOfSteps) {
  for (const std::vector<int>& steps :
       std::vector<std::vector<int>>{{5, 3, 5}, {0, 5, 5}, {5, 5, 1}}) {
    const auto results = run({.workers = 3, .shards = 3, .steps = steps});
    for (size_t a = 0; a < 3; ++a) {
      for (size_t b = 0; b < 3; ++b) {
        if (steps[a] != 5 || steps[b] != 5) continue;
        EXPECT_EQ(results[a], results[b]);
      }
    }
  }
}

TEST(SyncBatchNormTest, ReplicasOfACompiledProgramShareIt) {
  const Parameters expected = train_locally(4, 1, true);
  Net net;
  build(net);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = 4, .threads = 4});
  exe.run(net.startup);
  fluid::CompiledProgram compiled(net.main);
  compiled.with_data_parallel(net.cost,
                              {.build_strategy = {.sync_batch_norm = true},
                               .places = std::vector(4, fluid::Place(fluid::CPUPlace()))});
  for (int step = 0; step < kSteps; ++step) exe.run(compiled, batch(step, 0, kBatch));
  EXPECT_EQ(values_of(exe.scope(), net), expected);
}

TEST(SyncBatchNormTest, InDoubleItIsCloser) {
  std::vector<double> costs;
  for (const int shards : {1, 4}) {
    fluid::Program main;
    fluid::Program startup;
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    startup.set_random_seed(11);
    const auto x = layers::data("x", {6}, fluid::DType::kFloat64);
    const auto normal = layers::batch_norm(layers::fc(x, 5), {.act = "tanh"});
    const auto cost = layers::mean(layers::fc(normal, 1, {.act = "tanh"}));
    fluid::optimizer::SGD({.learning_rate = 0.5}).minimize(cost);
    if (shards > 1) fluid::synchronize_batch_norms(main);
    fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
    exe.run(startup);
    std::vector<double> values(kBatch * 6);
    for (size_t i = 0; i < values.size(); ++i) values[i] = uniform_float(RandomKey{1, 2}, i);
    const fluid::Feed feed = {{"x", fluid::Tensor::from(values, {kBatch, 6})}};
    for (int step = 0; step < kSteps; ++step) exe.run(main, feed);
    costs.push_back(exe.run(main, feed, {cost})[0].item<double>());
  }
  EXPECT_NEAR(costs[0], costs[1], 1e-12);
}

// A program for tests uses the running means, and needs no other shard.
TEST(SyncBatchNormTest, TestProgramsNormaliseByTheRunningStatistics) {
  Net net;
  build(net);
  const fluid::Program plain = net.main.clone(true);
  fluid::synchronize_batch_norms(net.main);
  const fluid::Program sync = net.main.clone(true);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = 4});
  exe.run(net.startup);
  for (int step = 0; step < kSteps; ++step) exe.run(net.main, batch(step, 0, kBatch));
  const auto before = values_of(exe.scope(), net);
  const float cost = exe.run(plain, batch(9, 0, 7), {net.cost})[0].item<float>();
  EXPECT_EQ(exe.run(sync, batch(9, 0, 7), {net.cost})[0].item<float>(), cost);
  EXPECT_EQ(values_of(exe.scope(), net), before);
}

TEST(SyncBatchNormTest, ABatchNormInABlockIsRefused) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const auto x = layers::data("x", {6}, fluid::DType::kFloat32);
  const auto zero = layers::fill_constant({1}, fluid::DType::kFloat32, 0);
  const auto one = layers::fill_constant({1}, fluid::DType::kFloat32, 1);
  layers::cond(
      layers::greater_than(one, zero),
      [&]() -> std::vector<fluid::Variable> { return {layers::batch_norm(x)}; },
      [&]() -> std::vector<fluid::Variable> { return {layers::scale(x, {.scale = 2})}; });
  try {
    fluid::synchronize_batch_norms(main);
    ADD_FAILURE() << "accepted";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(), HasSubstr("in a block of control flow"));
  }
}

}  // namespace
}  // namespace fleet::strategies
