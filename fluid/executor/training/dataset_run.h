// Training and testing on the batches of a data set: Executor::train_from_dataset and
// infer_from_dataset, with the options of Paddle's.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <optional>
#include <string>
#include <vector>

#include "base/log.h"
#include "fluid/data/formats/datasets/dataset_base.h"
#include "fluid/executor/executor.h"

namespace fleet::fluid {

// How far a run is, now and then.
struct DatasetProgress {
  uint64_t batches = 0;  // that are over, of all threads
  uint64_t samples = 0;  // of these batches
  double seconds = 0;    // since the run began
  double samples_per_second = 0;
  // None where the data set does not know its size: only one in memory does.
  std::optional<double> seconds_left = std::nullopt;
  // Of the batch that has just ended, in the order of fetch_list.
  std::vector<Tensor> fetched = {};
};

struct DatasetRun {
  // Trainer threads, where the program's job has such, or with hogwild; 0: as many as the data
  // set's set_thread() says. A job's processes are told of theirs by CPU_NUM, and refuse more.
  int thread = 0;
  // Say at the end how long threads waited for batches.
  bool debug = false;
  std::vector<Fetch> fetch_list = {};
  // What people call the fetched variables; empty: their names.
  std::vector<std::string> fetch_info = {};
  // Batches from one progress to the next.
  int print_period = 100;
  // Gets the progress, in place of a line in the log; one thread at a time calls it. (Paddle's
  // FetchHandler is called by the clock instead.)
  std::function<void(const DatasetProgress&)> fetch_handler = {};

  // Beyond Paddle:
  // Without a job, threads train on one set of parameters without a lock (trainer_threads.h).
  bool hogwild = false;
  // Where the run begins, unless the text is empty; and, from the moment on that a batch is
  // trained, where the next one begins, so that a checkpoint may keep it. Empty again when the run
  // has ended well. Of several trainer threads it tells nothing meanwhile. May be null.
  std::string* position = nullptr;
  // For progress, and lines of the files that could not be read.
  Logger logger = Logger(LogLevel::kInfo);
};

struct DatasetResult {
  uint64_t batches = 0;
  uint64_t samples = 0;
  double seconds = 0;
  double waited_seconds = 0;         // for batches, of all threads
  uint64_t bad_lines = 0;            // that could not be read
  std::vector<Tensor> fetched = {};  // of the last batch
};

// The variables as DatasetBase::set_use_var takes them.
std::vector<data::UseVar> use_vars(const std::vector<Variable>& variables);

}  // namespace fleet::fluid
