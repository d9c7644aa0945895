// Programs of every server mode without the facade: an Executor with what attach() gives it.
#include "strategies/jobs/attach.h"

#include <functional>
#include <gmock/gmock.h>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "tests/testing/ports.h"
#include "transpiler/distribute_transpiler.h"
#include "transport/link/asio_network.h"

namespace fleet::strategies {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using transpiler::DistributeTranspilerConfig;

constexpr int kSteps = 60;
// So small that a few gradients of old values, which trainers that do not wait have under way while
// the server gets no time, cannot make the loss rise: 40 of them would.
constexpr double kRate = 0.01;

RuntimeConfig runtime_config() {
  RuntimeConfig config;
  config.job_secret = "0123456789abcdef0123456789abcdef";
  config.job_id = "attach";
  return config;
}

class Attach : public ::testing::Test {
 protected:
  Attach() {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto x = fluid::layers::data("x", {4});
    const auto y = fluid::layers::data("y", {1});
    const auto cost =
        fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
    cost_ = cost.name();
    fluid::optimizer::SGD({.learning_rate = kRate}).minimize(cost);
  }

  transpiler::DistributeTranspiler transpile(const DistributeTranspilerConfig& config,
                                             int trainer) const {
    transpiler::DistributeTranspiler transpiler(config);
    transpiler.transpile({.trainer_id = trainer,
                          .program = &main_,
                          .pservers = server_,
                          .trainers = trainers_,
                          .sync_mode = sync_mode_,
                          .startup_program = &startup_,
                          .current_endpoint = server_});
    return transpiler;
  }

  // `program` is what runs; under said_ it forgets its record, as if Paddle had written it.
  std::shared_ptr<StrategyRuntime> attach_to(fluid::Executor& executor, fluid::Program& program,
                                             const std::optional<AsyncOptions>& options) const {
    if (said_) {
      const fluid::DistributionInfo record = std::exchange(program.distribution(), {});
      return attach(executor, program, said_(record), runtime_config());
    }
    if (options) return attach(executor, program, *options, runtime_config());
    return attach(executor, program, runtime_config());
  }

  void serve(const DistributeTranspilerConfig& config,
             const std::optional<AsyncOptions>& options) const {
    auto programs = transpile(config, 0).get_pserver_programs(server_);
    fluid::Executor executor;
    attach_to(executor, programs.main, options);
    executor.run(programs.startup);
    executor.run(programs.main);
  }

  // The first loss and the last one.
  std::pair<float, float> train(const DistributeTranspilerConfig& config, int trainer,
                                const std::optional<AsyncOptions>& options) const {
    const auto transpiler = transpile(config, trainer);
    fluid::Program main = transpiler.get_trainer_program();
    fluid::Executor executor;
    const auto job = attach_to(executor, main, options);
    executor.run(transpiler.get_trainer_startup_program());
    float first = 0;
    float last = 0;
    for (int step = 0; step < kSteps; ++step) {
      last = executor.run(main, batch(step, trainer), {cost_})[0].item<float>();
      if (step == 0) first = last;
    }
    job->stop_worker();
    return {first, last};
  }

  void expect_trains(const DistributeTranspilerConfig& config,
                     const std::optional<AsyncOptions>& of_server = std::nullopt,
                     const std::optional<AsyncOptions>& of_trainers = std::nullopt) {
    server_ = str_cat("127.0.0.1:", fleet::testing::free_port());
    std::vector<std::thread> threads;
    const auto run = [&threads](auto work) {
      threads.emplace_back([work] {
        try {
          work();
        } catch (const std::exception& error) {
          ADD_FAILURE() << error.what();
        }
      });
    };
    std::vector<std::pair<float, float>> losses(static_cast<size_t>(trainers_));
    run([&] { serve(config, of_server); });
    for (int trainer = 0; trainer < trainers_; ++trainer) {
      run([&, trainer] {
        losses[static_cast<size_t>(trainer)] = train(config, trainer, of_trainers);
      });
    }
    for (auto& thread : threads) thread.join();
    // Whoever comes later finds what the others have learnt.
    float first = 0;
    for (const auto& loss : losses) first = std::max(first, loss.first);
    for (const auto& loss : losses) EXPECT_LT(loss.second, 0.5f * first);
  }

