// Ranks of collective jobs that leave without stop_worker: the job ends within seconds, with a code
// that is not 0 and a line that names a rank that left, with its step.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <regex>

#include "base/strings.h"
#include "tests/testing/command.h"
#include "tests/testing/paths.h"

namespace fleet {
namespace {

constexpr int kStep = 50;
constexpr int kLimitSeconds = 15;

struct Leaving {
  const char* starter;   // "launch", "sockets" (launch without MPI), or "mpirun" without launch
  const char* way;       // --leave_by
  const char* strategy;  // --strategy
};
void PrintTo(const Leaving& leaving, std::ostream* out) {
  *out << leaving.starter << " " << leaving.way << " " << leaving.strategy;
}

// How often each kind is tried: a few times in a usual run.
int per_kind() {
  const char* asked = std::getenv("FLEET_LEAVING_PER_KIND");
  return asked == nullptr ? 3 : std::atoi(asked);
}

class LeavingRanks : public ::testing::TestWithParam<Leaving> {
 protected:
  LeavingRanks() {
    folder_ = ::testing::TempDir() + "leaving-XXXXXX";
    if (mkdtemp(folder_.data()) == nullptr) ADD_FAILURE() << "mkdtemp";
  }
  ~LeavingRanks() override {
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
  }

  std::string command(int worker) const {
    const std::string launch = str_cat(fleet::testing::binary_path("bin/launch"),
                                       " --nproc_per_node 2 --log_dir ", folder_, "/logs ");
    const std::string mpirun =
        "OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 "
        "mpirun --oversubscribe --bind-to none -np 2 ";
    const std::string starter = GetParam().starter;
    return str_cat(starter == "mpirun"    ? mpirun
                   : starter == "sockets" ? launch + "--collectives sockets "
                                          : launch,
                   fleet::testing::binary_path("bin/facade_worker"), " --strategy ",
                   GetParam().strategy, " --steps 100 --leave_at ", kStep, " --leave_worker ",
                   worker, " --leave_by ", GetParam().way);
  }

  std::string logs() const {
    std::string all;
    if (!std::filesystem::exists(folder_ + "/logs")) return all;
    for (const auto& file : std::filesystem::directory_iterator(folder_ + "/logs")) {
      std::ifstream text(file.path());
      all += str_cat("\n", file.path().filename().string(), ":\n",
                     std::string(std::istreambuf_iterator<char>(text), {}));
    }
    return all;
  }

  std::string folder_;
};
INSTANTIATE_TEST_SUITE_P(
    Each, LeavingRanks,
    ::testing::Values(
        Leaving{"launch", "return", "all_reduce"}, Leaving{"launch", "exit", "all_reduce"},
        Leaving{"launch", "throw", "all_reduce"}, Leaving{"launch", "return", "local_sgd"},
        Leaving{"launch", "exit", "local_sgd"}, Leaving{"launch", "throw", "local_sgd"},
        Leaving{"sockets", "return", "all_reduce"}, Leaving{"sockets", "exit", "all_reduce"},
        Leaving{"sockets", "throw", "local_sgd"}, Leaving{"mpirun", "return", "all_reduce"},
        Leaving{"mpirun", "exit", "all_reduce"}, Leaving{"mpirun", "return", "local_sgd"},
        Leaving{"mpirun", "exit", "local_sgd"}),
    [](const auto& kind) {
      return str_cat(kind.param.starter, "_", kind.param.way, "_", kind.param.strategy);
    });

// One of them, the other, and both.
TEST_P(LeavingRanks, AreNamedWithTheirStep) {
  for (int i = 0; i < per_kind(); ++i) {
    const int worker = i % 3 - 1;
    const auto result = fleet::testing::run_command(command(worker), kLimitSeconds);
    const std::string story = str_cat("run ", i, ", worker ", worker, ": code ", result.code, "\n",
                                      result.output, logs());
    ASSERT_NE(result.code, 124) << story;
    EXPECT_NE(result.code, 0) << story;
    EXPECT_EQ(story.find("SIGSEGV"), std::string::npos) << story;
    EXPECT_EQ(story.find("Segmentation fault"), std::string::npos) << story;
    const std::string who = worker < 0 ? "[01]" : str_cat(worker);
    EXPECT_TRUE(std::regex_search(
        result.output,
        std::regex(str_cat("culprit=\"worker ", who, "\" phase=[a-z]+ step=(49|50|51)|worker ", who,
                           " ended the job in phase [a-z]+ at step (49|50|51)"))))
        << story;
    const std::string first = result.output.substr(0, result.output.find('\n'));
    if (std::string(GetParam().starter) != "mpirun") {
      EXPECT_TRUE(std::regex_search(first, std::regex(str_cat("^launch: worker ", who, " "))))
          << story;
    }
  }
}

}  // namespace
}  // namespace fleet
