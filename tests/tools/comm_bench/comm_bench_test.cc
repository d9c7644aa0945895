#include "tools/comm_bench/comm_bench.h"

#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"
#include "transport/collective/in_process_communicator.h"

namespace fleet::tools {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

TEST(CommBench, TimesEveryOperationBySize) {
  constexpr int kRanks = 3;
  transport::InProcessGroup group(kRanks);
  std::vector<std::vector<CommRow>> rows(kRanks);
  std::vector<std::jthread> threads;
  threads.reserve(kRanks);
  for (int rank = 0; rank < kRanks; ++rank) {
    threads.emplace_back([&, rank] {
      const auto communicator = group.member(rank);
      run_comm_bench(*communicator,
                     {.least_bytes = 1, .most_bytes = 4096, .factor = 64, .budget = Duration(0)},
                     [&](const CommRow& row) { rows[static_cast<size_t>(rank)].push_back(row); });
    });
  }
  threads.clear();
  std::vector<std::string> names;
  for (const CommRow& row : rows[0]) {
    names.push_back(str_cat(row.operation, " ", row.bytes));
    EXPECT_GE(row.repeats, 5);
    EXPECT_LE(row.least_us, row.median_us);
    EXPECT_LE(row.median_us, row.most_us);
  }
  // A float of each rank at least, and whole floats of each.
  EXPECT_THAT(names, ::testing::ElementsAre("all_reduce 12", "all_reduce 60", "all_reduce 4092",
                                            "reduce_scatter 12", "reduce_scatter 60",
                                            "reduce_scatter 4092", "broadcast 12", "broadcast 60",
                                            "broadcast 4092", "all_gather 12", "all_gather 60",
                                            "all_gather 4092", "barrier 0"));
  const CommRow& largest = rows[0][2];
  EXPECT_NEAR(largest.bandwidth, 4092 / largest.median_us / 1e3, 1e-9);
  EXPECT_NEAR(largest.link_bandwidth, largest.bandwidth * 4 / 3, 1e-9);
  for (const auto& each : rows) EXPECT_EQ(each.size(), names.size());
}

TEST(CommBench, RefusesWhatItCannotMeasure) {
  const auto communicator = transport::single_communicator();
  const auto error_of = [&](const CommBenchOptions& options) -> std::string {
    try {
      run_comm_bench(*communicator, options, [](const CommRow&) {});
    } catch (const UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_THAT(error_of({.operations = {"allreduce"}}),
              AllOf(HasSubstr("unknown operation"), HasSubstr("all_reduce")));
  EXPECT_THAT(error_of({.factor = 1}), HasSubstr("--factor"));
  EXPECT_THAT(error_of({.least_bytes = 10, .most_bytes = 9}), HasSubstr("--max"));
}

class CommBenchProgram : public ::testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(Over, CommBenchProgram, ::testing::Values("mpi", "sockets"),
                         [](const auto& way) { return std::string(way.param); });

TEST_P(CommBenchProgram, RunsInAJob) {
  const std::string folder = str_cat(::testing::TempDir(), "comm-bench-", GetParam());
  std::filesystem::create_directories(folder);
  const auto result = testing::run_command(
      str_cat(testing::binary_path("bin/launch"), " --collectives ", GetParam(),
              " --nproc_per_node 2 --log_dir ", folder, "/logs ",
              testing::binary_path("bin/fleet-comm-bench"),
              " --operations all_reduce,barrier --max 100000 --factor 100 --seconds 0.01 --json ",
              folder, "/rows.json"),
      60);
  ASSERT_EQ(result.code, 0) << result.output;
  std::ifstream log(folder + "/logs/workerlog.0");
  const std::string text(std::istreambuf_iterator<char>(log), {});
  EXPECT_THAT(text, AllOf(HasSubstr("2 ranks"), HasSubstr("median us")));
  const auto rows = nlohmann::json::parse(std::ifstream(folder + "/rows.json"));
  ASSERT_EQ(rows.size(), 4U);
  EXPECT_EQ(rows[2]["bytes"], 80000);
  EXPECT_GT(rows[2]["bandwidth_gb_s"].get<double>(), 0);
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fleet::tools
