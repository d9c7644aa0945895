// The single-machine engine: whole training steps against LibTorch's, the executor's own cost, how
// soon the first step is done, and memory.

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/nets.h"
#include "benchmarks/peers/python.h"
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

constexpr const char* kOpenMpBlas = "/usr/lib/x86_64-linux-gnu/openblas-openmp";

// One way to run a step in LibTorch.
struct TorchSetup {
  std::string program;  // torch_steps or torch2_steps
  int own_threads = 1;
  int blas_threads = 1;
  bool openmp_blas = false;  // a BLAS that shares LibTorch's threads
  std::string layout = "plain";

  std::string text() const {
    return str_cat(program, ", ", own_threads, " threads and ", blas_threads, " of its BLAS",
                   openmp_blas ? " (OpenMP)" : "", ", ", layout);
  }
};

Rate torch_rate(const Step& step, const TorchSetup& setup, double seconds) {
  std::vector<std::string> environment = {str_cat("OMP_NUM_THREADS=", setup.own_threads),
                                          str_cat("MKL_NUM_THREADS=", setup.own_threads),
                                          str_cat("OPENBLAS_NUM_THREADS=", setup.blas_threads)};
  if (setup.openmp_blas) environment.push_back(str_cat("LD_LIBRARY_PATH=", kOpenMpBlas));
  const auto result =
      run_to_success({program_folder() + "/" + setup.program, step.net, std::to_string(step.rows),
                      std::to_string(setup.own_threads), std::to_string(seconds), setup.layout},
                     environment);
  std::istringstream text(result.output);
  Rate rate;
  if (text >> rate.wall >> rate.processor) return rate;
  throw_error(ErrorCode::kInternal,
              {.what = "the LibTorch peer printed no rates", .where = setup.text()});
}

// Every way in which this machine's LibTorch can take such a step.
std::vector<TorchSetup> torch_setups(const Step& step) {
  std::vector<TorchSetup> setups;
  const bool images = step.net == "lenet" || step.net == "resnet20";
  for (const char* program : {"torch_steps", "torch2_steps"}) {
    if (!std::filesystem::exists(program_folder() + "/" + program)) continue;
    for (const char* layout : {"plain", "channels_last"}) {
      if (!images && std::string_view(layout) != "plain") continue;
      TorchSetup setup = {.program = program, .own_threads = step.threads, .layout = layout};
      setups.push_back(setup);
      if (std::string_view(program) != "torch_steps") continue;
      if (std::filesystem::exists(kOpenMpBlas)) {
        setup.openmp_blas = true;
        setup.blas_threads = step.threads;
        setups.push_back(setup);
      }
      if (step.threads > 1) {
        setups.push_back({.program = program, .blas_threads = step.threads, .layout = layout});
      }
    }
  }
  return setups;
}

