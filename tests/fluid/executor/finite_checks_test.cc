#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <limits>
#include <memory>
#include <optional>
#include <vector>

#include "fluid/io/persistables.h"
#include "fluid/kernels/op_library.h"
#include "fluid/ops/append.h"
#include "tests/fluid/executor/mlp.h"
#include "tests/testing/device/emulated_device.h"

namespace fleet::fluid {
namespace {

using testing::batch;
using testing::Mlp;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInf = std::numeric_limits<float>::infinity();

class Findings final : public FiniteWatch {
 public:
  void on_nonfinite(const Nonfinite& found) override { all.push_back(found); }
  std::vector<Nonfinite> all;
};

struct Stop {};
class Stopping final : public FiniteWatch {
 public:
  void on_nonfinite(const Nonfinite&) override { throw Stop(); }
};

class Watched : public ::testing::Test {
 protected:
  Watched() {
    executor_.set_finite_watch(&findings_);
    executor_.run(mlp_.startup);
  }
  float* first_parameter() {
    return executor_.scope()
        .tensor(mlp_.main.global_block().parameters().front()->name)
        .data<float>();
  }

  Findings findings_;
  Mlp mlp_;
  Executor executor_;
};

TEST_F(Watched, FiniteStepsTellNothing) {
  for (uint64_t step = 0; step < 3; ++step) executor_.run(mlp_.main, batch(8, step));
  EXPECT_TRUE(findings_.all.empty());
}

TEST_F(Watched, ALossThatNobodyFetchesIsToldWithItsStep) {
  executor_.run(mlp_.main, batch(8, 0));
  Feed rows = batch(8, 1);
  rows.front().second.data<float>()[3] = kNan;
  executor_.run(mlp_.main, rows);
  ASSERT_FALSE(findings_.all.empty());
  const Nonfinite& first = findings_.all.front();
  EXPECT_EQ(first.what, Nonfinite::What::kLoss);
  EXPECT_EQ(first.variable, mlp_.cost);
  EXPECT_TRUE(std::isnan(first.value));
  EXPECT_EQ(first.step, 1U);
  EXPECT_EQ(findings_.all.back().what, Nonfinite::What::kParameter) << "which the update wrote";
}

// The unit behind this weight is saturated: the loss stays finite, and no gradient comes.
TEST_F(Watched, AParameterIsToldThoughTheLossIsFinite) {
  first_parameter()[0] = kInf;
  Feed rows = batch(8, 0);
  for (int64_t i = 0; i < 8; ++i) rows.front().second.data<float>()[i * 32] = 1.0F;
  executor_.run(mlp_.main, rows);
  ASSERT_FALSE(findings_.all.empty());
  EXPECT_EQ(findings_.all.front().what, Nonfinite::What::kParameter);
  EXPECT_EQ(findings_.all.front().variable, mlp_.main.global_block().parameters().front()->name);
}

// Their sum is infinite.
TEST_F(Watched, LargeParametersAreNotMistakenForInfiniteOnes) {
  float* values = first_parameter();
  for (int i = 0; i < 64; ++i) values[i] = 3e38F;
  Feed rows = batch(8, 0);
  for (int64_t i = 0; i < 8 * 32; ++i) rows.front().second.data<float>()[i] = 0;
  executor_.run(mlp_.main, rows);
  EXPECT_TRUE(findings_.all.empty());
}

TEST_F(Watched, AProgramThatDoesNotTrainIsLeftAlone) {
  const Program test = mlp_.main.clone(true);
  Feed rows = batch(8, 0);
  rows.front().second.data<float>()[0] = kNan;
  executor_.run(test, rows, {mlp_.cost});
  EXPECT_TRUE(findings_.all.empty());
}

TEST(FiniteWatch, WhatItThrowsEndsTheStep) {
  Stopping stop;
  Mlp mlp;
  Executor executor;
  executor.set_finite_watch(&stop);
  executor.run(mlp.startup);
  Feed rows = batch(8, 0);
  rows.front().second.data<float>()[0] = kNan;
  EXPECT_THROW(executor.run(mlp.main, rows), Stop);
  for (const VarDesc* var : mlp.main.global_block().parameters()) {
    for (const float x : executor.scope().tensor(var->name).values<float>()) {
      ASSERT_TRUE(std::isfinite(x)) << "no update followed";
    }
  }
}

// SGD whose work says when it is over whether it wrote what is not finite, as on a device.
std::shared_ptr<OpLibrary> late_sgd() {
  auto library = std::make_shared<OpLibrary>();
  const auto prepare = [](PrepareContext& context) {
    const Shape shape = context.in("Param").shape;
    const int param = context.input("Param");
    const int grad = context.input("Grad");
    const int rate = context.input("LearningRate");
    const int out = context.set_output("ParamOut", shape, DType::kFloat32);
    return make_prepared([=, n = shape.numel()](const KernelContext& c) {
      bool finite = true;
      for (int64_t i = 0; i < n; ++i) {
        c.out<float>(out)[i] = c.in<float>(param)[i] - *c.in<float>(rate) * c.in<float>(grad)[i];
        finite = finite && std::isfinite(c.out<float>(out)[i]);
      }
      if (!finite) *c.nonfinite_word() = 1;
    });
  };
  library->kernels().add_first("sgd", DeviceKind::kCpu, DType::kFloat32,
                               {.name = "late", .prepare = prepare});
  return library;
}

class WatchedLate : public Watched {
 protected:
  WatchedLate() { mlp_.main.set_op_library(late_sgd()); }
  // The unit behind an infinite weight is saturated, as above.
  static Feed saturated() {
    Feed rows = batch(8, 0);
    for (int64_t i = 0; i < 8; ++i) rows.front().second.data<float>()[i * 32] = 1.0F;
    return rows;
  }
};

TEST_F(WatchedLate, FiniteStepsTellNothing) {
  for (uint64_t step = 0; step < 3; ++step) executor_.run(mlp_.main, batch(8, step));
  EXPECT_TRUE(findings_.all.empty());
}

TEST_F(WatchedLate, TheParameterThatIsNotFiniteIsToldAloneAtTheStepsEnd) {
  executor_.run(mlp_.main, batch(8, 0));
  first_parameter()[0] = kInf;
  executor_.run(mlp_.main, saturated());
  ASSERT_EQ(findings_.all.size(), 1U);
  EXPECT_EQ(findings_.all.front().what, Nonfinite::What::kParameter);
  EXPECT_EQ(findings_.all.front().variable, mlp_.main.global_block().parameters().front()->name);
  EXPECT_EQ(findings_.all.front().value, kInf);
  EXPECT_EQ(findings_.all.front().step, 1U);
}

TEST_F(WatchedLate, WhatNobodyWatchedIsNotToldOfALaterStep) {
  executor_.set_finite_watch(nullptr);
  first_parameter()[0] = kInf;
  executor_.run(mlp_.main, saturated());
  first_parameter()[0] = 0;
  executor_.set_finite_watch(&findings_);
  executor_.run(mlp_.main, batch(8, 0));
  EXPECT_TRUE(findings_.all.empty());
}

TEST_F(WatchedLate, WhatTheWatchThrowsEndsTheStep) {
  Stopping stop;
  executor_.set_finite_watch(&stop);
  first_parameter()[0] = kInf;
  EXPECT_THROW(executor_.run(mlp_.main, saturated()), Stop);
  first_parameter()[0] = 0;
  EXPECT_NO_THROW(executor_.run(mlp_.main, batch(8, 0)));
}

TEST_F(WatchedLate, AnUpdateInAConditionIsToldToo) {
  Program program;
  Program startup;
  const ProgramGuard programs(program, startup);
  program.set_op_library(late_sgd());
  const Variable grad = layers::data("grad", {3}, DType::kFloat32, {.append_batch_size = false});
  const Variable weight =
      layers::create_parameter({3}, DType::kFloat32, {.attr = {.name = "weight"}});
  const Variable rate = layers::fill_constant({1}, DType::kFloat32, 0.5);
  const auto update = [&]() -> std::vector<Variable> {
    append_op(program.current_block(), {.type = "sgd",
                                        .inputs = {{"Param", {weight.name()}},
                                                   {"Grad", {grad.name()}},
                                                   {"LearningRate", {rate.name()}}},
                                        .outputs = {{"ParamOut", {weight.name()}}},
                                        .attrs = {}});
    return {layers::scale(rate, {})};
  };
  const auto nothing = [&]() -> std::vector<Variable> { return {layers::scale(rate, {})}; };
  layers::cond(layers::less_than(rate, layers::fill_constant({1}, DType::kFloat32, 1)), update,
               nothing);
  executor_.run(startup);
  executor_.run(program, {{"grad", Tensor::from<float>({1, 2, 3}, {3})}});
  EXPECT_TRUE(findings_.all.empty());
  executor_.run(program, {{"grad", Tensor::from<float>({1, kNan, 3}, {3})}});
  ASSERT_EQ(findings_.all.size(), 1U);
  EXPECT_EQ(findings_.all.front().variable, "weight");
}

// With kernels for everything on an emulated device, whose steps nobody waits for unless they are
// fetched.
class WatchedOnADevice : public ::testing::Test {
 protected:
  WatchedOnADevice() {
    fleet::testing::emulate_two_devices();
    executor_.emplace(CUDAPlace(0), ExecutorOptions{.kernels = &kernels_});
    executor_->set_finite_watch(&findings_);
    executor_->run(mlp_.startup);
  }
  static Feed broken(float value) {
    Feed rows = batch(8, 0);
    rows.front().second.data<float>()[3] = value;
    return rows;
  }
  // Of losses, by their steps.
  std::vector<uint64_t> steps() const {
    std::vector<uint64_t> steps;
    for (const Nonfinite& found : findings_.all) {
      if (found.what == Nonfinite::What::kLoss) steps.push_back(found.step);
    }
    return steps;
  }

