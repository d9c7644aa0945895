// The code of pages that have a few lines of it: each block stands between two marks of this file,
// and so is compiled; what needs no job runs, too.

#include <cstdio>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iostream>

#include "base/clock.h"
#include "fleet/fleet.h"
#include "fluid/fluid.h"
#include "tests/docs/page_blocks.h"
#include "tools/explain/explain.h"
#include "tools/explain/render.h"
#include "transpiler/distribute_transpiler.h"
#include "transpiler/pass_times.h"

namespace transpiler = fleet::transpiler;

namespace {

// y = w x + b, with its updates, as this thread's default programs.
class OtherPages : public ::testing::Test {
 protected:
  OtherPages() {
    const auto x = fluid::layers::data("x", {1});
    const auto y = fluid::layers::data("y", {1});
    sgd_.minimize(
        fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y)));
  }

  fluid::Program main_;
  fluid::Program startup_;
  fluid::ProgramGuard programs_{main_, startup_};
  fluid::unique_name::Guard names_;
  fluid::optimizer::SGD sgd_{{.learning_rate = 0.1}};
};

// clang-format off
TEST_F(OtherPages, DelayCompensationByTheTranspiler) {
  setenv("FLEET_INSECURE", "1", 1);
  const std::string servers = "127.0.0.1:6174,127.0.0.1:6175";
  fluid::Executor exe(fluid::CPUPlace());
  // [ docs/strategies.md
  transpiler::DistributeTranspilerConfig config;
  config.enable_dc_asgd = true;
  transpiler::DistributeTranspiler t(config);
  t.transpile({.trainer_id = 0, .pservers = servers, .trainers = 2, .sync_mode = false});
  auto trainer_program = t.get_trainer_program();
  auto job = strategies::attach(exe, trainer_program);
  // ]
  EXPECT_NE(job, nullptr);
}

TEST_F(OtherPages, MixedPrecision) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard own(main, startup);
  const auto loss = fluid::layers::mean(fluid::layers::fc(fluid::layers::data("x", {1}), 1));
  // [ docs/mixed_precision.md
  fluid::optimizer::Momentum momentum({.learning_rate = 0.1, .momentum = 0.9});
  auto mixed = fluid::mixed_precision::decorate(momentum);
  mixed.minimize(loss);
  // ]
  EXPECT_EQ(mixed.loss_scaling().name(), "loss_scaling_0");
}

TEST_F(OtherPages, Checkpoints) {
  const auto cost = fluid::layers::mean(fluid::layers::fc(fluid::layers::data("x", {1}), 1));
  const auto batch = [](int64_t) { return fluid::Feed(); };
  const auto train = [&] {
  // [ docs/checkpoints.md
  fluid::Executor exe;
  exe.run(fluid::default_startup_program());
  const auto saved = fleet::resume(exe, {.folder = "checkpoints", .every_steps = 100});
  for (int64_t step = saved.step; step < 1000; ++step) {
    exe.run(fluid::default_main_program(), batch(step), {cost});
  }
  fleet::stop_worker();
  // ]
  };
  const auto run = [&] {
  // [ docs/checkpoints.md
  try {
    train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return fleet::exit_code(error);
  }
  // ]
  return 0;
  };
  EXPECT_EQ(run(), 2) << "nothing is minimized";
}

TEST_F(OtherPages, LocalSgd) {
  fluid::optimizer::SGD sgd({.learning_rate = 0.1});
  fleet::init(role_maker::PaddleCloudRoleMaker({}, fleet::Environment()));
  // [ docs/strategies.md
  fleet::distributed_optimizer(sgd, strategies::LocalSgdStrategy{{.interval = 8}});
  // ]
}

TEST_F(OtherPages, TimesOfPasses) {
  transpiler::DistributeTranspiler transpiler;
  // [ docs/transpiler.md
  fleet::transpiler::PassTimes times(fleet::steady_clock());
  transpiler.transpile({.pass_observer = [&](const auto& event) { times.hear(event); }});
  for (const auto& time : times.times()) std::cout << time.pass << " " << time.total.count() << " ns\n";
  // ]
  EXPECT_FALSE(times.times().empty());
}

TEST_F(OtherPages, AMethodOfPlacementOfOnesOwn) {
  transpiler::DistributeTranspilerConfig config;
  // [ docs/transpiler.md
  class ByHost final : public fleet::transpiler::PSDispatcher {
   public:
    std::string name() const override { return "ByHost"; }
    std::vector<int> dispatch(std::span<const fleet::transpiler::ServerPart> parts,
                              std::span<const std::string> servers) const override {
      const auto last = static_cast<int>(servers.size()) - 1;
      return std::vector<int>(parts.size(), last);  // a position in `servers` for each part
    }
  };
  config.split_method = ByHost();
  // ]
  transpiler::DistributeTranspiler transpiler(config);
  transpiler.transpile({.pservers = "127.0.0.1:6174,127.0.0.1:6175"});
  EXPECT_EQ(transpiler.plan().params.front().slices.front().server, 1);
}

TEST_F(OtherPages, Explanations) {
  const fluid::Program& main = main_;
  const fluid::Program& startup = startup_;
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(::testing::TempDir());
  // [ docs/explain.md
  auto explanation = fleet::explain::explain(main, startup, {.trainers = 4, .servers = 2});
  for (const auto& warning : explanation.warnings) std::puts(warning.what.c_str());
  std::ofstream("job.html") << fleet::explain::draw_page(explanation);
  // ]
  EXPECT_GT(std::filesystem::file_size("job.html"), 1000U);
  std::filesystem::remove("job.html");
  std::filesystem::current_path(before);
}

TEST_F(OtherPages, RolesInTheCode) {
  const int id = 1;
  const bool is_worker = true;
  // [ docs/role_makers.md
  role_maker::UserDefinedRoleMaker role({.current_id = id,
                                         .role = is_worker ? role_maker::Role::kWorker
                                                           : role_maker::Role::kServer,
                                         .worker_num = 2,
                                         .server_endpoints = {"10.0.0.1:6170", "10.0.0.2:6170"}});
  fleet::init(role);
  // ]
  EXPECT_EQ(fleet::worker_index(), 1);
}

TEST_F(OtherPages, APlaceOnTheGpu) {
  const auto run_there = [] {
  // [ docs/gpu.md
  fluid::Executor exe(fluid::CUDAPlace(0));  // CPUPlace() on the CPU
  // The GPU that launch gave this process.
  fluid::Executor own(fluid::place_named("gpu"));
  // ]
  // [ docs/gpu.md
  fluid::Executor repeats(fluid::CUDAPlace(0), {.cuda_graph = true});
  // ]
  };
  (void)run_there;  // needs a device
}
// clang-format on

TEST(OtherPagesText, ShowWhatIsCompiledHere) {
  const std::string here = "tests/docs/other_pages_test.cc";
  for (const char* page :
       {"docs/strategies.md", "docs/transpiler.md", "docs/explain.md", "docs/role_makers.md",
        "docs/gpu.md", "docs/mixed_precision.md", "docs/checkpoints.md"}) {
    auto shown = fleet::testing::blocks_between(page, "   ```cpp", "   ```");  // in a list
    for (std::string& block : fleet::testing::blocks_shown(page)) shown.push_back(std::move(block));
    EXPECT_EQ(shown, fleet::testing::blocks_between(here, std::string("  // [ ") + page, "  // ]"));
    EXPECT_FALSE(shown.empty()) << page;
  }
}

}  // namespace
