// Real ranks under mpirun; tests/transport/mpi/mpi_probe.cc is what they run.
#include <array>
#include <cstdio>
#include <gmock/gmock.h>
#include <string>
#include <sys/wait.h>

#include "base/strings.h"

namespace fleet {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

struct Outcome {
  int exit_code = -1;
  std::string output;

  int count(const std::string& text) const {
    int found = 0;
    for (size_t at = output.find(text); at != std::string::npos; at = output.find(text, at + 1)) {
      ++found;
    }
    return found;
  }
};

Outcome mpirun(int ranks, const std::string& what, const std::string& options = "") {
  const std::string command = str_cat(
      "timeout -k 2 50 ", FLEET_MPIEXEC, " --allow-run-as-root --oversubscribe --bind-to none ",
      options, " -np ", ranks, ' ', FLEET_MPI_PROBE, ' ', what, " 2>&1");
  Outcome outcome;
  FILE* pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return outcome;
  std::array<char, 4096> text;
  while (std::fgets(text.data(), text.size(), pipe) != nullptr) outcome.output += text.data();
  const int status = pclose(pipe);
  outcome.exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  return outcome;
}

class MpiTest : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MpiTest, ::testing::Values(1, 2, 3, 4, 6));

TEST_P(MpiTest, ReductionsHaveTheBitsOfALocalRun) {
  const Outcome outcome = mpirun(GetParam(), "reductions");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("reductions ok"), GetParam());
}

TEST_P(MpiTest, BucketsMayOverlap) {
  const Outcome outcome = mpirun(GetParam(), "overlap");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("overlap ok"), GetParam());
}

// Else mpirun ends the ranks that have not written yet when the first one ends.
constexpr const char* kLetAllEnd = "--mca orte_enable_recovery 1";

class MpiPairs : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, MpiPairs, ::testing::Values(2, 3, 4));

TEST_P(MpiPairs, SmallExchangesReachEveryRank) {
  const Outcome outcome = mpirun(GetParam(), "exchanges");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("exchanges ok"), GetParam());
}

TEST_P(MpiPairs, AKilledRankIsNamedByTheOthersWithoutHelpFromMpirun) {
  const int ranks = GetParam();
  const Outcome outcome = mpirun(ranks, "killed", kLetAllEnd);
  EXPECT_EQ(outcome.count(str_cat("rank ", ranks - 1, " did not come")), ranks - 1)
      << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("backward"));
  EXPECT_THAT(outcome.output, HasSubstr("step 3"));
  EXPECT_THAT(outcome.output, Not(HasSubstr("WRONG")));
}

TEST(MpiFaultTest, ARankThatCallsAnotherOperationIsNamedWithBoth) {
  const Outcome outcome = mpirun(2, "different_kind", kLetAllEnd);
  EXPECT_THAT(outcome.output, HasSubstr("operation 1, all_reduce of 1000 float32 at rank 0; "
                                        "broadcast of bytes at rank 1"));
}

TEST(MpiFaultTest, ARankThatBringsAnotherCountIsNamedWithBoth) {
  const Outcome outcome = mpirun(3, "different_count", kLetAllEnd);
  EXPECT_THAT(outcome.output, HasSubstr("all_reduce of 1000 float32 at rank 0; "
                                        "all_reduce of another number of float32 at rank 2"));
}

TEST(MpiFaultTest, ARankThatComesLateHarmsNothing) {
  const Outcome outcome = mpirun(3, "late");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_EQ(outcome.count("late ok"), 3);
}

TEST(MpiFaultTest, AKilledRankFailsTheJob) {
  EXPECT_NE(mpirun(2, "killed").exit_code, 0);
}

TEST(MpiFaultTest, AStoppedRankIsNamedWithinTheDeadlineAndTheJobEnds) {
  const Outcome outcome = mpirun(2, "stopped");
  EXPECT_EQ(outcome.exit_code, 3) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rank 1 did not come"));
}

TEST(MpiRoleTest, SymetricRolesAgreeOverMpi) {
  const Outcome outcome = mpirun(2, "symetric");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("rank 0 is server/0 of 127.0.0.1:"));
  EXPECT_THAT(outcome.output, HasSubstr("rank 1 is worker/0 of 127.0.0.1:"));
  EXPECT_EQ(outcome.count("secret 64"), 2);
}

TEST(MpiRoleTest, AnOddWorldIsRefused) {
  const Outcome outcome = mpirun(3, "symetric");
  EXPECT_NE(outcome.exit_code, 0);
  EXPECT_THAT(outcome.output, HasSubstr("mpirun -np 4"));
}

TEST(MpiRoleTest, PlainMpirunIsCollective) {
  const Outcome outcome = mpirun(2, "plain");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.output;
  EXPECT_THAT(outcome.output, HasSubstr("collective worker/0 of 2"));
  EXPECT_THAT(outcome.output, HasSubstr("collective worker/1 of 2"));
}

}  // namespace
}  // namespace fleet
