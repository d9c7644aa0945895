// What people may ask a process of a job while it runs.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "base/wait_list.h"
#include "transport/coordinator/membership.h"

namespace fleet::strategies {

// What follows when a loss or a parameter is not finite.
enum class OnNonfinite : uint8_t {
  kStop,  // the job ends
  kWarn,  // it is said once, and the job goes on
};

// Written by the threads that work, read by any.
struct JobObserver {
  WaitList waits;
  // Of a server: payload bytes on its data lanes, and updates by the mode's own count.
  std::atomic<uint64_t> bytes_in{0};
  std::atomic<uint64_t> bytes_out{0};
  std::atomic<uint64_t> updates{0};
  // Updates of others between a worker's get and its gradient, on average; below 0: not measured.
  std::atomic<double> staleness{-1};

  // The first value that was not finite, as keys of progress lines; empty: none.
  std::string nonfinite() const {
    const std::lock_guard lock(mutex_);
    return nonfinite_;
  }
  void tell_nonfinite(std::string keys) {
    {
      const std::lock_guard lock(mutex_);
      nonfinite_ = std::move(keys);
    }
    if (on_nonfinite) on_nonfinite();
  }
  // Called then, by the thread that tells; set before anything runs.
  std::function<void()> on_nonfinite;

  // Of a server: what its growing tables add to progress lines, each " key=number"; called by any
  // thread.
  void set_table_progress(std::function<std::string()> keys) {
    const std::lock_guard lock(mutex_);
    table_progress_ = std::move(keys);
  }
  std::string table_progress() const {
    std::function<std::string()> keys;
    {
      const std::lock_guard lock(mutex_);
      keys = table_progress_;
    }
    return keys ? keys() : "";
  }

  // Whom the job waits for, where this process has its coordinator.
  void set_stall(std::optional<transport::Stall> stall) {
    const std::lock_guard lock(mutex_);
    stall_ = std::move(stall);
  }
  std::optional<transport::Stall> stall() const {
    const std::lock_guard lock(mutex_);
    return stall_;
  }

 private:
  mutable std::mutex mutex_;
  std::string nonfinite_;
  std::optional<transport::Stall> stall_;
  std::function<std::string()> table_progress_;
};

}  // namespace fleet::strategies
