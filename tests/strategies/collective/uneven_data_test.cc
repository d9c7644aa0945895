// Workers (threads of this process) that take different numbers of steps, and LocalSGD.
#include <cmath>
#include <gmock/gmock.h>
#include <thread>

#include "strategies/collective/collective_runtime.h"
#include "tests/strategies/collective/small_net.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using small_net::largest_difference;
using small_net::Net;
using small_net::Parameters;
using small_net::parameters_of;
using ::testing::HasSubstr;

constexpr int64_t kRows = 8;  // of one worker's batch

void build(Net& net) {
  small_net::build(net, fluid::optimizer::SGD({.learning_rate = 0.1}));
}

// The rows of some workers in one step.
fluid::Feed batch(int step, const std::vector<int>& workers) {
  std::vector<uint64_t> numbers;
  for (const int worker : workers) {
    for (int64_t row = 0; row < kRows; ++row) {
      numbers.push_back(static_cast<uint64_t>((step * 16 + worker) * kRows + row));
    }
  }
  return small_net::rows(numbers);
}

// One process that trains on the rows of those workers who still have some.
Parameters train_locally(const std::vector<int>& steps_of_worker) {
  Net net;
  build(net);
  fluid::Executor exe;
  exe.run(net.startup);
  const int steps = *std::max_element(steps_of_worker.begin(), steps_of_worker.end());
  for (int step = 0; step < steps; ++step) {
    std::vector<int> workers;
    for (size_t i = 0; i < steps_of_worker.size(); ++i) {
      if (step < steps_of_worker[i]) workers.push_back(static_cast<int>(i));
    }
    exe.run(net.main, batch(step, workers));
  }
  return parameters_of(exe.scope(), net);
}

struct Worker {
  Parameters at_end;   // when it had taken its steps
  Parameters aligned;  // after align()
  std::vector<double> sum;
  int64_t averages = 0;
};

struct JobOptions {
  std::vector<int> steps;
  bool aligns = true;  // all call align() and all_reduce_worker() before they leave
  size_t bucket_bytes = 300;
  int64_t fuse_bytes = 0;  // in the program
  std::optional<LocalSgdOptions> local_sgd = std::nullopt;
  std::optional<transport::ElementType> wire = std::nullopt;
};

Worker run_worker(const JobOptions& job, int rank, transport::InProcessGroup& group) {
  const auto workers = static_cast<int>(job.steps.size());
  Net net;
  build(net);
  const role_maker::ClusterSpec cluster = small_net::cluster_of(rank, workers);
  transpiler::DistributeTranspilerConfig config;
  config.collective_mode = job.local_sgd ? "local_sgd" : "grad_allreduce";
  config.local_sgd_scheduled = job.local_sgd.has_value();
  config.fuse_all_reduce_bytes = job.fuse_bytes;
  auto programs = small_net::transpiled(net, cluster, workers, config);
  const auto runtime = std::make_shared<CollectiveRuntime>(
      cluster, [&] { return group.member(rank); },
      CollectiveRuntimeOptions{.logical_shards = workers,
                               .reducer = {.bucket_bytes = job.bucket_bytes, .wire = job.wire},
                               .local_sgd = job.local_sgd});
  runtime->expect(programs.main);
  programs.main.set_runtime(runtime);
  programs.startup.set_runtime(runtime);
  fluid::Executor exe;
  exe.run(programs.startup);
  for (int step = 0; step < job.steps[static_cast<size_t>(rank)]; ++step) {
    exe.run(programs.main, batch(step, {rank}));
  }
  Worker result{.at_end = parameters_of(exe.scope(), net)};
  if (job.aligns) {
    std::vector<std::string> names;
    for (const auto* parameter : net.main.global_block().parameters()) {
      names.push_back(parameter->name);
    }
    runtime->align(names, names, exe.scope());
    const std::vector<double> mine = {1.0, static_cast<double>(rank)};
    result.sum = runtime->all_reduce_worker(mine);
  }
  result.aligned = parameters_of(exe.scope(), net);
  result.averages = runtime->averages();
  runtime->leave();
  runtime->disconnect();
  return result;
}