  Findings findings_;
  Mlp mlp_;
  KernelTable kernels_ =
      fleet::testing::kernels_with_device_ops([](const std::string&) { return true; });
  std::optional<Executor> executor_;
};

TEST_F(WatchedOnADevice, ALossIsToldAtTheEndOfTheNextStep) {
  executor_->run(mlp_.main, batch(8, 0));
  executor_->run(mlp_.main, broken(kNan));
  EXPECT_THAT(steps(), ::testing::IsEmpty());
  (void)executor_->start(mlp_.main, batch(8, 1), {mlp_.cost});
  EXPECT_THAT(steps(), ::testing::ElementsAre(1U));
  EXPECT_EQ(findings_.all.back().variable, mlp_.cost);
  EXPECT_TRUE(std::isnan(findings_.all.back().value));
}

TEST_F(WatchedOnADevice, ALossIsToldAtOnceWhereTheStepIsFetched) {
  executor_->run(mlp_.main, broken(kNan), {mlp_.cost});
  EXPECT_THAT(steps(), ::testing::ElementsAre(0U));
}

TEST_F(WatchedOnADevice, ALossIsToldBeforeWhatItMadeIsSaved) {
  executor_->run(mlp_.main, broken(kNan));
  const std::filesystem::path folder = ::testing::TempDir() + "watched-on-a-device";
  save_persistables(*executor_, folder, mlp_.main);
  EXPECT_THAT(steps(), ::testing::ElementsAre(0U));
  executor_->look_at_steps();
  EXPECT_THAT(steps(), ::testing::ElementsAre(0U)) << "once";
  std::filesystem::remove_all(folder);
}

TEST_F(WatchedOnADevice, AStepThatNobodyWatchedIsNotToldOfALaterOne) {
  executor_->set_finite_watch(nullptr);
  executor_->run(mlp_.main, broken(kNan));
  executor_->run(mlp_.startup);
  executor_->set_finite_watch(&findings_);
  executor_->run(mlp_.main, batch(8, 0));
  executor_->look_at_steps();
  EXPECT_TRUE(findings_.all.empty());
}

TEST_F(WatchedOnADevice, AStepIsToldToTheWatchThatItHad) {
  Findings others;
  executor_->run(mlp_.main, broken(kNan));
  executor_->set_finite_watch(&others);
  executor_->look_at_steps();
  EXPECT_THAT(steps(), ::testing::ElementsAre(0U));
  EXPECT_TRUE(others.all.empty());
}

// The watch of a job goes with its runtime.
class Watching : public CommRuntime {
 public:
  StepShards shards() const override { return {0, 1, 1}; }
  void begin_step(const Program&, uint64_t) override {}
  void end_step(const Program&, uint64_t) override {}
  std::unique_ptr<CommToken> run(const CommCall&) override { return nullptr; }
  FiniteWatch* finite_watch() override { return watch_.get(); }

