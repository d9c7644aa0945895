// Without MPI, so that sanitizers may watch the processes.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(QuickStart, ServersGiveTheLocalRunsFile) {
  const std::string two = parameters(local(), "--steps 40 --shards 2");
  ASSERT_FALSE(two.empty());
  EXPECT_EQ(parameters(servers(2, 2), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(2, 2), "--steps 40"), two) << "a repeated run";
  EXPECT_EQ(parameters(servers(2, 1), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(2, 3), "--steps 40"), two);
  EXPECT_EQ(parameters(servers(1, 3), "--steps 40"), parameters(local(), "--steps 40 --shards 1"));
}

TEST_F(QuickStart, WithoutRoleVariablesTheDistributedTrainerIsLocal) {
  EXPECT_EQ(parameters(trainer(), "--steps 40 --shards 2"),
            parameters(local(), "--steps 40 --shards 2"));
}

TEST_F(QuickStart, MistakesAreNamedWithTheirFix) {
  const auto flag = run_command(local() + " --steps 3 --bach_size 2");
  EXPECT_EQ(flag.code, 2);
  EXPECT_THAT(flag.output, HasSubstr("did you mean '--batch_size'"));
  const auto shortened = run_command(local() + " --step 3");
  EXPECT_EQ(shortened.code, 2);
  EXPECT_THAT(shortened.output, HasSubstr("did you mean '--steps'"));
  const auto loose = run_command(local() + " 3");
  EXPECT_EQ(loose.code, 2);
  EXPECT_THAT(loose.output, HasSubstr("'3' belongs to no flag"));
  const auto uneven = run_command(local() + " --shards 3");
  EXPECT_EQ(uneven.code, 1);
  EXPECT_THAT(uneven.output, HasSubstr("a multiple of 3 shards"));
  EXPECT_THAT(uneven.output, Not(HasSubstr("terminate called")));
  const auto role = run_command("TRAINING_ROLE=TRAINER " + trainer() + " --steps 3");
  EXPECT_EQ(role.code, 2);
  EXPECT_THAT(role.output, HasSubstr("fix:"));
}

}  // namespace
}  // namespace fleet::testing
