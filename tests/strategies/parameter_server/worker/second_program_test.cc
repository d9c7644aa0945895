// Several programs of one worker, in jobs of threads: copies of the trainer program, the same cut
// in another way, one that trains a part of the parameters, one that only looks up.
#include <cstring>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/testing/nets/sparse_net.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using fluid::ServerMode;
using strategies::AsyncEvent;
using strategies::AsyncOptions;

constexpr int kSteps = 12;
constexpr int64_t kFeatures = 8;

// Its first layer is cut into slices.
class Net {
 public:
  Net() {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    const auto y = layers::data("y", {1});
    const auto hidden = layers::fc(x, 2400, {.act = "tanh"});
    const auto loss = layers::mean(layers::square_error_cost(layers::fc(hidden, 1), y));
    loss_ = loss.name();
    fluid::optimizer::SGD({.learning_rate = 0.01}).minimize(loss);
  }

  const fluid::Program& main() const { return main_; }
  TrainingTask task() const {
    TrainingTask task;
    task.main = &main_;
    task.startup = &startup_;
    task.loss = loss_;
    task.steps = kSteps;
    task.feed = [](int step, int begin, int end, int parts) {
      constexpr int kBatch = 16;
      std::vector<float> x;
      std::vector<float> y;
      for (int row = kBatch / parts * begin; row < kBatch / parts * end; ++row) {
        float sum = 0;
        for (uint64_t i = 0; i < kFeatures; ++i) {
          const uint64_t number = mix64(static_cast<uint64_t>(step * 1000 + row) * kFeatures + i);
          x.push_back(static_cast<float>(number % 1000) / 1000.0F);
          sum += x.back();
        }
        y.push_back(sum / kFeatures);
      }
      const auto rows = static_cast<int64_t>(y.size());
      return fluid::Feed{{"x", fluid::Tensor::from(x, {rows, kFeatures})},
                         {"y", fluid::Tensor::from(y, {rows, 1})}};
    };
    return task;
  }

 private:
  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
};

bool begins_with_any(const std::vector<std::string>& names, std::string_view prefix) {
  return !names.empty() && names.front().starts_with(prefix);
}

// Without what trains the first layer.
fluid::Program of_last_layer(fluid::Program program) {
  fluid::Block& block = program.global_block();
  for (size_t i = block.op_count(); i-- > 0;) {
    const fluid::Operator& op = std::as_const(block).op(i);
    const bool trains_first =
        (op.type == "send" && begins_with_any(op.input("X"), "fc_0")) ||
        ((op.type == "recv" || op.type == "concat") && begins_with_any(op.output("Out"), "fc_0")) ||
        (op.type == "sgd" && begins_with_any(op.input("Param"), "fc_0"));
    if (trains_first) block.remove_op(i);
  }
  return program;
}

using Transpile = AsyncThreadJob::Transpile;

std::vector<fluid::Program> copies(const Transpile& transpile) {
  const fluid::Program main = transpile(true);
  return {main, main, main.clone()};
}

std::vector<fluid::Program> other_cuts(const Transpile& transpile) {
  return {transpile(true), transpile(false), transpile(false)};
}

std::vector<fluid::Program> part_first(const Transpile& transpile) {
  const fluid::Program main = transpile(true);
  return {of_last_layer(main), main};
}

std::vector<AsyncOptions> every_mode() {
  std::vector<AsyncOptions> all;
  for (const ServerMode mode :
       {ServerMode::kAsync, ServerMode::kHalfAsync, ServerMode::kGeo, ServerMode::kEasgd}) {
    for (const uint32_t threads : {1U, 2U}) {
      AsyncOptions& options = all.emplace_back();
      options.mode = mode;
      options.trainer_threads = threads;
      options.geo_update_frequency = options.easgd_tau = 3;
    }
  }
  all.emplace_back().independent_recv = false;
  all.emplace_back().staleness_bound = 1;
  return all;
}

bool exchanges(const AsyncOptions& options) {
  return sends_differences(options.mode);
}

