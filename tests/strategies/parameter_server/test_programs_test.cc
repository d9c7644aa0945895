// Programs for tests, run by workers whose tables are on servers while training goes on.
#include <algorithm>
#include <gmock/gmock.h>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using ::testing::HasSubstr;

constexpr int kSteps = 3;
constexpr int kTestBatch = 100;

const std::vector<RowKind> kKinds = {
    RowKind::kLookup,      RowKind::kLookupV2,  RowKind::kTwoLookups, RowKind::kTwoVersions,
    RowKind::kTwoPaddings, RowKind::kTwoTables, RowKind::kNce,        RowKind::kHsigmoid};

bool has_lookups(RowKind kind) {
  return kind != RowKind::kNce && kind != RowKind::kHsigmoid;
}

float test_loss(fluid::Executor& executor, const fluid::Program& test, const TrainingTask& task) {
  return executor.run(test, task.feed(kTestBatch, 0, 1, 1), {task.loss}).front().item<float>();
}

// The loss of the test program after each step on one machine.
std::vector<float> local_losses(const TrainingTask& task, const fluid::Program& test, int shards) {
  fluid::ExecutorOptions options;
  options.logical_shards = shards;
  fluid::Executor executor(fluid::CPUPlace(), options);
  executor.run(*task.startup);
  std::vector<float> losses;
  for (int step = 0; step < task.steps; ++step) {
    executor.run(*task.main, task.feed(step, 0, shards, shards), {task.loss});
    losses.push_back(test_loss(executor, test, task));
  }
  return losses;
}

// Collects the losses of worker 0.
class Losses {
 public:
  void add(int worker, float loss) {
    if (worker == 0) losses_.push_back(loss);
  }
  const std::vector<float>& all() const { return losses_; }

 private:
  std::vector<float> losses_;
};

void expect_local_losses(const SparseNet& net, ThreadJob job) {
  const TrainingTask task = net.task(kSteps);
  const fluid::Program test = net.main().clone(true);
  Losses losses;
  job.after_step = [&](int worker, const fluid::Program&, fluid::Executor& executor) {
    losses.add(worker, test_loss(executor, test, task));
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_EQ(losses.all(), local_losses(task, test, job.workers));
}

void expect_local_losses(const SparseNet& net, AsyncThreadJob job) {
  const TrainingTask task = net.task(kSteps);
  const fluid::Program test = net.main().clone(true);
  Losses losses;
  job.after_step = [&](int worker, const fluid::Program&, fluid::Executor& executor) {
    losses.add(worker, test_loss(executor, test, task));
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_EQ(losses.all(), local_losses(task, test, 1));
}

AsyncThreadJob alone(ServerMode mode) {
  AsyncThreadJob job;
  job.workers = 1;
  job.options.mode = mode;
  job.options.independent_recv = false;
  return job;
}

TEST(TestPrograms, LookRowsUpOnSynchronousServers) {
  for (const RowKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    expect_local_losses(SparseNet({.kind = kind}), ThreadJob{.workers = 2, .servers = 3});
    ThreadJob split{.workers = 2, .servers = 2};
    split.config = {.sync_mode = false,
                    .runtime_split_send_recv = true,
                    .half_async = true,
                    .completely_not_async = true};
    expect_local_losses(SparseNet({.kind = kind}), split);
  }
}

TEST(TestPrograms, LeaveOutThePadding) {
  expect_local_losses(SparseNet({.padding = 3}), ThreadJob{.workers = 2, .servers = 2});
}

TEST(TestPrograms, LookRowsOfDistributedTablesUp) {
  for (const RowKind kind : kKinds) {
    if (!has_lookups(kind)) continue;
    for (const int servers : {1, 3}) {
      SCOPED_TRACE(str_cat(static_cast<int>(kind), ", ", servers, " servers"));
      const SparseNet net({.kind = kind, .padding = 3, .is_distributed = true});
      expect_local_losses(net, ThreadJob{.workers = 2, .servers = servers});
      AsyncThreadJob async = alone(ServerMode::kAsync);
      async.servers = servers;
      expect_local_losses(net, async);
    }
  }
}

TEST(TestPrograms, LookRowsUpOnAsynchronousServers) {
  for (const RowKind kind : kKinds) {
    SCOPED_TRACE(static_cast<int>(kind));
    const SparseNet net({.kind = kind});
    expect_local_losses(net, alone(ServerMode::kAsync));
    expect_local_losses(net, alone(ServerMode::kHalfAsync));
    expect_local_losses(net, alone(ServerMode::kGeo));
    AsyncThreadJob bounded = alone(ServerMode::kAsync);
    bounded.options.staleness_bound = 1;
    expect_local_losses(net, bounded);
    AsyncThreadJob compensated = alone(ServerMode::kAsync);
    compensated.options.delay_compensation =
        strategies::DelayCompensationOptions::preset(strategies::DelayCompensation::kClipped);
    expect_local_losses(net, compensated);
  }
}

// Copies of what a trainer runs.
TEST(TestPrograms, MayBeCopiesOfTheRewrittenProgram) {
  for (const bool distributed : {false, true}) {
    for (const RowKind kind : kKinds) {
      if (distributed && !has_lookups(kind)) continue;
      SCOPED_TRACE(str_cat(static_cast<int>(kind), distributed ? ", distributed" : ""));
      const SparseNet net({.kind = kind, .is_distributed = distributed});
      const TrainingTask task = net.task(kSteps);
      ThreadJob job{.workers = 2, .servers = 2};
      Losses losses;
      std::vector<fluid::Program> tests(2);
      job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
        fluid::Program& test = tests[static_cast<size_t>(worker)];
        if (test.global_block().op_count() == 0) test = main.clone(true);
        losses.add(worker, test_loss(executor, test, task));
      };
      const ThreadOutcome outcome = train_in_threads(task, job);
      for (const auto& error : outcome.errors) ADD_FAILURE() << error;
      EXPECT_EQ(losses.all(), local_losses(task, net.main().clone(true), 2));
    }
  }
}

TEST(TestPrograms, MayBeCopiesOfARewrittenAsynchronousProgram) {
  for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo}) {
    for (const RowKind kind : kKinds) {
      SCOPED_TRACE(str_cat(to_string(mode), " ", static_cast<int>(kind)));
      const SparseNet net({.kind = kind});
      const TrainingTask task = net.task(kSteps);
      AsyncThreadJob job = alone(mode);
      Losses losses;
      std::optional<fluid::Program> test;
      job.after_step = [&](int worker, const fluid::Program& main, fluid::Executor& executor) {
        if (!test) test = main.clone(true);
        losses.add(worker, test_loss(executor, *test, task));
      };
      const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
      for (const auto& error : outcome.errors) ADD_FAILURE() << error;
      EXPECT_EQ(losses.all(), local_losses(task, net.main().clone(true), 1));
    }
  }
}

