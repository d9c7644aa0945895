// Optimizers, schedules, decay, and layers with random numbers: a job of servers and workers ends
// with the very bits of one machine with the same logical shards.

#include <atomic>
#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/fluid.h"
#include "tests/fleet/update_rules.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fluid::Variable;

constexpr int kBatch = 24;
constexpr int kFeatures = 20;
constexpr int kWidth = 136;  // 136 x 136 weights are cut among servers

using Hidden = std::function<Variable(const Variable& x)>;

Variable plain(const Variable& x) {
  return x;
}

class Net {
 public:
  explicit Net(const Minimize& minimize, const Hidden& hidden = plain) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    main_.set_random_seed(7);
    startup_.set_random_seed(7);
    const auto x = layers::data("x", {kFeatures});
    const auto y = layers::data("y", {1}, fluid::DType::kInt64);
    auto h = layers::fc(x, kWidth, {.act = "tanh"});
    h = hidden(layers::fc(h, kWidth, {.act = "tanh"}));
    const auto loss = layers::mean(layers::softmax_with_cross_entropy(layers::fc(h, 3), y));
    loss_ = loss.name();
    minimize(loss);
  }

  TrainingTask task(int steps) const {
    TrainingTask task;
    task.main = &main_;
    task.startup = &startup_;
    task.loss = loss_;
    task.steps = steps;
    task.feed = [](int step, int begin, int end, int parts) {
      return feed(step, kBatch / parts * begin, kBatch / parts * end);
    };
    return task;
  }

 private:
  static fluid::Feed feed(int step, int begin, int end) {
    const auto key = RandomKey::of(11, "rows");
    std::vector<float> x;
    std::vector<int64_t> y;
    for (int row = begin; row < end; ++row) {
      for (int i = 0; i < kFeatures; ++i) {
        const int at = row * kFeatures + i;
        const double drawn =
            uniform_double(key, static_cast<uint64_t>(at), static_cast<uint64_t>(step));
        x.push_back(static_cast<float>(drawn) - 0.5F);
      }
      y.push_back((row + step) % 3);
    }
    return {{"x", fluid::Tensor::from(x, {end - begin, kFeatures})},
            {"y", fluid::Tensor::from(y, {end - begin, 1})}};
  }

  std::string loss_;
  fluid::Program main_;
  fluid::Program startup_;
};

