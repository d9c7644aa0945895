// What a trainer of the quick start shows and writes while it runs.
#pragma once

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "examples/quick_start/options.h"

namespace quick_start {

// Who trains: what the report is headed with. Only one process of a job reports.
struct Job {
  std::string mode = "local";
  int processes = 1;
  bool reports = true;
};

class Report {
 public:
  explicit Report(const Options& options, Job job = {});

  void step(int step, float cost);
  // Prints the end of the run and writes the metrics file, if one was asked for.
  void finish(double accuracy);

 private:
  using Clock = std::chrono::steady_clock;
  double seconds_since_start() const;
  double steps_per_second() const;
  void show(bool last);
  void write_metrics(double accuracy) const;

  Options options_;
  Job job_;
  bool terminal_;
  Clock::time_point start_;
  Clock::time_point first_step_end_;
  Clock::time_point shown_;
  std::vector<std::pair<int, float>> losses_;
};

// Runs a trainer and turns what it throws into one message and an exit code.
int run_trainer(int (*train)(const Options&), int argc, char** argv, const char* summary);

}  // namespace quick_start