TorchSetup fastest(const Step& step, const std::vector<TorchSetup>& setups) {
  TorchSetup best = setups.front();
  double most = 0;
  for (const TorchSetup& setup : setups) {
    const double rate = torch_rate(step, setup, kSeconds / 2).wall;
    if (rate > most) best = setup;
    most = std::max(most, rate);
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

// Steps of ours, by wall clock; what they took of processors is added to `processor`.
class OurSteps {
 public:
  explicit OurSteps(const Step& step) : net_(make_net(step.net, step.rows)) {
    setenv("CPU_NUM", std::to_string(step.threads).c_str(), 1);
    executor_.emplace(fluid::CPUPlace(), fluid::ExecutorOptions{.logical_shards = step.threads});
    unsetenv("CPU_NUM");
    executor_->run(net_.startup);
  }

  double rate() {
    const Rate rate = rate_of(kSeconds, [&] { net_.train(*executor_); });
    processor_.push_back(rate.processor);
    return rate.wall;
  }
  double processor_median() const { return median(processor_); }

 private:
  Net net_;
  std::optional<fluid::Executor> executor_;
  std::vector<double> processor_;
};

std::string shards_note(const Step& step) {
  if (step.threads == 1) return "";
  return str_cat("; ours cuts the batch into ", step.threads, " logical shards of ",
                 step.rows / step.threads, " rows, each with batch statistics of its own");
}

std::string torch2_note() {
  return std::filesystem::exists(program_folder() + "/torch2_steps")
             ? ""
             : "; without PyTorch 2, which is not installed (pip install torch)";
}

Row steps(const Rounds& rounds, const Step& step) {
  OurSteps ours(step);
  Row row = {.unit = "steps/s", .peer = "LibTorch", .target = step.target};
  const std::vector<TorchSetup> setups = torch_setups(step);
  if (rounds.ours_only() || setups.empty()) {
    row.value = ours.rate();
    if (!rounds.ours_only())
      row.skipped = "LibTorch is not installed (apt-get install libtorch-dev)";
    row.target = std::nullopt;
    return row;
  }
  const TorchSetup setup = fastest(step, setups);
  std::vector<double> peer_processor;
  row.take(rounds.pairs(
      kRounds, [&] { return ours.rate(); },
      [&] {
        const Rate rate = torch_rate(step, setup, kSeconds);
        peer_processor.push_back(rate.processor);
        return rate.wall;
      }));
  row.note = processor_note(ours.processor_median(), median(peer_processor)) + "; the fastest of " +
             str_cat(setups.size(), " ways: ", setup.text()) + torch2_note() + shards_note(step);
  return row;
}

// Against the same step compiled by JAX, its arguments donated, on one core.
Row jax_steps(const Rounds& rounds, int rows) {
  OurSteps ours({.net = "mlp", .rows = rows});
  Row row = {.unit = "steps/s", .peer = "JAX"};
  row.skipped = rounds.ours_only() ? str_cat("ours is that of mlp_b", rows, "_1t") : missing(jax());
  if (!row.skipped.empty()) {
    row.value = ours.rate();
    return row;
  }
  row.note = instruction_set();
  row.take(rounds.pairs(
      kRounds, [&] { return ours.rate(); },
      [&] {
        return run_python("jax_steps.py", {std::to_string(rows), std::to_string(kSeconds)}).at(0);
      }));
  return row;
}

// Thirty ops in a row whose kernels do nothing, the feed bound, nothing fetched.
Row overhead(const Rounds& rounds) {
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
  const auto times = rounds.values(
      kRounds, [&] { return 1e6 / rate_of(0.3, [&] { executor.run(program, feed); }).wall; });
  return {.value = median(times),
          .unit = "us",
          .peer = "5 us",
          .peer_value = 5,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0,
          .rounds = kRounds};
}

std::string own_path() {
  return std::filesystem::read_symlink("/proc/self/exe").string();
}

// A process that trains; what it prints is its peak memory in kilobytes.
ProcessResult train_process(int steps) {
  return run_to_success({own_path(), "--train", std::to_string(steps)});
}

// From the process's start to its end right after the first step.
Row start_local(const Rounds& rounds) {
  const auto times = rounds.values(3 * kRounds, [] { return 1e3 * train_process(1).seconds; });
  return {.value = median(times),
          .unit = "ms",
          .peer = "50 ms",
          .peer_value = 50,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0,
          .rounds = 3 * kRounds};
}

Row memory_local(const Rounds&) {
  const auto kilobytes = parse_double(trim(train_process(100).output));
  return {.value = kilobytes.value_or(0) / 1024,
          .unit = "MB",
          .peer = "40 MB",
          .peer_value = 40,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
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
  const auto against_torch = [](const std::string& name, const Step& step) {
    return Benchmark{name, [step](const Rounds& rounds) { return steps(rounds, step); }};
  };
  const auto against_jax = [](const std::string& name, int rows) {
    return Benchmark{name, [rows](const Rounds& rounds) { return jax_steps(rounds, rows); }};
  };
  return bench_main(argc, argv, "The single-machine engine against LibTorch and its own limits.",
                    {against_torch("mlp_b32_1t", {"mlp", 32, 1, 2.5}),
                     against_torch("mlp_b128_1t", {"mlp", 128, 1, 1.7}),
                     against_torch("lenet_b64_1t", {"lenet", 64, 1, 1.5}),
                     against_torch("lenet_b64_2t", {"lenet", 64, 2, 1.5}),
                     against_torch("resnet20_b64_1t", {"resnet20", 64, 1, 1.25}),
                     against_torch("resnet20_b64_2t", {"resnet20", 64, 2, 1.25}),
                     against_torch("mlp_ctr_dense_1t", {"ctr_dense", 1000, 1, 1.1}),
                     against_torch("mlp_ctr_dense_2t", {"ctr_dense", 1000, 2, 1.15}),
                     against_torch("lstm_b32_1t", {"lstm", 32, 1, 1.2}),
                     against_torch("transformer_b16_1t", {"transformer", 16, 1, 1.2}),
                     against_jax("jax_mlp_b32_1t", 32),
                     against_jax("jax_mlp_b128_1t", 128),
                     {"executor_overhead", overhead},
                     {"start_local", start_local},
                     {"memory_local", memory_local}});
}
