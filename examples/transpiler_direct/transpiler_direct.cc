// Parameter servers without the facade: the transpiler makes the programs, a plain Executor runs
// them. Start one process for each role by hand; README.md says how.
//
//   TRAINING_ROLE     PSERVER or TRAINER
//   CURRENT_ENDPOINT  of this server
//   PSERVERS          all servers, joined by commas
//   TRAINER_ID, TRAINERS
//   FLEET_JOB_SECRET  the same for all

#include <cstdio>
#include <cstdlib>
#include <string>

#include "base/philox.h"
#include "fluid/fluid.h"
#include "strategies/strategies.h"
#include "transpiler/distribute_transpiler.h"

namespace strategies = fleet::strategies;
namespace transpiler = fleet::transpiler;

namespace {

std::string variable(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value == nullptr ? otherwise : value;
}

// y = the sum of x, with x drawn anew for each step.
fluid::Feed batch(int step, int trainer_id) {
  constexpr int kRows = 16;
  constexpr int kWidth = 13;
  const auto key = fleet::RandomKey::of(static_cast<uint64_t>(trainer_id), "rows");
  fluid::Tensor x(fluid::DType::kFloat32, {kRows, kWidth});
  fluid::Tensor y(fluid::DType::kFloat32, {kRows, 1});
  for (int r = 0; r < kRows; ++r) {
    float sum = 0;
    for (int i = 0; i < kWidth; ++i) {
      const auto index = static_cast<uint64_t>(r * kWidth + i);
      const float value = fleet::uniform_float(key, index, static_cast<uint64_t>(step));
      x.data<float>()[index] = value;
      sum += value;
    }
    y.data<float>()[r] = sum;
  }
  return {{"x", x}, {"y", y}};
}

int run() {
  auto x = fluid::layers::data("x", {13}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto y_predict = fluid::layers::fc(x, 1);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(y_predict, y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.001});
  sgd.minimize(cost);

  const std::string role = variable("TRAINING_ROLE", "");
  const std::string endpoint = variable("CURRENT_ENDPOINT", "");
  const int trainer_id = std::stoi(variable("TRAINER_ID", "0"));
  transpiler::DistributeTranspiler t;
  t.transpile({.trainer_id = trainer_id,
               .pservers = variable("PSERVERS", "127.0.0.1:6174"),
               .trainers = std::stoi(variable("TRAINERS", "1")),
               .current_endpoint = endpoint});

  fluid::Executor exe(fluid::CPUPlace());
  if (role == "PSERVER") {
    auto pserver_program = t.get_pserver_program(endpoint);
    auto startup_program = t.get_startup_program(endpoint, &pserver_program);
    strategies::attach(exe, pserver_program);
    exe.run(startup_program);
    exe.run(pserver_program);
    return 0;
  }
  if (role == "TRAINER") {
    auto trainer_program = t.get_trainer_program();
    auto startup_program = t.get_trainer_startup_program();
    auto job = strategies::attach(exe, trainer_program);
    exe.run(startup_program);
    for (int step = 0; step < 200; ++step) {
      auto result = exe.run(trainer_program, batch(step, trainer_id), {cost});
      if (step % 50 == 49) std::printf("step %d cost %f\n", step + 1, result[0].item<double>());
    }
    job->stop_worker();
    return 0;
  }
  std::fprintf(stderr, "error: TRAINING_ROLE must be PSERVER or TRAINER, got '%s'\n", role.c_str());
  return 2;
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
