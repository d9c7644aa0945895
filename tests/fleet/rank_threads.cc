#include "tests/fleet/rank_threads.h"

#include <gtest/gtest.h>
#include <memory>
#include <string>
#include <thread>

#include "base/shard_tree.h"
#include "base/strings.h"
#include "transpiler/distribute_transpiler.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::testing {
namespace {

transpiler::ProgramPair programs_of(const TrainingTask& task, const RankJob& job, int rank) {
  std::vector<std::string> endpoints;
  endpoints.reserve(static_cast<size_t>(job.ranks));
  for (int i = 0; i < job.ranks; ++i) endpoints.push_back(str_cat("127.0.0.1:", 6170 + i));
  transpiler::DistributeTranspiler transpiler(job.config);
  transpiler.transpile({.trainer_id = rank,
                        .program = task.main,
                        .trainers = join(endpoints, ","),
                        .startup_program = task.startup,
                        .current_endpoint = endpoints[static_cast<size_t>(rank)],
                        .logical_shards = job.shards});
  return {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()};
}

}  // namespace

RankOutcome train_in_ranks(const TrainingTask& task, const RankJob& job) {
  const int shards = job.shards == 0 ? job.ranks : job.shards;
  transport::InProcessGroup group(job.ranks);
  RankOutcome outcome;
  outcome.losses.resize(static_cast<size_t>(job.ranks));
  outcome.persistables.resize(static_cast<size_t>(job.ranks));
  const auto train = [&](int rank) {
    auto programs = programs_of(task, job, rank);
    strategies::CollectiveRuntimeOptions options{.logical_shards = shards,
                                                 .local_sgd = job.local_sgd};
    if (job.devices) {
      options.connect_devices = [&](transport::CollectiveCommunicator& host,
                                    const fluid::Place& place) {
        return strategies::connect_devices(host, place, job.devices(rank), Logger());
      };
    }
    const auto runtime = std::make_shared<strategies::CollectiveRuntime>(
        role_maker::ClusterSpec{.mode = role_maker::Mode::kCollective,
                                .index = rank,
                                .worker_num = job.ranks,
                                .job_id = "rank threads"},
        [&] { return group.member(rank); }, std::move(options));
    runtime->expect(programs.main);
    programs.main.set_runtime(runtime);
    programs.startup.set_runtime(runtime);
    fluid::Executor executor = trainer_executor(task);
    executor.run(programs.startup);
    const auto at = static_cast<size_t>(rank);
    const ShardRange own = owned_shards(rank, job.ranks, shards);
    const int steps = at < job.uneven_steps.size() ? job.uneven_steps[at] : task.steps;
    for (int step = 0; step < steps; ++step) {
      const auto fetched = executor.run(programs.main, task.feed(step, own.begin, own.end, shards),
                                        {fluid::Fetch(task.loss)});
      outcome.losses[at].push_back(fetched.front().item<float>());
    }
    runtime->leave();
    outcome.persistables[at] = values_of(*task.main, executor.scope(), false);
  };
  std::vector<std::jthread> threads;
  threads.reserve(outcome.losses.size());
  for (int rank = 0; rank < job.ranks; ++rank) {
    threads.emplace_back([&, rank] { EXPECT_NO_THROW(train(rank)); });
  }
  threads.clear();
  return outcome;
}

}  // namespace fleet::testing
