// Trainers without servers and without the facade: mode "nccl2" of the transpiler, and a
// ParallelExecutor that sums gradients over CPU_NUM replicas in each of the processes.
//
//   TRAINERS          endpoints of all trainers, joined by commas; one or none: this process alone
//   TRAINER_ID        which of them this one is
//   FLEET_JOB_SECRET  the same for all; not needed over sockets of one machine
//   CPU_NUM           replicas in each process

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>

#include "base/philox.h"
#include "fluid/fluid.h"
#include "strategies/strategies.h"
#include "transpiler/distribute_transpiler.h"

namespace strategies = fleet::strategies;
namespace transpiler = fleet::transpiler;

namespace {

constexpr int kRows = 32;  // of a step of the job
constexpr int kWidth = 13;

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// This trainer's rows of a step: y = the sum of x.
fluid::Feed batch(int step, int trainers, int trainer_id) {
  const int rows = kRows / trainers;
  const auto key = fleet::RandomKey::of(1, "rows");
  fluid::Tensor x(fluid::DType::kFloat32, {rows, kWidth});
  fluid::Tensor y(fluid::DType::kFloat32, {rows, 1});
  for (int r = 0; r < rows; ++r) {
    float sum = 0;
    for (int i = 0; i < kWidth; ++i) {
      const int index = (trainer_id * rows + r) * kWidth + i;
      const float value =
          fleet::uniform_float(key, static_cast<uint64_t>(index), static_cast<uint64_t>(step));
      x.data<float>()[r * kWidth + i] = value;
      sum += value;
    }
    y.data<float>()[r] = sum;
  }
  return {{"x", x}, {"y", y}};
}

int run() {
  auto x = fluid::layers::data("x", {kWidth}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto y_predict = fluid::layers::fc(x, 1);
  auto avg_loss = fluid::layers::mean(fluid::layers::square_error_cost(y_predict, y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.01});
  sgd.minimize(avg_loss);

  const std::string endpoints = variable("TRAINERS", "");
  const int trainer_id = std::stoi(variable("TRAINER_ID", "0"));
  const int trainers = 1 + static_cast<int>(std::count(endpoints.begin(), endpoints.end(), ','));
  fluid::Program startup = fluid::default_startup_program();
  fluid::Program main = fluid::default_main_program();
  if (trainers > 1) {
    transpiler::DistributeTranspilerConfig config;
    config.mode = "nccl2";
    transpiler::DistributeTranspiler t(config);
    t.transpile({.trainer_id = trainer_id, .trainers = endpoints});
    startup = t.get_trainer_startup_program();
    main = t.get_trainer_program();
  }

  fluid::Executor exe(fluid::CPUPlace());
  std::shared_ptr<strategies::StrategyRuntime> job;
  if (trainers > 1) job = strategies::attach(exe, startup);
  exe.run(startup);
  fluid::ParallelExecutor train_exe({.use_cuda = false,
                                     .loss_name = avg_loss.name(),
                                     .main_program = &main,
                                     .num_trainers = trainers,
                                     .trainer_id = trainer_id,
                                     .scope = &exe.scope()});
  for (int step = 0; step < 100; ++step) {
    auto losses = train_exe.run({avg_loss}, batch(step, trainers, trainer_id))[0];
    if (step % 25 != 24) continue;
    std::printf("step %d", step + 1);
    for (const float loss : losses.values<float>()) std::printf(" loss %f", loss);
    std::printf("\n");
  }
  std::printf("weights");
  for (const float weight : exe.scope().tensor("fc_0.w_0").values<float>()) {
    std::printf(" %a", weight);
  }
  std::printf("\n");
  if (job) job->stop_worker();
  return 0;
}

}  // namespace

int main() {
  try {
    return run();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
