#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <vector>

#include "tests/fluid/executor/mlp.h"

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

}  // namespace
}  // namespace fleet::fluid