  static fluid::Feed batch(int step, int trainer) {
    constexpr int kRows = 8;
    constexpr int kWidth = 4;
    const auto key = RandomKey::of(static_cast<uint64_t>(trainer), "rows");
    std::vector<float> x;
    std::vector<float> y;
    uint64_t at = 0;
    for (int row = 0; row < kRows; ++row) {
      float sum = 1;
      for (int i = 0; i < kWidth; ++i) {
        x.push_back(uniform_float(key, at++, static_cast<uint64_t>(step)));
        sum += x.back();
      }
      y.push_back(sum);
    }
    return {{"x", fluid::Tensor::from(x, {kRows, kWidth})},
            {"y", fluid::Tensor::from(y, {kRows, 1})}};
  }

  static DistributeTranspilerConfig asynchronous() {
    DistributeTranspilerConfig config;
    config.sync_mode = false;
    config.runtime_split_send_recv = true;
    return config;
  }

  static DistributeTranspilerConfig geo(int interval) {
    DistributeTranspilerConfig config = asynchronous();
    config.geo_sgd_mode = true;
    config.geo_sgd_need_push_nums = interval;
    return config;
  }

  fluid::Program main_;
  fluid::Program startup_;
  std::string cost_;
  std::string server_ = "127.0.0.1:6174";
  int trainers_ = 2;
  std::optional<bool> sync_mode_;  // what transpile is told
  // What attach is told of a program that records nothing, by what it did record.
  std::function<fluid::DistributionInfo(const fluid::DistributionInfo&)> said_;
};

TEST_F(Attach, TakesTheModeFromThePrograms) {
  {
    SCOPED_TRACE("sync");
    expect_trains({});
  }
  {
    SCOPED_TRACE("sync, split by the runtime");
    auto config = asynchronous();
    config.half_async = config.completely_not_async = true;
    expect_trains(config);
  }
  {
    SCOPED_TRACE("async");
    expect_trains(asynchronous());
  }
  {
    SCOPED_TRACE("half async");
    auto config = asynchronous();
    config.half_async = true;
    expect_trains(config);
  }
  {
    SCOPED_TRACE("geo");
    expect_trains(geo(5));
  }
}

// As Paddle Fluid's documents have it: sync_mode is said to transpile alone.
TEST_F(Attach, TakesDelayCompensationFromThePrograms) {
  DistributeTranspilerConfig config;
  config.enable_dc_asgd = true;
  sync_mode_ = false;
  expect_trains(config);
  // The other forms may diverge; options with their usual numbers are what programs record.
  for (const char* form : {"clipped", "paddle", "constant", "adaptive"}) {
    config.dc_asgd_form = form;
    const AsyncOptions usual{.delay_compensation = DelayCompensationOptions::preset(
                                 parse_delay_compensation(form).value())};
    fluid::Executor executor;
    EXPECT_NO_THROW(
        attach(executor, transpile(config, 0).get_trainer_program(), usual, runtime_config()))
        << form;
  }
}

TEST_F(Attach, OneTrainerIsHalfAsynchronousOrNotAsItWasTranspiled) {
  trainers_ = 1;
  auto config = asynchronous();
  config.half_async = true;
  expect_trains(config);
  const auto mode = [&](const DistributeTranspilerConfig& transpiled) {
    const auto program = transpile(transpiled, 0).get_trainer_program();
    return program.distribution().server_mode;
  };
  EXPECT_EQ(mode(config), ServerMode::kHalfAsync);
  config.completely_not_async = true;
  EXPECT_EQ(mode(config), ServerMode::kSync);
  EXPECT_EQ(mode(asynchronous()), ServerMode::kAsync);
  EXPECT_EQ(mode({.sync_mode = false}), ServerMode::kAsync);
  EXPECT_EQ(mode(geo(5)), ServerMode::kGeo);
}

// Processes with other intervals do not join one job.
TEST_F(Attach, TakesTheIntervalOfGeoFromThePrograms) {
  expect_trains(geo(5), std::nullopt,
                AsyncOptions{.mode = ServerMode::kGeo, .geo_update_frequency = 5});
  fluid::Executor executor;
  const fluid::Program program = transpile(geo(5), 0).get_trainer_program();
  try {
    attach(executor, program, AsyncOptions{.mode = ServerMode::kGeo}, runtime_config());
    ADD_FAILURE() << "every 5 steps or every 100?";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr("geo_sgd_need_push_nums of the program, 5"),
                                    HasSubstr("got: geo_update_frequency 100")));
  }
}

