// One process of the jobs that bench_jobs measures: the quick start's net, fed with rows made
// beforehand.

#include <algorithm>
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

// VmHWM of this process.
double peak_mb() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word) {
    if (word != "VmHWM:") continue;
    double kib = 0;
    status >> kib;
    return kib * 1024e-6;
  }
  return 0;
}

int write_report(const std::string& path, const char* name, double value) {
  std::ofstream file(path);
  file << "{\"" << name << "\": " << value << "}\n";
  return file.flush() ? 0 : 1;
}

int train(int steps, int rows, const std::string& report) {
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
  if (fleet::is_server()) {
    fleet::run_server();
    return write_report(report + ".server", "peak_mb", peak_mb());
  }
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
  return write_report(report, "steps_per_s", std::max(0, steps - kWarmup) / seconds);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4) {
    std::fprintf(stderr, "usage: measured_worker STEPS ROWS REPORT\n");
    return 2;
  }
  try {
    return train(std::atoi(argv[1]), std::atoi(argv[2]), argv[3]);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return 1;
  }
}
