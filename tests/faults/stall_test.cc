// A worker that lives and never ends a step: who waits for whom is said, and ends the job.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <iterator>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet {
namespace {

using ::testing::AllOf;
using ::testing::ContainsRegex;
using ::testing::HasSubstr;

constexpr const char* kMissing = "operation [0-9]+, all_reduce of [0-9]+ ";

struct Stuck {
  const char* name;
  const char* launcher;
  const char* worker;   // options of the worker
  const char* log;      // of the process with the coordinator
  const char* waiting;  // in JSON
  const char* missing;  // what the others wait in
};
void PrintTo(const Stuck& stuck, std::ostream* out) {
  *out << stuck.name;
}

class StuckWorker : public ::testing::TestWithParam<Stuck> {
 protected:
  StuckWorker() {
    folder_ = ::testing::TempDir() + "stall-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~StuckWorker() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  fleet::testing::CommandResult run(const std::string& option) const {
    const std::string bin = fleet::testing::binary_path("bin/");
    return fleet::testing::run_command(
        str_cat("FLEET_STALL_REPORT_MS=2000 ", bin, GetParam().launcher, " ", option,
                " --stall_deadline 6 --log_dir ", folder_, "/logs ", bin, "facade_worker ",
                GetParam().worker, " --steps 1000 --spin_at 20 --spin_worker 1"),
        60);
  }
  std::string log(const std::string& name) const {
    std::ifstream file(str_cat(folder_, "/logs/", name));
    return std::string(std::istreambuf_iterator<char>(file), {});
  }

  std::string folder_;
};
INSTANTIATE_TEST_SUITE_P(
    Each, StuckWorker,
    ::testing::Values(Stuck{"servers", "launch_ps --worker_num 2 --server_num 1", "--strategy sync",
                            "serverlog.0", "[[]\"worker 0\"]", ""},
                      Stuck{"ranks", "launch --nproc_per_node 2", "--strategy all_reduce",
                            "workerlog.0", "[[]\"worker 0\"]", kMissing},
                      Stuck{"ranks_over_sockets", "launch --collectives sockets --nproc_per_node 2",
                            "--strategy all_reduce", "workerlog.0", "[[]\"worker 0\"]", kMissing},
                      Stuck{"asynchronous", "launch_ps --worker_num 2 --server_num 1",
                            "--strategy async --sleep_ms 100", "serverlog.0", "[[][]]", ""}),
    [](const auto& kind) { return kind.param.name; });

TEST_P(StuckWorker, IsNamedWhileOthersWaitAndEndsTheJob) {
  const auto result = run("--json");
  EXPECT_EQ(result.code, 1) << result.output;
  EXPECT_THAT(result.output,
              ContainsRegex(str_cat("\"stall\":[{]\"who\":\"worker 1\",\"phase\":\"computing\","
                                    "\"step\":(19|20|21).0,\"for_s\":[0-9.]+,\"since_t\":[0-9.]+,"
                                    "\"waiting\":",
                                    GetParam().waiting)));
  EXPECT_THAT(log(GetParam().log),
              ContainsRegex(str_cat("does not advance who=\"worker 1\" phase=computing "
                                    "step=(19|20|21).*missing_from=\"?",
                                    GetParam().missing)));
  EXPECT_THAT(result.output,
              AllOf(ContainsRegex("launch[_a-z]*: worker 1 "),
                    ContainsRegex(str_cat("worker 1.*step=(19|20|21) reason=\"it lives but has not "
                                          "advanced for [0-9]+ s.*",
                                          GetParam().missing))));
}

TEST(StuckWorkers, AreOnTheProgressLine) {
  const std::string folder = ::testing::TempDir() + "stall-line";
  const std::string bin = fleet::testing::binary_path("bin/");
  const auto result = fleet::testing::run_command(
      str_cat("FLEET_STALL_REPORT_MS=1000 ", bin,
              "launch_ps --progress --worker_num 2 --server_num 1 --stall_deadline 12 --log_dir ",
              folder, " ", bin,
              "facade_worker --strategy sync --spin_at 20 --spin_worker 1 "
              "--steps 100"),
      60);
  EXPECT_EQ(result.code, 1);
  EXPECT_THAT(result.output, HasSubstr("worker 0 waits for worker 1 (computing at step 21 for "));
  std::filesystem::remove_all(folder);
}

}  // namespace
}  // namespace fleet
