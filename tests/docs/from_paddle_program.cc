// The program of docs/from_paddle.md, which from_paddle_page_test runs as a job.
#include <cstdio>
#include <exception>
#include <vector>

#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

// y = the sum of x.
fluid::Feed batch() {
  constexpr int kRows = 16;
  constexpr int kWidth = 13;
  std::vector<float> x(kRows * kWidth);
  std::vector<float> y(kRows);
  for (size_t i = 0; i < x.size(); ++i) {
    x[i] = static_cast<float>(i % 29) / 29;
    y[i / kWidth] += x[i];
  }
  return {{"x", fluid::Tensor::from(x, {kRows, kWidth})},
          {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

void train() {
  // clang-format off
  // [
  auto x = fluid::layers::data("x", {13});
  auto y = fluid::layers::data("y", {1});
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));

  fleet::init(role_maker::PaddleCloudRoleMaker());
  fluid::optimizer::SGD sgd({.learning_rate = 0.01});
  auto optimizer = fleet::distributed_optimizer(sgd, strategies::StrategyFactory::create_sync_strategy());
  optimizer.minimize(cost);

  if (fleet::is_server()) {
    fleet::init_server();
    fleet::run_server();
  } else {
    fleet::init_worker();
    fluid::Executor exe(fluid::CPUPlace());
    exe.run(fleet::startup_program());
    for (int step = 0; step < 100; ++step) {
      float loss = exe.run(fleet::main_program(), batch(), {cost})[0].item<float>();
      if (step % 50 == 0) std::printf("step %d loss %f\n", step, loss);
    }
    fleet::save_persistables(exe, "model");  // every worker calls it, the first one writes
    fleet::stop_worker();
  }
  // ]
  // clang-format on
}

}  // namespace

int main() {
  try {
    train();
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
