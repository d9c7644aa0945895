// One process of the job that bench_sync measures: the quick start's net through parameter
// servers, fed with rows made beforehand.

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>

#include "fleet/fleet.h"
#include "fluid/fluid.h"

namespace {

using Clock = std::chrono::steady_clock;

constexpr int kWarmup = 20;

fluid::Feed rows_of(int rows) {
  fluid::Tensor x(fluid::DType::kFloat32, {rows, 32});
  fluid::Tensor y(fluid::DType::kInt64, {rows, 1});
  for (int64_t i = 0; i < x.numel(); ++i) x.data<float>()[i] = 0.5f;
  for (int64_t i = 0; i < y.numel(); ++i) y.data<int64_t>()[i] = 1;
  return {{"x", x}, {"y", y}};
}

int train(int steps, int rows, const std::string& metrics_file) {
  namespace layers = fluid::layers;
  const auto x = layers::data("x", {32}, fluid::DType::kFloat32);
  const auto y = layers::data("y", {1}, fluid::DType::kInt64);
  const auto hidden = layers::fc(layers::fc(x, 128, {.act = "tanh"}), 128, {.act = "tanh"});
  const auto prediction = layers::fc(hidden, 2, {.act = "softmax"});
  const auto cost = layers::mean(layers::cross_entropy(prediction, y));
  fluid::optimizer::SGD sgd({.learning_rate = 0.01});

  fleet::init(role_maker::PaddleCloudRoleMaker());
  auto optimizer = fleet::distributed_optimizer(sgd);
  optimizer.minimize(cost);
  if (fleet::is_server()) return fleet::run_server();
  fleet::init_worker();

  fluid::Executor exe(fluid::CPUPlace());
  exe.run(fluid::default_startup_program());
  const auto feed = rows_of(rows);
  Clock::time_point start;
  for (int step = 0; step < steps; ++step) {
    if (step == kWarmup) start = Clock::now();
    exe.run(fluid::default_main_program(), feed, {cost});
  }
  const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
  fleet::stop_worker();
  if (!fleet::is_first_worker()) return 0;
  std::ofstream file(metrics_file);
  file << "{\"steps_per_s\": " << (steps - kWarmup) / seconds << "}\n";
  return file.good() ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: bench_sync_worker STEPS ROWS METRICS_FILE\n");
    return 2;
  }
  try {
    return train(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
