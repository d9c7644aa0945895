// Ranks (threads of this process) that do not have the same: other parameters at the start, a
// gradient that one of them does not make, a batch without rows.
#include <functional>
#include <gmock/gmock.h>
#include <thread>

#include "base/error.h"
#include "fluid/layers/control_flow.h"
#include "strategies/collective/collective_runtime.h"
#include "tests/strategies/collective/small_net.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::strategies {
namespace {

using small_net::Net;
using small_net::Parameters;
using ::testing::AllOf;
using ::testing::HasSubstr;

void build(Net& net) {
  small_net::build(net, fluid::optimizer::SGD({.learning_rate = 0.1}));
}

fluid::Feed rows_at(int step, int first, int count) {
  std::vector<uint64_t> numbers;
  numbers.reserve(static_cast<size_t>(count));
  for (int i = 0; i < count; ++i) numbers.push_back(static_cast<uint64_t>(step * 16 + first + i));
  return small_net::rows(numbers);
}

struct Job {
  int workers = 2;
  std::function<void(Net&)> build = [](Net& net) { strategies::build(net); };
  // After the startup program.
  std::function<void(int rank, fluid::Scope&)> before_steps = nullptr;
  std::function<fluid::Feed(int rank, int step)> feed;
  std::vector<int> steps = {2, 2, 2};  // by rank
};

// What each rank ended with; errors are those of the ranks, "" of none.
struct Outcome {
  std::vector<Parameters> parameters;
  std::vector<std::string> errors;
};

void run_rank(const Job& job, int rank, transport::InProcessGroup& group, Outcome& outcome) {
  Net net;
  job.build(net);
  const role_maker::ClusterSpec cluster = small_net::cluster_of(rank, job.workers);
  transpiler::DistributeTranspilerConfig config;
  config.collective_mode = "grad_allreduce";
  auto programs = small_net::transpiled(net, cluster, job.workers, config);
  const auto runtime = std::make_shared<CollectiveRuntime>(
      cluster, [&] { return group.member(rank); },
      CollectiveRuntimeOptions{.logical_shards = job.workers});
  runtime->expect(programs.main);
  programs.main.set_runtime(runtime);
  programs.startup.set_runtime(runtime);
  fluid::Executor exe;
  exe.run(programs.startup);
  if (job.before_steps) job.before_steps(rank, exe.scope());
  for (int step = 0; step < job.steps[static_cast<size_t>(rank)]; ++step) {
    exe.run(programs.main, job.feed(rank, step));
  }
  runtime->leave();
  outcome.parameters[static_cast<size_t>(rank)] = small_net::parameters_of(exe.scope(), net);
}

Outcome run_job(const Job& job) {
  const auto workers = static_cast<size_t>(job.workers);
  Outcome outcome{std::vector<Parameters>(workers), std::vector<std::string>(workers)};
  transport::InProcessGroup group(job.workers);
  std::vector<std::jthread> threads;
  threads.reserve(workers);
  for (int rank = 0; rank < job.workers; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        run_rank(job, rank, group, outcome);
      } catch (const Error& error) {
        outcome.errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  threads.clear();
  return outcome;
}

fluid::Feed eight_rows(int rank, int step) {
  return rows_at(step, 8 * rank, 8);
}

TEST(UnequalRanksTest, ThatBeginWithOtherParametersAreNamed) {
  Job job{.workers = 3, .feed = eight_rows};
  job.before_steps = [](int rank, fluid::Scope& scope) {
    if (rank == 1) scope.tensor("fc_1.w_0").data<float>()[5] += 1e-6F;
  };
  for (const std::string& error : run_job(job).errors) {
    EXPECT_THAT(error, AllOf(HasSubstr("the ranks begin with different parameters"),
                             HasSubstr("fc_1.w_0"), HasSubstr("rank 0"), HasSubstr("at rank 1")));
  }
}

TEST(UnequalRanksTest, ARankWithoutAStepIsNotCompared) {
  Job job{.workers = 3, .feed = eight_rows, .steps = {2, 0, 2}};
  job.before_steps = [](int rank, fluid::Scope& scope) {
    if (rank == 1) scope.tensor("fc_1.w_0").data<float>()[5] += 1;
  };
  const Outcome outcome = run_job(job);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_EQ(outcome.parameters[0], outcome.parameters[2]);
  job.before_steps = [](int rank, fluid::Scope& scope) {
    if (rank == 2) scope.tensor("fc_1.w_0").data<float>()[5] += 1;
  };
  for (const std::string& error : run_job(job).errors) {
    EXPECT_THAT(error, HasSubstr("another one at rank 2"));
  }
}

// A second tower whose cost counts only where the feed says so.
void build_with_condition(Net& net) {
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.startup.set_random_seed(11);
  namespace layers = fluid::layers;
  const auto x = layers::data("x", {6}, fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  const auto uses = layers::data("uses", {1}, fluid::DType::kFloat32, {.append_batch_size = false});
  const auto cost = layers::mean(layers::cross_entropy(layers::fc(x, 3, {.act = "softmax"}), y));
  const auto zero = layers::fill_constant({1}, fluid::DType::kFloat32, 0);
  const auto second = layers::cond(
      layers::greater_than(uses, zero),
      [&]() -> std::vector<fluid::Variable> { return {layers::mean(layers::fc(x, 2))}; },
      [&]() -> std::vector<fluid::Variable> {
        return {layers::fill_constant({1}, fluid::DType::kFloat32, 0)};
      });
  const auto all = layers::elementwise_add(cost, second.front());
  fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(all);
  net.cost = all.name();
}

TEST(UnequalRanksTest, AGradientThatOneRankDoesNotMakeCountsAsZeros) {
  Job job{.build = build_with_condition};
  const auto feed_for = [](bool second) {
    return [second](int rank, int step) {
      fluid::Feed feed = eight_rows(rank, step);
      const float uses = rank == 0 || second ? 1 : 0;
      feed.emplace_back("uses", fluid::Tensor::from(std::vector<float>{uses}, {1}));
      return feed;
    };
  };
  job.feed = feed_for(false);
  const Outcome some = run_job(job);
  job.feed = feed_for(true);
  const Outcome all = run_job(job);
  for (const Outcome* outcome : {&some, &all}) {
    for (const std::string& error : outcome->errors) EXPECT_EQ(error, "");
    EXPECT_EQ(outcome->parameters[0], outcome->parameters[1]);
  }
  EXPECT_EQ(some.parameters[0].at("fc_0.w_0"), all.parameters[0].at("fc_0.w_0"));
  EXPECT_NE(some.parameters[0].at("fc_1.w_0"), all.parameters[0].at("fc_1.w_0"));
}

TEST(UnequalRanksTest, ABatchWithoutRowsHoldsNobodyUp) {
  Job job{.feed = [](int rank, int step) { return rows_at(step, 8 * rank, rank == 0 ? 8 : 0); }};
  const Outcome outcome = run_job(job);
  for (const std::string& error : outcome.errors) EXPECT_EQ(error, "");
  EXPECT_EQ(outcome.parameters[0], outcome.parameters[1]);
  for (const auto& [name, values] : outcome.parameters[0]) {
    for (const float value : values) ASSERT_TRUE(std::isfinite(value)) << name;
  }
}

}  // namespace
}  // namespace fleet::strategies
