// Whoever stands between a program and a runtime changes nothing but what it overrides.
#include "strategies/forwarding.h"

#include <gtest/gtest.h>
#include <typeinfo>

#include "base/strings.h"
#include "fluid/executor/executor.h"
#include "fluid/executor/training/trainer_threads.h"
#include "fluid/program/program.h"
#include "fluid/tables/growing_table.h"
#include "transpiler/config.h"

namespace fleet::strategies {
namespace {

// Notes what it is asked for.
class Recording : public StrategyRuntime {
 public:
  void init_worker() override { calls.emplace_back("init_worker"); }
  void stop_worker() override { calls.emplace_back("stop_worker"); }
  void barrier_worker() override { calls.emplace_back("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double> values) override {
    return {values.front() * 2};
  }
  const char* refusal() const override { return "not now"; }
  fluid::StepShards shards() const override { return {1, 2, 3}; }
  bool sums_on(const fluid::Place& place) override { return place == fluid::CUDAPlace(2); }
  void wait_for_leads() override { calls.emplace_back("wait_for_leads"); }
  void begin_step(const fluid::Program&, uint64_t step) override { begun = step; }
  void end_step(const fluid::Program&, uint64_t step) override { ended = step; }
  void fed(int64_t rows) override { fed_rows = rows; }
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall&) override {
    calls.emplace_back("run");
    return nullptr;
  }
  const fluid::Program* checkpoint_program() const override { return &program; }
  bool gather_persistables(fluid::Scope&) override { return false; }
  void spread_persistables(fluid::Scope&) override { calls.emplace_back("spread_persistables"); }
  void begin_saving(fluid::Scope&) override { calls.emplace_back("begin_saving"); }
  void read_values(std::span<const std::string> names, fluid::Scope&) override {
    calls.push_back("read " + names.front());
  }
  void end_saving() override { calls.emplace_back("end_saving"); }
  void give_values(std::span<const std::string> names, fluid::Scope&) override {
    calls.push_back("give " + names.front());
  }
  void start_from(fluid::Scope&) override { calls.emplace_back("start_from"); }
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    return {values.front() * 3};
  }
  bool in_step() const override { return false; }
  void ask_to_save() override { calls.emplace_back("ask_to_save"); }
  uint64_t saves_asked() const override { return 6; }
  void set_on_save(std::function<void()> on_save) override { on_save(); }
  void saved(uint64_t saves) override { calls.push_back(str_cat("saved ", saves)); }
  void meet_to_save() override { calls.emplace_back("meet_to_save"); }
  std::vector<std::string> server_variables() override { return {"theirs"}; }
  std::string write_server_parts(const std::string& folder, int first, int parts) override {
    return str_cat(folder, " ", first, " ", parts);
  }
  std::string check_server_parts(const std::string& folder, uint32_t checksum) override {
    return str_cat(folder, " ", checksum);
  }
  void read_server_parts(const std::string& folder, uint32_t checksum) override {
    calls.push_back(str_cat("read ", folder, " ", checksum));
  }
  std::vector<std::string> own_variables() override { return {"own"}; }
  std::vector<double> own_counts() override { return {8}; }
  void set_own_counts(std::span<const double> counts) override {
    calls.push_back(str_cat("counts ", counts.front()));
  }
  void set_steps_before(uint64_t steps) override { calls.push_back(str_cat("before ", steps)); }

  bool keeps_tables() const override { return true; }
  TableFiles save_table(const std::string& table, const std::filesystem::path& folder,
                        const std::string& name) override {
    return {.names = {str_cat(table, " ", folder.string(), " ", name)}, .options = {}};
  }
  bool gather(const ModelValues& values, fluid::Scope&, fluid::Scope&) override {
    calls.push_back(str_cat("gather ", values.names.front()));
    return true;
  }
  void drop_tables(std::span<const std::string> tables) noexcept override {
    calls.push_back(str_cat("drop ", tables.front()));
  }
  void load_tables(const FilesOfTables& files) override {
    calls.push_back(str_cat("load ", files.begin()->first));
  }
  uint64_t end_pass(const std::string& table, const fluid::tables::PassRule& rule,
                    fluid::Scope&) override {
    return table.size() + rule.clock;
  }

  std::vector<std::filesystem::path> save_table_delta(const std::string& table,
                                                      const std::filesystem::path& file,
                                                      fluid::Scope&) override {
    return {file / table};
  }
  fluid::tables::TableStatistics table_statistics(const std::string& table,
                                                  const fluid::Scope&) override {
    return {.rows = table.size()};
  }

