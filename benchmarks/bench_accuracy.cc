// How soon the quick start's net knows the digits, in every mode: against one process alone, and
// that one against PyTorch.

#include <fstream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"
#include "benchmarks/peers/python.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 7;
constexpr int kBatch = 64;
constexpr int kSteps = 1000;
constexpr int kEvery = 25;
constexpr const char* kGoal = "0.96";
// The rates of the quick start: where workers' gradients add up unaveraged, a quarter.
constexpr const char* kRate = "0.2";
constexpr const char* kAddingRate = "0.05";

struct Mode {
  std::string name;
  std::vector<std::string> launcher;  // and its flags; none: one process
  const char* rate = kRate;
};

struct Reached {
  double milliseconds = 0;
  double steps = 0;
};

Reached reach(const Mode& mode, int seed) {
  const TemporaryFolder folder;
  std::vector<std::string> argv;
  if (!mode.launcher.empty()) {
    argv = {str_cat(program_folder(), "/", mode.launcher[0])};
    argv.insert(argv.end(), mode.launcher.begin() + 1, mode.launcher.end());
    argv.insert(argv.end(), {"--log_dir", folder.file("logs")});
  }
  argv.insert(argv.end(),
              {program_folder() + "/accuracy_worker", "--data_dir", FLEET_BENCH_DIGITS, "--seed",
               std::to_string(seed), "--batch_size", std::to_string(kBatch), "--learning_rate",
               mode.rate, "--steps", std::to_string(kSteps), "--every", std::to_string(kEvery),
               "--accuracy", kGoal, "--report", folder.file("report")});
  if (!mode.launcher.empty()) argv.insert(argv.end(), {"--strategy", mode.name});
  run_to_success(argv);
  const auto report = nlohmann::json::parse(std::ifstream(folder.file("report")));
  const auto steps = report.at("steps").get<double>();
  if (steps > 0) return {1e3 * report.at("seconds").get<double>(), steps};
  throw_error(ErrorCode::kInternal, {.what = "the accuracy did not reach the goal",
                                     .where = mode.name,
                                     .expected = str_cat(kGoal, " within ", kSteps, " steps"),
                                     .got = str_cat(report.at("best").get<double>(), " at best")});
}

Reached torch_reach(int seed) {
  const auto numbers = run_python(
      "torch_digits.py", {FLEET_BENCH_DIGITS, std::to_string(seed), std::to_string(kBatch), kRate,
                          std::to_string(kSteps), std::to_string(kEvery), kGoal});
  return {1e3 * numbers.at(0), numbers.at(1)};
}

// Each round begins from another seed, on both sides from the same one.
template <class Peer>
Row time_to_goal(const Rounds& rounds, const Mode& mode, const std::string& who, const Peer& peer) {
  std::vector<double> our_steps;
  std::vector<double> peer_steps;
  int our_seed = 0;
  int peer_seed = 0;
  Row row = {.unit = "ms", .peer = who, .better = Better::kLower};
  row.take(rounds.pairs(
      kRounds,
      [&] {
        const Reached reached = reach(mode, ++our_seed);
        our_steps.push_back(reached.steps);
        return reached.milliseconds;
      },
      [&] {
        const Reached reached = peer(++peer_seed);
        peer_steps.push_back(reached.steps);
        return reached.milliseconds;
      }));
  row.note = str_cat("from the first step on, ", kEvery, " steps between two looks; ",
                     median(our_steps), " steps of a worker, theirs ", median(peer_steps));
  return row;
}

const Mode kAlone = {.name = "local"};

Row alone(const Rounds& rounds) {
  const std::string lacks = rounds.ours_only() ? "" : missing(pytorch());
  if (lacks.empty()) return time_to_goal(rounds, kAlone, "PyTorch, one thread", torch_reach);
  Row row = {.unit = "ms", .peer = "PyTorch, one thread", .better = Better::kLower};
  row.take(Rounds(Rounds::Side::kOurs).pairs(1, [] { return reach(kAlone, 1).milliseconds; }, {}));
  row.skipped = lacks;
  return row;
}

Benchmark against_one_process(const std::string& strategy, const Mode& mode) {
  return {str_cat("to_96_", strategy), [mode](const Rounds& rounds) {
            Row row = time_to_goal(rounds, mode, "one process alone",
                                   [](int seed) { return reach(kAlone, seed); });
            row.kind = BenchPeer::kReference;
            return row;
          }};
}

Benchmark with_servers(const std::string& strategy, const char* rate = kRate) {
  return against_one_process(
      strategy, {strategy, {"launch_ps", "--worker_num", "2", "--server_num", "2"}, rate});
}

Benchmark of_ranks(const std::string& strategy) {
  return against_one_process(strategy, {strategy, {"launch", "--nproc_per_node", "2"}});
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Time until 96 % of the digits' test rows are known.",
                    {{"to_96_local", alone},
                     with_servers("sync"),
                     with_servers("async", kAddingRate),
                     with_servers("half_async"),
                     with_servers("ssp"),
                     with_servers("dc_asgd", kAddingRate),
                     with_servers("geo"),
                     with_servers("easgd"),
                     of_ranks("all_reduce"),
                     of_ranks("local_sgd")});
}