 private:
  class OfLosses final : public FiniteWatch {
    void on_nonfinite(const Nonfinite& found) override {
      if (found.what == Nonfinite::What::kLoss) throw Stop();
    }
  };
  std::unique_ptr<FiniteWatch> watch_ = std::make_unique<OfLosses>();
};

TEST_F(WatchedOnADevice, NobodyIsToldOfAJobThatIsOver) {
  executor_->set_comm_runtime(std::make_shared<Watching>());
  executor_->run(mlp_.main, broken(kNan));
  executor_->set_comm_runtime(nullptr);
  EXPECT_NO_THROW(executor_->look_at_steps());
  executor_->set_comm_runtime(std::make_shared<Watching>());
  executor_->run(mlp_.main, broken(kNan));
  EXPECT_THROW(executor_->look_at_steps(), Stop);
}

TEST_F(WatchedOnADevice, WhatTheWatchThrowsEndsTheNextStep) {
  Stopping stop;
  executor_->set_finite_watch(&stop);
  executor_->run(mlp_.main, batch(8, 0));
  EXPECT_NO_THROW(executor_->look_at_steps());
  EXPECT_THROW(executor_->run(mlp_.main, broken(kNan), {mlp_.cost}), Stop);
}

}  // namespace
}  // namespace fleet::fluid
