#include "benchmarks/harness/harness.h"

#include <gmock/gmock.h>
#include <stdexcept>

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
  arguments.insert(arguments.begin(), "bench_test");
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

TEST(BenchMain, AnUnknownFlagIsWrongUsage) {
  ::testing::internal::CaptureStderr();
  EXPECT_EQ(run({"--fast"}).exit_code, 2);
  EXPECT_THAT(::testing::internal::GetCapturedStderr(), HasSubstr("--help"));
}

}  // namespace
}  // namespace fleet::benchmarks
