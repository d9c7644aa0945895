// How long it takes to make a job's programs.

#include <algorithm>
#include <chrono>
#include <cmath>
#include <vector>

#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::benchmarks {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kRounds = 5;
constexpr int kOpsOfLayer = 6;  // mul, add, their gradients, two updates

double ms_of(const std::function<void()>& work) {
  const auto start = Clock::now();
  work();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

struct Net {
  fluid::Program main;
  fluid::Program startup;
};

// `depth` fully connected layers of one width, their gradients, SGD.
Net make_net(int depth, int64_t width) {
  Net net;
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  fluid::Variable hidden = fluid::layers::data("x", {width});
  for (int i = 0; i < depth; ++i) hidden = fluid::layers::fc(hidden, width);
  fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(fluid::layers::mean(hidden));
  return net;
}

std::string endpoints(int servers) {
  std::vector<std::string> all;
  for (int i = 0; i < servers; ++i) all.push_back(str_cat("10.0.0.", i / 50, ":", 6000 + i));
  return join(all, ",");
}

// Transpiles; one server's pair; the trainer's program.
void transpile(const Net& net, int servers, int trainers) {
  transpiler::DistributeTranspiler transpiler;
  const std::string pservers = endpoints(servers);
  transpiler.transpile({.program = &net.main,
                        .pservers = pservers,
                        .trainers = trainers,
                        .startup_program = &net.startup});
  transpiler.get_pserver_programs(pservers.substr(0, pservers.find(',')));
  transpiler.get_trainer_program();
}

// The first call for a new net: what an earlier call leaves in a program's ops would speed the next
// one up.
double first_call_ms(int depth, int64_t width, int servers, int trainers) {
  const Net net = make_net(depth, width);
  return ms_of([&] { transpile(net, servers, trainers); });
}

Row limited(double value, const std::string& unit, double limit, int rounds) {
  return {.value = value,
          .unit = unit,
          .peer = str_cat("limit of ", limit, " ", unit),
          .peer_value = limit,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0,
          .rounds = rounds};
}

Benchmark layers_of_width_128(int depth, double limit_ms) {
  return {str_cat("transpile_", depth), [=](const Rounds& rounds) {
            const auto times =
                rounds.values(kRounds, [=] { return first_call_ms(depth, 128, 4, 4); });
            return limited(median(times), "ms", limit_ms, kRounds);
          }};
}

Row run_100k(const Rounds& rounds) {
  const auto times =
      rounds.values(3, [] { return first_call_ms(100000 / kOpsOfLayer, 64, 100, 500); });
  return limited(median(times), "ms", 1500, 3);
}

// Of the line through (log ops, log time) by least squares. The sizes take turns, so that what
// slows the machine down for a while slows all of them.
Row run_slope(const Rounds& rounds) {
  constexpr int kTurns = 7;
  const std::vector<int> sizes = {1000, 3000, 10000, 30000, 100000};
  std::vector<std::vector<double>> times(sizes.size());
  for (int turn = 0; turn < (rounds.ours_only() ? 1 : kTurns); ++turn) {
    for (size_t i = 0; i < sizes.size(); ++i) {
      times[i].push_back(first_call_ms(sizes[i] / kOpsOfLayer, 64, 100, 500));
    }
  }
  std::vector<double> x;
  std::vector<double> y;
  for (size_t i = 0; i < sizes.size(); ++i) {
    x.push_back(std::log(static_cast<double>(sizes[i])));
    y.push_back(std::log(median(std::move(times[i]))));
  }
  double mean_x = 0;
  double mean_y = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    mean_x += x[i] / static_cast<double>(x.size());
    mean_y += y[i] / static_cast<double>(y.size());
  }
  double above = 0;
  double below = 0;
  for (size_t i = 0; i < x.size(); ++i) {
    above += (x[i] - mean_x) * (y[i] - mean_y);
    below += (x[i] - mean_x) * (x[i] - mean_x);
  }
  return limited(above / below, "slope", 1.15, kTurns);
}

Row run_build(const Rounds& rounds) {
  const auto times = rounds.values(kRounds, [] { return ms_of([] { make_net(1000, 128); }); });
  return limited(median(times), "ms", 300, kRounds);
}

std::vector<Benchmark> all() {
  return {layers_of_width_128(200, 50),
          layers_of_width_128(1000, 300),
          {"transpile_100k", run_100k},
          {"transpile_slope", run_slope},
          {"build_program_1000", run_build}};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  return fleet::benchmarks::bench_main(argc, argv, "How long it takes to make a job's programs.",
                                       fleet::benchmarks::all());
}
