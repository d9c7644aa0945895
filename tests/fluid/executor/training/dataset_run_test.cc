#include "fluid/executor/training/dataset_run.h"

#include <chrono>
#include <gmock/gmock.h>
#include <limits>
#include <set>

#include "fluid/executor/compiled_program.h"
#include "tests/fluid/executor/training/dataset_runs.h"

namespace fleet::fluid {
namespace {

using data::message_of;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::SizeIs;

TEST_F(DatasetRuns, TrainWithTheBitsOfALoop) {
  for (const int shards : {1, 2}) {
    Executor by_hand(CPUPlace(), {.logical_shards = shards});
    by_hand.run(net_.startup);
    const auto read = dataset();
    const auto batches = read->batches(shards);
    std::vector<Tensor> last;
    for (auto batch = batches->next(); !batch.empty(); batch = batches->next()) {
      last = by_hand.run(net_.main, feed_of(batch), {net_.loss, net_.area});
    }
    for (const char* kind : {"QueueDataset", "InMemoryDataset"}) {
      for (const int threads : {1, 3}) {
        SCOPED_TRACE(str_cat(kind, ", ", shards, " shards, ", threads, " threads"));
        Executor exe(CPUPlace(), {.logical_shards = shards});
        exe.run(net_.startup);
        DatasetRun run = quiet();
        run.fetch_list = {net_.loss, net_.area};
        const auto source = dataset(kind, threads);
        const DatasetResult result = exe.train_from_dataset(net_.main, *source, run);
        EXPECT_EQ(result.batches, kBatches);
        EXPECT_EQ(result.samples, static_cast<uint64_t>(kRecords - kRecords % shards));
        ASSERT_THAT(result.fetched, SizeIs(2));
        EXPECT_EQ(result.fetched[0].item<float>(), last[0].item<float>());
        EXPECT_EQ(result.fetched[1].to_string(), last[1].to_string());
        EXPECT_TRUE(values(exe) == values(by_hand));
        EXPECT_EQ(exe.steps_run(net_.main), kBatches);
      }
    }
  }
}

TEST_F(DatasetRuns, ReplicasTrainWithTheBitsOfALoop) {
  const DataParallelOptions options{.places = {CPUPlace(), CPUPlace()}};
  Executor by_hand;
  by_hand.run(net_.startup);
  CompiledProgram looped(net_.main);
  looped.with_data_parallel(net_.loss, options);
  const auto read = dataset();
  const auto batches = read->batches(2);
  for (auto batch = batches->next(); !batch.empty(); batch = batches->next()) {
    by_hand.run(looped, feed_of(batch), {});
  }
  Executor exe;
  exe.run(net_.startup);
  CompiledProgram compiled(net_.main);
  compiled.with_data_parallel(net_.loss, options);
  const auto source = dataset();
  EXPECT_EQ(exe.train_from_dataset(compiled, *source, quiet()).batches, kBatches);
  EXPECT_TRUE(values(exe) == values(by_hand));
}

TEST_F(DatasetRuns, TestingChangesNoParameter) {
  Executor exe;
  exe.run(net_.startup);
  exe.train_from_dataset(net_.main, *dataset(), quiet());
  auto before = values(exe);
  const int64_t counted_before = counted(exe);
  DatasetRun run = quiet();
  run.fetch_list = {net_.area};
  const auto first = exe.infer_from_dataset(net_.main, *dataset(), run);
  EXPECT_EQ(first.batches, kBatches);
  EXPECT_EQ(counted(exe), counted_before + kRecords);
  auto after = values(exe);
  std::set<std::string> changed;
  for (const auto& [name, bytes] : before) {
    if (after.at(name) != bytes) changed.insert(name);
  }
  EXPECT_FALSE(changed.empty());
  for (const std::string& name : changed) EXPECT_THAT(net_.states, Contains(name));
  EXPECT_EQ(exe.steps_run(net_.main), kBatches);
}

TEST_F(DatasetRuns, TellHowFarTheyAre) {
  Executor exe;
  exe.run(net_.startup);
  std::vector<std::string> lines;
  DatasetRun run;
  run.fetch_list = {net_.loss, net_.area};
  run.fetch_info = {"cost", "area"};
  run.print_period = 5;
  run.debug = true;
  run.logger =
      Logger(LogLevel::kInfo, [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  const auto source = dataset("InMemoryDataset");
  exe.train_from_dataset(net_.main, *source, run);
  ASSERT_THAT(lines, SizeIs(3));
  for (const char* word :
       {"train_from_dataset", "batches=5", "samples_per_s=", "cost=", "area=", "eta_s="}) {
    EXPECT_THAT(lines[0], HasSubstr(word));
  }
  EXPECT_THAT(lines[1], HasSubstr("batches=10"));
  EXPECT_THAT(lines[2], HasSubstr("waited_for_batches_s="));

  std::vector<DatasetProgress> told;
  run.fetch_handler = [&](const DatasetProgress& progress) { told.push_back(progress); };
  run.debug = false;
  lines.clear();
  exe.train_from_dataset(net_.main, *dataset(), run);
  ASSERT_THAT(told, SizeIs(2));
  EXPECT_EQ(told[1].batches, 10U);
  EXPECT_EQ(told[1].samples, 10U * kBatch);
  EXPECT_FALSE(told[1].seconds_left);
  EXPECT_GT(told[1].samples_per_second, 0);
  EXPECT_THAT(told[1].fetched, SizeIs(2));
  EXPECT_THAT(lines, SizeIs(0));
}

TEST_F(DatasetRuns, ShowLinesThatCannotBeReadAndStopAtTooMany) {
  std::ofstream(path("part-1"), std::ios::app) << "1 0 2 0.5\n1 x 2 1 1 1 4\n";
  Executor exe;
  exe.run(net_.startup);
  std::vector<std::string> lines;
  DatasetRun run;
  run.logger = Logger(LogLevel::kWarning,
                      [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
  EXPECT_EQ(exe.train_from_dataset(net_.main, *dataset(), run).bad_lines, 2U);
  ASSERT_THAT(lines, SizeIs(3));
  EXPECT_THAT(lines[0], HasSubstr("part-1 line 102"));
  EXPECT_THAT(lines[2], HasSubstr("lines=2"));
  const auto strict = dataset();
  strict->set_max_bad_lines(1);
  EXPECT_THAT(message_of([&] { exe.train_from_dataset(net_.main, *strict, run); }),
              HasSubstr("part-1 line 102"));
}

// A command that would go on for a minute ends with the step that fails.
TEST_F(DatasetRuns, EndWithAStepThatFails) {
  const auto begin = std::chrono::steady_clock::now();
  for (const int threads : {0, 1, 4}) {
    SCOPED_TRACE(threads);
    Executor exe;
    exe.run(net_.startup);
    const auto source = dataset("QueueDataset", std::max(threads, 1));
    source->set_filelist({path("part-0")});
    // Of the length that a reader takes at once, and more.
    source->set_pipe_command("yes '1 0 2 0.5 0.5 1 3' | head -n 100000; sleep 60");
    auto variables = net_.variables;
    variables[0].name = "other";
    source->set_use_var(variables);
    DatasetRun run = quiet();
    run.thread = threads;
    run.hogwild = threads > 1;
    EXPECT_THAT(message_of([&] { exe.train_from_dataset(net_.main, *source, run); }),
                HasSubstr("other"));
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
}

TEST_F(DatasetRuns, EndWithFilesThatCannotBeRead) {
  Executor exe;
  exe.run(net_.startup);
  const auto source = dataset();
  source->set_filelist({path("part-0"), path("none")});
  EXPECT_THAT(message_of([&] { exe.train_from_dataset(net_.main, *source, quiet()); }),
              HasSubstr(path("none")));
  // What came before was trained.
  EXPECT_GT(exe.steps_run(net_.main), 0U);
}

TEST_F(DatasetRuns, GoOnWhereTheyWere) {
  Executor whole;
  whole.run(net_.startup);
  whole.train_from_dataset(net_.main, *dataset(), quiet());

  struct Stop {};
  std::string position;
  DatasetRun run = quiet();
  run.position = &position;
  Executor exe;
  exe.run(net_.startup);
  exe.set_after_run(net_.main, [](Executor&, uint64_t steps) {
    if (steps == 4) throw Stop();
  });
  EXPECT_THROW(exe.train_from_dataset(net_.main, *dataset(), run), Stop);
  EXPECT_NE(position, "");
  exe.set_after_run(net_.main, nullptr);
  EXPECT_EQ(exe.train_from_dataset(net_.main, *dataset(), run).batches, kBatches - 4);
  EXPECT_EQ(position, "");
  EXPECT_TRUE(values(exe) == values(whole));
}

TEST_F(DatasetRuns, AStepThatFailsIsNotBehindThePosition) {
  Executor exe;
  exe.run(net_.startup);
  std::string position;
  DatasetRun run = quiet();
  run.position = &position;
  run.fetch_list = {"nobody"};
  EXPECT_NE(message_of([&] { exe.train_from_dataset(net_.main, *dataset(), run); }), "");
  EXPECT_EQ(position, "");
}

// Of workers that take their steps together.
class Together : public CommRuntime {
 public:
  StepShards shards() const override { return {}; }
  void begin_step(const Program&, uint64_t) override {}
  void end_step(const Program&, uint64_t) override {}
  std::unique_ptr<CommToken> run(const CommCall&) override { return nullptr; }
  bool steps_together() const override { return true; }
  int common_steps(int mine, int most) override {
    asked.push_back(mine);
    const int common = std::min(mine, others);
    others = std::max(0, others - most);
    answered.push_back(common);
    return common;
  }

  int others = 0;  // steps that the other workers can still take
  std::vector<int> asked;
  std::vector<int> answered;
};

void append_barrier(Program& program) {
  Program empty;
  const ProgramGuard programs(program, empty);
  Operator op;
  op.type = "send_barrier";
  program.global_block().append_op(std::move(op));
}

TEST_F(DatasetRuns, OfProgramsThatDoNotCommunicateAskNobody) {
  Program main = net_.main;
  const auto runtime = std::make_shared<Together>();
  main.set_runtime(runtime);
  Executor exe;
  exe.run(net_.startup);
  EXPECT_EQ(exe.train_from_dataset(main, *dataset(), quiet()).batches, kBatches);
  EXPECT_TRUE(runtime->asked.empty());
}

TEST_F(DatasetRuns, OfWorkersInStepEndWithTheFirst) {
  for (const int others : {5, 8, 9, 100}) {
    SCOPED_TRACE(others);
    Program main = net_.main;
    append_barrier(main);
    const auto runtime = std::make_shared<Together>();
    runtime->others = others;
    main.set_runtime(runtime);
    Executor exe;
    exe.run(net_.startup);
    std::vector<std::string> lines;
    DatasetRun run;
    run.logger = Logger(LogLevel::kWarning,
                        [&](LogLevel, std::string_view line) { lines.emplace_back(line); });
    const uint64_t expected = std::min<uint64_t>(kBatches, static_cast<uint64_t>(others));
    EXPECT_EQ(exe.train_from_dataset(main, *dataset(), run).batches, expected);
    EXPECT_EQ(lines.size(), expected < kBatches ? 1U : 0U);
    // All workers ask as often, or those that wait for a last answer hang: each asks until there
    // are no steps.
    EXPECT_EQ(runtime->answered.back(), 0);
    int taken = 0;
    for (size_t i = 0; i < runtime->asked.size(); ++i) {
      EXPECT_EQ(runtime->asked[i], std::min(8, static_cast<int>(kBatches) - taken)) << i;
      taken += runtime->answered[i];
    }
    EXPECT_EQ(taken, static_cast<int>(expected));
  }
}

// Such as one that has no files: nobody would train, and the job would end well.
TEST_F(DatasetRuns, OfWorkersInStepFailWhereOneHasNothing) {
  Program main = net_.main;
  append_barrier(main);
  main.set_runtime(std::make_shared<Together>());
  Executor exe;
  exe.run(net_.startup);
  EXPECT_THAT(message_of([&] { exe.train_from_dataset(main, *dataset(), quiet()); }),
              HasSubstr("at least one batch for each worker"));
  // Where a former run had got, another worker may have none left.
  std::string position;
  DatasetRun run = quiet();
  run.position = &position;
  exe.set_after_run(net_.main, [](Executor&, uint64_t steps) {
    if (steps == 3) throw std::runtime_error("stop");
  });
  EXPECT_THROW(exe.train_from_dataset(net_.main, *dataset(), run), std::runtime_error);
  exe.set_after_run(net_.main, nullptr);
  ASSERT_NE(position, "");
  EXPECT_EQ(exe.train_from_dataset(main, *dataset(), run).batches, 0U);
}

// What the step behind a batch is fed with, where it is sure to come.
TEST_F(DatasetRuns, TellTheNextBatch) {
  class Listening final : public Together {
   public:
    void will_feed(const Program&, NextFeed feed) override {
      next.emplace_back(feed.front().second.raw(),
                        feed.front().second.raw() + feed.front().second.bytes());
    }
    std::vector<std::vector<std::byte>> next;
  };
  Program main = net_.main;
  append_barrier(main);
  const auto runtime = std::make_shared<Listening>();
  runtime->others = 100;
  main.set_runtime(runtime);
  Executor exe;
  exe.run(net_.startup);
  exe.train_from_dataset(main, *dataset(), quiet());
  std::vector<std::vector<std::byte>> batches;
  const auto all = dataset();
  const auto reader = all->batches(1);
  for (auto batch = reader->next(); !batch.empty(); batch = reader->next()) {
    batches.emplace_back(batch.front().raw(), batch.front().raw() + batch.front().bytes());
  }
  ASSERT_EQ(batches.size(), kBatches);
  // All but the first batch of each eight steps that workers agree on.
  std::vector<std::vector<std::byte>> wanted;
  for (size_t i = 1; i < batches.size(); ++i) {
    if (i % 8 != 0) wanted.push_back(batches[i]);
  }
  EXPECT_TRUE(runtime->next == wanted);
}

TEST_F(DatasetRuns, AStepThatFailsInItsMiddleIsNotBehindThePosition) {
  Executor exe(CPUPlace(), {.check_nan_inf = true});
  exe.run(net_.startup);
  std::string position;
  std::string third;
  DatasetRun run = quiet();
  run.position = &position;
  int steps = 0;
  exe.set_after_run(net_.main, [&](Executor& own, uint64_t) {
    if (++steps < 3) return;
    third = position;
    const auto parameters = net_.main.global_block().parameters();
    *own.scope().tensor(parameters.front()->name).data<float>() =
        std::numeric_limits<float>::quiet_NaN();
  });
  EXPECT_NE(message_of([&] { exe.train_from_dataset(net_.main, *dataset(), run); }), "");
  EXPECT_NE(third, "");
  EXPECT_EQ(position, third);
  EXPECT_EQ(exe.steps_run(net_.main), 3U);
}

TEST_F(DatasetRuns, RefuseWhatCannotBe) {
  Executor exe;
  exe.run(net_.startup);
  const auto refused = [&](const auto& change) {
    DatasetRun run = quiet();
    change(run);
    try {
      exe.train_from_dataset(net_.main, *dataset(), run);
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refused([](DatasetRun& run) { run.print_period = 0; }), HasSubstr("print_period"));
  EXPECT_THAT(refused([](DatasetRun& run) { run.thread = -1; }), HasSubstr("thread"));
  EXPECT_THAT(refused([](DatasetRun& run) { run.fetch_info = {"loss"}; }), HasSubstr("fetch_info"));
  std::string position = "nowhere";
  EXPECT_THAT(refused([&](DatasetRun& run) { run.position = &position; }), HasSubstr("nowhere"));

  Program communicating = net_.main;
  append_barrier(communicating);
  DatasetRun run = quiet();
  run.hogwild = true;
  run.thread = 2;
  EXPECT_THAT(message_of([&] { exe.train_from_dataset(communicating, *dataset(), run); }),
              HasSubstr("hogwild"));

  Executor in_parts(CPUPlace(), {.logical_shards = 3});
  in_parts.run(net_.startup);
  EXPECT_THAT(message_of([&] { in_parts.train_from_dataset(net_.main, *dataset(), quiet()); }),
              HasSubstr("batch size that 3 divides"));
}

}  // namespace
}  // namespace fleet::fluid