std::vector<Worker> run_job(const JobOptions& job) {
  transport::InProcessGroup group(static_cast<int>(job.steps.size()));
  std::vector<Worker> results(job.steps.size());
  std::vector<std::jthread> threads;
  for (size_t rank = 0; rank < job.steps.size(); ++rank) {
    threads.emplace_back([&, rank] {
      EXPECT_NO_THROW(results[rank] = run_worker(job, static_cast<int>(rank), group));
    });
  }
  threads.clear();
  return results;
}

TEST(UnevenDataTest, TheOthersGoOnWithTheMeanOverThoseWhoStillHaveRows) {
  const std::vector<std::vector<int>> jobs = {{5, 2}, {2, 5}, {7, 3, 5}, {4, 4, 1, 6}, {0, 3}};
  for (const auto& steps : jobs) {
    for (const size_t bucket : {size_t{1}, size_t{300}, size_t{1} << 20}) {
      const Parameters expected = train_locally(steps);
      const auto workers = run_job({.steps = steps, .bucket_bytes = bucket});
      for (size_t rank = 0; rank < steps.size(); ++rank) {
        EXPECT_LT(largest_difference(workers[rank].aligned, expected), 1e-6f)
            << "rank " << rank << " of " << steps.size() << ", buckets of " << bucket;
        EXPECT_EQ(workers[rank].aligned, workers[0].aligned);
      }
    }
  }
}

TEST(UnevenDataTest, BucketsOfTheProgramGiveTheSameBits) {
  for (const std::vector<int>& steps : {std::vector<int>{5, 2}, {0, 3}}) {
    const auto plain = run_job({.steps = steps});
    const auto fused = run_job({.steps = steps, .fuse_bytes = 300});
    EXPECT_EQ(fused[0].aligned, plain[0].aligned);
    EXPECT_EQ(fused[1].aligned, plain[1].aligned);
  }
}

TEST(UnevenDataTest, GradientsMayTravelInHalfTheBytes) {
  for (const std::vector<int>& steps : {std::vector<int>{5, 2}, {0, 3}}) {
    const Parameters expected = train_locally(steps);
    for (const auto wire : {transport::ElementType::kFloat16, transport::ElementType::kBFloat16}) {
      const auto workers = run_job({.steps = steps, .wire = wire});
      const float difference = largest_difference(workers[0].aligned, expected);
      EXPECT_LT(difference, 2e-3f);
      EXPECT_GT(difference, 0.0f);
      EXPECT_EQ(workers[0].aligned, workers[1].aligned);
    }
  }
}

TEST(UnevenDataTest, NumbersOfAllWorkersAreAddedUpWhenTheLastHasItsStepsBehindIt) {
  const auto workers = run_job({.steps = {6, 1, 3}});
  for (const Worker& worker : workers) EXPECT_EQ(worker.sum, (std::vector<double>{3.0, 3.0}));
}

TEST(UnevenDataTest, AWorkerMayLeaveWithoutMeetingTheOthers) {
  const std::vector<int> steps = {4, 1, 2};
  const Parameters expected = train_locally(steps);
  const auto workers = run_job({.steps = steps, .aligns = false});
  EXPECT_LT(largest_difference(workers[0].at_end, expected), 1e-6f);
}

TEST(UnevenDataTest, WorkersWithAsManyStepsKeepTheirBits) {
  const auto workers = run_job({.steps = {4, 4}});
  EXPECT_EQ(workers[0].at_end, workers[0].aligned);
  EXPECT_EQ(workers[0].at_end, workers[1].at_end);
}

