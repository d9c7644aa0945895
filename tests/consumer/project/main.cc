// An outside program against the installed package: trains a small net on y = 2 x - 1 through the
// facade, in the role that the environment gives (none: local), and fails unless it learns.
#include <cstdio>

#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

constexpr int kRows = 16;
constexpr int kSteps = 200;

fluid::Feed batch() {
  std::vector<float> x(kRows);
  std::vector<float> y(kRows);
  for (int row = 0; row < kRows; ++row) {
    x[row] = static_cast<float>(row) / kRows;
    y[row] = 2 * x[row] - 1;
  }
  return {{"x", fluid::Tensor::from(x, {kRows, 1})}, {"y", fluid::Tensor::from(y, {kRows, 1})}};
}

}  // namespace

int main() {
  auto x = fluid::layers::data("x", {1}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kFloat32);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(fluid::layers::fc(x, 1), y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.5});

  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = fleet::distributed_optimizer(sgd);
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  float loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    loss = exe.run(fluid::default_main_program(), batch(), {cost})[0].item<float>();
  }
  fleet::stop_worker();
  std::printf("loss after %d steps: %g\n", kSteps, loss);
  return loss < 1e-3F ? 0 : 1;
}