AsyncThreadOutcome expect_no_errors(const TrainingTask& task, const AsyncThreadJob& job) {
  AsyncThreadOutcome outcome = train_async_in_threads(task, job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  return outcome;
}

// Gradients that were applied to each slice, by worker; each once and in order.
std::vector<uint64_t> applied(const AsyncThreadOutcome& outcome) {
  std::vector<uint64_t> counts;
  for (const auto& events : outcome.events) {
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> clocks;
    for (const AsyncEvent& event : events) {
      if (event.kind != AsyncEvent::Kind::kUpdate) continue;
      uint64_t& clock = clocks[{event.variable, event.worker}];
      EXPECT_EQ(event.clock, clock + event.merged);
      clock = event.clock;
    }
    for (const auto& [slice, clock] : clocks) counts.push_back(clock);
  }
  return counts;
}

void expect_all_applied(const AsyncThreadJob& job, const AsyncThreadOutcome& outcome) {
  const uint64_t steps = exchanges(job.options) ? kSteps / 3 : kSteps;
  const std::vector<uint64_t> counts = applied(outcome);
  EXPECT_FALSE(counts.empty());
  for (const uint64_t count : counts) EXPECT_EQ(count, steps * job.options.trainer_threads);
}

TEST(SecondPrograms, LoseNothingInAnyAsynchronousMode) {
  const Net net;
  const TrainingTask task = net.task();
  for (const AsyncOptions& options : every_mode()) {
    for (const auto& programs : {copies, other_cuts}) {
      SCOPED_TRACE(str_cat(to_string(options.mode), ", ", options.trainer_threads, " threads, ",
                           options.independent_recv ? "" : "in step, ",
                           options.staleness_bound ? "bounded, " : "",
                           programs == copies ? "copies" : "other cuts"));
      AsyncThreadJob job;
      job.options = options;
      job.programs = programs;
      expect_all_applied(job, expect_no_errors(task, job));
    }
  }
}

// Received values are shared by trainer threads: a program that puts slices together writes
// elsewhere.
TEST(SecondPrograms, ThatJoinSlicesWriteToNoReceivedValue) {
  const Net net;
  AsyncThreadJob job;
  job.workers = 1;
  job.options.mode = ServerMode::kAsync;
  job.options.independent_recv = false;
  job.programs = other_cuts;
  std::vector<std::pair<fluid::Tensor, fluid::Tensor>> received;  // and what they were
  job.after_step = [&](int, const fluid::Program& main, fluid::Executor& executor) {
    for (const auto& [tensor, copy] : received) {
      EXPECT_EQ(std::memcmp(tensor.raw(), copy.raw(), copy.bytes()), 0);
    }
    for (const auto& var : main.global_block().vars()) {
      if (!var->is_parameter) continue;
      const fluid::Tensor& value = executor.scope().tensor(var->name);
      received.emplace_back(value, value.clone());
    }
  };
  expect_no_errors(net.task(), job);
  EXPECT_FALSE(received.empty());
}

TEST(SecondPrograms, OfOneWorkerThatReceivesInStepHaveTheBitsOfOneMachine) {
  const Net net;
  const TrainingTask task = net.task();
  const LocalOutcome local = train_locally(task, 1);
  for (const auto& programs : {copies, other_cuts}) {
    for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync}) {
      SCOPED_TRACE(str_cat(to_string(mode), programs == copies ? " copies" : " other cuts"));
      AsyncThreadJob job;
      job.workers = 1;
      job.options.mode = mode;
      job.options.independent_recv = false;
      job.programs = programs;
      const AsyncThreadOutcome outcome = expect_no_errors(task, job);
      EXPECT_EQ(outcome.losses[0], local.losses);
      EXPECT_EQ(outcome.persistables, local.persistables);
    }
  }
}

