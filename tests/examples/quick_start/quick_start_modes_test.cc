// All modes against each other.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(QuickStart, TheNumberOfWorkersDoesNotShowInTheFile) {
  const std::string four = parameters(local(), "--steps 40 --shards 4");
  ASSERT_FALSE(four.empty());
  EXPECT_EQ(parameters(servers(4, 1), "--steps 40"), four);
  EXPECT_EQ(parameters(servers(1, 1), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(servers(2, 1), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(collective(4), "--steps 40"), four);
  EXPECT_EQ(parameters(collective(2), "--steps 40 --shards 4"), four);
  EXPECT_EQ(parameters(collective(1), "--steps 40 --shards 4"), four);
}

TEST_F(QuickStart, EveryModeGoesOnFromASavedModel) {
  const std::string start = path("start");
  ASSERT_EQ(run_command(local() + " --steps 20 --shards 2 --model_dir " + start).code, 0);
  const std::string flags = "--steps 20 --shards 2 --seed 2 --init_from " + start;
  const std::string expected = parameters(local(), flags);
  EXPECT_NE(expected, parameters(local(), "--steps 20 --shards 2 --seed 2"));
  EXPECT_EQ(parameters(servers(2, 2), flags), expected);
  EXPECT_EQ(parameters(collective(2), flags), expected);
}

TEST_F(QuickStart, SyntheticRowsTrainInEveryMode) {
  for (const std::string& command : {local(), servers(2, 2), collective(2)}) {
    const auto result = run_command(command + " --synthetic --steps 50");
    EXPECT_EQ(result.code, 0) << result.output << logs();
  }
}

TEST_F(QuickStart, CollectiveRanksGiveTheLocalRunsFile) {
  const std::string two = parameters(local(), "--steps 40 --shards 2");
  ASSERT_FALSE(two.empty());
  EXPECT_EQ(parameters(collective(2), "--steps 40"), two);
  EXPECT_EQ(parameters(collective(2, "collective_train"), "--steps 40"), two);
}

TEST_F(QuickStart, PlainMpirunIsCollective) {
  const auto result = run_command("mpirun -np 2 --oversubscribe " + trainer() + " --steps 40");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("collective: 40 steps"));
}

TEST_F(QuickStart, TheSymetricRoleMakerPairsServersAndWorkersUnderMpirun) {
  const auto result = run_command("mpirun -np 2 --oversubscribe " + trainer() +
                                  " --steps 40 --role_maker mpi_symetric");
  EXPECT_EQ(result.code, 0) << result.output;
  EXPECT_THAT(result.output, HasSubstr("parameter_server: 40 steps"));
}

}  // namespace
}  // namespace fleet::testing
