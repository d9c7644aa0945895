// Accuracy, for many seeds.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST_F(QuickStart, LocalAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(local());
}

TEST_F(QuickStart, ServerAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(servers(2, 2));
}

TEST_F(QuickStart, CollectiveAccuracyHoldsForTwentySeeds) {
  expect_accuracy_for_20_seeds(collective(2));
}

}  // namespace
}  // namespace fleet::testing
