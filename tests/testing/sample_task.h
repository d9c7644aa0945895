// Data for the random nets of the transpiler's tests.
#pragma once

#include "tests/testing/thread_cluster.h"
#include "tests/transpiler/sample_nets.h"

namespace fleet::testing {

// Three steps of 8 rows. The net must outlive the task.
TrainingTask sample_task(const transpiler::SampleNet& net);

}  // namespace fleet::testing
