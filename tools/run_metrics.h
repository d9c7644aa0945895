// What a training run writes about itself (--metrics_file), and what follows from several of them.
#pragma once

#include <cstddef>
#include <filesystem>
#include <iosfwd>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace fleet::tools {

struct LossPoint {
  double step = 0;
  double loss = 0;
};

// What a growing table held at the end, and did.
struct TableMetrics {
  std::string name;
  double rows = 0;
  double bytes = 0;
  double hits = 0;  // lookups of training of ids with rows
  double misses = 0;
  double admitted = 0;
  double refused = 0;
  double evicted = 0;
};

// One run. The file is a JSON object with these keys; `loss` is an array of [step, loss] with
// growing steps, `tables` an object with the numbers of each table by its name. What is optional
// may be missing.
struct RunMetrics {
  std::string mode;  // local, parameter_server or collective
  int processes = 1;
  int cores = 1;  // that the first worker might run on
  int steps = 0;
  double steps_per_s = 0;
  double first_loss = 0;
  double last_loss = 0;
  std::optional<double> accuracy;  // 0..1, on the test rows
  std::optional<double> auc;       // area under the curve, on the test rows
  double seconds_to_first_step = 0;
  std::vector<LossPoint> loss;
  std::vector<TableMetrics> tables;
};

// Throws ResourceError when the file cannot be read, and when its content is not as described.
RunMetrics read_metrics(const std::filesystem::path& file);
RunMetrics parse_metrics(const std::string& text, const std::string& where);

// The array of objects that build/quickstart/summary.json is: every field but the curve.
std::string summary_json(std::span<const RunMetrics> runs);

// The largest |difference| of two runs' losses at the same step; nothing when no two runs share a
// step.
struct CurveDifference {
  double value = 0;
  double step = 0;
  std::string first_mode;
  std::string second_mode;
};
std::optional<CurveDifference> largest_difference(std::span<const RunMetrics> runs);

// Neighbouring points joined to means, so that at most `most` remain; how many steps a point of
// the result stands for.
struct ThinnedCurve {
  std::vector<LossPoint> points;
  std::size_t steps_per_point = 1;
};
ThinnedCurve thin(std::span<const LossPoint> points, std::size_t most);

// Whether processes took turns on the cores.
bool shares_cores(const RunMetrics& run);

// "parameter_server" as people read it: "parameter server".
std::string mode_label(const RunMetrics& run);

// ", 97.5 % test accuracy", or another score; empty without one.
std::string score_of(const RunMetrics& run);

// One row a run: mode, processes, cores, steps/s, first loss, last loss, and the scores that runs
// have.
void print_runs_table(std::ostream& out, std::span<const RunMetrics> runs);
// One row for each growing table of a run; nothing where no run has one.
void print_growing_tables(std::ostream& out, std::span<const RunMetrics> runs);

}  // namespace fleet::tools
