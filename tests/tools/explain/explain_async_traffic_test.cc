// What is said to travel in a step of jobs whose workers do not wait for each other, held against
// what their servers measured.
#include <gtest/gtest.h>

#include "base/strings.h"
#include "fluid/backward/regularizer.h"
#include "tests/testing/async_thread_cluster.h"
#include "tests/tools/explain/traffic_nets.h"

namespace fleet::explain {
namespace {

using fluid::ServerMode;

// Multiples of the steps between two exchanges.
constexpr int kFew = 4;
constexpr int kMany = 12;

struct ModeCase {
  std::string name;  // as config_of_mode has it
  strategies::AsyncOptions options;
};

// In step with its own gradients a worker sends each of them alone, and receives once a step.
std::vector<ModeCase> modes() {
  const strategies::AsyncOptions in_step{.independent_recv = false};
  std::vector<ModeCase> cases(4, {.options = in_step});
  cases[0].name = "async";
  cases[1].name = "half_async";
  cases[1].options.mode = ServerMode::kHalfAsync;
  cases[2].name = "geo";
  cases[2].options.mode = ServerMode::kGeo;
  cases[2].options.geo_update_frequency = 4;
  cases[3].name = "dc_asgd";
  cases[3].options.delay_compensation =
      strategies::DelayCompensationOptions::preset(strategies::DelayCompensation::kClipped);
  return cases;
}

// What each server of a job has sent and received in a step.
std::vector<ServerBytes> measure(const TrafficNet& net, const ModeCase& mode, int workers,
                                 int servers) {
  const testing::AsyncThreadJob job{
      .workers = workers, .servers = servers, .options = mode.options};
  const auto few = testing::train_async_in_threads(net.task(kFew), job);
  const auto many = testing::train_async_in_threads(net.task(kMany), job);
  for (const auto& error : few.errors) ADD_FAILURE() << error;
  for (const auto& error : many.errors) ADD_FAILURE() << error;
  return bytes_per_step(few.servers, many.servers, kMany - kFew);
}

Explanation tell(const TrafficNet& net, const ModeCase& mode, int workers, int servers) {
  auto config = config_of_mode(mode.name);
  config.geo_sgd_need_push_nums = static_cast<int>(mode.options.geo_update_frequency);
  return explain(
      net.main, net.startup,
      {.config = config, .trainers = workers, .servers = servers, .batch = net.rows / workers});
}

void expect_measured(const TrafficNet& net, const ModeCase& mode, int workers, int servers) {
  SCOPED_TRACE(str_cat(mode.name, ", ", workers, " workers, ", servers, " servers"));
  expect_bytes(tell(net, mode, workers, servers), measure(net, mode, workers, servers));
}

TEST(ExplainAsyncTraffic, IsWhatServersMeasure) {
  for (const auto& mode : modes()) {
    for (const bool decays : {false, true}) {
      SCOPED_TRACE(decays ? "with a schedule" : "without");
      const TrafficNet net = dense_net({.decays = decays});
      expect_measured(net, mode, 2, 2);
      expect_measured(net, mode, 3, 1);
    }
  }
}

TEST(ExplainAsyncTraffic, IsWhatServersMeasureOfThreadsThatMeet) {
  ModeCase mode = modes()[1];
  mode.options.trainer_threads = 2;
  expect_measured(dense_net(), mode, 2, 2);
}

TEST(ExplainAsyncTraffic, IsWhatServersMeasureOfMovingAverages) {
  for (const auto& mode : modes()) expect_measured(dense_net({.statistics = true}), mode, 2, 2);
}

TEST(ExplainAsyncTraffic, IsWhatServersMeasureOfRows) {
  for (const auto& mode : modes()) {
    for (const Rows rows :
         {Rows::kLookup, Rows::kTwoLookups, Rows::kDistributed, Rows::kNce, Rows::kHsigmoid}) {
      if (mode.name == "dc_asgd" && rows == Rows::kDistributed) continue;  // refused
      SCOPED_TRACE(static_cast<int>(rows));
      const TrafficNet net = rows_net(rows);
      expect_measured(net, mode, 2, 2);
      expect_measured(net, mode, 1, 3);
    }
  }
}

// Servers decay all rows of a table, and those that a batch names travel, as without decay. With
// GEO trainers decay, and what has changed travels.
TEST(ExplainAsyncTraffic, OfRowsThatDecayIsThatOfRows) {
  for (const auto& mode : modes()) {
    for (const Rows rows : {Rows::kLookup, Rows::kDistributed, Rows::kNce}) {
      if (mode.name == "dc_asgd" && rows == Rows::kDistributed) continue;  // refused
      SCOPED_TRACE(str_cat(mode.name, ", rows ", static_cast<int>(rows)));
      const TrafficNet net = rows_net(rows, fluid::regularizer::L1Decay(1e-3));
      const auto measured = measure(net, mode, 2, 2);
      expect_bytes(tell(net, mode, 2, 2), measured);
      if (mode.name != "geo") expect_bytes(tell(rows_net(rows), mode, 2, 2), measured);
    }
  }
}

}  // namespace
}  // namespace fleet::explain
