// A first program: a line through points, trained in one process. distributed.cc is the same for
// many processes.
#include <cstdio>
#include <exception>
#include <vector>

#include "fluid/fluid.h"

namespace {

constexpr int kSteps = 200;
constexpr int kRows = 32;  // of a step, over all workers

// This worker's share of a step's points on y = 2 x - 1, which it takes in turns with the others.
fluid::Feed batch(int step, int worker = 0, int workers = 1) {
  std::vector<float> x;
  std::vector<float> y;
  for (int row = worker; row < kRows; row += workers) {
    x.push_back(static_cast<float>((step * kRows + row) % 100) / 100);
    y.push_back(2 * x.back() - 1);
  }
  const auto rows = static_cast<int64_t>(x.size());
  return {{"x", fluid::Tensor::from(x, {rows, 1})}, {"y", fluid::Tensor::from(y, {rows, 1})}};
}

int train() {
  auto x = fluid::layers::data("x", {1});
  auto y = fluid::layers::data("y", {1});
  auto line = fluid::layers::fc(x, 1);
  auto cost = fluid::layers::mean(fluid::layers::square_error_cost(line, y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.2});

  sgd.minimize(cost);
  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  float loss = 0;
  for (int step = 0; step < kSteps; ++step) {
    auto rows = batch(step);
    loss = exe.run(rows, {cost})[0].item<float>();
  }
  std::printf("loss after %d steps: %g\n", kSteps, loss);
  return 0;
}

}  // namespace

int main() {
  try {
    return train();
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
