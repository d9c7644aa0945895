#include "fluid/executor/training/trainer_threads.h"

#include <atomic>
#include <gtest/gtest.h>
#include <set>
#include <stdexcept>

#include "base/error.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid {
namespace {

// Takes threads, and says what it was told.
class Threads : public CommRuntime {
 public:
  StepShards shards() const override { return {}; }
  void begin_step(const Program&, uint64_t) override {}
  void end_step(const Program&, uint64_t) override {}
  std::unique_ptr<CommToken> run(const CommCall&) override { return nullptr; }
  bool has_trainer_threads() const override { return true; }
  void enter_thread(uint32_t thread, Scope&, const Scope&) override { entered.insert(thread); }
  void leave_thread(Scope& scope, Scope& parent) override {
    EXPECT_NE(&scope, &parent);
    ++left;
  }

  std::set<uint32_t> entered;
  std::atomic<int> left = 0;
};

TEST(TrainerThreads, LeaveTheValuesOfTheLastOne) {
  Threads runtime;
  Program program;
  Executor executor;
  executor.scope().var("w").emplace<Tensor>(Tensor::scalar(1.0F));
  run_trainer_threads(
      executor, program, 2,
      [&](uint32_t thread, Executor& own) {
        EXPECT_EQ(own.scope().tensor("w").item<float>(), 1.0F);
        own.scope().tensor("w").data<float>()[0] = 10.0F + static_cast<float>(thread);
        while (thread == 1 && runtime.left == 0) {
        }
      },
      &runtime);
  EXPECT_EQ(runtime.entered, (std::set<uint32_t>{0, 1}));
  EXPECT_EQ(executor.scope().tensor("w").item<float>(), 11.0F);
}

TEST(TrainerThreads, LeaveBehindAFailure) {
  Threads runtime;
  Program program;
  Executor executor;
  const auto train = [&] {
    run_trainer_threads(
        executor, program, 3,
        [](uint32_t thread, Executor&) {
          if (thread == 1) throw std::runtime_error("this one");
        },
        &runtime);
  };
  EXPECT_THROW(train(), std::runtime_error);
  EXPECT_EQ(runtime.left, 3);
}

}  // namespace
}  // namespace fleet::fluid
