// Every way to train with servers and without, on the quick start's rows with real processes: as
// right as training alone, within a point.

#include <gtest/gtest.h>
#include <numeric>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

constexpr int kSeeds = 3;

class Strategies : public QuickStart, public ::testing::WithParamInterface<const char*> {
 protected:
  double mean_accuracy(const std::string& command) {
    double sum = 0;
    for (int seed = 1; seed <= kSeeds; ++seed) sum += accuracy(command, seed);
    return sum / kSeeds;
  }
  void expect_as_right_as_alone(const std::string& job) {
    const double alone = mean_accuracy(local());
    const double together = mean_accuracy(job + " --strategy " + GetParam());
    std::cout << GetParam() << ": test accuracy " << 100 * together << " %, alone " << 100 * alone
              << " %, means of " << kSeeds << " seeds\n";
    EXPECT_GE(together, alone - 0.01);
    EXPECT_GE(together, 0.96);
  }
};

class WithServers : public Strategies {};
class WithoutServers : public Strategies {};

TEST_P(WithServers, IsAsRightAsTrainingAlone) {
  expect_as_right_as_alone(servers(2, 2));
}

TEST_P(WithServers, SoAreFourWorkersOfOneServer) {
  expect_as_right_as_alone(servers(4, 1));
}

TEST_P(WithoutServers, IsAsRightAsTrainingAlone) {
  expect_as_right_as_alone(collective(2));
}

TEST_P(WithoutServers, SoAreFourRanks) {
  expect_as_right_as_alone(collective(4));
}

std::string name_of(const ::testing::TestParamInfo<const char*>& test) {
  return test.param;
}

INSTANTIATE_TEST_SUITE_P(All, WithServers,
                         ::testing::Values("sync", "async", "half_async", "ssp", "dc_asgd", "geo",
                                           "easgd"),
                         name_of);
INSTANTIATE_TEST_SUITE_P(All, WithoutServers, ::testing::Values("all_reduce", "local_sgd"),
                         name_of);

}  // namespace
}  // namespace fleet::testing
