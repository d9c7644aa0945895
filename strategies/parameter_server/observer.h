// What people may ask a process of a job while it runs.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/wait_list.h"

namespace fleet::strategies {

// Written by the threads that work, read by any.
struct JobObserver {
  WaitList waits;
  // Of a server: payload bytes on its data lanes, and updates by the mode's own count.
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> updates{0};
  // Updates of others between a worker's get and its gradient, on average; below 0: not measured.
  std::atomic<double> staleness{-1};
};

}  // namespace fleet::strategies
