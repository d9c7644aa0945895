// Steps that nobody waits for: run without fetches, or started. Skipped where there is no device.
#include <cmath>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "tests/fluid/kernels/cuda/device.h"
#include "tests/fluid/kernels/typed_net.h"

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
      x_.data<float>()[i] =
          uniform_float(key, static_cast<uint64_t>(i), static_cast<uint64_t>(step));
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

INSTANTIATE_TEST_SUITE_P(Both, CudaSteps, ::testing::Bool(),
                         [](const auto& graph) { return graph.param ? "recorded" : "op_by_op"; });

// More parameters than one kernel takes, of sizes below and above what a block takes, and one that
// is updated twice in a row. Products and sums of one element have the same bits on the CPU.
std::map<std::string, Tensor> updated_on(const Place& place, optimizer::Optimizer& optimizer) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  std::vector<Variable> losses;
  for (int i = 0; i < 100; ++i) {
    const Variable p = layers::create_parameter({1 + i * i % 7 * 1100});
    losses.push_back(layers::mean(layers::square(p)));
  }
  optimizer.minimize(layers::sums(losses));
  Block& block = main.global_block();
  block.append_op(block.op(block.op_count() - 1));
  startup.set_random_seed(3);
  Executor executor(place);
  executor.run(startup);
  for (int step = 0; step < 3; ++step) executor.run(main);
  std::map<std::string, Tensor> parameters;
  for (const VarDesc* parameter : block.parameters()) {
    parameters[parameter->name] = executor.scope().tensor(parameter->name).copy_to(CPUPlace());
  }
  return parameters;
}

template <class Optimizer, class Options>
void expect_the_updates_of_the_cpu(const Options& options) {
  SKIP_WITHOUT_DEVICE();
  Optimizer for_cpu(options);
  Optimizer for_device(options);
  const auto wanted = updated_on(CPUPlace(), for_cpu);
  for (const auto& [name, tensor] : updated_on(CUDAPlace(0), for_device)) {
    expect_near(tensor, wanted.at(name), 1e-6, name);
  }
}

TEST(CudaUpdates, OfManyParametersAreThoseOfTheCpu) {
  expect_the_updates_of_the_cpu<optimizer::SGD>(optimizer::SGDOptions{.learning_rate = 0.5F});
  expect_the_updates_of_the_cpu<optimizer::Momentum>(
      optimizer::MomentumOptions{.learning_rate = 0.5F, .momentum = 0.9F});
  expect_the_updates_of_the_cpu<optimizer::Adam>(optimizer::AdamOptions{.learning_rate = 0.01F});
  expect_the_updates_of_the_cpu<optimizer::Adagrad>(
      optimizer::AdagradOptions{.learning_rate = 0.01F});
}

// What is done to each gradient after backward, for more tensors than one kernel takes: alone,
// where ops are profiled, and together. A sum of the last ones has parts.
std::vector<Tensor> rows_of_ops(const ExecutorOptions& options) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable factor = layers::create_parameter({1}, DType::kFloat32, {.name = "factor"});
  std::vector<Variable> tensors;
  for (int i = 0; i < 150; ++i) {
    tensors.push_back(layers::create_parameter({1 + i * i % 7 * 1100 + i / 145 * 30000}));
  }
  const RoleGuard role(main, OpRole::kOptimize);
  std::vector<Variable> made;
  for (const Variable& tensor : tensors) made.push_back(tensor / factor);
  for (size_t i = 0; i < tensors.size(); ++i) made.push_back(layers::reduce_sum(made[i]));
  for (const Variable& tensor : tensors) made.push_back(tensor * factor);
  startup.set_random_seed(3);
  Executor executor(CUDAPlace(0), options);
  executor.run(startup);
  return executor.run(main, {}, std::vector<Fetch>(made.begin(), made.end()));
}

TEST(CudaRowsOfOps, HaveTheBitsOfOpsAlone) {
  SKIP_WITHOUT_DEVICE();
  const std::string folder = ::testing::TempDir() + "rows-of-ops";
  const auto alone = rows_of_ops({.profile = folder});
  const auto together = rows_of_ops({});
  ASSERT_EQ(together.size(), alone.size());
  for (size_t i = 0; i < alone.size(); ++i) EXPECT_TRUE(same_bits(together[i], alone[i])) << i;
  std::filesystem::remove_all(folder);
}

