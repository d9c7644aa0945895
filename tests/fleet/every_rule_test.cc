// Optimizers, schedules, decay, and layers with random numbers: a job of servers and workers ends
// with the very bits of one machine with the same logical shards.

#include <functional>
#include <gtest/gtest.h>
#include <string>
#include <vector>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/fluid.h"
#include "tests/testing/thread_cluster.h"

namespace fleet {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;
using fleet::testing::ThreadJob;
using fleet::testing::TrainingTask;
using fluid::Variable;
using optimizer::LearningRate;

constexpr int kBatch = 24;
constexpr int kFeatures = 20;
constexpr int kWidth = 136;  // 136 x 136 weights are cut among servers

using Minimize = std::function<void(const Variable& loss)>;
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
        x.push_back(
            static_cast<float>(uniform_double(key, static_cast<uint64_t>(row * kFeatures + i),
                                              static_cast<uint64_t>(step))) -
            0.5F);
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

struct Rule {
  std::string name;
  Minimize minimize;
};

std::string name_of(const ::testing::TestParamInfo<Rule>& info) {
  return info.param.name;
}

class EveryRule : public ::testing::TestWithParam<Rule> {};

TEST_P(EveryRule, GivesTheBitsOfOneMachine) {
  const Net net(GetParam().minimize);
  expect_bits_of_one_machine(net, {});
  expect_bits_of_one_machine(net, {.workers = 2, .servers = 3, .shards = 4});
  expect_bits_of_one_machine(net, {.workers = 3, .servers = 1});
}

template <class Optimizer, class Options>
Rule rule(std::string name, Options options) {
  return {std::move(name), [options](const Variable& loss) { Optimizer(options).minimize(loss); }};
}

std::vector<Rule> optimizers() {
  using namespace fluid::optimizer;
  const auto l2 = fluid::regularizer::L2Decay(1e-3);
  const auto l1 = fluid::regularizer::L1Decay(1e-3);
  return {
      rule<SGD>("SgdL2", SGDOptions{.learning_rate = 0.1, .regularization = l2}),
      rule<SGD>("SgdL1", SGDOptions{.learning_rate = 0.1, .regularization = l1}),
      rule<Momentum>("Momentum", MomentumOptions{.learning_rate = 0.05}),
      rule<Momentum>("Nesterov", MomentumOptions{.learning_rate = 0.05, .use_nesterov = true}),
      rule<Adagrad>("Adagrad", AdagradOptions{.learning_rate = 0.05}),
      rule<DecayedAdagrad>("DecayedAdagrad", DecayedAdagradOptions{.learning_rate = 0.05}),
      rule<Adadelta>("Adadelta", AdadeltaOptions{.learning_rate = 0.5}),
      rule<Adam>("Adam", AdamOptions{.learning_rate = 0.01}),
      rule<Adamax>("Adamax", AdamaxOptions{.learning_rate = 0.01}),
      rule<RMSProp>("RmsProp", RMSPropOptions{.learning_rate = 0.01, .momentum = 0.5}),
      rule<RMSProp>("RmsPropCentered", RMSPropOptions{.learning_rate = 0.01, .centered = true}),
      rule<Ftrl>("Ftrl", FtrlOptions{.learning_rate = 0.05, .l1 = 1e-4, .l2 = 1e-4}),
      rule<LarsMomentum>("LarsMomentum", LarsMomentumOptions{.learning_rate = 0.5}),
      rule<Lamb>("Lamb", LambOptions{.learning_rate = 0.01}),
      rule<Lamb>("LambOriginal", LambOptions{.learning_rate = 0.01, .original_form = true}),
  };
}
INSTANTIATE_TEST_SUITE_P(Optimizers, EveryRule, ::testing::ValuesIn(optimizers()), name_of);

// The clipped norms are small enough to be reached in every step.
std::vector<Rule> clips() {
  using namespace fluid::optimizer;
  namespace clip = fluid::clip;
  const auto l2 = fluid::regularizer::L2Decay(1e-3);
  return {
      rule<SGD>("Value",
                SGDOptions{.learning_rate = 0.1, .grad_clip = clip::GradientClipByValue(1e-3)}),
      rule<SGD>("Norm",
                SGDOptions{.learning_rate = 0.1, .grad_clip = clip::GradientClipByNorm(1e-2)}),
      rule<SGD>("GlobalNorm", SGDOptions{.learning_rate = 0.1,
                                         .grad_clip = clip::GradientClipByGlobalNorm(1e-2)}),
      rule<Adam>("GlobalNormAdamL2", AdamOptions{.learning_rate = 0.01,
                                                 .regularization = l2,
                                                 .grad_clip = clip::GradientClipByGlobalNorm(0.1)}),
      rule<Lamb>("GlobalNormLamb", LambOptions{.learning_rate = 0.01,
                                               .grad_clip = clip::GradientClipByGlobalNorm(0.1)}),
  };
}
INSTANTIATE_TEST_SUITE_P(Clips, EveryRule, ::testing::ValuesIn(clips()), name_of);

// The older form clips what each worker computed: with one of them, that is the whole gradient.
TEST(NotedClip, OfOneWorkerGivesTheBitsOfOneMachine) {
  namespace clip = fluid::clip;
  const Net net([](const Variable& loss) {
    clip::set_gradient_clip(clip::GradientClipByGlobalNorm(1e-2), loss.block().program());
    optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  });
  expect_bits_of_one_machine(net, {.workers = 1, .servers = 2});
}

Rule schedule(std::string name, std::function<LearningRate()> rate) {
  return {std::move(name), [rate](const Variable& loss) {
            optimizer::SGD({.learning_rate = rate()}).minimize(loss);
          }};
}

std::vector<Rule> schedules() {
  return {
      schedule("Exponential", [] { return layers::exponential_decay(0.1, 3, 0.7, true); }),
      schedule("NaturalExp", [] { return layers::natural_exp_decay(0.1, 3, 0.7); }),
      schedule("InverseTime", [] { return layers::inverse_time_decay(0.1, 2, 0.5); }),
      schedule("Polynomial", [] { return layers::polynomial_decay(0.1, 4, 0.01, 2.0); }),
      schedule("Cosine", [] { return layers::cosine_decay(0.1, 2, 5); }),
      schedule("Noam", [] { return layers::noam_decay(64, 4); }),
  };
}
INSTANTIATE_TEST_SUITE_P(Schedules, EveryRule, ::testing::ValuesIn(schedules()), name_of);

void sgd(const Variable& loss) {
  optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
}

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
}  // namespace fleet
