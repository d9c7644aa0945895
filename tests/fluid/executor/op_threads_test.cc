// Threads that compute an op change no bit of what it makes.
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <memory>

#include "base/philox.h"
#include "base/process/usable_cores.h"
#include "base/strings.h"
#include "fluid/executor/compiled_program.h"
#include "fluid/executor/executor.h"
#include "fluid/io/persistables.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid {
namespace {

constexpr int kRows = 40;
constexpr int kWidth =
    1030;  // several tiles in a layer's values and weights, and parts of products

Tensor numbers(const Shape& shape, uint64_t seed) {
  Tensor tensor(DType::kFloat32, shape);
  const RandomKey key = RandomKey::of(seed, "numbers");
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    tensor.data<float>()[i] =
        static_cast<float>(uniform_double(key, static_cast<uint64_t>(i))) - 0.5F;
  }
  return tensor;
}

struct Rule {
  std::string name;
  std::function<std::unique_ptr<optimizer::Optimizer>()> make;
};

template <class Optimizer, class Options>
Rule rule(const std::string& name, const Options& options) {
  return {name, [options] { return std::make_unique<Optimizer>(options); }};
}

// The pool's, of this process.
int tile_threads() {
  int count = 0;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    std::string name;
    std::ifstream(task.path() / "comm") >> name;
    count += name.starts_with("tiles-") ? 1 : 0;
  }
  return count;
}

class OpThreads : public ::testing::TestWithParam<Rule> {
 protected:
  OpThreads() {
    const ProgramGuard programs(main_, startup_);
    const unique_name::Guard names;
    const auto x = layers::data("x", {kWidth});
    const auto y = layers::data("y", {1}, DType::kInt64);
    auto hidden = layers::fc(x, kWidth, {.act = "tanh"});
    hidden = layers::elementwise_mul(layers::fc(hidden, kWidth, {.act = "relu"}),
                                     layers::sigmoid(hidden));
    hidden = layers::elementwise_add(layers::softmax(hidden), layers::square(hidden));
    cost_ = layers::mean(layers::softmax_with_cross_entropy(layers::fc(hidden, kWidth), y));
    GetParam().make()->minimize(cost_);
    main_.set_random_seed(5);
    startup_.set_random_seed(5);
  }

  // The losses and all values behind so many steps.
  NamedTensors train(int threads) {
    Executor executor(CPUPlace(), {.op_threads = threads});
    executor.run(startup_);
    NamedTensors all;
    Tensor labels(DType::kInt64, {kRows, 1});
    for (int64_t i = 0; i < kRows; ++i) labels.data<int64_t>()[i] = i * 7 % kWidth;
    for (uint64_t step = 0; step < 3; ++step) {
      const Feed feed = {{"x", numbers({kRows, kWidth}, step)}, {"y", labels}};
      all[str_cat("loss", step)] = executor.run(main_, feed, {cost_})[0];
    }
    tile_threads_ = tile_threads();
    for (const VarDesc* var : persistables(main_)) {
      all[var->name] = executor.scope().tensor(var->name).clone();
    }
    return all;
  }

  Program main_;
  Program startup_;
  Variable cost_;
  int tile_threads_ = 0;  // behind the last training's steps
};

bool same(const Tensor& a, const Tensor& b) {
  return a.shape() == b.shape() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

TEST_P(OpThreads, ChangeNoBit) {
  const NamedTensors one = train(1);
  EXPECT_EQ(tile_threads_, 0);
  for (const int threads : {2, 3, 7}) {
    for (const auto& [name, value] : train(threads)) {
      EXPECT_TRUE(same(value, one.at(name))) << name << " with " << threads << " threads";
    }
    EXPECT_EQ(tile_threads_, threads - 1) << "beside the caller";
  }
}

TEST_P(OpThreads, AreThoseOfACompiledProgramsOnlyReplica) {
  Executor executor(CPUPlace(), {.op_threads = 1});
  executor.run(startup_);
  CompiledProgram compiled(main_);
  compiled.with_data_parallel(cost_.name(),
                              {.exec_strategy = {.num_threads = 3}, .places = {CPUPlace()}});
  const Feed feed = {{"x", numbers({kRows, kWidth}, 1)},
                     {"y", Tensor::zeros(DType::kInt64, {kRows, 1})}};
  executor.run(compiled, feed, {cost_});
  EXPECT_EQ(tile_threads(), 2) << "beside the caller";
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, OpThreads,
    ::testing::Values(
        rule<optimizer::SGD>("sgd", optimizer::SGDOptions{.learning_rate = 0.1}),
        rule<optimizer::Momentum>("momentum", optimizer::MomentumOptions{.learning_rate = 0.1,
                                                                         .momentum = 0.9}),
        rule<optimizer::Adagrad>("adagrad", optimizer::AdagradOptions{.learning_rate = 0.1}),
        rule<optimizer::Adam>("adam", optimizer::AdamOptions{.learning_rate = 0.01}),
        rule<optimizer::RMSProp>("rmsprop", optimizer::RMSPropOptions{.learning_rate = 0.01}),
        rule<optimizer::Ftrl>("ftrl", optimizer::FtrlOptions{.learning_rate = 0.1})),
    [](const auto& one) { return one.param.name; });

TEST(OpThreadsOption, IsAtLeastOne) {
  EXPECT_THROW(Executor(CPUPlace(), {.op_threads = 0}), UsageError);
  EXPECT_THROW(Executor(CPUPlace(), {.op_threads = ExecutorOptions::kMaxThreads + 1}), UsageError);
}

TEST(OpThreadsOption, ComesFromTheEnvironment) {
  setenv("FLEET_NUM_THREADS", "3", 1);
  EXPECT_EQ(with_environment({}).op_threads, 3);
  EXPECT_EQ(with_environment({.op_threads = 2}).op_threads, 2);
  setenv("FLEET_NUM_THREADS", "none", 1);
  EXPECT_THROW(with_environment({}), UsageError);
  unsetenv("FLEET_NUM_THREADS");
  setenv("FLEET_LOCAL_PROCESSES", "10000", 1);
  EXPECT_EQ(with_environment({}).op_threads, 1) << "cores are shared";
  unsetenv("FLEET_LOCAL_PROCESSES");
  EXPECT_EQ(with_environment({}).op_threads, usable_cores());
}

}  // namespace
}  // namespace fleet::fluid
