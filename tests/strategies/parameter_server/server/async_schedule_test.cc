// Learning-rate schedules on asynchronous servers: what each gradient counts.
#include <functional>
#include <gmock/gmock.h>
#include <vector>

#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "strategies/parameter_server/server/server_steps.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies {
namespace {

namespace layers = fluid::layers;
using ::testing::ElementsAre;

constexpr int kTrainers = 3;
constexpr const char* kCounter = "@LR_DECAY_COUNTER@";

// The server of a job of three trainers whose schedule counts steps.
class AsyncSchedule : public ::testing::Test {
 protected:
  // Its counter after each of so many gradients, begun anew or with what a model has.
  std::vector<double> counts(uint64_t gradients, const fluid::Tensor* of_model = nullptr) {
    fluid::Program main;
    fluid::Program startup;
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto loss = layers::mean(layers::fc(layers::data("x", {2}), 1));
    fluid::optimizer::SGD({.learning_rate = rate_()}).minimize(loss);
    transpiler::DistributeTranspilerConfig config;
    config.sync_mode = false;
    config.paddle_schedules = paddle_schedules_;
    transpiler::DistributeTranspiler transpiler(config);
    transpiler.transpile({.program = &main,
                          .pservers = "127.0.0.1:6174",
                          .trainers = kTrainers,
                          .startup_program = &startup});
    const auto server = transpiler.get_pserver_programs("127.0.0.1:6174");
    fluid::Executor executor;
    executor.run(server.startup);
    if (of_model != nullptr) executor.scope().var(kCounter) = of_model->clone();
    ServerSteps steps(server.main,
                      read_server_program(server.main, *server.main.global_block().ops().back(),
                                          fluid::ServerMode::kAsync, kTrainers),
                      executor.scope());
    const auto model = steps.make_model();
    std::vector<double> counts;
    for (uint64_t gradient = 1; gradient <= gradients; ++gradient) {
      model.learning_rate(gradient);
      counter_ = executor.scope().tensor(kCounter).clone();
      counts.push_back(counter_.item<double>());
    }
    return counts;
  }

  fluid::Tensor counter_;  // as a model saved at the end has it
  bool paddle_schedules_ = false;
  std::function<fluid::Variable()> rate_ = [] { return layers::noam_decay(4, 8); };
};

TEST_F(AsyncSchedule, GivesTheFirstStepOfAllTrainersTheFirstRate) {
  EXPECT_THAT(counts(6), ElementsAre(1, 1, 1, 2, 3, 4));
}

TEST_F(AsyncSchedule, BeginsWhereTheScheduleDoes) {
  rate_ = [] { return layers::exponential_decay(0.1, 4, 0.5); };
  EXPECT_THAT(counts(6), ElementsAre(0, 0, 0, 1, 2, 3));
}

// Paddle's programs do not say where a schedule begins.
TEST_F(AsyncSchedule, CountsAsPaddleOnRequest) {
  paddle_schedules_ = true;
  EXPECT_THAT(counts(6), ElementsAre(3, 4, 5, 6, 7, 8));
  rate_ = [] { return layers::exponential_decay(0.1, 4, 0.5); };
  EXPECT_THAT(counts(6), ElementsAre(3, 4, 5, 6, 7, 8));
}

TEST_F(AsyncSchedule, GoesOnWhereAModelWasSaved) {
  EXPECT_THAT(counts(5), ElementsAre(1, 1, 1, 2, 3));
  const fluid::Tensor saved = counter_;
  EXPECT_THAT(counts(4, &saved), ElementsAre(4, 5, 6, 7));
  paddle_schedules_ = true;
  EXPECT_THAT(counts(4, &saved), ElementsAre(4, 5, 6, 7));
}

// A local run counts 0 before its first step under noam_decay.
TEST_F(AsyncSchedule, BeginsWithAModelThatNobodyTrained) {
  const fluid::Tensor saved = fluid::Tensor::from(std::vector<int64_t>{0}, {1});
  EXPECT_THAT(counts(4, &saved), ElementsAre(1, 2, 3, 4));
}

}  // namespace
}  // namespace fleet::strategies