TEST(TestPrograms, RunWithAnExecutorOfTheirOwnAndInTrainerThreads) {
  const SparseNet net({.learnable = true});
  const TrainingTask task = net.task(20);
  const fluid::Program test = net.main().clone(true);
  AsyncThreadJob job;
  job.options.trainer_threads = job.lanes = 2;
  std::mutex mutex;
  std::vector<float> first;
  std::vector<float> last;
  job.after_step = [&](int, const fluid::Program&, fluid::Executor& executor) {
    fluid::Executor own(fluid::CPUPlace(), executor.scope());
    const float loss = test_loss(own, test, task);
    const std::lock_guard lock(mutex);
    if (first.size() < 2) first.push_back(loss);
    last.push_back(loss);
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  ASSERT_EQ(last.size(), 40u);
  EXPECT_LT(last.back(), first.front());
}

// What cannot be answered without the whole table says so, instead of reading zeros.
std::string refusal(const std::function<void(const TrainingTask&, fluid::Executor&)>& use) {
  const SparseNet net({.kind = RowKind::kTwoLookups});
  const TrainingTask task = net.task(1);
  std::string text;
  ThreadJob job{.workers = 1, .servers = 2};
  job.after_step = [&](int, const fluid::Program&, fluid::Executor& executor) {
    try {
      use(task, executor);
    } catch (const Error& error) {
      text = error.what();
    }
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return text;
}

TEST(TestPrograms, DoNotReadAWholeTableThatIsOnServers) {
  const auto fetched = refusal([](const TrainingTask& task, fluid::Executor& executor) {
    executor.run(task.main->clone(true), task.feed(0, 0, 1, 1), {"table"});
  });
  EXPECT_THAT(fetched, HasSubstr("a table is fetched, whose rows are on the servers"));
  const auto read = refusal([](const TrainingTask& task, fluid::Executor& executor) {
    fluid::Program sum = task.main->clone(true);
    const fluid::ProgramGuard guard(sum, sum);
    const fluid::Variable table(sum.global_block(), "table");
    const auto total = fluid::layers::reduce_sum(table);
    executor.run(sum, task.feed(0, 0, 1, 1), {total});
  });
  EXPECT_THAT(read, HasSubstr("an op reads a whole table, whose rows are on the servers"));
}

TEST(TestPrograms, NameTheJobThatIsOver) {
  const SparseNet net({});
  const TrainingTask task = net.task(1);
  const fluid::Program test = net.main().clone(true);
  std::string text;
  const auto look_up = [&](fluid::Executor& executor) {
    try {
      test_loss(executor, test, task);
    } catch (const Error& error) {
      text = error.what();
    }
  };
  ThreadJob job{.workers = 1, .servers = 1};
  job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    runtime.stop_worker();
    look_up(executor);
  };
  train_in_threads(task, job);
  EXPECT_THAT(text, HasSubstr("this worker has left its job"));
  AsyncThreadJob async = alone(ServerMode::kAsync);
  text.clear();
  async.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    runtime.stop_worker();
    look_up(executor);
  };
  train_async_in_threads(task, async);
  EXPECT_THAT(text, HasSubstr("this worker has left its job"));
}

}  // namespace
}  // namespace fleet::testing
