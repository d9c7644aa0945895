// What is said to travel in a step of a synchronous job, held against what its servers measured.
#include <algorithm>
#include <gtest/gtest.h>

#include "base/strings.h"
#include "tests/testing/device/emulated_device.h"
#include "tests/testing/thread_cluster.h"
#include "tests/tools/explain/traffic_nets.h"

namespace fleet::explain {
namespace {

constexpr int kFew = 3;
constexpr int kMany = 8;

void expect_measured(const TrafficNet& net, const testing::ThreadJob& job) {
  const int shards = job.shards == 0 ? job.workers : job.shards;
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.servers, " servers, ", shards, " shards"));
  const auto few = testing::train_in_threads(net.task(kFew), job);
  const auto many = testing::train_in_threads(net.task(kMany), job);
  for (const auto& error : many.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(few.errors.empty() && many.errors.empty());
  const Explanation told = explain(net.main, net.startup,
                                   {.config = job.config,
                                    .trainers = job.workers,
                                    .servers = job.servers,
                                    .shards = job.shards,
                                    .batch = net.rows / job.workers});
  expect_bytes(told, bytes_per_step(few.servers, many.servers, kMany - kFew));
}

TEST(ExplainTraffic, IsWhatServersOfAJobMeasure) {
  for (const bool statistics : {false, true}) {
    const TrafficNet net = dense_net({.statistics = statistics});
    expect_measured(net, {.workers = 2, .servers = 2});
    expect_measured(net, {.workers = 3, .servers = 1});
  }
}

TEST(ExplainTraffic, IsWhatServersMeasureOfSeveralShardsAWorker) {
  for (const bool statistics : {false, true}) {
    const TrafficNet net = dense_net({.statistics = statistics});
    expect_measured(net, {.workers = 2, .servers = 2, .shards = 6});
    expect_measured(net, {.workers = 1, .servers = 2, .shards = 3});
  }
}

TEST(ExplainTraffic, IsWhatServersMeasureOfRows) {
  for (const Rows rows :
       {Rows::kLookup, Rows::kTwoLookups, Rows::kDistributed, Rows::kNce, Rows::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(rows));
    const TrafficNet net = rows_net(rows);
    expect_measured(net, {.workers = 2, .servers = 2});
    expect_measured(net, {.workers = 1, .servers = 3});
    expect_measured(net, {.workers = 1, .servers = 2, .shards = 2});
  }
}

// Three shards of a worker make two sums, and a row is in one of them.
TEST(ExplainTraffic, IsWhatServersMeasureOfRowsOfSeveralSums) {
  for (const Rows rows : {Rows::kLookup, Rows::kDistributed}) {
    SCOPED_TRACE(static_cast<int>(rows));
    expect_measured(rows_net(rows), {.workers = 2, .servers = 2, .shards = 6});
  }
}

// What all trainers of a job copy to and from their devices in a step.
double copied_per_step(const TrafficNet& net, const testing::ThreadJob& job,
                       const fluid::KernelTable& kernels) {
  uint64_t bytes[2] = {};
  for (const int steps : {kFew, kMany}) {
    testing::TrainingTask task = net.task(steps);
    task.place = fluid::CUDAPlace(0);
    task.kernels = &kernels;
    const uint64_t before = testing::device_bytes_copied();
    const auto outcome = testing::train_in_threads(task, job);
    for (const auto& error : outcome.errors) ADD_FAILURE() << error;
    bytes[steps == kFew ? 0 : 1] = testing::device_bytes_copied() - before;
  }
  return static_cast<double>(bytes[1] - bytes[0]) / (kMany - kFew);
}

void expect_copied(const TrafficNet& net, const testing::ThreadJob& job) {
  SCOPED_TRACE(str_cat(job.workers, " workers, ", job.shards, " shards"));
  testing::emulate_two_devices();
  const auto kernels =
      testing::kernels_with_device_ops([](const std::string& op) { return op != "tanh"; });
  const Explanation told = explain(net.main, net.startup,
                                   {.config = job.config,
                                    .trainers = job.workers,
                                    .servers = job.servers,
                                    .shards = job.shards,
                                    .batch = net.rows / job.workers,
                                    .place = fluid::CUDAPlace(0),
                                    .kernels = &kernels});
  const ProgramPlaces& trainer = told.places.at(1);
  // Each shard's loss is fetched.
  const double fetched = 4.0 * std::max(job.shards, job.workers);
  EXPECT_EQ(job.workers * (trainer.fed + trainer.to_device + trainer.to_host) + fetched,
            copied_per_step(net, job, kernels));
}

TEST(ExplainTraffic, OfTrainersOnADeviceIsWhatTheyCopy) {
  for (const bool decays : {false, true}) {
    const TrafficNet net = dense_net({.decays = decays});
    expect_copied(net, {.workers = 2, .servers = 2});
    expect_copied(net, {.workers = 2, .servers = 2, .shards = 6});
  }
}

}  // namespace
}  // namespace fleet::explain
