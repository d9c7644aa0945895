// An asynchronous parameter-server job under virtual time: the server is the state machine that
// real jobs run (strategies/parameter_server/protocol/async_server.h), the workers really
// train, and what their steps take is drawn from a schedule. One seed decides everything.
#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/protocol/async_server.h"

#include "experiments/testbed.h"

namespace fleet::experiments {

struct AsyncRun {
  uint32_t workers = 1;
  double rate = 0.1;  // of the optimizer, SGD
  int64_t batch_size = 16;
  uint64_t seed = 0;
  // The run ends after so many gradients, or when so much virtual time has passed. The rate falls
  // with the share of the gradients (stepped_rate) when their number is given.
  int64_t gradients = std::numeric_limits<int64_t>::max();
  double duration = std::numeric_limits<double>::infinity();

  strategies::DelayCompensationOptions compensation;
  std::optional<uint32_t> staleness_bound;

  // What a step of a worker takes; without, every step takes 1 and equal moments come in the order
  // of the workers, so that every gradient is exactly workers - 1 updates old.
  std::function<double(uint32_t worker, uint64_t clock)> step_time;
  double exchange_time = 0;  // of a push with the get behind it
  // Every so much virtual time the test error is taken; 0: never.
  double evaluate_every = 0;
};

struct AsyncOutcome {
  Weights weights;
  double test_error = 0;  // percent
  int64_t gradients = 0;
  double time = 0;
  strategies::StalenessStatistics staleness;
  uint64_t largest_gap = 0;  // between the clocks of two workers that both went on
  std::vector<std::pair<double, double>> errors;  // virtual time, test error
};

AsyncOutcome run_async(Model& model, const ClassificationData& data, const AsyncRun& run);

}  // namespace fleet::experiments
