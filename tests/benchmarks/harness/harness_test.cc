#include "benchmarks/harness/harness.h"

#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <stdexcept>

#include "benchmarks/harness/temporary_folder.h"
#include "tests/testing/paths.h"
#include "tools/bench_rows.h"

namespace fleet::benchmarks {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using tools::BenchVerdict;

Row met(const Rounds&) {
  return {.value = 2, .unit = "x", .peer = "peer", .peer_value = 1, .target = 1.0};
}
Row missed(const Rounds&) {
  return {.value = 1, .unit = "x", .peer = "peer", .peer_value = 2, .target = 1.0};
}
Row invalid(const Rounds&) {
  return {.value = 1, .unit = "x", .peer = "peer", .peer_value = 1, .invalid = {"a reason"}};
}
Row thrown(const Rounds&) {
  throw std::runtime_error("it broke");
}

std::vector<Benchmark> all() {
  return {
      {"row_met", met}, {"row_missed", missed}, {"row_invalid", invalid}, {"row_thrown", thrown}};
}

struct Outcome {
  int exit_code;
  std::string output;
};

Outcome run(std::vector<std::string> arguments, const std::vector<Benchmark>& rows = all()) {
  // Rows of this test are no rows of a program that could be started for each.
  arguments.insert(arguments.begin(), {"bench_test", "--in_process"});
  std::vector<char*> argv;
  argv.reserve(arguments.size());
  for (std::string& argument : arguments) argv.push_back(argument.data());
  ::testing::internal::CaptureStdout();
  const int code = bench_main(static_cast<int>(argv.size()), argv.data(), "A test.", rows);
  return {code, ::testing::internal::GetCapturedStdout()};
}

std::string last_line(std::string text) {
  text.pop_back();
  return text.substr(text.rfind('\n') + 1);
}

TEST(BenchMain, TheLastLineNamesEveryRowThatWentWrong) {
  EXPECT_EQ(last_line(run({}).output),
            "4 rows: 1 met, 1 missed (row_missed), 1 invalid (row_invalid), 1 failed (row_thrown)");
}

TEST(BenchMain, ARowThatThrowsFailsTheRunAndStrictFailsItForTheOthersToo) {
  EXPECT_EQ(run({}).exit_code, 1);
  for (const char* row : {"row_missed", "row_invalid"}) {
    EXPECT_EQ(run({"--row", row}).exit_code, 0) << row;
    EXPECT_EQ(run({"--row", row, "--strict"}).exit_code, 1) << row;
  }
  EXPECT_EQ(run({"--row", "row_met", "--strict"}).exit_code, 0);
}

TEST(BenchMain, ARowThatThrowsStaysInTheFileWithItsReason) {
  const std::string path = ::testing::TempDir() + "/bench_main_rows.json";
  run({"--json", path});
  const auto rows = tools::read_bench_rows(path);
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[3].verdict(), BenchVerdict::kFailed);
  EXPECT_THAT(rows[3].error, HasSubstr("it broke"));
}

// What is read is what a process that dies within its second row leaves.
TEST(BenchMain, RowsThatAreStillToComeCountAsFailed) {
  const std::string path = ::testing::TempDir() + "/bench_main_dies.json";
  std::vector<BenchVerdict> left;
  std::vector<Benchmark> rows = all();
  rows[1].run = [&](const Rounds& rounds) {
    for (const auto& row : tools::read_bench_rows(path)) left.push_back(row.verdict());
    return missed(rounds);
  };
  run({"--json", path}, rows);
  EXPECT_THAT(left, ElementsAre(BenchVerdict::kMet, BenchVerdict::kFailed, BenchVerdict::kFailed,
                                BenchVerdict::kFailed));
}

TEST(BenchMain, ChoosesRowsByFilterOrByName) {
  const std::vector<Benchmark> rows = {{"push", met}, {"push_large", met}, {"pull", met}};
  EXPECT_EQ(last_line(run({"--filter", "push"}, rows).output), "2 rows: 2 met");
  EXPECT_EQ(last_line(run({"--row", "push"}, rows).output), "1 row: 1 met");
}

TEST(BenchMain, OursOnlyReachesTheRows) {
  bool ours_only = false;
  const std::vector<Benchmark> rows = {{"a", [&](const Rounds& rounds) {
                                          ours_only = rounds.ours_only();
                                          return met(rounds);
                                        }}};
  run({}, rows);
  EXPECT_FALSE(ours_only);
  run({"--ours_only"}, rows);
  EXPECT_TRUE(ours_only);
}

