// Whole programs: trained by several ranks (threads of this process), and by one.
#include <cstring>
#include <gmock/gmock.h>
#include <thread>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "strategies/collective/collective_runtime.h"
#include "transpiler/distribute_transpiler.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

constexpr int64_t kRows = 24;
constexpr int kSteps = 5;

struct Net {
  fluid::Program main;
  fluid::Program startup;
  std::string cost;
};

void build(Net& net) {
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.startup.set_random_seed(11);
  auto x = fluid::layers::data("x", {6}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  auto hidden = fluid::layers::fc(x, 13, {.act = "tanh"});
  auto prediction = fluid::layers::fc(hidden, 3, {.act = "softmax"});
  auto cost = fluid::layers::mean(fluid::layers::cross_entropy(prediction, y));
  fluid::optimizer::Momentum momentum({.learning_rate = 0.1, .momentum = 0.9});
  momentum.minimize(cost);
  net.cost = cost.name();
}

// Rows [begin, end) of a step's batch.
fluid::Feed batch(int step, int64_t begin, int64_t end) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (int64_t row = begin; row < end; ++row) {
    const auto at = static_cast<uint64_t>(step * kRows + row);
    for (uint64_t i = 0; i < 6; ++i) x.push_back(uniform_float(RandomKey{1, 2}, at * 6 + i));
    y.push_back(static_cast<int64_t>(3 * uniform_float(RandomKey{3, 4}, at)));
  }
  return {{"x", fluid::Tensor::from(x, {end - begin, 6})},
          {"y", fluid::Tensor::from(y, {end - begin, 1})}};
}

struct Trained {
  std::map<std::string, std::vector<float>> parameters;
  float loss = 0;
};

Trained train(fluid::Executor& exe, const fluid::Program& main, const fluid::Program& startup,
              const Net& net, int64_t begin, int64_t end) {
  exe.run(startup);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    trained.loss = exe.run(main, batch(step, begin, end), {net.cost})[0].item<float>();
  }
  for (const auto* parameter : net.main.global_block().parameters()) {
    const auto values = exe.scope().tensor(parameter->name).values<float>();
    trained.parameters[parameter->name] = {values.begin(), values.end()};
  }
  return trained;
}

Trained train_locally(int shards) {
  Net net;
  build(net);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  return train(exe, net.main, net.startup, net, 0, kRows);
}

std::vector<Trained> train_collectively(int workers, int shards, size_t bucket_bytes) {
  transport::InProcessGroup group(workers);
  std::vector<Trained> results(static_cast<size_t>(workers));
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      Net net;
      build(net);
      role_maker::ClusterSpec cluster;
      cluster.mode = role_maker::Mode::kCollective;
      cluster.index = rank;
      cluster.worker_num = workers;
      cluster.job_id = "test";
      transpiler::DistributeTranspilerConfig config;
      config.mode = "collective";
      config.collective_mode = "grad_allreduce";
      auto programs = transpiler::transpile_for(net.main, net.startup, cluster, config, shards);
      const auto runtime = std::make_shared<CollectiveRuntime>(
          cluster, [&] { return group.member(rank); },
          CollectiveRuntimeOptions{.logical_shards = shards,
                                   .reducer = {.bucket_bytes = bucket_bytes}});
      programs.main.set_runtime(runtime);
      programs.startup.set_runtime(runtime);
      const auto own = owned_shards(rank, workers, shards);
      const int64_t rows = kRows / shards;
      fluid::Executor exe(fluid::CPUPlace());
      results[static_cast<size_t>(rank)] =
          train(exe, programs.main, programs.startup, net, own.begin * rows, own.end * rows);
    });
  }
  threads.clear();
  return results;
}

float largest_difference(const Trained& a, const Trained& b) {
  float largest = 0;
  for (const auto& [name, values] : a.parameters) {
    const auto& others = b.parameters.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - others[i]));
    }
  }
  return largest;
}

TEST(CollectiveTrainingTest, RanksEndWithTheBitsOfALocalRunWithTheSameShards) {
  for (const auto& [workers, shards] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 4}, {3, 8}, {2, 8}}) {
    const Trained local = train_locally(shards);
    EXPECT_EQ(local.parameters.size(), 4u);
    for (const size_t bucket : {size_t{1}, size_t{100}, size_t{1} << 20}) {
      for (const auto& trained : train_collectively(workers, shards, bucket)) {
        EXPECT_EQ(trained.parameters, local.parameters)
            << workers << " workers, " << shards << " shards, buckets of " << bucket
            << "; largest difference " << largest_difference(trained, local);
      }
    }
  }
}

TEST(CollectiveTrainingTest, OtherNumbersOfShardsAgreeOverWorkersAndAreNearTheLocalRun) {
  for (const int shards : {3, 6}) {
    const Trained local = train_locally(shards);
    const Trained one = train_collectively(1, shards, 100).front();
    EXPECT_LT(largest_difference(one, local), 1e-6f);
    for (const int workers : {2, 3}) {
      for (const auto& trained : train_collectively(workers, shards, 100)) {
        EXPECT_EQ(trained.parameters, one.parameters) << workers << " workers, " << shards;
      }
    }
  }
}

TEST(CollectiveTrainingTest, ShardsComeNearThePlainBatch) {
  EXPECT_LT(largest_difference(train_collectively(2, 4, 100).front(), train_locally(1)), 1e-6f);
}

}  // namespace
}  // namespace fleet::strategies
