// What docs/choosing_a_strategy.md shows is compiled here, and its bytes are those of
// fleet-explain.

#include <cmath>
#include <gmock/gmock.h>
#include <regex>
#include <sstream>

#include "base/strings.h"
#include "examples/quick_start/nets.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"
#include "tests/docs/page_blocks.h"
#include "tools/explain/explain.h"

namespace fleet::testing {
namespace {

TEST(ChoosingPage, ItsStrategiesAreThere) {
  fluid::optimizer::SGD sgd({.learning_rate = 0.1});
  fleet::init(role_maker::PaddleCloudRoleMaker({}, Environment()));
  // clang-format off
  // [
  strategies::GradAllReduceStrategy all_reduce{};
  strategies::LocalSgdStrategy local_sgd{{.interval = 8}};
  strategies::SyncStrategy sync{};
  strategies::AsyncStrategy async{};
  strategies::AsyncStrategy bounded{.staleness_bound = 3};
  strategies::AsyncStrategy compensated{.enable_dc_asgd = true};
  strategies::HalfAsyncStrategy half_async{};
  strategies::GeoStrategy geo{.update_frequency = 100};
  strategies::EasgdStrategy easgd{.tau = 10};

  auto optimizer = fleet::distributed_optimizer(sgd, geo);
  // ]
  // clang-format on
  for (const strategies::DistributedStrategy& strategy :
       {strategies::DistributedStrategy(all_reduce), strategies::DistributedStrategy(local_sgd),
        strategies::DistributedStrategy(sync), strategies::DistributedStrategy(async),
        strategies::DistributedStrategy(bounded), strategies::DistributedStrategy(compensated),
        strategies::DistributedStrategy(half_async), strategies::DistributedStrategy(geo),
        strategies::DistributedStrategy(easgd)}) {
    EXPECT_NE(strategy.get(), nullptr);
  }
}

TEST(ChoosingPage, ShowsWhatIsCompiledHere) {
  const auto run = blocks_that_run("tests/docs/choosing_page_test.cc");
  ASSERT_EQ(run.size(), 1U);
  EXPECT_EQ(blocks_shown("docs/choosing_a_strategy.md"), run);
}

// 104488 as "104 488".
std::string in_thousands(double value) {
  std::string text = std::to_string(std::lround(value));
  for (size_t at = text.size(); at > 3; at -= 3) text.insert(at - 3, " ");
  return text;
}

TEST(ChoosingPage, ItsBytesAreThoseThatExplainCounts) {
  fluid::Program main;
  fluid::Program startup;
  {
    const fluid::ProgramGuard programs(main, startup);
    const auto x = fluid::layers::data("x", {64});
    const auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(quick_start::mlp(x, y, 10).cost);
  }
  std::ostringstream page;
  page << std::ifstream(source_path("docs/choosing_a_strategy.md")).rdbuf();
  const std::string text = page.str();
  int rows = 0;
  for (const std::string& mode : explain::mode_names()) {
    const std::regex row("\\| `" + mode + "`[^|]*\\| ([0-9 ]+) \\| ([0-9 ]+) \\|");
    std::smatch match;
    if (!std::regex_search(text, match, row)) continue;
    ++rows;
    const auto traffic = explain::explain(main, startup,
                                          {.config = explain::config_of_mode(mode),
                                           .average_every = mode == "local_sgd" ? 8 : 1})
                             .traffic;
    EXPECT_EQ(match[1].str(), in_thousands(traffic.trainer_out)) << mode;
    EXPECT_EQ(match[2].str(), in_thousands(traffic.trainer_in)) << mode;
  }
  EXPECT_EQ(rows, 7);
}

}  // namespace
}  // namespace fleet::testing
