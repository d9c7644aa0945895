// Synchronous parameter-server steps against hand-written ones: same bytes, same arithmetic, same
// number of processes, same run.

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <unistd.h>

#include "base/error.h"
#include "base/strings.h"
#include "benchmarks/handwritten/mlp.h"
#include "benchmarks/handwritten/sync_step.h"
#include "benchmarks/harness/harness.h"

namespace fleet::benchmarks {
namespace {

constexpr int kRounds = 5;
constexpr int kSteps = 6000;
// What a hand-written job of this shape reached on a quiet machine of two cores with 55 us of
// compute; the compute of this machine is measured below.
constexpr double kKnownSteps = 4200;
constexpr double kKnownComputeUs = 55;
constexpr double kValidShare = 0.85;

double our_steps_per_s(int workers, int servers) {
  const auto folder = std::filesystem::temp_directory_path() / str_cat("fleet_bench_", getpid());
  std::filesystem::create_directories(folder);
  const std::string metrics = (folder / "metrics.json").string();
  const auto result =
      run_process({program_folder() + "/launch_ps", "--worker_num", std::to_string(workers),
                   "--server_num", std::to_string(servers), "--log_dir", (folder / "logs").string(),
                   program_folder() + "/bench_sync_worker", std::to_string(kSteps), "32", metrics});
  if (result.exit_code != 0) {
    throw_error(ErrorCode::kInternal, {.what = "the job failed",
                                       .where = (folder / "logs").string(),
                                       .got = str_cat("exit code ", result.exit_code)});
  }
  std::ifstream file(metrics);
  const double rate = nlohmann::json::parse(file).at("steps_per_s").get<double>();
  std::filesystem::remove_all(folder);
  return rate;
}

double compute_us() {
  HandwrittenMlp net(32);
  const std::vector<float> x(32 * HandwrittenMlp::kInputs, 0.5f);
  const std::vector<int64_t> y(32, 1);
  return 1e6 / rate_of(0.3, [&] { net.forward_backward(x.data(), y.data()); });
}

Row sync_2x2() {
  const double compute = compute_us();
  const auto pair = interleave(
      kRounds, [] { return our_steps_per_s(2, 2); },
      [] { return handwritten_sync_steps_per_s({.steps = kSteps}); });
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

}  // namespace
}  // namespace fleet::benchmarks

int main(int argc, char** argv) {
  using namespace fleet::benchmarks;
  return bench_main(argc, argv, "Synchronous parameter-server steps against hand-written ones.",
                    {{"sync_2x2_mlp_b32", sync_2x2}});
}