// Arrays whose elements threads read by fours, with a rest, in views whose sizes are no powers of
// two.
std::vector<Tensor> long_arrays_on(const Place& place) {
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable x = layers::data("x", {7, 1013, 11});
  const Variable row = layers::create_parameter({1013}, DType::kFloat32, {.name = "row"});
  const Variable added = layers::relu(layers::elementwise_add(x, row, {.axis = 2}));
  const Variable turned = layers::transpose(added, {2, 0, 3, 1});
  const Variable scaled = layers::scale(turned, {.scale = 0.5, .bias = 0.25});
  const Variable loss = layers::mean(layers::square(scaled));
  // Two steps of a walk for each of six dimensions.
  const Variable small =
      layers::reshape(layers::range(0, 64, 1, DType::kFloat32), {2, 2, 2, 2, 2, 2});
  const Variable spread = layers::expand(small, {3, 2, 3, 2, 3, 2});
  optimizer::SGD({.learning_rate = 100.0F}).minimize(loss);
  startup.set_random_seed(3);
  Executor executor(place);
  executor.run(startup);
  Tensor batch(DType::kFloat32, {9, 7, 1013, 11});
  const RandomKey key = RandomKey::of(7, "x");
  for (int64_t i = 0; i < batch.numel(); ++i) {
    batch.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i), 0) - 0.5F;
  }
  return executor.run(main, {{"x", batch}}, {scaled, loss, "row", spread});
}

TEST(CudaLongArrays, AreThoseOfTheCpu) {
  SKIP_WITHOUT_DEVICE();
  const auto wanted = long_arrays_on(CPUPlace());
  const auto got = long_arrays_on(CUDAPlace(0));
  for (size_t i = 0; i < got.size(); ++i) expect_near(got[i], wanted[i], 1e-5, str_cat(i));
}

// A reshaped value may have the memory of what it is made of, unless one of them is written again.
TEST(CudaViews, AreNotWrittenOver) {
  SKIP_WITHOUT_DEVICE();
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable x = layers::data("x", {4});
  const Variable first = layers::relu(x);
  const Variable second = layers::relu(x);
  const Variable viewed = layers::reshape(first, {-1, 2});
  const Variable other = layers::reshape(second, {-1, 2});
  const auto scale_again = [&main](const Variable& variable, double factor) {
    Operator op;
    op.type = "assign";
    op.inputs["X"] = {layers::scale(variable, {.scale = factor}).name()};
    op.outputs["Out"] = {variable.name()};
    main.global_block().append_op(std::move(op));
  };
  scale_again(viewed, 10.0);
  scale_again(second, 100.0);
  const std::vector<Fetch> fetches = {layers::relu(first), layers::relu(viewed),
                                      layers::relu(second), layers::relu(other)};
  Executor executor(CUDAPlace(0));
  const auto got = executor.run(main, {{"x", Tensor::from<float>({1, 2, 3, 4}, {1, 4})}}, fetches);
  const std::vector<float> factors = {1, 10, 100, 1};
  for (size_t i = 0; i < got.size(); ++i) {
    for (int64_t k = 0; k < 4; ++k) {
      EXPECT_EQ(got[i].data<float>()[k], factors[i] * static_cast<float>(k + 1)) << i;
    }
  }
}

// The CPU throws for an index outside of the table; here it cannot.
TEST(CudaLookups, GiveNaNForAnIndexOutsideAndZerosForThePadding) {
  SKIP_WITHOUT_DEVICE();
  Program main;
  Program startup;
  const ProgramGuard programs(main, startup);
  const unique_name::Guard names;
  const Variable ids = layers::data("ids", {1}, DType::kInt64);
  const std::vector<Fetch> fetches = {embedding(ids, {3, 2}),
                                      embedding(ids, {3, 2}, {.padding_idx = 1})};
  Executor executor(CUDAPlace(0));
  executor.run(startup);
  const auto rows =
      executor.run(main, {{"ids", Tensor::from<int64_t>({-1, 0, 1, 3}, {4, 1})}}, fetches);
  for (const Tensor& looked_up : rows) {
    const float* values = looked_up.data<float>();
    EXPECT_TRUE(std::isnan(values[0])) << "index -1";
    EXPECT_TRUE(std::isfinite(values[2])) << "index 0";
    EXPECT_TRUE(std::isnan(values[6])) << "index 3";
  }
  EXPECT_NE(rows[0].data<float>()[4], 0);
  EXPECT_EQ(rows[1].data<float>()[4], 0);
}

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
