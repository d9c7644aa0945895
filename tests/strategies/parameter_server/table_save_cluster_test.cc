// Tables that servers save while workers train on.
#include <algorithm>
#include <atomic>
#include <cmath>
#include <filesystem>
#include <gmock/gmock.h>
#include <set>
#include <string>
#include <vector>

#include "base/strings.h"
#include "fluid/io/table_files.h"
#include "fluid/layers/layers.h"
#include "fluid/ops/append.h"
#include "fluid/ops/distributed/table_ops.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/async_thread_cluster.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr int64_t kHeight = 200000;
constexpr int64_t kWidth = 16;  // 13 pieces of values, 2 of row numbers
constexpr int64_t kLookedUp = 64;
constexpr int64_t kApart = kHeight / kLookedUp;

// Every gradient is the same for 64 rows that lie apart all over the table, so that a version of
// the table has one number in all of them, and a mixture of versions has several.
class TableSaving : public ::testing::Test {
 protected:
  TableSaving() {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto ids = layers::data("ids", {1}, fluid::DType::kInt64);
    const auto rows = layers::embedding(
        ids, fluid::Shape{kHeight, kWidth},
        {.is_sparse = true,
         .is_distributed = true,
         .param_attr = {.name = "table", .initializer = fluid::initializer::Constant(0)}});
    const auto loss = layers::reduce_sum(rows);  // the table is the only parameter
    loss_ = loss.name();
    fluid::optimizer::SGD({.learning_rate = 1}).minimize(loss);
    folder_ = ::testing::TempDir() + "tables-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~TableSaving() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  TrainingTask task(int steps) const {
    TrainingTask task{
        .main = &main_, .startup = &startup_, .loss = loss_, .feed = {}, .steps = steps};
    task.feed = [](int, int, int, int) {
      std::vector<int64_t> ids(kLookedUp);
      for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i) * kApart;
      return fluid::Feed{{"ids", fluid::Tensor::from(ids, {kLookedUp, 1})}};
    };
    return task;
  }

  // Has the server save the table, and waits for the file.
  void save(const fluid::Program& trainer, fluid::Executor& executor) {
    fluid::Program program;
    fluid::Operator op;
    op.type = "checkpoint_notify";
    op.attrs = fluid::to_attributes(fluid::CheckpointNotifyAttrs{
        .epmap = {"127.0.0.1:6174"}, .dir = folder_of(++saves_), .lookup_table = "table"});
    fluid::append_op(program.global_block(), std::move(op));
    program.set_runtime(trainer.runtime());
    executor.run(program);
  }

  std::string folder_of(int save) const { return str_cat(folder_, "/", save); }

  // What the looked-up rows have, each number once; the other rows have 0.
  std::set<float> numbers(int save) const {
    const fluid::Tensor rows = fluid::io::load_table_rows(folder_of(save), "table", 0, 1, kHeight);
    const float* values = rows.data<float>();
    std::set<float> found;
    for (int64_t row = 0; row < kHeight; ++row) {
      const bool looked_up = row % kApart == 0 && row / kApart < kLookedUp;
      for (int64_t i = 0; i < kWidth; ++i) {
        if (looked_up) found.insert(values[row * kWidth + i]);
        if (!looked_up && values[row * kWidth + i] != 0) ADD_FAILURE() << "row " << row;
      }
    }
    return found;
  }

  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
  std::string folder_;
  int saves_ = 0;
};

// The file is of the step that the worker has done.
TEST_F(TableSaving, BetweenStepsHasTheStep) {
  ThreadJob job{.workers = 2, .servers = 1};
  job.after_step = [this](int worker, const fluid::Program& trainer, fluid::Executor& executor) {
    if (worker == 0) save(trainer, executor);
  };
  const ThreadOutcome outcome = train_in_threads(task(4), job);
  EXPECT_THAT(outcome.errors, IsEmpty());
  ASSERT_EQ(saves_, 4);
  for (int i = 1; i <= 4; ++i) EXPECT_THAT(numbers(i), ElementsAre(-i));
}

// Worker 1 trains while worker 0 has the table saved again and again.
TEST_F(TableSaving, WhileOthersTrainHasOneVersion) {
  constexpr int kSteps = 40;
  std::atomic<int> trained = 0;  // steps of worker 1
  AsyncThreadJob job{.workers = 2, .servers = 1};
  job.after_step = [&](int worker, const fluid::Program& trainer, fluid::Executor& executor) {
    if (worker == 1) ++trained;
    if (worker == 0 && (saves_ == 0 || trained < kSteps)) save(trainer, executor);
  };
  const AsyncThreadOutcome outcome = train_async_in_threads(task(kSteps), job);
  EXPECT_THAT(outcome.errors, IsEmpty());
  ASSERT_GT(saves_, 0);
  float before = 0;
  for (int i = 1; i <= saves_; ++i) {
    const std::set<float> version = numbers(i);
    ASSERT_THAT(version, SizeIs(1)) << "file " << i << " has several versions";
    EXPECT_LE(*version.begin(), before);
    EXPECT_EQ(std::floor(*version.begin()), *version.begin());
    before = *version.begin();
  }
  EXPECT_GE(before, -2.0F * kSteps);
}

}  // namespace
}  // namespace fleet::testing
