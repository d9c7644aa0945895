// Larger and wider jobs, against what their bytes, their compute or their sleep alone would take.

#include <chrono>

#include "base/strings.h"
#include "benchmarks/handwritten/sync_step.h"
#include "benchmarks/harness/harness.h"
#include "benchmarks/job.h"

namespace fleet::benchmarks {
namespace {

// x[1024] -> 1024 tanh -> 1024 tanh -> 2.
constexpr int kWide = 1024;
constexpr int kWideParameters = 2 * (kWide * kWide + kWide) + kWide * 2 + 2;
constexpr double kWideMegabytes = kWideParameters * 4e-6;

JobShape wide(JobShape shape) {
  shape.inputs = kWide;
  shape.hidden = kWide;
  return shape;
}

// Both workers compute at the same time on cores of their own, then every byte moves: the time of
// a step is the sum of the two when nothing overlaps.
Row sync_2x2_8mb() {
  constexpr int kRounds = 5;
  constexpr int kSteps = 60;
  std::vector<double> local_ms;
  std::vector<double> bytes_ms;
  const auto pair = interleave(
      kRounds, [] { return run_job(wide(JobShape::parameter_servers(2, 2, kSteps))).steps_per_s; },
      [&] {
        const double raw =
            handwritten_sync_steps_per_s({.steps = kSteps,
                                          .compute = HandwrittenCompute::kNothingAtAll,
                                          .parameters = kWideParameters});
        const double local = run_job(wide(JobShape::alone(kSteps))).steps_per_s;
        bytes_ms.push_back(1e3 / raw);
        local_ms.push_back(1e3 / local);
        return 1 / (1 / raw + 1 / local);
      });
  return {.value = pair.ours,
          .unit = "steps/s",
          .peer = "raw bytes + local step",
          .peer_value = pair.peer,
          .target = 0.6,
          .rounds = kRounds,
          .note = str_cat(instruction_set(), ", raw bytes ", median(bytes_ms), " ms, local step ",
                          median(local_ms), " ms")};
}

Row sync_16_sleep20() {
  constexpr int kRounds = 3;
  constexpr int kSleepMs = 20;
  JobShape shape = JobShape::parameter_servers(16, 4, 150);
  shape.sleep_ms = kSleepMs;
  JobShape alone = JobShape::alone(2000);
  std::vector<double> rates;
  std::vector<double> worker_us;
  std::vector<double> server_us;
  std::vector<double> compute_us;
  std::vector<double> seconds;
  std::vector<double> by_hand;
  for (int round = 0; round < kRounds; ++round) {
    const JobResult result = run_job(shape);
    rates.push_back(result.steps_per_s);
    worker_us.push_back(result.worker_cpu_us);
    server_us.push_back(result.server_cpu_us);
    seconds.push_back(result.seconds);
    compute_us.push_back(run_job(alone).worker_cpu_us);
    by_hand.push_back(handwritten_sync_steps_per_s(
        {.workers = 16, .servers = 4, .steps = 150, .sleep_ms = kSleepMs}));
  }
  return {
      .value = median(rates),
      .unit = "steps/s",
      .peer = "the sleep alone",
      .peer_value = 1e3 / kSleepMs,
      .target = 0.9,
      .rounds = kRounds,
      .note = str_cat("a hand-written loop ", median(by_hand), " steps/s; CPU of a worker's step ",
                      median(worker_us), " us (its net alone ", median(compute_us),
                      "), of all servers for it ", median(server_us),
                      " us, start and end included; whole job ", median(seconds), " s")};
}

Row memory_server_8mb() {
  return {.value = run_job(wide(JobShape::parameter_servers(2, 1, 100))).server_peak_mb,
          .unit = "MB",
          .peer = "30 MB + 3x parameters",
          .peer_value = 30 + 3 * kWideMegabytes,
          .better = Better::kLower,
          .target = 1.0};
}

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Larger and wider jobs, against their bytes and their compute.",
                    {{"sync_2x2_8mb", sync_2x2_8mb},
                     {"sync_16_sleep20", sync_16_sleep20},
                     {"memory_server_8mb", memory_server_8mb}});
}
