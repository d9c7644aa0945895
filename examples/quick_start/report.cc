#include "examples/quick_start/report.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>
#include <unistd.h>

#include "base/environment.h"
#include "base/error.h"
#include "base/strings.h"

namespace quick_start {
namespace {

using std::chrono::duration;
using std::chrono::seconds;

// From the start of the process, so that loading libraries counts.
double seconds_before_main() {
  std::ifstream stat("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(stat)), std::istreambuf_iterator<char>());
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return 0;
  constexpr size_t kStartTime = 20;  // counted from the state, which follows the name
  const auto fields = fleet::split(std::string_view(text).substr(name_end + 2), ' ');
  if (fields.size() < kStartTime) return 0;
  timespec now{};
  clock_gettime(CLOCK_BOOTTIME, &now);
  const double since_boot =
      static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  const double started = static_cast<double>(fleet::parse_int(fields[kStartTime - 1]).value_or(0)) /
                         static_cast<double>(sysconf(_SC_CLK_TCK));
  return since_boot > started ? since_boot - started : 0;
}

// docs/operations.md: launchers pass workers a descriptor for progress lines.
int progress_descriptor() {
  const auto text = fleet::Environment::of_process().get("FLEET_PROGRESS_FD");
  return text ? static_cast<int>(fleet::parse_int(*text).value_or(-1)) : -1;
}

}  // namespace

Report::Report(const Options& options, Job job)
    : options_(options),
      job_(std::move(job)),
      terminal_(isatty(STDERR_FILENO) == 1),
      launcher_fd_(progress_descriptor()),
      start_(Clock::now() -
             std::chrono::duration_cast<Clock::duration>(duration<double>(seconds_before_main()))),
      first_step_end_(start_),
      last_step_end_(start_),
      shown_(start_) {
  losses_.reserve(static_cast<size_t>(options.steps));
  if (options.checkpoint_dir.empty() || job_.saves) return;
  fleet::throw_error(fleet::ErrorCode::kInvalidArgument,
                     {.what = "this trainer makes no checkpoints",
                      .where = "--checkpoint_dir",
                      .expected = "nothing",
                      .got = options.checkpoint_dir,
                      .fix = "take distributed_train, which trains alone, too"});
}

double Report::steps_per_second() const {
  const double elapsed = duration<double>(last_step_end_ - first_step_end_).count();
  return losses_.size() < 2 ? 0 : static_cast<double>(losses_.size() - 1) / elapsed;
}

void Report::step(int64_t step, float cost) {
  last_step_end_ = Clock::now();
  if (losses_.empty()) {
    first_ = step;
    first_step_end_ = last_step_end_;
  }
  losses_.push_back(cost);
  if (!options_.progress && launcher_fd_ < 0) return;
  const bool often = terminal_ || launcher_fd_ >= 0;
  const auto interval = often ? std::chrono::milliseconds(200) : seconds(5);
  if (last_step_end_ - shown_ >= interval || step + 1 == options_.steps) show(step + 1);
}

void Report::show(int64_t steps) {
  shown_ = last_step_end_;
  if (launcher_fd_ >= 0) {
    const auto line =
        fleet::str_cat("progress step=", steps, " steps=", options_.steps, " loss=", losses_.back(),
                       " steps_per_s=", static_cast<int64_t>(steps_per_second()), "\n");
    // A line that finds no room is dropped.
    if (write(launcher_fd_, line.data(), line.size()) < 0) return;
  }
  if (!options_.progress || !job_.reports) return;
  const auto text =
      fleet::str_cat(job_.mode, "  step ", steps, "/", options_.steps, "  loss ", losses_.back(),
                     "  ", static_cast<int64_t>(steps_per_second()), " steps/s");
  std::fprintf(stderr, "%s%s%s", terminal_ ? "\r\033[K" : "", text.c_str(),
               terminal_ && steps < options_.steps ? "" : "\n");
}

void Report::average_losses() {
  if (job_.workers == 1) return;
  losses_ = job_.sum_over_workers(losses_);
  // Rounded as the losses themselves are, which makes the mean of two workers that of one run.
  for (double& loss : losses_) loss = static_cast<float>(loss / job_.workers);
}

void Report::finish(const Score& score) {
  if (losses_.empty()) {
    if (job_.reports) std::printf("%s: nothing was left to train\n", job_.mode.c_str());
    return;
  }
  average_losses();
  if (!job_.reports) return;
  const bool share = score.name == "accuracy";
  std::printf("%s: %zu steps, first loss %.6f, last loss %.6f, test %s %.2f%s, %.0f steps/s\n",
              job_.mode.c_str(), static_cast<size_t>(first_) + losses_.size(), losses_.front(),
              losses_.back(), score.name.c_str(), share ? 100 * score.value : score.value,
              share ? " %" : "", steps_per_second());
  if (!options_.metrics_file.empty()) write_metrics(score);
}

void Report::write_metrics(const Score& score) const {
  nlohmann::json report = {
      {"mode", job_.mode},
      {"processes", job_.processes},
      {"cores", std::thread::hardware_concurrency()},
      {"steps", static_cast<size_t>(first_) + losses_.size()},
      {"steps_per_s", steps_per_second()},
      {"first_loss", losses_.front()},
      {"last_loss", losses_.back()},
      {score.name, score.value},
      {"seconds_to_first_step", duration<double>(first_step_end_ - start_).count()},
      {"loss", nlohmann::json::array()}};
  for (size_t i = 0; i < losses_.size(); ++i)
    report["loss"].push_back({static_cast<size_t>(first_) + i, losses_[i]});
  std::ofstream file(options_.metrics_file);
  file << report.dump(1) << "\n";
  if (!file.flush()) {
    fleet::throw_error(fleet::ErrorCode::kInput, {.what = "the report cannot be written",
                                                  .where = options_.metrics_file,
                                                  .expected = "a writable file",
                                                  .got = {},
                                                  .fix = "correct --metrics_file"});
  }
}

int run_trainer(int (*train)(const Options&), int argc, char** argv, const char* summary,
                const Options& defaults) {
  int exit_code = 0;
  const auto options = parse_options(argc, argv, summary, exit_code, defaults);
  if (!options) return exit_code;
  try {
    return train(*options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "error: %s\n", error.what());
    return fleet::exit_code(error);
  }
}

}  // namespace quick_start