TEST_F(Attach, TakesWhatProgramsDoNotRecordFromOptions) {
  {
    SCOPED_TRACE("geo");
    const AsyncOptions every_5{.mode = ServerMode::kGeo, .geo_update_frequency = 5};
    const AsyncOptions elastic{.mode = ServerMode::kEasgd, .easgd_tau = 5};
    expect_trains(geo(5), every_5, every_5);
    expect_trains(geo(5), elastic, elastic);
  }
  {
    SCOPED_TRACE("delay compensation");
    auto config = asynchronous();
    config.enable_dc_asgd = true;
    const AsyncOptions compensated{
        .delay_compensation = DelayCompensationOptions::preset(DelayCompensation::kClipped)};
    expect_trains(config, compensated, AsyncOptions{});
  }
  {
    SCOPED_TRACE("bounded staleness");
    const AsyncOptions bounded{.staleness_bound = 2};
    expect_trains(asynchronous(), bounded, bounded);
  }
}

TEST_F(Attach, ATrainerThatDoesNotWaitNeedsItsServersAtOnce) {
  server_ = str_cat("127.0.0.1:", fleet::testing::free_port());
  const auto transpiler = transpile({}, 0);
  const fluid::Program waits = transpiler.get_trainer_program();
  const fluid::Program does_not = transpiler.get_trainer_program(false);
  fluid::Executor executor;
  EXPECT_NO_THROW(attach(executor, waits, runtime_config()));
  try {
    attach(executor, does_not, runtime_config());
    ADD_FAILURE() << "nobody listens";
  } catch (const PeerError& error) {
    EXPECT_THAT(error.what(), AllOf(HasSubstr(server_), HasSubstr("wait_port")));
  }
  transport::AsioLoop loop;
  transport::AsioNetwork network;
  const transport::Address address{transport::LinkKind::kTcp,
                                   Endpoint::parse(server_, "server").value()};
  const auto listener = network.listen(loop, address, [](const auto&) {});
  ASSERT_TRUE(listener.ok());
  EXPECT_NO_THROW(attach(executor, does_not, runtime_config()));
}

