// Whole programs: trained by several ranks (threads of this process), and by one.
#include <cstring>
#include <gmock/gmock.h>
#include <thread>

#include "fluid/mixed_precision/mixed_precision.h"
#include "strategies/collective/collective_runtime.h"
#include "tests/strategies/collective/small_net.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using small_net::largest_difference;
using small_net::Net;

constexpr int64_t kRows = 24;
constexpr int kSteps = 5;

// The first two steps overflow, and are skipped.
fluid::mixed_precision::Options overflowing() {
  return {.scaling = {.init_loss_scaling = 1 << 30,
                      .decr_every_n_nan_or_inf = 1,
                      .decr_ratio = 1.0 / (1 << 15)}};
}

void build(Net& net) {
  fluid::optimizer::Momentum momentum({.learning_rate = 0.1, .momentum = 0.9});
  if (net.mixed_precision) {
    small_net::build(net, fluid::mixed_precision::decorate(momentum, overflowing()));
  } else {
    small_net::build(net, momentum);
  }
}

// Rows [begin, end) of a step's batch.
fluid::Feed batch(int step, int64_t begin, int64_t end) {
  std::vector<uint64_t> numbers;
  for (int64_t row = begin; row < end; ++row) {
    numbers.push_back(static_cast<uint64_t>(step * kRows + row));
  }
  return small_net::rows(numbers);
}

struct Trained {
  small_net::Parameters parameters;
  float loss = 0;
};

Trained train(fluid::Executor& exe, const fluid::Program& main, const fluid::Program& startup,
              const Net& net, int64_t begin, int64_t end) {
  exe.run(startup);
  Trained trained;
  for (int step = 0; step < kSteps; ++step) {
    trained.loss = exe.run(main, batch(step, begin, end), {net.cost})[0].item<float>();
  }
  trained.parameters = small_net::parameters_of(exe.scope(), net);
  return trained;
}

Trained train_locally(int shards, Net net = {}) {
  build(net);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  return train(exe, net.main, net.startup, net, 0, kRows);
}

std::vector<Trained> train_collectively(int workers, int shards, size_t bucket_bytes,
                                        const Net& like = {}) {
  transport::InProcessGroup group(workers);
  std::vector<Trained> results(static_cast<size_t>(workers));
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(workers));
  for (int rank = 0; rank < workers; ++rank) {
    threads.emplace_back([&, rank] {
      Net net = like;
      build(net);
      const role_maker::ClusterSpec cluster = small_net::cluster_of(rank, workers);
      auto programs = small_net::transpiled(net, cluster, shards);
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

TEST(CollectiveTrainingTest, RanksEndWithTheBitsOfALocalRunWithTheSameShards) {
  for (const auto& [workers, shards] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {1, 4}, {2, 4}, {4, 4}, {3, 8}, {2, 8}}) {
    const Trained local = train_locally(shards);
    EXPECT_EQ(local.parameters.size(), 4u);
    for (const size_t bucket : {size_t{1}, size_t{100}, size_t{1} << 20}) {
      for (const auto& trained : train_collectively(workers, shards, bucket)) {
        EXPECT_EQ(trained.parameters, local.parameters)
            << workers << " workers, " << shards << " shards, buckets of " << bucket
            << "; largest difference " << largest_difference(trained.parameters, local.parameters);
      }
    }
  }
}

TEST(CollectiveTrainingTest, SparseGradientsEndWithTheBitsOfALocalRun) {
  for (const auto& [workers, shards] :
       std::vector<std::pair<int, int>>{{1, 2}, {2, 2}, {2, 4}, {4, 4}, {3, 8}}) {
    const Trained local = train_locally(shards, {.with_rows = true});
    EXPECT_EQ(local.parameters.size(), 6u);
    for (const size_t bucket : {size_t{1}, size_t{1} << 20}) {
      for (const auto& trained : train_collectively(workers, shards, bucket, {.with_rows = true})) {
        EXPECT_EQ(trained.parameters, local.parameters)
            << workers << " workers, " << shards << " shards, buckets of " << bucket
            << "; largest difference " << largest_difference(trained.parameters, local.parameters);
      }
    }
  }
}

TEST(CollectiveTrainingTest, MixedPrecisionEndsWithTheBitsOfALocalRun) {
  for (const bool rows : {false, true}) {
    const Net mixed{.with_rows = rows, .mixed_precision = true};
    for (const auto& [workers, shards] : std::vector<std::pair<int, int>>{{2, 2}, {2, 4}, {4, 4}}) {
      const Trained local = train_locally(shards, mixed);
      EXPECT_NE(local.parameters, train_locally(shards, {.with_rows = rows}).parameters);
      for (const auto& trained : train_collectively(workers, shards, 100, mixed)) {
        EXPECT_EQ(trained.parameters, local.parameters)
            << workers << " workers, " << shards << " shards; largest difference "
            << largest_difference(trained.parameters, local.parameters);
      }
    }
  }
}

TEST(CollectiveTrainingTest, OtherNumbersOfShardsAgreeOverWorkersAndAreNearTheLocalRun) {
  for (const int shards : {3, 6}) {
    const Trained local = train_locally(shards);
    const Trained one = train_collectively(1, shards, 100).front();
    EXPECT_LT(largest_difference(one.parameters, local.parameters), 1e-6f);
    for (const int workers : {2, 3}) {
      for (const auto& trained : train_collectively(workers, shards, 100)) {
        EXPECT_EQ(trained.parameters, one.parameters) << workers << " workers, " << shards;
      }
    }
  }
}

TEST(CollectiveTrainingTest, ShardsComeNearThePlainBatch) {
  EXPECT_LT(largest_difference(train_collectively(2, 4, 100).front().parameters,
                               train_locally(1).parameters),
            1e-6f);
}

}  // namespace
}  // namespace fleet::strategies
