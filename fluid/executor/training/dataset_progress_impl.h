// Counts the batches of a run over a data set, and tells people how far it is.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "fluid/executor/training/dataset_run.h"

namespace fleet::fluid {

// Any thread.
class DatasetProgressLog {
 public:
  // `name`: of the call that runs. `records`: how many there will be, where that is known. Throws
  // UsageError for a run that cannot be told of.
  DatasetProgressLog(const DatasetRun& run, std::string name, std::optional<uint64_t> records);

  // A batch is over. What it fetched is waited for only where it is told.
  void batch_over(uint64_t samples, StartedStep step);
  // All are.
  DatasetResult finish(double waited_seconds, data::DatasetBatches& batches);

 private:
  void tell();
  std::string line(const DatasetProgress& progress) const;
  double seconds() const;

  const DatasetRun& run_;
  const std::string name_;
  const std::optional<uint64_t> records_;
  const TimePoint begin_ = steady_clock().now();
  std::mutex mutex_;  // guards what follows
  uint64_t batches_ = 0;
  uint64_t samples_ = 0;
  double told_seconds_ = 0;
  uint64_t told_samples_ = 0;
  std::optional<StartedStep> last_;
  std::vector<Tensor> fetched_;  // of the last batch, once it was waited for
};

}  // namespace fleet::fluid