TEST_F(Attach, RefusesOptionsOfAnotherMode) {
  const auto refusal = [this](const DistributeTranspilerConfig& config, ServerMode mode) {
    fluid::Executor executor;
    const auto program = transpile(config, 0).get_trainer_program();
    try {
      attach(executor, program, AsyncOptions{.mode = mode}, runtime_config());
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  EXPECT_THAT(refusal({}, ServerMode::kAsync), HasSubstr("a program for async"));
  EXPECT_THAT(refusal(asynchronous(), ServerMode::kGeo), HasSubstr("got: one for async"));
  EXPECT_THAT(refusal(asynchronous(), ServerMode::kHalfAsync),
              HasSubstr("a program for half_async"));
}

TEST_F(Attach, RefusesAnotherDelayCompensationThanThePrograms) {
  const auto refusal = [this](const DistributeTranspilerConfig& config, bool server) {
    const AsyncOptions constant{.delay_compensation =
                                    DelayCompensationOptions::preset(DelayCompensation::kConstant)};
    fluid::Executor executor;
    const auto transpiler = transpile(config, 0);
    const auto program =
        server ? transpiler.get_pserver_program(server_) : transpiler.get_trainer_program();
    try {
      attach(executor, program, constant, runtime_config());
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  auto clipped = asynchronous();
  clipped.enable_dc_asgd = true;
  for (const bool server : {false, true}) {
    EXPECT_THAT(refusal(clipped, server),
                AllOf(HasSubstr("that of the program, form 'clipped' with lambda 4"),
                      HasSubstr("got: form 'constant' with lambda 0.04")));
    EXPECT_THAT(refusal(asynchronous(), server), HasSubstr("no delay compensation"));
  }
}

// Programs of Paddle record no job.
TEST_F(Attach, TakesTheModeFromTheCallerWhereProgramsRecordNone) {
  said_ = [](const fluid::DistributionInfo& record) {
    return fluid::DistributionInfo{.trainer_id = record.trainer_id,
                                   .trainers = record.trainers,
                                   .endpoints = record.endpoints,
                                   .ps_endpoint = record.ps_endpoint,
                                   .server_mode = record.server_mode,
                                   .geo_sgd_need_push_nums = record.geo_sgd_need_push_nums};
  };
  auto half_async = asynchronous();
  half_async.half_async = true;
  for (const auto& config : {DistributeTranspilerConfig{}, asynchronous(), half_async, geo(5)}) {
    SCOPED_TRACE(to_string(server_mode(config)));
    expect_trains(config);
  }
}

TEST_F(Attach, GuessesNoModeFromOps) {
  const auto refusal = [this](bool server, const auto& change) {
    const auto transpiler = transpile({}, 1);
    auto program =
        server ? transpiler.get_pserver_program(server_) : transpiler.get_trainer_program();
    fluid::DistributionInfo said = std::exchange(program.distribution(), {});
    change(said, program);
    fluid::Executor executor;
    try {
      attach(executor, program, said, runtime_config());
    } catch (const UsageError& error) {
      return std::string(error.what());
    }
    return std::string();
  };
  using Info = fluid::DistributionInfo;
  using fluid::Program;
  for (const bool server : {false, true}) {
    fluid::Executor executor;
    const auto transpiler = transpile({}, 0);
    auto program =
        server ? transpiler.get_pserver_program(server_) : transpiler.get_trainer_program();
    program.distribution() = {};
    try {
      attach(executor, program, runtime_config());
      ADD_FAILURE() << "in which mode?";
    } catch (const UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("server_mode"), HasSubstr("Paddle transpiled")));
    }
    EXPECT_EQ(refusal(server, [](Info&, Program&) {}), "");
    EXPECT_THAT(refusal(server, [](Info& said, Program&) { said.server_mode.reset(); }),
                HasSubstr("the mode in which the program trains is not known"));
    EXPECT_THAT(refusal(server, [](Info& said, Program&) { said.endpoints.clear(); }),
                HasSubstr("endpoints of the servers"));
    EXPECT_THAT(refusal(server, [](Info& said, Program&) { said.trainers = 0; }),
                HasSubstr("DistributionInfo.trainers"));
    EXPECT_THAT(refusal(server, [](Info& said, Program& own) { own.distribution() = said; }),
                HasSubstr("records its job itself"));
  }
  EXPECT_THAT(refusal(true, [](Info& said, Program&) { said.ps_endpoint = "127.0.0.1:1"; }),
              HasSubstr("DistributionInfo.ps_endpoint"));
  EXPECT_THAT(refusal(false, [](Info& said, Program&) { said.trainer_id = 2; }),
              HasSubstr("DistributionInfo.trainer_id"));
}

TEST_F(Attach, RefusesSynchronousTrainingWithAsynchronousOptions) {
  fluid::Executor executor;
  try {
    attach(executor, transpile({}, 0).get_trainer_program(),
           AsyncOptions{.mode = ServerMode::kSync}, runtime_config());
    ADD_FAILURE() << "synchronous";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("attach without options"));
  }
}

TEST_F(Attach, RefusesProgramsWithoutServers) {
  fluid::Executor executor;
  try {
    attach(executor, main_, runtime_config());
    ADD_FAILURE() << "nobody transpiled it";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("was not transpiled for a job"));
  }
}

}  // namespace
}  // namespace fleet::strategies
