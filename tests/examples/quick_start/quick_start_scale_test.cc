// Many processes on few cores.

#include <gtest/gtest.h>

#include "tests/examples/quick_start_fixture.h"

namespace fleet::testing {
namespace {

TEST_F(QuickStart, FiftyTrainersAndTwentyServersReachTheAccuracy) {
  const std::string metrics = path("metrics.json");
  const auto result =
      run_command(servers(50, 20) + " --batch_size 100 --metrics_file " + metrics, 120);
  ASSERT_EQ(result.code, 0) << result.output << logs();
  const auto report = nlohmann::json::parse(read(metrics));
  std::cout << "50 trainers, 20 servers: " << report.at("accuracy") << ", "
            << report.at("steps_per_s") << " steps/s\n";
  EXPECT_GE(report.at("accuracy"), 0.96);
}

}  // namespace
}  // namespace fleet::testing
