// The single-machine engine: whole training steps and bags of ids against LibTorch's, the
// executor's own cost, how soon the first step is done, and memory.

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

#include "base/strings.h"
#include "benchmarks/engine/net_sizes.h"
#include "benchmarks/engine/own_memory.h"
#include "benchmarks/engine/torch_peer.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/nets.h"
#include "benchmarks/peers/python.h"
#include "fluid/layers/layers.h"
#include "fluid/program/default_programs.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr double kSeconds = 1.0;

// What a busy machine cannot change: rates per second of processor time.
std::string processor_note(double ours, double peer) {
  char text[96];
  std::snprintf(text, sizeof text, "%s; a processor second: %.1f and %.1f, ratio %.2f",
                instruction_set().c_str(), ours, peer, ours / peer);
  return text;
}

// Steps of ours, by wall clock, and what they took of processors. One replica, whatever the
// number of threads.
class OurSteps {
 public:
  explicit OurSteps(const Step& step) : OurSteps(step, make_net(step.net, step.rows)) {}
  OurSteps(const Step& step, Net net)
      : net_(std::move(net)),
        executor_(fluid::CPUPlace(), {.threads = 1, .op_threads = step.threads}) {
    executor_.run(net_.startup);
  }

  double rate() {
    const Rate rate = rate_of(kSeconds, [&] { net_.train(executor_); });
    processor_.push_back(rate.processor);
    return rate.wall;
  }
  void train(int64_t steps) {
    for (int64_t i = 0; i < steps; ++i) net_.train(executor_);
  }
  double processor_median() const { return median(processor_); }

 private:
  Net net_;
  fluid::Executor executor_;
  std::vector<double> processor_;
};

// Ours with one thread, in the rounds of a row with more.
class OneThread {
 public:
  explicit OneThread(const Step& step) : steps_({step.net, step.rows, 1}) {}
  double after(double rate) {
    ratios_.push_back(rate / steps_.rate());
    return rate;
  }
  std::string note() const {
    return str_cat("; with one thread instead, ours would be ",
                   tools::significant(1 / median(ratios_)), " of it");
  }

 private:
  OurSteps steps_;
  std::vector<double> ratios_;
};

constexpr const char* kNoTorch = "LibTorch is not installed (apt-get install libtorch-dev)";

Row steps(const Rounds& rounds, const Step& step, double target, Net net) {
  OurSteps ours(step, std::move(net));
  Row row = {.unit = "steps/s", .peer = "LibTorch"};
  const std::vector<TorchSetup> setups = torch_setups(step);
  if (rounds.ours_only() || setups.empty()) {
    row.value = ours.rate();
    if (!rounds.ours_only()) row.skipped = kNoTorch;
    return row;
  }
  row.target = target;
  const TorchSetup setup = fastest(step, setups, kSeconds / 2);
  std::optional<OneThread> alone;
  if (step.net == "mlp" && step.threads > 1) alone.emplace(step);
  std::vector<double> peer_processor;
  row.take(rounds.pairs(
      kRounds,
      [&] {
        const double rate = ours.rate();
        return alone ? alone->after(rate) : rate;
      },
      [&] {
        const Rate rate = torch_rate(step, setup, kSeconds);
        peer_processor.push_back(rate.processor);
        return rate.wall;
      }));
  row.note = str_cat(processor_note(ours.processor_median(), median(peer_processor)), "; ",
                     setup_note(setup, setups.size()), alone ? alone->note() : "");
  return row;
}

Row steps(const Rounds& rounds, const Step& step, double target) {
  return steps(rounds, step, target, make_net(step.net, step.rows));
}

// Of the net on a table that grows, once all batches' ids have rows.
Row growing_steps(const Rounds& rounds, int threads) {
  const auto step = [=](const char* net) {
    return Step{.net = net, .rows = 1000, .threads = threads};
  };
  OurSteps growing(step("ctr_dnn_growing"));
  OurSteps fixed(step("ctr_dnn_one_table"));
  growing.train(kCtrBatches);
  Row row = {.unit = "steps/s", .peer = "a table with a height", .kind = BenchPeer::kReference};
  row.target = 1 / 1.3;
  row.note = instruction_set();
  row.take(rounds.pairs(
      kRounds, [&] { return growing.rate(); }, [&] { return fixed.rate(); }));
  return row;
}

// Sums of bags, forward or with the table's gradient.
Row bags(const Rounds& rounds, int64_t width, bool backward, int threads) {
  const Step step = {.net = str_cat("embedding_bag_", width, backward ? "" : "_forward"),
                     .rows = 1000,
                     .threads = threads};
  return steps(rounds, step, 1.0, make_bags(width, step.rows, backward));
}

