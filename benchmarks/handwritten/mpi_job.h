// Runs mpi_step: collective steps written by hand.
#pragma once

#include <string>
#include <vector>

namespace fleet::benchmarks {

struct HandwrittenRanks {
  std::string sum;  // "allreduce" or "shared", mpi_step.cc
  int rows = 32;    // of each of two ranks
  int steps = 6000;
  std::vector<std::string> environment;  // "NAME=value", besides this process's
};

// Throws when the job fails.
double handwritten_ranks_steps_per_s(const HandwrittenRanks& job);

}  // namespace fleet::benchmarks
