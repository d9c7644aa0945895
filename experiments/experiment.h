// What an experiment finds: a table, curves, and gates that a claim must pass.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "tools/line_chart.h"

#include "experiments/testbed.h"

namespace fleet::experiments {

// Mean, sample standard deviation and extremes of one number over the seeds.
struct Spread {
  explicit Spread(const std::vector<double>& values);
  double mean = 0;
  double deviation = 0;
  double least = 0;
  double most = 0;
  std::string to_string() const;  // "1.72 +- 0.11"
};

struct Gate {
  std::string claim;     // "adaptive <= SGD + 0.5 points"
  std::string measured;  // the numbers that it was held against
  bool holds = false;
};

struct Findings {
  std::string name;                             // "dc_asgd"
  std::string title;                            // one line
  std::vector<std::vector<std::string>> table;  // the first row is the header
  std::vector<std::string> notes;               // where it fails, in plain words
  std::vector<Gate> gates;
  std::vector<tools::LineChart> plots;

  bool holds() const;
};

struct ExperimentOptions {
  int seeds = 10;
  uint64_t first_seed = 1;
  int threads = 0;                     // 0: one a core
  std::vector<int64_t> hidden = {64};  // widths of the hidden layers
  // A data set that nothing was tuned on: only the order of the results is gated.
  bool order_only = false;
  double rate = 0;  // 0: as the experiment has it
  // Of what the experiment trains for; a smaller number makes it shorter.
  double length = 1;
};

// An experiment, by the name that the command line knows it by.
struct Experiment {
  std::string name;
  std::string claim;
  std::function<Findings(const ClassificationData&, const ExperimentOptions&)> run;
};
const std::vector<Experiment>& all_experiments();

Findings run_dc_asgd(const ClassificationData& data, const ExperimentOptions& options);
Findings run_bounded_staleness(const ClassificationData& data, const ExperimentOptions& options);
Findings run_elastic(const ClassificationData& data, const ExperimentOptions& options);
Findings run_local_sgd_intervals(const ClassificationData& data, const ExperimentOptions& options);
Findings run_compressed_gradients(const ClassificationData& data, const ExperimentOptions& options);

// Calls `run` once for each seed, on several threads, each with a model of its own.
void for_each_seed(const ClassificationData& data, const ExperimentOptions& options,
                   const std::function<void(Model& model, size_t index, uint64_t seed)>& run);

std::string to_text(const Findings& findings);
std::string to_json(const Findings& findings);

}  // namespace fleet::experiments
