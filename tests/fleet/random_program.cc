#include "tests/fleet/random_program.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <utility>
#include <vector>

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
using fluid::DType;

constexpr int kBatch = 24;

template <class T>
double largest_difference_of(const Values& a, const Values& b) {
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

}  // namespace

RandomProgram::RandomProgram(uint64_t seed, DType dtype, const Minimize& minimize)
    : seed_(seed), dtype_(dtype) {
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
  if (minimize) {
    hidden = layers::fc(layers::fc(hidden, 24), draw.between(700, 800), {.act = "tanh"});
  }
  const auto output = layers::fc(hidden, classifies_ ? classes_ : 1);
  const auto cost = classifies_ ? layers::softmax_with_cross_entropy(output, y)
                                : layers::square_error_cost(output, y);
  const auto loss = layers::mean(cost);
  loss_ = loss.name();
  if (minimize) {
    minimize(loss);
  } else {
    minimize_by(draw, loss);
  }
}

TrainingTask RandomProgram::task(int steps) const {
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

void RandomProgram::minimize_by(Draw& draw, const fluid::Variable& loss) const {
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
fluid::Tensor RandomProgram::features(int step, int begin, int end) const {
  const auto key = RandomKey::of(seed_, "features");
  std::vector<T> values;
  for (int i = begin * features_; i < end * features_; ++i) {
    values.push_back(static_cast<T>(
        uniform_double(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step)) - 0.5));
  }
  return fluid::Tensor::from(values, {end - begin, features_});
}

template <class T>
fluid::Tensor RandomProgram::labels(int step, int begin, int end) const {
  const auto key = RandomKey::of(seed_, "labels");
  std::vector<T> values;
  for (int i = begin; i < end; ++i) {
    const double u = uniform_double(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step));
    values.push_back(static_cast<T>(classifies_ ? std::floor(u * classes_) : u));
  }
  return fluid::Tensor::from(values, {end - begin, 1});
}

fluid::Feed RandomProgram::feed(int step, int begin, int end) const {
  const bool wide = dtype_ == DType::kFloat64;
  auto x = wide ? features<double>(step, begin, end) : features<float>(step, begin, end);
  auto y = classifies_ ? labels<int64_t>(step, begin, end)
           : wide      ? labels<double>(step, begin, end)
                       : labels<float>(step, begin, end);
  return {{"x", std::move(x)}, {"y", std::move(y)}};
}

double largest_difference(const Values& a, const Values& b, DType dtype) {
  return dtype == DType::kFloat64 ? largest_difference_of<double>(a, b)
                                  : largest_difference_of<float>(a, b);
}

}  // namespace fleet::testing
