// The arithmetic of simulated asynchronous jobs, and their play-back: what servers did, in the
// order of their logs, done again by sequential arithmetic.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "strategies/parameter_server/protocol/async_server.h"
#include "tests/testing/async_sim_job.h"

namespace fleet::testing {

using Vector = std::vector<float>;

inline constexpr float kAsyncRate = 0.05F;

float async_initial_value(size_t variable, size_t element);
Vector async_gradient(uint32_t worker, uint64_t step, size_t variable, const Vector& at);

struct AsyncSlice {
  size_t variable = 0;
  size_t begin = 0;
  size_t size = 0;
  uint32_t server = 0;
  uint32_t id = 0;  // in its server's parameter index
  std::string name() const;
};

std::vector<AsyncSlice> slices_of(const AsyncSimJob& job);

// One update of a slice, in a server and in the play-back alike.
void update_slice(const AsyncSimJob& job, float* value, const float* gradient, const float* backup,
                  size_t n);

struct AsyncWorkerRecord {
  // A value of a slice that the worker was given.
  struct Seen {
    size_t slice;
    Vector value;
  };
  std::vector<Seen> seen;                 // in order
  std::vector<std::vector<Vector>> made;  // the gradients that were queued, in order, by variable
};

class AsyncPlayBack {
 public:
  AsyncPlayBack(const AsyncSimJob& job, std::vector<AsyncWorkerRecord> workers);

  // The first thing that does not fit, or nothing.
  std::string run(const std::vector<std::vector<strategies::AsyncEvent>>& logs);
  const Vector& last(size_t slice) const { return history_[slice].back(); }

 private:
  size_t find(uint32_t server, uint32_t id) const;
  std::string run_server(uint32_t server, const std::vector<strategies::AsyncEvent>& log);
  Vector updated(size_t s, const strategies::AsyncEvent& event, uint64_t clock,
                 const Vector& backup) const;
  std::string strange_to(size_t worker) const;
  std::string lost_in(uint32_t server,
                      std::map<std::pair<uint32_t, uint32_t>, uint64_t>& applied) const;

  const AsyncSimJob& job_;
  const std::vector<AsyncWorkerRecord> workers_;
  const std::vector<AsyncSlice> slices_;
  std::vector<std::vector<Vector>> history_;  // by slice and version
  // Versions that a server gave, in order, by worker and slice.
  std::map<std::pair<size_t, size_t>, std::vector<size_t>> given_;
};

}  // namespace fleet::testing
