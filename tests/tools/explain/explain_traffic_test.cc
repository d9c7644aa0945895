// What is said to travel in a step, held against what servers of a job measured.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/thread_cluster.h"
#include "tools/explain/explain.h"

namespace fleet::explain {
namespace {

namespace layers = fluid::layers;

constexpr int64_t kFeatures = 64;
constexpr int64_t kRows = 24;

struct Net {
  Net() {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    auto hidden = layers::fc(x, 300, {.act = "tanh"});
    const auto made = layers::mean(layers::fc(hidden, 10));
    loss = made.name();
    fluid::optimizer::Momentum({.learning_rate = 0.1, .momentum = 0.9}).minimize(made);
  }

  testing::TrainingTask task(int steps) const {
    testing::TrainingTask task{.main = &main, .startup = &startup, .loss = loss, .steps = steps};
    task.feed = [](int, int begin, int end, int parts) {
      const int64_t rows = kRows / parts * (end - begin);
      return fluid::Feed{
          {"x", fluid::Tensor::from(std::vector<float>(static_cast<size_t>(rows * kFeatures), 0.5F),
                                    {rows, kFeatures})}};
    };
    return task;
  }

  fluid::Program main;
  fluid::Program startup;
  std::string loss;
};

void expect_measured(const testing::ThreadJob& job) {
  const int shards = job.shards == 0 ? job.workers : job.shards;
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers, ", shards, " shards"));
  constexpr int kFew = 3;
  constexpr int kMany = 8;
  const Net net;
  // Jobs of two lengths: what they differ by is what steps send.
  const auto few = testing::train_in_threads(net.task(kFew), job);
  const auto many = testing::train_in_threads(net.task(kMany), job);
  ASSERT_TRUE(few.errors.empty() && many.errors.empty());
  const Explanation told = explain(net.main, net.startup,
                                   {.config = job.config,
                                    .trainers = job.workers,
                                    .servers = job.servers,
                                    .shards = job.shards});
  ASSERT_EQ(told.servers.size(), many.servers.size());
  for (size_t i = 0; i < told.servers.size(); ++i) {
    const double in = static_cast<double>(many.servers[i].bytes_in - few.servers[i].bytes_in);
    const double out = static_cast<double>(many.servers[i].bytes_out - few.servers[i].bytes_out);
    EXPECT_EQ(told.servers[i].bytes_in, in / (kMany - kFew)) << "server " << i;
    EXPECT_EQ(told.servers[i].bytes_out, out / (kMany - kFew)) << "server " << i;
  }
}

TEST(ExplainTraffic, IsWhatServersOfAJobMeasure) {
  expect_measured({.workers = 2, .servers = 2});
  expect_measured({.workers = 3, .servers = 1});
}

TEST(ExplainTraffic, IsWhatServersMeasureOfSeveralShardsAWorker) {
  expect_measured({.workers = 2, .servers = 2, .shards = 6});
  expect_measured({.workers = 1, .servers = 2, .shards = 3});
}

}  // namespace
}  // namespace fleet::explain