  fluid::Program program;
  std::vector<std::string> calls;
  uint64_t begun = 0;
  uint64_t ended = 0;
  int64_t fed_rows = 0;
};

class Threaded final : public Recording {
 public:
  void enter_thread(uint32_t thread, fluid::Scope&, const fluid::Scope&) override {
    entered = thread;
  }
  void leave_thread(fluid::Scope&, fluid::Scope&) override { calls.emplace_back("leave_thread"); }
  bool has_trainer_threads() const override { return true; }
  bool steps_together() const override { return true; }
  uint32_t entered = 0;
};

TEST(Forwarding, HandsEveryCallOfARuntimeOn) {
  const auto inner = std::make_shared<Threaded>();
  ForwardingRuntime outer(inner);
  fluid::Scope scope;
  const fluid::Operator op;
  outer.init_worker();
  outer.barrier_worker();
  outer.begin_step(inner->program, 7);
  outer.fed(5);
  outer.run({.program = inner->program,
             .block = inner->program.global_block(),
             .op = op,
             .scope = scope});
  outer.end_step(inner->program, 8);
  outer.spread_persistables(scope);
  outer.enter_thread(4, scope, scope);
  outer.leave_thread(scope, scope);
  outer.stop_worker();
  EXPECT_EQ(inner->calls,
            (std::vector<std::string>{"init_worker", "barrier_worker", "run", "spread_persistables",
                                      "leave_thread", "stop_worker"}));
  EXPECT_EQ(inner->begun, 7U);
  EXPECT_EQ(inner->ended, 8U);
  EXPECT_EQ(inner->fed_rows, 5);
  EXPECT_EQ(inner->entered, 4U);
  EXPECT_TRUE(outer.has_trainer_threads());
  EXPECT_TRUE(outer.steps_together());
  EXPECT_EQ(outer.all_reduce_worker(std::vector{1.5}), std::vector{3.0});
  EXPECT_STREQ(outer.refusal(), "not now");
  EXPECT_EQ(outer.shards().total, 3);
  EXPECT_TRUE(outer.sums_on(fluid::CUDAPlace(2)));
  EXPECT_FALSE(outer.sums_on(fluid::CUDAPlace(1)));
  EXPECT_EQ(outer.checkpoint_program(), &inner->program);
  EXPECT_FALSE(outer.gather_persistables(scope));
  outer.wait_for_leads();
  EXPECT_EQ(inner->calls.back(), "wait_for_leads");
}

TEST(Forwarding, HandsCheckpointsOn) {
  const auto inner = std::make_shared<Recording>();
  ForwardingRuntime outer(inner);
  fluid::Scope scope;
  const std::vector<std::string> names = {"w"};
  outer.begin_saving(scope);
  outer.read_values(names, scope);
  outer.end_saving();
  outer.read_server_parts("f", 7);
  outer.give_values(names, scope);
  outer.set_steps_before(5);
  outer.start_from(scope);
  outer.set_own_counts(std::vector{7.0});
  outer.ask_to_save();
  outer.set_on_save([&] { inner->calls.emplace_back("on_save"); });
  outer.saved(9);
  outer.meet_to_save();
  EXPECT_EQ(inner->calls,
            (std::vector<std::string>{"begin_saving", "read w", "end_saving", "read f 7", "give w",
                                      "before 5", "start_from", "counts 7", "ask_to_save",
                                      "on_save", "saved 9", "meet_to_save"}));
  EXPECT_EQ(outer.own_variables(), std::vector<std::string>{"own"});
  EXPECT_EQ(outer.own_counts(), std::vector{8.0});
  EXPECT_EQ(outer.server_variables(), std::vector<std::string>{"theirs"});
  EXPECT_EQ(outer.write_server_parts("f", 2, 3), "f 2 3");
  EXPECT_EQ(outer.check_server_parts("f", 7), "f 7");
  EXPECT_EQ(outer.all_reduce_training(std::vector{1.5}), std::vector{4.5});
  EXPECT_FALSE(outer.in_step());
  EXPECT_EQ(outer.saves_asked(), 6U);
}

TEST(Forwarding, HandsWhatTablesDoOn) {
  const auto inner = std::make_shared<Recording>();
  ForwardingRuntime outer(inner);
  fluid::Scope scope;
  EXPECT_TRUE(outer.keeps_tables());
  EXPECT_EQ(outer.save_table("t", "f", "n").names.front(), "t f n");
  EXPECT_TRUE(outer.gather({.names = {"w"}, .tables = {"t"}}, scope, scope));
  outer.drop_tables(std::vector<std::string>{"t"});
  outer.load_tables({{"t", {"a"}}});
  EXPECT_EQ(inner->calls, (std::vector<std::string>{"gather w", "drop t", "load t"}));
  EXPECT_EQ(outer.end_pass("t", {.clock = 4}, scope), 5U);
  EXPECT_EQ(outer.save_table_delta("t", "f", scope).front(), "f/t");
  EXPECT_EQ(outer.table_statistics("t", scope).rows, 1U);
}

// Of workers that can take so many of the next steps.
class Summing final : public Recording {
 public:
  explicit Summing(std::vector<int> others) : others_(std::move(others)) {}
  std::vector<double> all_reduce_training(std::span<const double> values) override {
    std::vector<double> sums(values.begin(), values.end());
    for (const int can : others_) {
      for (int i = 0; i < can; ++i) sums[static_cast<size_t>(i)] += 1;
      sums.back() += 1;
    }
    return sums;
  }

