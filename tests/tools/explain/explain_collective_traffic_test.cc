// What is said to travel in a step between ranks without servers, held against what their runtimes
// ask their communicators for.
#include <gtest/gtest.h>
#include <thread>

#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "strategies/collective/collective_runtime.h"
#include "tests/testing/device/emulated_device.h"
#include "tests/tools/explain/traffic_nets.h"
#include "transpiler/distribute_transpiler.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::explain {
namespace {

using transport::CollectiveCommunicator;
using transport::CollectiveLabel;
using transport::CollectiveToken;
using transport::ElementType;
using transport::ShardLayout;

// Payload of one rank.
struct RankBytes {
  double out = 0;
  double in = 0;
};

// Counts the bytes of operations on gradients, rows and parameters.
class MeasuredCommunicator final : public CollectiveCommunicator {
 public:
  MeasuredCommunicator(std::unique_ptr<CollectiveCommunicator> communicator, RankBytes& bytes)
      : communicator_(std::move(communicator)), bytes_(bytes) {}

  int rank() const override { return communicator_->rank(); }
  int size() const override { return communicator_->size(); }

  CollectiveToken all_reduce(const ShardLayout& layout, ElementType type,
                             std::span<const void* const> parts, void* out, size_t count,
                             CollectiveLabel label) override {
    if (label.phase == "backward" || label.phase == "averaging parameters") {
      const auto own = static_cast<double>(parts.size());
      // What the other ranks have of an array, each its piece.
      const double others = bytes_at_others(static_cast<double>(count * size_of(type)));
      const double from_others = static_cast<double>(layout.parts()) - own;
      bytes_.out += others * (own + 1);
      bytes_.in += others * (from_others / (size() - 1) + 1);
    }
    return communicator_->all_reduce(layout, type, parts, out, count, label);
  }
  CollectiveToken reduce_scatter(const ShardLayout& layout, ElementType type,
                                 std::span<const void* const> parts, void* out,
                                 std::span<const size_t> counts, CollectiveLabel label) override {
    return communicator_->reduce_scatter(layout, type, parts, out, counts, label);
  }
  CollectiveToken broadcast(std::span<std::byte> bytes, int root, CollectiveLabel label) override {
    return communicator_->broadcast(bytes, root, label);
  }
  CollectiveToken all_gather(std::span<const std::byte> mine, std::span<std::byte> all,
                             CollectiveLabel label) override {
    if (label.phase == "rows") {
      // First how many rows come, and then they.
      if (rows_follow_) {
        bytes_.out += static_cast<double>(mine.size()) * (size() - 1);
        bytes_.in += static_cast<double>(all.size() - mine.size());
      }
      rows_follow_ = !rows_follow_;
    }
    return communicator_->all_gather(mine, all, label);
  }
  CollectiveToken barrier(CollectiveLabel label) override { return communicator_->barrier(label); }
  void abort(Status reason) override { communicator_->abort(std::move(reason)); }

 private:
  double bytes_at_others(double bytes) const { return bytes * (size() - 1) / size(); }

  std::unique_ptr<CollectiveCommunicator> communicator_;
  RankBytes& bytes_;
  bool rows_follow_ = false;
};

struct CollectiveJob {
  transpiler::DistributeTranspilerConfig config;
  int ranks = 2;
  int shards = 2;
  int average_every = 1;
  const fluid::KernelTable* kernels = nullptr;  // of a device that the ranks are on; null: the CPU

  fluid::Place place() const {
    return kernels == nullptr ? fluid::CPUPlace() : fluid::CUDAPlace(0);
  }
};

// By rank.
std::vector<RankBytes> train(const TrafficNet& net, const CollectiveJob& job, int steps) {
  transport::InProcessGroup group(job.ranks);
  std::vector<RankBytes> bytes(static_cast<size_t>(job.ranks));
  std::vector<std::jthread> threads;
  threads.reserve(static_cast<size_t>(job.ranks));
  for (int rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] {
      role_maker::ClusterSpec cluster;
      cluster.mode = role_maker::Mode::kCollective;
      cluster.index = rank;
      cluster.worker_num = job.ranks;
      cluster.job_id = "test";
      auto programs =
          transpiler::transpile_for(net.main, net.startup, cluster, job.config, job.shards);
      strategies::CollectiveRuntimeOptions options{.logical_shards = job.shards};
      if (job.config.local_sgd_scheduled) options.local_sgd = {.interval = job.average_every};
      const auto runtime = std::make_shared<strategies::CollectiveRuntime>(
          cluster,
          [&] {
            return std::make_unique<MeasuredCommunicator>(group.member(rank),
                                                          bytes[static_cast<size_t>(rank)]);
          },
          options);
      programs.main.set_runtime(runtime);
      programs.startup.set_runtime(runtime);
      fluid::Executor executor(job.place(), {.kernels = job.kernels});
      executor.run(programs.startup);
      const ShardRange own = owned_shards(rank, job.ranks, job.shards);
      const testing::TrainingTask task = net.task(steps);
      for (int step = 0; step < steps; ++step) {
        executor.run(programs.main, task.feed(step, own.begin, own.end, job.shards), {net.loss});
      }
    });
  }
  threads.clear();
  return bytes;
}

