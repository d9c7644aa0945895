// What a trainer of the quick start shows and writes while it runs.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "examples/quick_start/options.h"

namespace quick_start {

// Who trains: what the report is headed with. Only one process of a job reports.
struct Job {
  std::string mode = "local";
  int processes = 1;
  int workers = 1;
  bool reports = true;
  bool saves = false;  // makes checkpoints, where it is told to
  // Element by element; every worker calls it. Empty for one worker.
  std::function<std::vector<double>(const std::vector<double>&)> sum_over_workers = {};
};

// What a model is judged by. "accuracy" is a share and printed in percent.
struct Score {
  std::string name;
  double value = 0;
};

class Report {
 public:
  explicit Report(const Options& options, Job job = {});

  // The loss of this worker's rows.
  void step(int64_t step, float cost);
  // Averages the losses over the workers, prints the end of the run and writes the metrics file,
  // if one was asked for. Every worker calls it, with its share of right answers on the test rows,
  // or with another score.
  void finish(double accuracy) { finish(Score{"accuracy", accuracy}); }
  void finish(const Score& score);

 private:
  using Clock = std::chrono::steady_clock;
  double steps_per_second() const;
  void average_losses();
  void show(int64_t steps);
  void write_metrics(const Score& score) const;

  Options options_;
  Job job_;
  bool terminal_;
  int launcher_fd_;  // where the launcher reads progress lines; -1: none
  Clock::time_point start_;
  Clock::time_point first_step_end_;
  Clock::time_point last_step_end_;
  Clock::time_point shown_;
  int64_t first_ = 0;           // the first step that was trained
  std::vector<double> losses_;  // by step, from that one on
};

// Runs a trainer and turns what it throws into one message and an exit code.
int run_trainer(int (*train)(const Options&), int argc, char** argv, const char* summary,
                const Options& defaults = {});

}  // namespace quick_start