// The worker's first program knows fewer values than its second.
TEST(SecondPrograms, ThatTrainAPartLoseNothingAndWaitForNobodyElse) {
  const Net net;
  const TrainingTask task = net.task();
  for (const AsyncOptions& options : every_mode()) {
    if (exchanges(options)) continue;  // they exchange every parameter, whatever a program sends
    SCOPED_TRACE(str_cat(to_string(options.mode), ", ", options.trainer_threads, " threads",
                         options.staleness_bound ? ", bounded" : ""));
    AsyncThreadJob job;
    job.options = options;
    job.programs = part_first;
    const uint64_t steps = uint64_t{kSteps} * options.trainer_threads;
    std::map<uint64_t, int> slices;
    for (const uint64_t count : applied(expect_no_errors(task, job))) ++slices[count];
    EXPECT_EQ(slices.size(), 2U);
    EXPECT_TRUE(slices.contains(steps));
    EXPECT_TRUE(slices.contains(steps / 2));
  }
}

TEST(SecondPrograms, ThatOnlyLookUpChangeNothing) {
  const SparseNet net({.is_distributed = true});
  const TrainingTask task = net.task(kSteps);
  for (const ServerMode mode : {ServerMode::kAsync, ServerMode::kHalfAsync}) {
    AsyncThreadJob job;
    job.options.mode = mode;
    job.programs = [&task](const Transpile& transpile) {
      const fluid::Program main = transpile(true);
      return std::vector<fluid::Program>{main, main.prune(std::vector{task.loss})};
    };
    const std::vector<uint64_t> counts = applied(expect_no_errors(task, job));
    EXPECT_FALSE(counts.empty());
    for (const uint64_t count : counts) EXPECT_EQ(count, kSteps / 2);
  }
}

// ---- synchronous

TEST(SecondPrograms, OfSynchronousJobsHaveTheBitsOfOneMachine) {
  const Net net;
  const TrainingTask task = net.task();
  const LocalOutcome local = train_locally(task, 2);
  ThreadJob job;
  job.programs = [](const fluid::Program& main) {
    return std::vector<fluid::Program>{main, main, main.clone()};
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  EXPECT_EQ(outcome.errors, std::vector<std::string>());
  EXPECT_EQ(mean_over_workers(outcome.losses), local.losses);
  EXPECT_EQ(outcome.persistables, local.persistables);
}

TEST(SecondPrograms, OfSynchronousJobsMayTrainAPart) {
  const Net net;
  const TrainingTask task = net.task();
  fluid::ExecutorOptions options;
  options.logical_shards = 2;
  fluid::Executor executor(fluid::CPUPlace(), options);
  executor.run(*task.startup);
  const fluid::Program part = of_last_layer(net.main());
  for (int step = 0; step < kSteps; ++step) {
    executor.run(step % 2 == 0 ? part : net.main(), task.feed(step, 0, 2, 2), {task.loss});
  }
  ThreadJob job;
  job.programs = [](const fluid::Program& main) {
    return std::vector<fluid::Program>{of_last_layer(main), main};
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  EXPECT_EQ(outcome.errors, std::vector<std::string>());
  EXPECT_EQ(outcome.persistables, values_of(net.main(), executor.scope(), false));
}

// A table of which only rows are fetched, in a scope whose table is another one by now.
TEST(SecondPrograms, FetchRowsAgainIntoAnotherTable) {
  const SparseNet net({.kind = RowKind::kHsigmoid});
  const TrainingTask task = net.task(2);
  const std::string table = "hierarchical_sigmoid_0.w_0";
  fluid::Program test;
  ThreadJob job;
  job.workers = 1;
  job.programs = [&test](const fluid::Program& main) {
    test = main.clone(true);
    return std::vector<fluid::Program>{main};
  };
  job.after_steps = [&](int, strategies::WorkerRuntime& runtime, fluid::Executor& executor) {
    test.set_runtime({std::shared_ptr<fluid::ProgramRuntime>(), &runtime});
    const auto loss = [&] {
      return executor.run(test, task.feed(0, 0, 1, 1), {task.loss}).front().item<float>();
    };
    const float before = loss();
    fluid::Tensor& values = executor.scope().tensor(table);
    values = fluid::Tensor::zeros(values.dtype(), values.shape());
    EXPECT_EQ(loss(), before);
  };
  const ThreadOutcome outcome = train_in_threads(task, job);
  EXPECT_EQ(outcome.errors, std::vector<std::string>());
}

}  // namespace
}  // namespace fleet::testing