TEST(BenchMain, StoresTheBestOfFixedLimits) {
  const std::string path = ::testing::TempDir() + "/bench_main_stored.json";
  Stored().write(path);
  double value = 0;
  const std::vector<Benchmark> rows = {{"start", [&](const Rounds&) {
                                          return Row{.value = value,
                                                     .unit = "ms",
                                                     .peer = "50 ms",
                                                     .peer_value = 50,
                                                     .better = Better::kLower,
                                                     .kind = BenchPeer::kFixed,
                                                     .target = 1.0};
                                        }}};
  const auto store = [&](double of_row) {
    value = of_row;
    run({"--stored", path, "--store_best"}, rows);
    return Stored::read(path).best(processor_name(), "start");
  };
  EXPECT_EQ(store(10), 10);
  EXPECT_EQ(store(12), 10);
  EXPECT_EQ(store(8), 8);
  value = 12.1;
  EXPECT_THAT(run({"--stored", path, "--strict"}, rows),
              AllOf(::testing::Field(&Outcome::exit_code, 1),
                    ::testing::Field(&Outcome::output, HasSubstr("bound 12"))));
}

TEST(BenchMain, StoresTheBestThatPeersReached) {
  const std::string path = ::testing::TempDir() + "/bench_main_peers.json";
  Stored().write(path);
  double peer = 0;
  const std::vector<Benchmark> rows = {{"push", [&](const Rounds&) {
                                          return Row{.value = 1,
                                                     .unit = "GB/s",
                                                     .peer = "adding",
                                                     .peer_value = peer,
                                                     .others = {{"raw", 2 * peer}}};
                                        }}};
  const auto store = [&](double of_peer, const char* who) {
    peer = of_peer;
    run({"--stored", path, "--store_peers"}, rows);
    return Stored::read(path).peer(processor_name(), "push", who);
  };
  EXPECT_EQ(store(4, "adding"), 4);
  EXPECT_EQ(store(3, "adding"), 4);
  EXPECT_EQ(store(5, "raw"), 10);
}

// The rows of failing_rows.cc: each in a process of its own.
Outcome run_failing(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), testing::binary_path("bin/failing_rows"));
  const auto result = run_process(arguments);
  return {result.exit_code, result.output};
}

TEST(BenchProcesses, ARowThatCrashesOrHangsIsNamedAndTheOthersCount) {
  const std::string path = ::testing::TempDir() + "/bench_processes.json";
  const auto start = std::chrono::steady_clock::now();
  const Outcome outcome = run_failing({"--limit", "5", "--json", path});
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(40));
  EXPECT_EQ(outcome.exit_code, 1);
  EXPECT_EQ(last_line(outcome.output),
            "5 rows: 1 met, 1 missed (misses), 3 failed (crashes, hangs, throws)");
  const auto rows = tools::read_bench_rows(path);
  ASSERT_EQ(rows.size(), 5u);
  EXPECT_THAT(rows[0].error, HasSubstr("ended with signal 11"));
  EXPECT_THAT(rows[1].error, HasSubstr("not done after 5 s"));
  EXPECT_EQ(rows[2].verdict(), BenchVerdict::kMet);
  EXPECT_THAT(rows[3].error, HasSubstr("it broke"));
}

TEST(BenchProcesses, TheTemporaryFilesOfARowThatIsEndedGoAway) {
  const TemporaryFolder folder;
  setenv("TMPDIR", folder.file("").c_str(), 1);
  const Outcome outcome = run_failing({"--limit", "1", "--filter", "hangs"});
  unsetenv("TMPDIR");
  EXPECT_EQ(last_line(outcome.output), "1 row: 1 failed (hangs)");
  EXPECT_TRUE(std::filesystem::is_empty(folder.file("")));
}

// Both rows tell the processes that they started, one of which has lost its parent.
TEST(BenchProcesses, NothingOutlivesARow) {
  const std::string path = ::testing::TempDir() + "/bench_left";
  std::filesystem::remove(path);
  setenv("FAILING_ROWS_PIDS", path.c_str(), 1);
  for (const char* row : {"hangs", "crashes"}) run_failing({"--limit", "4", "--filter", row});
  unsetenv("FAILING_ROWS_PIDS");
  std::ifstream file(path);
  int seen = 0;
  for (pid_t process = 0; file >> process; ++seen) {
    EXPECT_EQ(kill(process, 0), -1) << process;
    EXPECT_EQ(errno, ESRCH);
  }
  EXPECT_EQ(seen, 3);
}

TEST(BenchMain, AnUnknownFlagIsWrongUsage) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--fast"}).exit_code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--help"));
}

}  // namespace
}  // namespace fleet::benchmarks
