// Whole jobs of real processes against hand-written ones: same bytes, same arithmetic, same number
// of processes, same run.

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/mlp.h"
#include "benchmarks/handwritten/mpi_job.h"
#include "benchmarks/handwritten/server_step.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"
#include "benchmarks/step_costs.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 5;
constexpr int kSteps = 6000;

Row sync_2x2(const Rounds& rounds) {
  Row row = {.unit = "steps/s",
             .peer = "hand-written sockets",
             .kind = BenchPeer::kLimit,
             .target = 0.85,
             .note = instruction_set()};
  row.take(rounds.pairs(
      kRounds, [] { return run_job(JobShape::parameter_servers(2, 2, kSteps)).steps_per_s; },
      [] { return fastest_handwritten_steps_per_s({.steps = kSteps}); }));
  if (!rounds.ours_only()) compare_steps(row, 32);
  return row;
}

// Against the faster of two jobs written by hand: one calls MPI_Allreduce, in the other the ranks
// add up in memory that they share.
Row collective_2(const Rounds& rounds, int rows, double target) {
  JobShape shape = JobShape::ranks(2, kSteps);
  shape.rows = rows;
  std::vector<double> allreduce;
  std::vector<double> shared;
  Row row = {
      .unit = "steps/s", .peer = "hand-written ranks", .kind = BenchPeer::kLimit, .target = target};
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [&] {
        allreduce.push_back(handwritten_ranks_steps_per_s({.sum = "allreduce", .rows = rows}));
        shared.push_back(handwritten_ranks_steps_per_s({.sum = "shared", .rows = rows}));
        return std::max(allreduce.back(), shared.back());
      }));
  if (rounds.ours_only()) return row;
  row.note =
      str_cat(instruction_set(), ", with MPI_Allreduce ", tools::significant(median(allreduce)),
              ", in shared memory ", tools::significant(median(shared)));
  compare_steps(row, rows);
  return row;
}

// Against as many copies of the net that train alone beside each other, without a sum.
Row collective_2_net(const Rounds& rounds, const std::string& net, int rows, int steps) {
  JobShape shape = JobShape::ranks(2, steps);
  shape.net = net;
  shape.rows = rows;
  JobShape alone = JobShape::alone(steps);
  alone.net = net;
  alone.rows = rows;
  Row row = {.unit = "steps/s",
             .peer = "two runs that exchange nothing",
             .kind = BenchPeer::kLimit,
             .target = 0.92,
             .note = instruction_set()};
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [&] { return steps_per_s_side_by_side(alone, 2); }));
  return row;
}

// A worker whose ops have two threads, and a server beside it, against the same training without a
// server.
Row sync_worker_2t(const Rounds& rounds) {
  JobShape shape = JobShape::parameter_servers(1, 1, 40);
  shape.net = "resnet20";
  shape.rows = 64;
  shape.environment = {"FLEET_NUM_THREADS=2"};
  JobShape local = JobShape::alone(40);
  local.net = shape.net;
  local.rows = shape.rows;
  local.environment = shape.environment;
  Row row = {.unit = "steps/s",
             .peer = "one process, two threads",
             .kind = BenchPeer::kLimit,
             .target = 0.9,
             .note = instruction_set()};
  row.take(rounds.pairs(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [&] { return run_job(local).steps_per_s; }));
  return row;
}

Row start_2x2(const Rounds& rounds) {
  const auto seconds =
      rounds.values(kRounds, [] { return run_job(JobShape::parameter_servers(2, 2, 1)).seconds; });
  return {.value = 1e3 * median(seconds),
          .unit = "ms",
          .peer = "500 ms for the whole job",
          .peer_value = 500,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0,
          .rounds = kRounds};
}

Row memory_server(const Rounds&) {
  const double parameters_mb = HandwrittenMlp::kParameters * sizeof(float) * 1e-6;
  return {.value = run_job(JobShape::parameter_servers(2, 1, 100)).server_peak_mb,
          .unit = "MB",
          .peer = "30 MB + 3x parameters",
          .peer_value = 30 + 3 * parameters_mb,
          .better = Better::kLower,
          .kind = BenchPeer::kFixed,
          .target = 1.0};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(
      argc, argv, "Whole jobs of real processes against hand-written ones.",
      {{"sync_2x2_mlp_b32", sync_2x2},
       {"collective_2_mlp_b32", [](const Rounds& rounds) { return collective_2(rounds, 32, 0.7); }},
       {"collective_2_mlp_b128",
        [](const Rounds& rounds) { return collective_2(rounds, 128, 0.8); }},
       {"collective_2_lenet",
        [](const Rounds& rounds) { return collective_2_net(rounds, "lenet", 64, 120); }},
       {"collective_2_resnet20",
        [](const Rounds& rounds) { return collective_2_net(rounds, "resnet20", 32, 40); }},
       {"sync_worker_2t", sync_worker_2t},
       {"start_2x2", start_2x2},
       {"memory_server", memory_server}});
}
