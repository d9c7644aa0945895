// What the executor's calls over data sets have in common.
#pragma once

#include <functional>
#include <string>

#include "fluid/executor/training/dataset_run.h"

namespace fleet::fluid {

struct DatasetJob {
  std::string name;  // of the call
  Executor& executor;
  const Program& program;
  // Runs a batch, on this executor or one of a thread's own.
  std::function<StartedStep(Executor& executor, const Feed& feed)> step;
  data::DatasetBase& dataset;
  const DatasetRun& run;
  CommRuntime* runtime = nullptr;  // that the program trains with
  int64_t parts = 1;               // that the rows of a step are cut into here
  bool threads = false;            // it may train in several
};

DatasetResult run_dataset(const DatasetJob& job);

// Whether the program can be run as it is without a change of what it was trained to.
bool is_for_test(const Program& program);

}  // namespace fleet::fluid
