// The single-machine engine: whole training steps against LibTorch's, the executor's own cost, how
// soon the first step is done, and memory.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/nets.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr double kSeconds = 1.0;

struct Step {
  std::string net;
  int64_t rows = 0;
  int threads = 1;
  double target = 0;
};

// Steps of LibTorch on so many threads. It has two ways to use them: its own, or those of its BLAS;
// the better one counts.
Rate torch_rate(const Step& step) {
  Rate best;
  for (const bool own : {true, false}) {
    if (step.threads == 1 && !own) break;
    const int own_threads = own ? step.threads : 1;
    const int blas_threads = own ? 1 : step.threads;
    const auto result = run_process(
        {program_folder() + "/torch_steps", step.net, std::to_string(step.rows),
         std::to_string(own_threads), std::to_string(kSeconds)},
        {str_cat("OMP_NUM_THREADS=", own_threads), str_cat("OPENBLAS_NUM_THREADS=", blas_threads)});
    std::istringstream text(result.output);
    Rate rate;
    if (result.exit_code != 0 || !(text >> rate.wall >> rate.processor)) {
      throw_error(ErrorCode::kInternal, {.what = "the LibTorch peer failed",
                                         .where = "torch_steps",
                                         .got = str_cat("exit code ", result.exit_code)});
    }
    if (rate.wall > best.wall) best = rate;
  }
  return best;
}

// What a busy machine cannot change: rates per second of processor time.
std::string processor_note(double ours, double peer) {
  char text[96];
  std::snprintf(text, sizeof text, "%s; a processor second: %.1f and %.1f, ratio %.2f",
                instruction_set().c_str(), ours, peer, ours / peer);
  return text;
}

// Our rate against figures that were measured elsewhere: JAX's compiled step, its arguments
// donated, on a machine of this class. A hint, not a pair of runs.
std::string stored_note(const Step& step, double ours) {
  if (step.net != "mlp") return {};
  const double jax = step.rows == 32 ? 6877 : 2846;
  char text[64];
  std::snprintf(text, sizeof text, "; %.2f of JAX's stored %.0f steps/s", ours / jax, jax);
  return text;
}

Row steps(const Step& step) {
  const Net net = make_net(step.net, step.rows);
  setenv("CPU_NUM", std::to_string(step.threads).c_str(), 1);
  fluid::Executor executor(fluid::CPUPlace(), {.logical_shards = step.threads});
  unsetenv("CPU_NUM");
  executor.run(net.startup);
  std::vector<double> our_processor;
  std::vector<double> peer_processor;
  const auto ours = [&] {
    const Rate rate = rate_of(kSeconds, [&] { net.train(executor); });
    our_processor.push_back(rate.processor);
    return rate.wall;
  };
  const auto peer = [&] {
    const Rate rate = torch_rate(step);
    peer_processor.push_back(rate.processor);
    return rate.wall;
  };
  Row row = {.unit = "steps/s", .peer = "LibTorch", .target = step.target, .rounds = kRounds};
  if (!std::filesystem::exists(program_folder() + "/torch_steps")) {
    row.value = ours();
    row.peer = "LibTorch (not installed)";
    row.note = instruction_set();
    row.target = std::nullopt;
    row.valid = false;
    return row;
  }
  const Pair pair = interleave(kRounds, ours, peer);
  row.value = pair.ours;
  row.peer_value = pair.peer;
  row.note =
      processor_note(median(our_processor), median(peer_processor)) + stored_note(step, pair.ours);
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
  times.reserve(kRounds);
  for (int i = 0; i < kRounds; ++i) {
    times.push_back(1e6 / rate_of(0.3, [&] { executor.run(program, feed); }).wall);
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
  auto result = run_process({own_path(), "--train", std::to_string(steps)});
  if (result.exit_code == 0) return result;
  throw_error(ErrorCode::kInternal, {.what = "the training process failed",
                                     .where = own_path(),
                                     .got = str_cat("exit code ", result.exit_code)});
}

// From the process's start to its end right after the first step.
Row start_local() {
  std::vector<double> times;
  times.reserve(3 * kRounds);
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
  const Net net = make_net("mlp", 32);
  fluid::Executor executor;
  executor.run(net.startup);
  for (int i = 0; i < steps; ++i) net.train(executor);
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
                    {{"mlp_b32_1t",
                      [] {
                        return steps({"mlp", 32, 1, 2.5});
                      }},
                     {"mlp_b128_1t",
                      [] {
                        return steps({"mlp", 128, 1, 1.7});
                      }},
                     {"lenet_b64_1t",
                      [] {
                        return steps({"lenet", 64, 1, 1.5});
                      }},
                     {"lenet_b64_2t",
                      [] {
                        return steps({"lenet", 64, 2, 1.5});
                      }},
                     {"resnet20_b64_1t",
                      [] {
                        return steps({"resnet20", 64, 1, 1.25});
                      }},
                     {"resnet20_b64_2t",
                      [] {
                        return steps({"resnet20", 64, 2, 1.25});
                      }},
                     {"mlp_ctr_dense_1t",
                      [] {
                        return steps({"ctr_dense", 1000, 1, 1.1});
                      }},
                     {"mlp_ctr_dense_2t",
                      [] {
                        return steps({"ctr_dense", 1000, 2, 1.15});
                      }},
                     {"lstm_b32_1t",
                      [] {
                        return steps({"lstm", 32, 1, 1.2});
                      }},
                     {"transformer_b16_1t",
                      [] {
                        return steps({"transformer", 16, 1, 1.2});
                      }},
                     {"executor_overhead", overhead},
                     {"start_local", start_local},
                     {"memory_local", memory_local}});
}
