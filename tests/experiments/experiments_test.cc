// Each experiment on the digits, and on a second set for which nothing was tuned, where only the
// order of the results counts.
#include <filesystem>
#include <gtest/gtest.h>
#include <iostream>

#include "tests/testing/paths.h"

#include "experiments/experiment.h"

namespace fleet::experiments {
namespace {

void expect_holds(const Findings& findings) {
  std::cout << to_text(findings) << std::endl;
  for (const Gate& gate : findings.gates) {
    EXPECT_TRUE(gate.holds) << gate.claim << ": " << gate.measured;
  }
}

class Claims : public ::testing::TestWithParam<std::string> {
 protected:
  static const Experiment& experiment() {
    const auto& all = all_experiments();
    return *std::find_if(all.begin(), all.end(),
                         [](const Experiment& e) { return e.name == GetParam(); });
  }
};

TEST_P(Claims, HoldOnTheDigits) {
  const auto data = load_digits(fleet::testing::source_path("examples/data/digits"));
  expect_holds(experiment().run(data, {}));
}

// MNIST's test images, 9 000 to train.
TEST_P(Claims, OrderHoldsOnASecondSet) {
  const std::filesystem::path path = fleet::testing::data_path("mnist");
  if (!std::filesystem::exists(path)) GTEST_SKIP() << "no MNIST in " << path;
  const auto data = load_idx(path / "t10k-images-idx3-ubyte.gz", path / "t10k-labels-idx1-ubyte.gz",
                             /*test_rows=*/1000);
  ExperimentOptions options{.seeds = 3, .order_only = true, .rate = 0.1, .length = 0.25};
  expect_holds(experiment().run(data, options));
}

INSTANTIATE_TEST_SUITE_P(All, Claims,
                         ::testing::Values("dc_asgd", "bounded_staleness", "elastic", "local_sgd",
                                           "compressed_gradients"),
                         [](const auto& test) { return test.param; });

}  // namespace
}  // namespace fleet::experiments