 private:
  std::vector<int> others_;
};

TEST(CommonSteps, AreThoseThatEveryWorkerCanTake) {
  EXPECT_EQ(Summing({}).common_steps(3, 8), 3);
  EXPECT_EQ(Summing({}).common_steps(9, 8), 8);
  EXPECT_EQ(Summing({8, 5}).common_steps(7, 8), 5);
  EXPECT_EQ(Summing({8, 8}).common_steps(8, 8), 8);
  EXPECT_EQ(Summing({4, 0}).common_steps(8, 8), 0);
  EXPECT_EQ(Summing({4, 2}).common_steps(0, 8), 0);
}

TEST(Forwarding, RefusesThreadsOfARuntimeWithout) {
  ForwardingRuntime outer(std::make_shared<Recording>());
  fluid::Scope scope;
  EXPECT_THROW(outer.enter_thread(0, scope, scope), UsageError);
}

TEST(TrainerThreads, AreRefusedWhereCheckpointsAreMade) {
  Threaded runtime;
  fluid::Executor executor;
  const auto train = [&] {
    fluid::run_trainer_threads(
        executor, runtime.program, 2, [](uint32_t, fluid::Executor&) {}, &runtime);
  };
  train();
  executor.set_after_run(runtime.program, [](fluid::Executor&, uint64_t) {});
  EXPECT_THROW(train(), UsageError);
}

// A watch is of the runtime that it was set in; one without asks the runtime behind it.
TEST(Forwarding, HasAFiniteWatchOfItsOwn) {
  struct Watch final : fluid::FiniteWatch {
    void on_nonfinite(const fluid::Nonfinite&) override {}
  };
  const auto inner = std::make_shared<Recording>();
  ForwardingRuntime outer(inner);
  EXPECT_EQ(outer.finite_watch(), nullptr);
  const auto of_inner = std::make_shared<Watch>();
  inner->set_finite_watch(of_inner);
  EXPECT_EQ(outer.finite_watch(), of_inner.get());
  const auto of_outer = std::make_shared<Watch>();
  outer.set_finite_watch(of_outer);
  EXPECT_EQ(outer.finite_watch(), of_outer.get());
}

class Named final : public Strategy {
 public:
  std::string_view name() const override { return "named"; }
  StrategyResult rewrite(const StrategyInput& input) const override {
    return {input.main, input.startup, nullptr};
  }
  std::string to_string() const override { return "options"; }
  std::string describe(const RuntimeConfig&) const override { return "described"; }
  std::shared_ptr<const transpiler::DistributeTranspilerConfig> transpiler_config() const override {
    return std::make_shared<transpiler::DistributeTranspilerConfig>();
  }
};

class Outer final : public ForwardingStrategy {
 public:
  using ForwardingStrategy::ForwardingStrategy;
  std::string_view name() const override { return "outer"; }
};

TEST(Forwarding, HandsEveryCallOfAStrategyOn) {
  const Outer outer(std::make_shared<Named>());
  EXPECT_EQ(outer.to_string(), "options");
  EXPECT_EQ(outer.describe({}), "described");
  EXPECT_NE(outer.transpiler_config(), nullptr);
  fluid::Program main;
  main.set_random_seed(11);
  const fluid::Program startup;
  const role_maker::ClusterSpec cluster;
  const RuntimeConfig config;
  const StrategyResult result = outer.rewrite(
      {.main = main, .startup = startup, .cluster = cluster, .config = config, .logger = {}});
  EXPECT_EQ(result.main.random_seed(), 11U);
}

}  // namespace
}  // namespace fleet::strategies
