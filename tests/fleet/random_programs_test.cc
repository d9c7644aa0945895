// Random small programs: cutting a step into logical shards changes no more than rounding, and a
// job of servers and workers gives the very bits of one machine with the same shards.

#include <cmath>
#include <cstring>
#include <gtest/gtest.h>

#include "base/philox.h"
#include "base/strings.h"
#include "fluid/fluid.h"
#include "tests/testing/thread_cluster.h"

namespace fleet {
namespace {

namespace layers = fluid::layers;
using fleet::testing::TrainingTask;
using fluid::DType;

constexpr int kBatch = 24;

// Numbers of one seed, drawn one after the other.
class Draw {
 public:
  explicit Draw(uint64_t seed) : key_(RandomKey::of(seed, "random programs")) {}
  double real() { return uniform_double(key_, next_++); }
  int between(int low, int high) { return low + static_cast<int>(real() * (high - low + 1)); }
  bool coin() { return real() < 0.5; }

 private:
  RandomKey key_;
  uint64_t next_ = 0;
};

// A net of random depth, widths, activations, loss, optimizer, decay and schedule.
class RandomProgram {
 public:
  RandomProgram(uint64_t seed, DType dtype) : seed_(seed), dtype_(dtype) {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    startup_.set_random_seed(seed);
    Draw draw(seed);
    features_ = draw.between(1, 20);
    classes_ = draw.between(2, 5);
    classifies_ = draw.coin();
    auto hidden = layers::data("x", {features_}, dtype);
    const auto y = layers::data("y", {1}, classifies_ ? DType::kInt64 : dtype);
    for (int layer = draw.between(0, 2); layer > 0; --layer) {
      hidden = layers::fc(hidden, draw.between(1, 40), {.act = draw.coin() ? "tanh" : "sigmoid"});
    }
    const auto output = layers::fc(hidden, classifies_ ? classes_ : 1);
    const auto cost = classifies_ ? layers::softmax_with_cross_entropy(output, y)
                                  : layers::square_error_cost(output, y);
    const auto loss = layers::mean(cost);
    loss_ = loss.name();
    minimize(draw, loss);
  }

  TrainingTask task(int steps) const {
    TrainingTask task;
    task.main = &main_;
    task.startup = &startup_;
    task.loss = loss_;
    task.steps = steps;
    task.feed = [this](int step, int begin, int end, int parts) {
      return feed(step, kBatch / parts * begin, kBatch / parts * end);
    };
    return task;
  }

 private:
  void minimize(Draw& draw, const fluid::Variable& loss) {
    namespace optimizer = fluid::optimizer;
    std::optional<fluid::Penalty> decay;
    if (draw.coin()) decay = fluid::regularizer::L2Decay(1e-3);
    optimizer::LearningRate rate = 0.05;
    // A schedule computes in float32.
    if (dtype_ == DType::kFloat32 && draw.coin()) {
      rate = layers::exponential_decay(0.05, 5, 0.9, draw.coin());
    }
    switch (draw.between(0, 2)) {
      case 0:
        optimizer::SGD({.learning_rate = rate, .regularization = decay}).minimize(loss);
        return;
      case 1:
        optimizer::Momentum({.learning_rate = rate,
                             .momentum = 0.9,
                             .use_nesterov = draw.coin(),
                             .regularization = decay})
            .minimize(loss);
        return;
      default:
        optimizer::Adam({.learning_rate = rate, .epsilon = 1e-3, .regularization = decay})
            .minimize(loss);
    }
  }

  template <class T>
  fluid::Tensor features(int step, int begin, int end) const {
    const auto key = RandomKey::of(seed_, "features");
    std::vector<T> values;
    for (int i = begin * features_; i < end * features_; ++i) {
      values.push_back(static_cast<T>(
          uniform_double(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step)) - 0.5));
    }
    return fluid::Tensor::from(values, {end - begin, features_});
  }

