// One logical shard against several, on the net of the quick start.
#include <cmath>
#include <gmock/gmock.h>

#include "base/philox.h"
#include "examples/quick_start/nets.h"
#include "fluid/fluid.h"

namespace fleet {
namespace {

constexpr int kSteps = 50;
constexpr int kRows = 64;
constexpr int kWidth = 64;
constexpr int kClasses = 10;

template <class T>
fluid::Feed batch(int step) {
  std::vector<T> x;
  std::vector<int64_t> y;
  for (int row = 0; row < kRows; ++row) {
    const auto at = static_cast<uint64_t>(step * kRows + row);
    int64_t best = 0;
    for (int i = 0; i < kWidth; ++i) {
      x.push_back(
          static_cast<T>(uniform_float(RandomKey{5, 6}, at * kWidth + static_cast<uint64_t>(i))));
      if (i < kClasses && x.back() > x[x.size() - static_cast<size_t>(i - best) - 1]) best = i;
    }
    y.push_back(best);
  }
  return {{"x", fluid::Tensor::from(x, {kRows, kWidth})},
          {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

// All parameters after the last step, and the mean loss of each step.
template <class T>
std::vector<double> train(int shards) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  startup.set_random_seed(3);
  auto x = fluid::layers::data("x", {kWidth}, fluid::dtype_of<T>());
  auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  auto [cost, prediction] = quick_start::mlp(x, y, kClasses);
  fluid::optimizer::SGD sgd({.learning_rate = 0.2});
  sgd.minimize(cost);
  fluid::Executor exe(fluid::CPUPlace(), {.logical_shards = shards});
  exe.run(startup);
  std::vector<double> values;
  for (int step = 0; step < kSteps; ++step) {
    values.push_back(exe.run(main, batch<T>(step), {cost})[0].template item<double>());
  }
  for (const auto* parameter : main.global_block().parameters()) {
    const auto& tensor = exe.scope().tensor(parameter->name);
    for (const T value : tensor.template values<T>()) values.push_back(static_cast<double>(value));
  }
  return values;
}

template <class T>
double largest_difference(int shards) {
  const auto one = train<T>(1);
  const auto several = train<T>(shards);
  EXPECT_EQ(one.size(), several.size());
  EXPECT_LT(one[kSteps - 1], one[0]) << "the net learns";
  double largest = 0;
  for (size_t i = 0; i < one.size(); ++i) {
    largest = std::max(largest, std::abs(one[i] - several[i]));
  }
  EXPECT_GT(one.size(), 1000u);
  return largest;
}

TEST(LogicalShardsTest, OneShardAndSeveralAgreeOnTheQuickStartNetOver50StepsInFloat32) {
  for (const int shards : {2, 4, 8}) EXPECT_LT(largest_difference<float>(shards), 1e-6) << shards;
}

TEST(LogicalShardsTest, OneShardAndSeveralAgreeOnTheQuickStartNetOver50StepsInFloat64) {
  for (const int shards : {2, 4, 8}) EXPECT_LT(largest_difference<double>(shards), 1e-12) << shards;
}

}  // namespace
}  // namespace fleet
