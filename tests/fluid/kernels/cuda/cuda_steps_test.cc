// Steps that nobody waits for: run without fetches, or started. Skipped where there is no device.
#include <cstring>
#include <gtest/gtest.h>
#include <vector>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/net_fixture.h"

namespace fleet::fluid {
namespace {

constexpr int64_t kRows = 64;
constexpr int64_t kWidth = 1024;  // so that a batch is too large to be part of a command
constexpr int kSteps = 9;

// One trainer of one net. All begin with the same parameters.
class Trainer {
 public:
  explicit Trainer(bool graph) : executor_(CUDAPlace(0), {.cuda_graph = graph}) {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    const Variable x = layers::data("x", {kWidth});
    const Variable y = layers::data("y", {1}, DType::kInt64);
    const Variable hidden = layers::fc(x, 32, {.act = "tanh"});
    const Variable loss =
        layers::mean(layers::softmax_with_cross_entropy(layers::fc(hidden, 10), y));
    optimizer::Momentum({.learning_rate = 0.1F, .momentum = 0.9F}).minimize(loss);
    loss_ = loss.name();
    main_.set_random_seed(3);
    startup_.set_random_seed(3);
    executor_.run(startup_);
  }

  // The same memory in every step, as a reader of data has it.
  const Feed& batch(int step) {
    const RandomKey key = RandomKey::of(7, "x");
    for (int64_t i = 0; i < x_.numel(); ++i) {
      x_.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step));
    }
    for (int64_t i = 0; i < kRows; ++i) y_.data<int64_t>()[i] = (i + step) % 10;
    return host_feed_;
  }
  // What was made on the device, at another place in memory in some steps.
  Feed batch_on_device(int step) {
    Feed feed = batch(step);
    for (auto& [name, tensor] : feed) tensor = tensor.copy_to(CUDAPlace(0));
    return feed;
  }

  const Program& program() const { return main_; }
  const std::string& loss() const { return loss_; }
  Executor& executor() { return executor_; }
  Tensor weights() {
    const std::string& name = main_.global_block().parameters().front()->name;
    return executor_.scope().tensor(name).copy_to(CPUPlace());
  }

 private:
  Program main_;
  Program startup_;
  Executor executor_;
  std::string loss_;
  Tensor x_ = Tensor(DType::kFloat32, {kRows, kWidth});
  Tensor y_ = Tensor(DType::kInt64, {kRows, 1});
  Feed host_feed_ = {{"x", x_}, {"y", y_}};
};

std::vector<float> losses_of_waiting(Trainer& trainer) {
  std::vector<float> losses;
  for (int step = 0; step < kSteps; ++step) {
    losses.push_back(trainer.executor()
                         .run(trainer.program(), trainer.batch(step), {trainer.loss()})[0]
                         .item<float>());
  }
  return losses;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

class CudaSteps : public ::testing::TestWithParam<bool> {};

TEST_P(CudaSteps, WithoutFetchesAreNotWaitedForAndComputeTheSame) {
  SKIP_WITHOUT_DEVICE();
  Trainer waiting(GetParam());
  losses_of_waiting(waiting);
  Trainer ahead(GetParam());
  for (int step = 0; step < kSteps; ++step) {
    EXPECT_TRUE(ahead.executor().run(ahead.program(), ahead.batch(step), {}).empty());
  }
  EXPECT_TRUE(same_bits(ahead.weights(), waiting.weights()));
}

TEST_P(CudaSteps, ThatWereStartedAreReadInAnyOrder) {
  SKIP_WITHOUT_DEVICE();
  Trainer waiting(GetParam());
  const std::vector<float> wanted = losses_of_waiting(waiting);
  Trainer ahead(GetParam());
  std::vector<StartedStep> started;
  for (int step = 0; step < kSteps; ++step) {
    started.push_back(
        ahead.executor().start(ahead.program(), ahead.batch(step), {ahead.loss(), "x"}));
  }
  for (int step = kSteps - 1; step >= 0; --step) {
    const auto fetched = started[static_cast<size_t>(step)].wait();
    ASSERT_EQ(fetched.size(), 2U);
    EXPECT_EQ(fetched[0].item<float>(), wanted[static_cast<size_t>(step)]) << "step " << step;
    EXPECT_TRUE(same_bits(fetched[1], ahead.batch(step).front().second)) << "step " << step;
  }
  EXPECT_TRUE(same_bits(ahead.weights(), waiting.weights()));
}

TEST_P(CudaSteps, ReadWhatIsOnTheDeviceAlready) {
  SKIP_WITHOUT_DEVICE();
  Trainer waiting(GetParam());
  losses_of_waiting(waiting);
  Trainer ahead(GetParam());
  Feed same = ahead.batch_on_device(0);
  for (int step = 0; step < kSteps; ++step) {
    // First the same tensors with other contents, then other tensors.
    Feed feed = ahead.batch_on_device(step);
    for (size_t i = 0; step < 5 && i < feed.size(); ++i) {
      same[i].second.copy_from(feed[i].second);
      feed[i].second = same[i].second;
    }
    ahead.executor().run(ahead.program(), feed, {});
  }
  EXPECT_TRUE(same_bits(ahead.weights(), waiting.weights()));
}

INSTANTIATE_TEST_SUITE_P(Both, CudaSteps, ::testing::Bool(), [](const auto& graph) {
  return graph.param ? "recorded" : "op_by_op";
});

// A program of its own for tests, and one executor for both, as users have it.
TEST(CudaStepsOfTwoPrograms, RunInTheOrderInWhichTheyWereStarted) {
  SKIP_WITHOUT_DEVICE();
  Trainer waiting(false);
  losses_of_waiting(waiting);
  Trainer ahead(false);
  const Program test = ahead.program().clone(true);
  Executor other = ahead.executor().share();
  std::vector<float> seen;
  for (int step = 0; step < kSteps; ++step) {
    ahead.executor().run(ahead.program(), ahead.batch(step), {});
    StartedStep looked = other.start(test, ahead.batch(step), {ahead.loss()});
    seen.push_back(looked.wait()[0].item<float>());
  }
  EXPECT_TRUE(same_bits(ahead.weights(), waiting.weights()));
  EXPECT_LT(seen.back(), seen.front());
}

}  // namespace
}  // namespace fleet::fluid