// Against the same step compiled by JAX, its arguments donated, on one core.
Row jax_steps(const Rounds& rounds, const Step& step, double target) {
  OurSteps ours(step);
  Row row = {.unit = "steps/s", .peer = "JAX"};
  row.skipped =
      rounds.ours_only() ? std::string("ours is that of the row against LibTorch") : missing(jax());
  if (!row.skipped.empty()) {
    row.value = ours.rate();
    return row;
  }
  row.target = target;
  row.note = instruction_set();
  row.take(rounds.pairs(
      kRounds, [&] { return ours.rate(); },
      [&] {
        return run_python("jax_steps.py",
                          {step.net, std::to_string(step.rows), std::to_string(kSeconds)})
            .at(0);
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
  fluid::Executor executor(fluid::CPUPlace(), {.kernels = &table, .op_threads = 1});
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

// A process that trains; what it prints is its peak memory in kilobytes, and the part of it that is
// above what there was before the first step.
ProcessResult train_process(int steps, const std::string& net = "mlp", int64_t rows = 32) {
  return run_to_success({own_path(), "--train", std::to_string(steps), net, std::to_string(rows)});
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

struct Peak {
  double whole = 0;  // kilobytes
  double of_steps = 0;
};

Peak peak_of(int steps, const std::string& net = "mlp", int64_t rows = 32) {
  std::istringstream text(train_process(steps, net, rows).output);
  Peak peak;
  text >> peak.whole >> peak.of_steps;
  return peak;
}

Row memory_local(const Rounds&) {
  return {.value = peak_of(100).whole / 1024,
          .unit = "MB",
          .peer = "40 MB",
          .peer_value = 40,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0};
}

// What training takes at most, beside parameters, a batch and libraries.
Row peak_memory(const Rounds& rounds, const Step& step) {
  constexpr int kSteps = 5;
  const auto ours = [&] { return peak_of(kSteps, step.net, step.rows).of_steps / 1024; };
  Row row = {.unit = "MB", .peer = "LibTorch", .better = Better::kLower};
  const std::vector<TorchSetup> setups = torch_setups(step);
  if (rounds.ours_only() || setups.empty()) {
    row.value = ours();
    if (!rounds.ours_only()) row.skipped = kNoTorch;
    return row;
  }
  row.target = 1.25;
  const TorchSetup setup = leanest(step, setups);
  row.take(rounds.pairs(3, ours, [&] { return torch_peak_kilobytes(step, setup) / 1024; }));
  row.note = str_cat("of the first ", kSteps, " steps, ", step.rows, " rows; ",
                     setup_note(setup, setups.size()));
  return row;
}

int train(int steps, const std::string& name, int64_t rows) {
  Net net = make_net(name, rows);
  fluid::Executor executor;
  executor.run(net.startup);
  const PeakMemory memory;
  for (int i = 0; i < steps; ++i) net.train(executor);
  std::cout << memory_now("VmHWM") << " " << memory.risen() << "\n";
  return 0;
}

// What a step with two threads must reach is a tenth below what one with one must.
constexpr double kOfTwoThreads = 0.9;

std::vector<Benchmark> all() {
  struct Against {
    std::string net;
    int64_t rows;
    double target;
    std::string name = {};
  };
  std::vector<Benchmark> rows;
  for (const Against& a :
       {Against{"mlp", 32, 3.0}, Against{"mlp", 128, 2.0}, Against{"lenet", 64, 2.2},
        Against{"resnet20", 32, 1.35}, Against{"resnet20", 64, 1.35}, Against{"lstm", 32, 1.6},
        Against{"lstm_ragged", 32, 1.6, "lstm_ragged"}, Against{"transformer", 16, 1.35},
        Against{"lm_vocab30k", 16, 1.2, "lm_vocab30k"},
        Against{"ctr_dense", 1000, 1.15, "mlp_ctr_dense"}}) {
    const std::string name = a.name.empty() ? str_cat(a.net, "_b", a.rows) : a.name;
    for (const int threads : {1, 2}) {
      const double target = threads == 1 ? a.target : kOfTwoThreads * a.target;
      rows.push_back({str_cat(name, "_", threads, "t"), [=](const Rounds& rounds) {
                        return steps(rounds, {a.net, a.rows, threads}, target);
                      }});
    }
  }
  const auto against_jax = [&](const std::string& name, const Step& step, double target) {
    rows.push_back({str_cat("jax_", name, "_1t"),
                    [=](const Rounds& rounds) { return jax_steps(rounds, step, target); }});
  };
  against_jax("mlp_b32", {"mlp", 32}, 1.5);
  against_jax("mlp_b128", {"mlp", 128}, 1.5);
  against_jax("transformer_b16", {"transformer", 16}, 1.0);
  for (const auto& [name, net] : {std::pair{"ctr_dnn", "ctr_dnn_one_table"},
                                  std::pair{"ctr_dnn_26_tables", "ctr_dnn_26_tables"}}) {
    for (const int threads : {1, 2}) {
      const Step step = {net, 1000, threads};
      const double target = threads == 1 ? 1.1 : 1.15;
      rows.push_back({str_cat(name, "_", threads, "t"),
                      [=](const Rounds& rounds) { return steps(rounds, step, target); }});
    }
    against_jax(name, {net, 1000}, 1.0);
  }
  for (const int threads : {1, 2}) {
    rows.push_back({str_cat("ctr_dnn_growing_", threads, "t"),
                    [=](const Rounds& rounds) { return growing_steps(rounds, threads); }});
  }
  for (const int threads : {1, 2}) {
    for (const int64_t width : {16, 64}) {
      for (const bool backward : {false, true}) {
        rows.push_back(
            {str_cat("embedding_bag_", width, backward ? "" : "_forward", "_", threads, "t"),
             [=](const Rounds& rounds) { return bags(rounds, width, backward, threads); }});
      }
    }
  }
  const auto peak = [&](const std::string& name, const Step& step) {
    rows.push_back({name, [=](const Rounds& rounds) { return peak_memory(rounds, step); }});
  };
  peak("peak_memory_resnet20", {"resnet20", 64});
  peak("peak_memory_transformer", {"transformer", 16});
  rows.push_back({"executor_overhead", overhead});
  rows.push_back({"start_local", start_local});
  rows.push_back({"memory_local", memory_local});
  return rows;
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  // The processes that start_local and the rows of memory measure.
  if (argc == 5 && std::string_view(argv[1]) == "--train") {
    return train(std::atoi(argv[2]), argv[3], std::atoll(argv[4]));
  }
  return bench_main(argc, argv, "The single-machine engine against LibTorch and its own limits.",
                    all());
}
