// A net with growing tables, jobs that train it, and what is left of them. For tests.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/program.h"
#include "fluid/tables/lookup/shared_table.h"
#include "tests/testing/sample_task.h"
#include "tests/testing/thread_cluster.h"

namespace fleet::testing {

using MinimizeTables = std::function<void(const fluid::Variable&)>;

extern const std::vector<std::string> kTables;  // of the net

struct GrowingNetOptions {
  MinimizeTables minimize = [](const fluid::Variable& loss) {
    fluid::optimizer::SGD({.learning_rate = 0.1}).minimize(loss);
  };
  fluid::SparseEntry entry = {};
  fluid::tables::RowFields fields = {};
  bool deltas = false;
  fluid::tables::MemoryLimit memory = {};
  // With it, ids are shown and clicked, and admitted by their score (feed_with_shows).
  std::optional<double> show_threshold = {};
};

// Two slots of one table, looked up together, and one of another, whose padding is -1.
class GrowingNet {
 public:
  explicit GrowingNet(const GrowingNetOptions& options);

  TrainingTask task(int steps) const;
  const fluid::Program& main() const { return main_; }
  const fluid::Program& startup() const { return startup_; }
  const std::string& loss() const { return loss_; }

  // Few ids come often, others once; all 64 bits are used.
  static fluid::Feed feed(int step, int begin, int end, int parts);
  static fluid::Feed feed_with_shows(int step, int begin, int end, int parts);
  // What the net is fed.
  fluid::Feed own_feed(int step, int begin, int end, int parts) const {
    return has_shows_ ? feed_with_shows(step, begin, end, parts) : feed(step, begin, end, parts);
  }

 private:
  fluid::Program main_;
  fluid::Program startup_;
  std::string loss_;
  bool has_shows_ = false;
};

// Values, states, and show and click of a row that was shown, by table and id.
using Rows = std::map<std::pair<std::string, uint64_t>, std::vector<float>>;

void add_rows(const std::string& name, const fluid::tables::SharedTable& table, Rows& rows);

struct Outcome {
  Rows rows;
  std::vector<float> losses;
  Values persistables;
};

Outcome train_alone(const GrowingNet& net, int shards, int steps);
// What rows start from, by the keys of `like`.
Rows initial_rows(const GrowingNet& net, const Rows& like);

// The tables of a job's servers, which live as long as this.
class ServerTables {
 public:
  // Keeps those of the job, of either kind.
  template <class Job>
  void watch(Job& job) {
    job.before_serving = [this](const fluid::Program&, fluid::Scope& scope) { keep(scope); };
  }
  void keep(fluid::Scope& scope);
  Rows rows() const;
  uint64_t count() const { return sum(&fluid::tables::TableStatistics::rows); }
  uint64_t sum(uint64_t fluid::tables::TableStatistics::*number) const;

 private:
  std::mutex mutex_;
  std::vector<std::pair<std::string, std::shared_ptr<fluid::tables::SharedTable>>> tables_;
};

}  // namespace fleet::testing
