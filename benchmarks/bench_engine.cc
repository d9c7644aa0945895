// The single-machine engine: whole training steps against LibTorch's, the executor's own cost, how
// soon the first step is done, and memory.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <string>

#include "base/error.h"
#include "base/philox.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr double kSeconds = 1.0;

// x[32] -> 128 tanh -> 128 tanh -> 2 softmax, cross entropy, mean, SGD.
struct Net {
  fluid::Program main;
  fluid::Program startup;
  std::string cost;

  Net() {
    const fluid::ProgramGuard programs(main, startup);
    const fluid::unique_name::Guard names;
    const auto x = fluid::layers::data("x", {32});
    const auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
    const auto first = fluid::layers::fc(x, 128, {.act = "tanh"});
    const auto second = fluid::layers::fc(first, 128, {.act = "tanh"});
    const auto out = fluid::layers::fc(second, 2, {.act = "softmax"});
    const auto loss = fluid::layers::mean(fluid::layers::cross_entropy(out, y));
    fluid::optimizer::SGD({.learning_rate = 0.01}).minimize(loss);
    cost = loss.name();
  }
};

fluid::Feed batch(int64_t rows) {
  fluid::Tensor x(fluid::DType::kFloat32, {rows, 32});
  fluid::Tensor y(fluid::DType::kInt64, {rows, 1});
  const RandomKey key = RandomKey::of(1, "batch");
  for (int64_t i = 0; i < x.numel(); ++i) {
    x.data<float>()[i] = uniform_float(key, static_cast<uint64_t>(i));
  }
  for (int64_t i = 0; i < rows; ++i) y.data<int64_t>()[i] = i % 2;
  return {{"x", x}, {"y", y}};
}

double torch_steps_per_s(int64_t rows) {
  const auto result =
      run_process({program_folder() + "/torch_mlp", std::to_string(rows), std::to_string(kSeconds)},
                  {"OMP_NUM_THREADS=1", "OPENBLAS_NUM_THREADS=1"});
  const auto rate = parse_double(trim(result.output));
  if (result.exit_code == 0 && rate) return *rate;
  throw_error(ErrorCode::kInternal, {.what = "the LibTorch peer failed",
                                     .where = "torch_mlp",
                                     .got = str_cat("exit code ", result.exit_code)});
}

Row mlp(int64_t rows, double target) {
  Net net;
  fluid::Executor executor;
  executor.run(net.startup);
  const fluid::Feed feed = batch(rows);
  const auto ours = [&] {
    return rate_of(kSeconds, [&] { executor.run(net.main, feed, {net.cost}); });
  };
  Row row = {.unit = "steps/s", .peer = "LibTorch", .target = target, .rounds = kRounds};
  row.note = instruction_set();
  if (!std::filesystem::exists(program_folder() + "/torch_mlp")) {
    row.value = ours();
    row.peer = "LibTorch (not installed)";
    row.target = std::nullopt;
    row.valid = false;
    return row;
  }
  const Pair pair = interleave(kRounds, ours, [&] { return torch_steps_per_s(rows); });
  row.value = pair.ours;
  row.peer_value = pair.peer;
  return row;
}

// Thirty ops in a row whose kernels do nothing, the feed bound, nothing fetched.
Row overhead() {
  fluid::KernelTable table = fluid::KernelTable::standard();
  table.add_first("tanh", fluid::DeviceKind::kCpu, fluid::DType::kFloat32,
                  {.name = "empty", .prepare = [](fluid::PrepareContext& context) {
                     context.set_output("Out", context.in("X").shape, fluid::DType::kFloat32);
                     return fluid::make_prepared([](const fluid::KernelContext&) {});
                   }});
  fluid::Program program;
  fluid::Program startup;
  const fluid::ProgramGuard programs(program, startup);
  const fluid::unique_name::Guard names;
  auto last = fluid::layers::data("x", {4});
  for (int i = 0; i < 30; ++i) last = fluid::layers::tanh(last);
  fluid::Executor executor(fluid::CPUPlace(), {.kernels = &table});
  const fluid::Feed feed = {{"x", fluid::Tensor::zeros(fluid::DType::kFloat32, {4, 4})}};
  std::vector<double> times;
  for (int i = 0; i < kRounds; ++i) {
    times.push_back(1e6 / rate_of(0.3, [&] { executor.run(program, feed); }));
  }
  return {.value = median(times),
          .unit = "us",
          .peer = "5 us",
          .peer_value = 5,
          .better = Better::kLower,
          .target = 1.0,
          .rounds = kRounds};
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// A process that trains; what it prints is its peak memory in kilobytes.
ProcessResult train_process(int steps) {
  const auto result = run_process({own_path(), "--train", std::to_string(steps)});
  if (result.exit_code == 0) return result;
  throw_error(ErrorCode::kInternal, {.what = "the training process failed",
                                     .where = own_path(),
                                     .got = str_cat("exit code ", result.exit_code)});
}

// From the process's start to its end right after the first step.
Row start_local() {
  std::vector<double> times;
  for (int i = 0; i < 3 * kRounds; ++i) times.push_back(1e3 * train_process(1).seconds);
  return {.value = median(times),
          .unit = "ms",
          .peer = "50 ms",
          .peer_value = 50,
          .better = Better::kLower,
          .target = 1.0,
          .rounds = 3 * kRounds};
}

Row memory_local() {
  const auto kilobytes = parse_double(trim(train_process(100).output));
  return {.value = kilobytes.value_or(0) / 1024,
          .unit = "MB",
          .peer = "40 MB",
          .peer_value = 40,
          .better = Better::kLower,
          .target = 1.0};
}

int train(int steps) {
  const Net net;
  fluid::Executor executor;
  executor.run(net.startup);
  const fluid::Feed feed = batch(32);
  for (int i = 0; i < steps; ++i) executor.run(net.main, feed, {net.cost});
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (!line.starts_with("VmHWM:")) continue;
    const std::string rest = line.substr(6, line.find("kB") - 6);
    std::cout << trim(rest) << "\n";
  }
  return 0;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  // The processes that start_local and memory_local measure.
  if (argc == 3 && std::string_view(argv[1]) == "--train") return train(std::atoi(argv[2]));
  return bench_main(argc, argv, "The single-machine engine against LibTorch and its own limits.",
                    {{"mlp_b32_1t", [] { return mlp(32, 2.0); }},
                     {"mlp_b128_1t", [] { return mlp(128, 1.5); }},
                     {"executor_overhead", overhead},
                     {"start_local", start_local},
                     {"memory_local", memory_local}});
}
