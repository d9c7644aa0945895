// What fleet-comm-bench measures: collective operations between the ranks of a job, by size.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "transport/collective/collective.h"

namespace fleet::tools {

// "all_reduce", "reduce_scatter", "broadcast", "all_gather", "barrier".
std::vector<std::string> comm_operations();

struct CommBenchOptions {
  std::vector<std::string> operations = comm_operations();
  // Of the array that is reduced, sent, or gathered; whole floats for each rank.
  size_t least_bytes = 8;
  size_t most_bytes = size_t{64} << 20;
  int factor = 4;  // from one size to the next
  // About how long one size of one operation is repeated.
  Duration budget = std::chrono::milliseconds(200);
  Duration timeout = std::chrono::seconds(180);  // of one operation
};

struct CommRow {
  std::string operation;
  size_t bytes = 0;  // 0 of a barrier
  int repeats = 0;
  // Microseconds of one operation at rank 0.
  double median_us = 0;
  double least_us = 0;
  double most_us = 0;
  // GB/s: bytes over the median time, and that times what each rank's link carries for a byte of
  // the array: 2 (n - 1) / n of an all-reduce, (n - 1) / n of a reduce-scatter or all-gather, 1 of
  // a broadcast.
  double bandwidth = 0;
  double link_bandwidth = 0;
};

// All ranks call it with the same options. Checks the results, too. `on_row` is called after each
// size at every rank; the times are rank 0's. Throws UsageError for options that cannot be, and
// PeerError when a rank is lost or a result is wrong.
void run_comm_bench(transport::CollectiveCommunicator& communicator,
                    const CommBenchOptions& options,
                    const std::function<void(const CommRow&)>& on_row);

}  // namespace fleet::tools