TEST(UnevenDataTest, WorkersThatMeetForDifferentThingsAreTold) {
  transport::InProcessGroup group(2);
  std::vector<std::jthread> threads;
  for (int rank = 0; rank < 2; ++rank) {
    threads.emplace_back([&group, rank] {
      role_maker::ClusterSpec cluster;
      cluster.mode = role_maker::Mode::kCollective;
      cluster.index = rank;
      cluster.worker_num = 2;
      CollectiveRuntime runtime(cluster, [&] { return group.member(rank); });
      try {
        if (rank == 0) {
          runtime.barrier_worker();
        } else {
          (void)runtime.all_reduce_worker(std::vector<double>{1, 2});
        }
        ADD_FAILURE() << "no error at rank " << rank;
      } catch (const UsageError& error) {
        EXPECT_THAT(error.what(), HasSubstr("do not call the same thing"));
      }
    });
  }
}

TEST(LocalSgdTest, IntervalOneOnSgdEqualsTrainingOnAllRows) {
  const std::vector<int> steps = {6, 6, 6};
  const Parameters expected = train_locally(steps);
  for (const Worker& worker : run_job({.steps = steps, .local_sgd = LocalSgdOptions{}})) {
    EXPECT_LT(largest_difference(worker.at_end, expected), 1e-6f);
    EXPECT_EQ(worker.averages, 6);
  }
}

TEST(LocalSgdTest, WorkersDifferBetweenTwoAveragesAndAgreeAfterOne) {
  const auto workers = run_job({.steps = {7, 7}, .local_sgd = LocalSgdOptions{.interval = 3}});
  EXPECT_EQ(workers[0].averages, 2);
  EXPECT_GT(largest_difference(workers[0].at_end, workers[1].at_end), 1e-4f);
  EXPECT_EQ(workers[0].aligned, workers[1].aligned);
  const auto even = run_job({.steps = {6, 6}, .local_sgd = LocalSgdOptions{.interval = 3}});
  EXPECT_EQ(even[0].at_end, even[1].at_end);
}

TEST(LocalSgdTest, AverageIsTheMeanOfLocalTraining) {
  // Each worker alone, then the mean.
  std::vector<Parameters> alone;
  for (int rank = 0; rank < 2; ++rank) {
    Net net;
    build(net);
    fluid::Executor exe;
    exe.run(net.startup);
    for (int step = 0; step < 4; ++step) exe.run(net.main, batch(step, {rank}));
    alone.push_back(parameters_of(exe.scope(), net));
  }
  const auto workers = run_job({.steps = {4, 4}, .local_sgd = LocalSgdOptions{.interval = 4}});
  for (const auto& [name, values] : workers[0].at_end) {
    for (size_t i = 0; i < values.size(); ++i) {
      EXPECT_EQ(values[i], (alone[0].at(name)[i] + alone[1].at(name)[i]) / 2) << name << " " << i;
    }
  }
}

TEST(LocalSgdTest, AWorkerWithoutRowsLeavesTheAverageToTheOthers) {
  const auto workers =
      run_job({.steps = {8, 3, 8}, .aligns = false, .local_sgd = LocalSgdOptions{.interval = 2}});
  EXPECT_EQ(workers[0].averages, 4);
  EXPECT_EQ(workers[1].averages, 1);
  EXPECT_EQ(workers[0].at_end, workers[2].at_end);
}

TEST(LocalSgdTest, AdaptiveIntervalsAgreeOnAllWorkersAlsoWhenOneHasLeft) {
  const LocalSgdOptions adaptive{
      .interval = 4, .rule = LocalSgdRule::kAdaComm, .adapt_every = 4, .shrink = 0.5};
  for (const auto& options : {adaptive, LocalSgdOptions::paddle(9)}) {
    const auto workers = run_job({.steps = {24, 24, 5}, .aligns = false, .local_sgd = options});
    EXPECT_EQ(workers[0].averages, workers[1].averages);
    EXPECT_GT(workers[0].averages, 24 / options.interval);
  }
}

}  // namespace
}  // namespace fleet::strategies