void expect_bits_of_one_machine(const Net& net, ThreadJob job, int steps = 6) {
  job.transport = transport::TransportChoice::kUnix;
  const int shards = job.shards == 0 ? job.workers : job.shards;
  const auto local = train_locally(net.task(steps), shards);
  const auto outcome = train_in_threads(net.task(steps), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  ASSERT_TRUE(outcome.errors.empty());
  for (const auto& parameters : outcome.parameters) {
    for (const auto& [name, bytes] : local.parameters) {
      EXPECT_TRUE(parameters.at(name) == bytes) << name;
    }
  }
  for (const auto& [name, bytes] : outcome.persistables) {
    EXPECT_TRUE(local.persistables.at(name) == bytes) << name;
  }
}

class EveryRule : public ::testing::TestWithParam<UpdateRule> {};

TEST_P(EveryRule, GivesTheBitsOfOneMachine) {
  const Net net(GetParam().minimize);
  expect_bits_of_one_machine(net, {});
  expect_bits_of_one_machine(net, {.workers = 2, .servers = 3, .shards = 4});
  expect_bits_of_one_machine(net, {.workers = 3, .servers = 1});
}

INSTANTIATE_TEST_SUITE_P(Optimizers, EveryRule, ::testing::ValuesIn(optimizer_rules()), name_of);

INSTANTIATE_TEST_SUITE_P(Clips, EveryRule, ::testing::ValuesIn(clip_rules()), name_of);

INSTANTIATE_TEST_SUITE_P(Lookaheads, EveryRule, ::testing::ValuesIn(lookahead_rules()), name_of);

// The older form clips what each worker computed: with one of them, that is the whole gradient.
TEST(NotedClip, OfOneWorkerGivesTheBitsOfOneMachine) {
  namespace clip = fluid::clip;
  const Net net([](const Variable& loss) {
    clip::set_gradient_clip(clip::GradientClipByGlobalNorm(1e-2), loss.block().program());
    optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  });
  expect_bits_of_one_machine(net, {.workers = 1, .servers = 2});
}

TEST(NotedClip, OfSomeParametersLeavesTheOthers) {
  namespace clip = fluid::clip;
  const auto minimize = [](bool some) {
    return [some](const Variable& loss) {
      fluid::Program& program = loss.block().program();
      const std::string first = program.global_block().parameters().front()->name;
      if (some)
        clip::set_gradient_clip(clip::GradientClipByNorm(1e-3), std::vector{first}, program);
      optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
    };
  };
  const Net some(minimize(true));
  expect_bits_of_one_machine(some, {.workers = 1, .servers = 2});
  const auto clipped = train_locally(some.task(1), 1).parameters;
  const auto plain = train_locally(Net(minimize(false)).task(1), 1).parameters;
  std::vector<std::string> changed;
  for (const auto& [name, bytes] : plain) {
    if (clipped.at(name) != bytes) changed.push_back(name);
  }
  EXPECT_EQ(changed.size(), 1u);
}

INSTANTIATE_TEST_SUITE_P(Schedules, EveryRule, ::testing::ValuesIn(schedule_rules()), name_of);

void sgd(const Variable& loss) {
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
}

// An average of the parameters is each worker's own: it follows what comes back from the servers.
class EveryAverage : public ::testing::TestWithParam<UpdateRule> {};

TEST_P(EveryAverage, OfAWorkerHasTheBitsOfOneMachine) {
  // Of its running statistics too, which the servers average over the shards.
  const Net net(GetParam().minimize, [](const Variable& x) { return layers::batch_norm(x); });
  constexpr int kSteps = 6;
  const auto local = train_locally(net.task(kSteps), 2);
  ThreadJob job{.workers = 2, .servers = 2};
  std::atomic<int> compared = 0;
  job.after_steps = [&](int, strategies::WorkerRuntime&, fluid::Executor& executor) {
    for (const auto& [name, bytes] : local.persistables) {
      const auto* value = executor.scope().find(name);
      if (value == nullptr || local.parameters.contains(name)) continue;
      const fluid::Tensor tensor = std::get<fluid::Tensor>(*value).on_host();
      const std::vector<std::byte> here(tensor.raw(), tensor.raw() + tensor.bytes());
      EXPECT_TRUE(here == bytes) << name;
      ++compared;
    }
  };
  const auto outcome = train_in_threads(net.task(kSteps), job);
  for (const auto& error : outcome.errors) ADD_FAILURE() << error;
  EXPECT_GE(compared, 2 * 6) << "averages of three layers' weights and biases, at two workers";
}
INSTANTIATE_TEST_SUITE_P(Averages, EveryAverage, ::testing::ValuesIn(average_rules()), name_of);

TEST(LayersUnderServers, DrawTheDropoutOfTheShard) {
  const Net net(sgd, [](const Variable& x) { return layers::dropout(x, 0.4); });
  for (const int workers : {1, 2, 4}) {
    expect_bits_of_one_machine(net, {.workers = workers, .servers = 2, .shards = 4});
  }
}

TEST(LayersUnderServers, CombineTheStatisticsOfTheShards) {
  const Net net(sgd, [](const Variable& x) { return layers::batch_norm(x); });
  for (const int workers : {1, 2, 4}) {
    expect_bits_of_one_machine(net, {.workers = workers, .servers = 2, .shards = 4});
  }
}

TEST(LayersUnderServers, LeaveWhatIsNotTrained) {
  const Net net(sgd, [](const Variable& x) {
    return layers::fc(x, 5, {.param_attr = {.trainable = false}});
  });
  expect_bits_of_one_machine(net, {});
}

}  // namespace
}  // namespace fleet::testing
