// Whole jobs of real processes against hand-written ones: same bytes, same arithmetic, same number
// of processes, same run.

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/mlp.h"
#include "benchmarks/handwritten/server_step.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 5;
constexpr int kSteps = 6000;
// What a hand-written job of 2 workers and 2 servers reached on a quiet machine of two cores with
// 55 us of compute; the compute of this machine is measured below.
constexpr double kKnownSteps = 4200;
constexpr double kKnownComputeUs = 55;
constexpr double kValidShare = 0.85;

double compute_us() {
  HandwrittenMlp net(32);
  const std::vector<float> x(32 * HandwrittenMlp::kInputs, 0.5f);
  const std::vector<int64_t> y(32, 1);
  return 1e6 / rate_of(0.3, [&] { net.forward_backward(x.data(), y.data()); }).wall;
}

Row sync_2x2() {
  const double compute = compute_us();
  const auto pair = interleave(
      kRounds, [] { return run_job(JobShape::parameter_servers(2, 2, kSteps)).steps_per_s; },
      [] { return handwritten_steps_per_s({.steps = kSteps}); });
  // Two workers and two servers share two cores: a step costs both ends' CPU once.
  const double known = 1e6 / (1e6 / kKnownSteps + (compute - kKnownComputeUs));
  return {.value = pair.ours,
          .unit = "steps/s",
          .peer = "hand-written sockets",
          .peer_value = pair.peer,
          .target = 0.7,
          .rounds = kRounds,
          .note = str_cat(instruction_set(), ", compute ", static_cast<int>(compute), " us"),
          .valid = pair.peer >= kValidShare * known};
}

double handwritten_mpi_steps_per_s(int steps, int rows) {
  const auto result =
      run_process({"/usr/bin/mpirun", "-np", "2", "--oversubscribe", "--bind-to", "none",
                   program_folder() + "/mpi_step", std::to_string(steps), std::to_string(rows)},
                  {"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1"});
  return parse_double(trim(result.output)).value_or(0);
}

Row collective_2(int rows, double target) {
  JobShape shape = JobShape::ranks(2, kSteps);
  shape.rows = rows;
  const auto pair = interleave(
      kRounds, [&] { return run_job(shape).steps_per_s; },
      [rows] { return handwritten_mpi_steps_per_s(kSteps, rows); });
  return {.value = pair.ours,
          .unit = "steps/s",
          .peer = "hand-written MPI_Allreduce",
          .peer_value = pair.peer,
          .target = target,
          .rounds = kRounds,
          .note = instruction_set()};
}

Row start_2x2() {
  std::vector<double> seconds;
  for (int i = 0; i < kRounds; ++i)
    seconds.push_back(run_job(JobShape::parameter_servers(2, 2, 1)).seconds);
  return {.value = 1e3 * median(seconds),
          .unit = "ms",
          .peer = "500 ms for the whole job",
          .peer_value = 500,
          .better = Better::kLower,
          .target = 1.0,
          .rounds = kRounds};
}

Row memory_server() {
  const double parameters_mb = HandwrittenMlp::kParameters * sizeof(float) * 1e-6;
  return {.value = run_job(JobShape::parameter_servers(2, 1, 100)).server_peak_mb,
          .unit = "MB",
          .peer = "30 MB + 3x parameters",
          .peer_value = 30 + 3 * parameters_mb,
          .better = Better::kLower,
          .target = 1.0};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Whole jobs of real processes against hand-written ones.",
                    {{"sync_2x2_mlp_b32", sync_2x2},
                     {"collective_2_mlp_b32", [] { return collective_2(32, 0.7); }},
                     {"collective_2_mlp_b128", [] { return collective_2(128, 0.8); }},
                     {"start_2x2", start_2x2},
                     {"memory_server", memory_server}});
}
