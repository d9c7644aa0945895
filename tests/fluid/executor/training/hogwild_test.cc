// Threads that update one set of parameters without a lock. Not among the tests for thread
// sanitizers, which call that a race, as it is.
#include <gmock/gmock.h>
#include <mutex>
#include <set>

#include "fluid/executor/training/trainer_threads.h"
#include "tests/fluid/executor/training/dataset_runs.h"

namespace fleet::fluid {
namespace {

using data::message_of;
using ::testing::HasSubstr;

TEST_F(DatasetRuns, HogwildThreadsShareTheParametersAndLoseNoCount) {
  Executor exe;
  exe.run(net_.startup);
  DatasetRun run = quiet();
  run.hogwild = true;
  run.thread = 4;
  run.fetch_list = {net_.loss};
  run.print_period = 1;
  double sum = 0;
  run.fetch_handler = [&](const DatasetProgress& progress) {
    sum += progress.fetched[0].item<double>() / kBatches;
  };
  const auto source = dataset("InMemoryDataset");
  double first = 0;
  for (int epoch = 0; epoch < 40; ++epoch) {
    sum = 0;
    EXPECT_EQ(exe.train_from_dataset(net_.main, *source, run).batches, kBatches);
    if (epoch == 0) first = sum;
  }
  EXPECT_EQ(exe.steps_run(net_.main), 40 * kBatches);
  EXPECT_EQ(counted(exe), 40 * kRecords);
  EXPECT_LT(sum, 0.7 * first);
}

TEST_F(DatasetRuns, HogwildThreadsEndWithFilesThatCannotBeRead) {
  Executor exe;
  exe.run(net_.startup);
  const auto source = dataset();
  source->set_filelist({path("part-0"), path("none")});
  DatasetRun run = quiet();
  run.thread = 4;
  run.hogwild = true;
  EXPECT_THAT(message_of([&] { exe.train_from_dataset(net_.main, *source, run); }),
              HasSubstr(path("none")));
}

TEST(HogwildThreads, HaveOneSetOfValues) {
  Program program;
  Executor executor;
  executor.scope().var("w").emplace<Tensor>(Tensor::scalar(1.0F));
  std::set<const float*> places;
  std::mutex mutex;
  run_hogwild_threads(executor, program, 3, [&](uint32_t, Executor& own) {
    const std::lock_guard lock(mutex);
    places.insert(own.scope().tensor("w").data<float>());
  });
  EXPECT_EQ(places.size(), 1U);
  executor.set_after_run(program, [](Executor&, uint64_t) {});
  EXPECT_THROW(run_hogwild_threads(executor, program, 2, [](uint32_t, Executor&) {}), UsageError);
}

}  // namespace
}  // namespace fleet::fluid