  template <class T>
  fluid::Tensor labels(int step, int begin, int end) const {
    const auto key = RandomKey::of(seed_, "labels");
    std::vector<T> values;
    for (int i = begin; i < end; ++i) {
      const double u = uniform_double(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step));
      values.push_back(static_cast<T>(classifies_ ? std::floor(u * classes_) : u));
    }
    return fluid::Tensor::from(values, {end - begin, 1});
  }

  fluid::Feed feed(int step, int begin, int end) const {
    const bool wide = dtype_ == DType::kFloat64;
    auto x = wide ? features<double>(step, begin, end) : features<float>(step, begin, end);
    auto y = classifies_ ? labels<int64_t>(step, begin, end)
             : wide      ? labels<double>(step, begin, end)
                         : labels<float>(step, begin, end);
    return {{"x", std::move(x)}, {"y", std::move(y)}};
  }

  uint64_t seed_;
  DType dtype_;
  int features_ = 1;
  int classes_ = 2;
  bool classifies_ = false;
  std::string loss_;
  fluid::Program main_;
  fluid::Program startup_;
};

template <class T>
double largest_difference(const fleet::testing::Values& a, const fleet::testing::Values& b) {
  double largest = 0;
  for (const auto& [name, bytes] : a) {
    const auto& other = b.at(name);
    for (size_t i = 0; i + sizeof(T) <= bytes.size(); i += sizeof(T)) {
      T left;
      T right;
      std::memcpy(&left, bytes.data() + i, sizeof(T));
      std::memcpy(&right, other.data() + i, sizeof(T));
      const double difference = std::abs(static_cast<double>(left) - static_cast<double>(right));
      largest = std::isnan(difference) ? INFINITY : std::max(largest, difference);
    }
  }
  return largest;
}

class RandomPrograms : public ::testing::TestWithParam<uint64_t> {};

TEST_P(RandomPrograms, ShardsChangeNoMoreThanRoundingInFloat32) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const RandomProgram program(GetParam(), DType::kFloat32);
  const auto whole = train_locally(program.task(50), 1);
  for (const int shards : {2, 3, 4}) {
    const auto cut = train_locally(program.task(50), shards);
    EXPECT_LE(largest_difference<float>(whole.parameters, cut.parameters), 1e-6) << shards;
    for (size_t i = 0; i < whole.losses.size(); ++i) {
      EXPECT_NEAR(whole.losses[i], cut.losses[i], 1e-6) << "loss of step " << i;
    }
  }
}

TEST_P(RandomPrograms, ShardsChangeNoMoreThanRoundingInFloat64) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const RandomProgram program(GetParam(), DType::kFloat64);
  const auto whole = train_locally(program.task(50), 1);
  for (const int shards : {2, 4}) {
    const auto cut = train_locally(program.task(50), shards);
    EXPECT_LE(largest_difference<double>(whole.parameters, cut.parameters), 1e-12) << shards;
  }
}

TEST_P(RandomPrograms, AJobOfServersGivesTheBitsOfOneMachine) {
  SCOPED_TRACE(str_cat("seed ", GetParam()));
  const auto dtype = GetParam() % 2 == 0 ? DType::kFloat32 : DType::kFloat64;
  const RandomProgram program(GetParam(), dtype);
  Draw draw(GetParam() + 1000);
  fleet::testing::ThreadJob job;
  job.workers = draw.between(1, 3);
  job.servers = draw.between(1, 3);
  job.shards = job.workers == 3 ? 0 : 4;
  const int shards = job.shards == 0 ? job.workers : job.shards;
  const auto local = train_locally(program.task(10), shards);
  const auto outcome = train_in_threads(program.task(10), job);
  ASSERT_TRUE(outcome.errors.empty()) << outcome.errors.front();
  for (const auto& parameters : outcome.parameters) EXPECT_TRUE(parameters == local.parameters);
}

INSTANTIATE_TEST_SUITE_P(Seeds, RandomPrograms, ::testing::Range<uint64_t>(1, 21));

}  // namespace
}  // namespace fleet
