// Nets whose jobs send what is known beforehand, to hold what is said to travel against it.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fluid/layers/layers.h"
#include "fluid/program/program.h"
#include "tests/testing/thread_cluster.h"
#include "tools/explain/explain.h"

namespace fleet::explain {

struct TrafficNet {
  testing::TrainingTask task(int steps) const;

  fluid::Program main;
  fluid::Program startup;
  std::string loss;
  // The feed of `rows` rows of a step; the same of every part of the batch.
  std::function<fluid::Feed(int step, int64_t rows)> feed;
  int64_t rows = 24;  // of a step, all parts together
};

// Dense gradients, one of them of a parameter that is cut; with `statistics` moving averages too,
// with `decays` a rate that follows the steps.
struct DenseNetOptions {
  bool statistics = false;
  bool decays = false;
};
TrafficNet dense_net(const DenseNetOptions& options = {});

// Sparse gradients, of a table that is cut for up to three servers. Ids are fed so that none
// occurs twice, in a batch or in steps that follow each other, and that servers have as many each.
enum class Rows { kLookup, kTwoLookups, kDistributed, kNce, kHsigmoid };
TrafficNet rows_net(Rows rows, const std::optional<fluid::Penalty>& decay = {});

// Of each server, in an average step.
struct ServerBytes {
  double in = 0;
  double out = 0;
};
// What jobs of two lengths differ by is what steps send.
std::vector<ServerBytes> bytes_per_step(const std::vector<testing::ThreadOutcome::Server>& few,
                                        const std::vector<testing::ThreadOutcome::Server>& many,
                                        int steps);
void expect_bytes(const Explanation& told, const std::vector<ServerBytes>& measured);

}  // namespace fleet::explain