void expect_measured(const TrafficNet& net, const CollectiveJob& job) {
  SCOPED_TRACE(str_cat(job.ranks, " ranks, ", job.shards, " shards"));
  constexpr int kSteps = 8;
  const auto bytes = train(net, job, kSteps);
  double said = 0;
  double total = 0;
  for (int rank = 0; rank < job.ranks; ++rank) {
    SCOPED_TRACE(str_cat("rank ", rank));
    const Explanation told = explain(net.main, net.startup,
                                     {.config = job.config,
                                      .trainers = job.ranks,
                                      .shards = job.shards,
                                      .trainer = rank,
                                      .batch = net.rows / job.ranks,
                                      .average_every = job.average_every});
    const RankBytes& measured = bytes[static_cast<size_t>(rank)];
    // How many bytes the numbers of rows take depends on the rows.
    const double slack = told.traffic.estimated ? 0.01 : 1e-12;
    EXPECT_NEAR(told.traffic.trainer_out, measured.out / kSteps, slack * measured.out / kSteps);
    EXPECT_NEAR(told.traffic.trainer_in, measured.in / kSteps, slack * measured.in / kSteps);
    total += measured.out;
    said = told.traffic.total;
  }
  EXPECT_NEAR(said, total / kSteps, 0.01 * total / kSteps);
}

TEST(ExplainCollectiveTraffic, IsWhatRanksReduce) {
  const TrafficNet net = dense_net();
  auto config = config_of_mode("all_reduce");
  expect_measured(net, {.config = config});
  expect_measured(net, {.config = config, .ranks = 3, .shards = 3});
  expect_measured(net, {.config = config, .ranks = 2, .shards = 6});
  expect_measured(net, {.config = config, .ranks = 3, .shards = 8});
  config.fuse_all_reduce_bytes = 1 << 20;
  expect_measured(net, {.config = config, .ranks = 3, .shards = 3});
}

TEST(ExplainCollectiveTraffic, IsWhatRanksGatherOfRows) {
  const auto config = config_of_mode("all_reduce");
  for (const Rows rows : {Rows::kLookup, Rows::kTwoLookups, Rows::kNce, Rows::kHsigmoid}) {
    SCOPED_TRACE(static_cast<int>(rows));
    const TrafficNet net = rows_net(rows);
    expect_measured(net, {.config = config});
    expect_measured(net, {.config = config, .ranks = 2, .shards = 2});
  }
  expect_measured(rows_net(Rows::kLookup), {.config = config, .ranks = 2, .shards = 6});
  expect_measured(rows_net(Rows::kLookup), {.config = config, .ranks = 3, .shards = 3});
}

TEST(ExplainCollectiveTraffic, IsWhatRanksAverage) {
  const TrafficNet net = dense_net();
  auto config = config_of_mode("local_sgd");
  expect_measured(net, {.config = config});
  expect_measured(net, {.config = config, .ranks = 3, .shards = 3, .average_every = 4});
  config.local_sgd_scheduled = false;
  expect_measured(net, {.config = config, .ranks = 3, .shards = 3});
  expect_measured(rows_net(Rows::kLookup), {.config = config});
}

// Sums are taken on the host: of ranks on devices without NCCL.
void expect_copied(const TrafficNet& net, CollectiveJob job) {
  SCOPED_TRACE(str_cat(job.ranks, " ranks, ", job.shards, " shards"));
  testing::emulate_two_devices();
  const auto kernels =
      testing::kernels_with_device_ops([](const std::string& op) { return op != "tanh"; });
  job.kernels = &kernels;
  const auto copied = [&](int steps) {
    const uint64_t before = testing::device_bytes_copied();
    train(net, job, steps);
    return static_cast<double>(testing::device_bytes_copied() - before);
  };
  double said = 4.0 * job.shards;  // each shard's loss is fetched
  for (int rank = 0; rank < job.ranks; ++rank) {
    const Explanation told = explain(net.main, net.startup,
                                     {.config = job.config,
                                      .trainers = job.ranks,
                                      .shards = job.shards,
                                      .trainer = rank,
                                      .batch = net.rows / job.ranks,
                                      .place = job.place(),
                                      .device_sums = false,
                                      .kernels = &kernels});
    const ProgramPlaces& places = told.places.at(1);
    said += places.fed + places.to_device + places.to_host;
  }
  constexpr int kFew = 3;
  constexpr int kMany = 8;
  EXPECT_EQ(said, (copied(kMany) - copied(kFew)) / (kMany - kFew));
}

TEST(ExplainCollectiveTraffic, OfRanksOnADeviceIsWhatTheyCopy) {
  const auto config = config_of_mode("all_reduce");
  expect_copied(dense_net(), {.config = config});
  expect_copied(dense_net({.decays = true}), {.config = config, .ranks = 2, .shards = 6});
  expect_copied(rows_net(Rows::kLookup), {.config = config, .ranks = 3, .shards = 3});
  expect_copied(dense_net(), {.config = config_of_mode("local_sgd")});
}

}  // namespace
}  // namespace fleet::explain
