#include "tests/fleet/by_hand.h"

#include <map>
#include <memory>
#include <span>
#include <string>

#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/protocol/local_exchange.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using Numbers = std::vector<float>;

std::span<float> values_of(fluid::Executor& executor, const std::string& name) {
  fluid::Tensor& tensor = executor.scope().tensor(name);
  return {tensor.data<float>(), static_cast<size_t>(tensor.numel())};
}

Numbers copy_of(fluid::Executor& executor, const std::string& name) {
  const auto values = values_of(executor, name);
  return {values.begin(), values.end()};
}

std::vector<std::string> trained(const fluid::Program& main) {
  std::vector<std::string> names;
  for (const auto* param : main.global_block().parameters()) {
    if (param->trainable) names.push_back(param->name);
  }
  return names;
}

float run_step(const TrainingTask& task, const fluid::Program& main, fluid::Executor& executor,
               int step, int part, int parts) {
  const auto fetched =
      executor.run(main, task.feed(step, part, part + 1, parts), {fluid::Fetch(task.loss)});
  return fetched.front().item<float>();
}

// A power of two of numbers, by halves.
float tree_sum(std::span<const float> row) {
  if (row.size() == 1) return row.front();
  const size_t half = row.size() / 2;
  return tree_sum(row.first(half)) + tree_sum(row.subspan(half));
}

class Exchanges {
 public:
  Exchanges(const TrainingTask& task, ServerMode mode) : task_(task), mode_(mode) {
    executor_.run(*task.startup);
    for (const std::string& name : trained(*task.main)) servers_[name] = copy_of(executor_, name);
    taken_ = servers_;
  }

  HandOutcome run(int interval) {
    HandOutcome outcome;
    outcome.losses.resize(1);
    for (int step = 0; step < task_.steps; ++step) {
      outcome.losses[0].push_back(run_step(task_, *task_.main, executor_, step, 0, 1));
      if ((step + 1) % interval == 0) exchange();
    }
    outcome.persistables.push_back(testing::values_of(*task_.main, executor_.scope(), false));
    return outcome;
  }

 private:
  void exchange() {
    for (auto& [name, server] : servers_) {
      const std::span<float> here = values_of(executor_, name);
      Numbers difference(here.size());
      if (mode_ == ServerMode::kEasgd) {
        strategies::easgd_difference<float>(here, server, 0.9, difference);
      } else {
        strategies::geo_difference<float>(here, taken_[name], 1, difference);
      }
      for (size_t i = 0; i < server.size(); ++i) server[i] += difference[i];
      if (mode_ == ServerMode::kGeo) strategies::geo_receive<float>(server, here, taken_[name]);
    }
  }

  const TrainingTask& task_;
  ServerMode mode_;
  fluid::Executor executor_;
  std::map<std::string, Numbers> servers_;
  std::map<std::string, Numbers> taken_;
};

// A program that knows which shard of the step it computes, by which random numbers are drawn.
class OfShard : public fluid::CommRuntime {
 public:
  explicit OfShard(fluid::StepShards own) : own_(own) {}
  fluid::StepShards shards() const override { return own_; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall&) override { return nullptr; }

 private:
  fluid::StepShards own_;
};

class Averages {
 public:
  Averages(const TrainingTask& task, int ranks) : task_(task), ranks_(static_cast<size_t>(ranks)) {
    programs_.reserve(ranks_.size());
    for (auto& executor : ranks_) {
      executor.run(*task.startup);
      const auto rank = static_cast<int>(programs_.size());
      programs_.push_back(*task.main);
      programs_.back().set_runtime(
          std::make_shared<OfShard>(fluid::StepShards{rank, rank + 1, ranks}));
    }
    for (const std::string& name : trained(*task.main)) {
      snapshots_[name] = copy_of(ranks_.front(), name);
    }
  }

  HandOutcome run(int interval, Averaged averaged) {
    HandOutcome outcome;
    const auto ranks = static_cast<int>(ranks_.size());
    outcome.losses.resize(ranks_.size());
    for (int step = 0; step < task_.steps; ++step) {
      for (int rank = 0; rank < ranks; ++rank) {
        const auto at = static_cast<size_t>(rank);
        outcome.losses[at].push_back(run_step(task_, programs_[at], ranks_[at], step, rank, ranks));
      }
      if ((step + 1) % interval == 0) average(averaged);
    }
    for (auto& executor : ranks_) {
      outcome.persistables.push_back(testing::values_of(*task_.main, executor.scope(), false));
    }
    return outcome;
  }

 private:
  void average(Averaged averaged) {
    const auto ranks = static_cast<float>(ranks_.size());
    Numbers row(ranks_.size());
    for (auto& [name, snapshot] : snapshots_) {
      std::vector<std::span<float>> values;
      for (auto& executor : ranks_) values.push_back(values_of(executor, name));
      for (size_t i = 0; i < snapshot.size(); ++i) {
        const bool changes = averaged == Averaged::kChanges;
        for (size_t rank = 0; rank < values.size(); ++rank) {
          row[rank] = changes ? snapshot[i] - values[rank][i] : values[rank][i];
        }
        const float mean = tree_sum(row) / ranks;
        snapshot[i] = changes ? snapshot[i] - mean : mean;
        for (auto& each : values) each[i] = snapshot[i];
      }
    }
  }

  const TrainingTask& task_;
  std::vector<fluid::Program> programs_;
  std::vector<fluid::Executor> ranks_;
  std::map<std::string, Numbers> snapshots_;
};

}  // namespace

HandOutcome exchange_by_hand(const TrainingTask& task, ServerMode mode, int interval) {
  return Exchanges(task, mode).run(interval);
}

HandOutcome average_by_hand(const TrainingTask& task, int ranks, int interval, Averaged averaged) {
  return Averages(task, ranks).run(interval, averaged);
}

}  // namespace fleet::testing
