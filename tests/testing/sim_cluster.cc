#include "tests/testing/sim_cluster.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "strategies/parameter_server/client/sync_client.h"
#include "strategies/parameter_server/client/worker_node.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"
#include "tests/testing/sim_arithmetic.h"
#include "tests/testing/sim_nodes.h"

namespace fleet::testing {
namespace {

using strategies::ParameterServerConfig;
using strategies::RemoteVariable;
using strategies::ServerModel;
using strategies::ServerNode;
using strategies::SyncClient;
using strategies::WorkerNode;

constexpr Duration kPatience = std::chrono::minutes(10);  // of virtual time

uint32_t keeping_servers(const SimJob& job) {
  return job.last_server_empty && job.servers > 1 ? job.servers - 1 : job.servers;
}
uint32_t server_of(const SimJob& job, size_t slice) {
  return static_cast<uint32_t>(slice % keeping_servers(job));
}
std::string slice_name(size_t slice) {
  return str_cat("w", slice);
}
std::string gradient_name(size_t slice) {
  return str_cat("w", slice, "@GRAD");
}

ParameterServerConfig config_for(const SimJob& job, uint32_t index) {
  ParameterServerConfig config = sim_config(index, job.workers, job.servers);
  config.logical_shards = job.shard_count();
  config.data_lanes = job.lanes;
  config.flush_bytes = job.flush_bytes;
  config.separate_get_bytes = job.separate_get_bytes;
  config.reconnect_grace = {job.reconnect_grace, job.reconnect_grace};
  config.heartbeat_timeout = job.heartbeat_timeout;
  config.gradient_window_bytes = job.window_bytes;
  return config;
}

class SimServer {
 public:
  SimServer(const SimJob& job, transport::SimWorld& world, uint32_t index, const Logger& logger)
      : loop_(world.add_loop(str_cat("server ", index))),
        node_(
            sim_environment(world, loop_, 1000 + index), config_for(job, index),
            [&](strategies::ServingEvents events) {
              return std::make_unique<strategies::SyncParameterServer>(
                  config_for(job, index), make_model(job, index), std::move(events), logger,
                  job.rules);
            },
            logger) {}

  ServerNode& node() { return node_; }
  transport::SimLoop& loop() { return loop_; }
  fluid::Scope& scope() { return scope_; }

 private:
  ServerModel make_model(const SimJob& job, uint32_t index) {
    ServerModel model;
    for (size_t slice = 0; slice < job.slices.size(); ++slice) {
      if (server_of(job, slice) == index &&
          !(job.last_server_empty && index + 1 == job.servers && job.servers > 1)) {
        add_slice(job, slice, model);
      }
    }
    add_exchanges(job, model);
    return model;
  }
  void add_slice(const SimJob& job, size_t slice, ServerModel& model) {
    const auto count = static_cast<int64_t>(job.slices[slice]);
    auto& value = scope_.var(slice_name(slice))
                      .emplace<fluid::Tensor>(fluid::DType::kFloat32, fluid::Shape{count});
    for (size_t i = 0; i < job.slices[slice]; ++i) {
      value.data<float>()[i] = initial_value(slice, i);
    }
    fluid::Value& gradient = scope_.var(gradient_name(slice));
    const bool rows = takes_rows(job, slice);
    if (rows) {
      gradient = fluid::SelectedRows{
          .rows = {}, .height = count, .value = fluid::Tensor(fluid::DType::kFloat32, {0})};
    } else {
      gradient = fluid::Tensor(fluid::DType::kFloat32, {count});
    }
    const bool exchanges = takes_part(job, slice);
    const auto rule = [this, slice, exchanges, rows, &value,
                       &gradient](const strategies::StepUpdate& update) {
      if (rows) return update_rows(value, *std::get_if<fluid::SelectedRows>(&gradient), update);
      run_stage(slice, exchanges, value, *std::get_if<fluid::Tensor>(&gradient), update);
    };
    strategies::ParameterEntry entry;
    entry.name = slice_name(slice);
    entry.gradient = gradient_name(slice);
    entry.shape = {count};
    entry.origin = entry.name;
    entry.origin_shape = entry.shape;
    entry.rows = rows;
    model.parameter_index.entries.push_back(entry);
    ++model.parameter_index.trained;
    model.shards.push_back(std::make_unique<strategies::StateShard>(
        strategies::StateShardSpec{entry.name, entry.gradient, {}}, scope_, rule,
        exchanges ? static_cast<int>(1 + job.exchanges) : 1));
    model.tensors.push_back(&value);
  }

  static void update_rows(fluid::Tensor& value, const fluid::SelectedRows& gradient,
                          const strategies::StepUpdate& update) {
    std::vector<float> g(gradient.value.values<float>().begin(),
                         gradient.value.values<float>().end());
    average(g, update.shards);
    for (size_t i = 0; i < g.size(); ++i) {
      value.data<float>()[gradient.rows[i]] -= kRate * g[i];
    }
  }

  void run_stage(size_t slice, bool exchanges, fluid::Tensor& value, fluid::Tensor& gradient,
                 const strategies::StepUpdate& update) {
    const auto stage = static_cast<size_t>(update.stage);
    std::vector<float> g(gradient.values<float>().begin(), gradient.values<float>().end());
    if (stage == 0) average(g, update.shards);
    if (stage > 0) use_total(static_cast<uint32_t>(stage - 1), totals_[stage - 1], g);
    std::copy(g.begin(), g.end(), gradient.data<float>());
    if (exchanges && stage < wholes_.size()) {
      fluid::Tensor share(fluid::DType::kFloat32, fluid::Shape{1});
      *share.data<float>() = share_of(static_cast<uint32_t>(stage), g);
      shares_[stage][slice] = share;
      return;
    }
    std::vector<float> values(value.values<float>().begin(), value.values<float>().end());
    descend(values, g);
    std::copy(values.begin(), values.end(), value.data<float>());
  }

  void add_exchanges(const SimJob& job, ServerModel& model) {
    std::vector<size_t> slices;
    for (size_t slice = 0; slice < job.slices.size(); ++slice) {
      if (takes_part(job, slice)) slices.push_back(slice);
    }
    const auto count = static_cast<int64_t>(slices.size());
    for (uint32_t i = 0; i < job.exchanges; ++i) {
      wholes_.emplace_back(fluid::DType::kFloat32, fluid::Shape{count});
      strategies::StepExchange& exchange = model.exchanges.emplace_back();
      for (const size_t slice : slices) {
        exchange.parts.push_back({slice_name(slice), server_of(job, slice), sizeof(float)});
      }
      exchange.made = [this, i, slices](size_t part) { return shares_[i].at(slices[part]); };
      exchange.place = [this, i](size_t part) {
        return transport::MutableBytes{wholes_[i].raw() + part * sizeof(float), sizeof(float)};
      };
      exchange.run = [this, i, slices] {
        totals_[i] = total_of(wholes_[i].data<float>(), slices.size());
      };
    }
  }

  fluid::Scope scope_;
  std::array<std::map<size_t, fluid::Tensor>, 2> shares_;  // by exchange and slice
  std::vector<fluid::Tensor> wholes_;                      // by exchange
  std::array<float, 2> totals_{};
  transport::SimLoop& loop_;
  ServerNode node_;
};

// Trains as a chain of events: compute for a while, push slice by slice, end the step, check.
class SimWorker {
 public:
  SimWorker(const SimJob& job, transport::SimWorld& world, uint32_t index,
            const std::vector<Values>& expected)
      : job_(job),
        world_(world),
        expected_(expected),
        index_(index),
        loop_(world.add_loop(str_cat("worker ", index))),
        node_(sim_environment(world, loop_, index), config_for(job, index),
              Logger(LogLevel::kOff)) {
    for (const size_t count : job.slices) values_.emplace_back(count);
    owned_ = owned_shards(static_cast<int>(index), static_cast<int>(job.workers),
                          static_cast<int>(job.shard_count()));
    gradients_.resize(job.slices.size() * static_cast<size_t>(owned_.size()));
  }

  void start() {
    node_.client().set_on_idle([this] { loop_.post([this] { advance(); }); });
    node_.start();
  }
  bool over() const { return done_ || !failure_.empty(); }
  transport::SimLoop& loop() { return loop_; }
  const std::string& failure() const { return failure_; }
  Duration step_time() const {
    return (ended_ - began_) / static_cast<int64_t>(std::max<uint64_t>(1, step_));
  }
  std::string state() const {
    return str_cat("worker ", index_, " at step ", client().step(), " of ", steps_of(job_, index_),
                   done_ ? ", done" : "");
  }

 private:
  enum class Phase { kConnecting, kFetching, kLooking, kComputing, kStepping, kStopping };
  SyncClient& client() { return node_.client(); }
  const SyncClient& client() const { return const_cast<SimWorker*>(this)->node_.client(); }

  void fail(const std::string& why) {
    if (failure_.empty()) failure_ = str_cat(state(), ": ", why);
  }

  void advance() {
    if (over()) return;
    if (!node_.status().ok()) return fail(node_.status().to_string());
    if (!client().idle()) return;
    switch (phase_) {
      case Phase::kConnecting:
        if (!client().ready()) return;
        for (size_t slice = 0; slice < values_.size(); ++slice) {
          places_.push_back(client().find(server_of(job_, slice), slice_name(slice)));
        }
        phase_ = Phase::kFetching;
        receive_all();
        client().fetch();
        return;
      case Phase::kFetching:
        return arrived();
      case Phase::kStepping:
        if (client().step() < step_) return;
        return arrived();
      case Phase::kLooking:
        return begin_step();
      case Phase::kComputing:
      case Phase::kStopping:
        return;
    }
  }

  void arrived() {
    const Values& wanted = expected_[step_];
    for (size_t slice = 0; slice < values_.size(); ++slice) {
      if (std::memcmp(wanted[slice].data(), values_[slice].data(),
                      wanted[slice].size() * sizeof(float)) != 0) {
        return fail(str_cat("slice ", slice, " differs after step ", step_));
      }
    }
    if (step_ == 0) began_ = world_.now();
    ended_ = world_.now();
    if (step_ == steps_of(job_, index_)) return stop();
    look_up();
  }

  // Some rows of every slice that has them, each as it is now.
  void look_up() {
    phase_ = Phase::kLooking;
    looked_up_.assign(values_.size(), {});
    asked_.assign(values_.size(), {});
    for (size_t slice = 0; slice < values_.size(); ++slice) {
      for (size_t row = 0; takes_rows(job_, slice) && row < values_[slice].size(); ++row) {
        if (world_.random(2) == 0) asked_[slice].push_back(static_cast<int64_t>(row));
      }
      if (asked_[slice].empty()) continue;
      looked_up_[slice].resize(asked_[slice].size());
      client().get_rows(places_[slice], asked_[slice],
                        reinterpret_cast<std::byte*>(looked_up_[slice].data()));
    }
    if (client().idle()) begin_step();
  }

  void begin_step() {
    for (size_t slice = 0; slice < values_.size(); ++slice) {
      for (size_t i = 0; i < asked_[slice].size(); ++i) {
        const float wanted = expected_[step_][slice][static_cast<size_t>(asked_[slice][i])];
        if (looked_up_[slice][i] != wanted) {
          return fail(str_cat("row ", asked_[slice][i], " of slice ", slice, " differs after step ",
                              step_));
        }
      }
    }
    ++step_;
    phase_ = Phase::kComputing;
    shard_ = owned_.begin;
    slice_ = 0;
    if (job_.compute == Duration(0)) return push_next();
    loop_.call_after(job_.compute * (index_ == 0 ? job_.straggle : 1), [this] { push_next(); });
  }

  void push_next() {
    if (over()) return;
    if (!node_.status().ok()) return fail(node_.status().to_string());
    if (shard_ == owned_.end) return finish_step();
    const size_t at =
        slice_ * static_cast<size_t>(owned_.size()) + static_cast<size_t>(shard_ - owned_.begin);
    gradients_[at] = gradient_vector(job_, step_, shard_, slice_, values_[slice_]);
    if (skips(job_, step_, index_, slice_)) {
      // Nothing is pushed.
    } else if (takes_rows(job_, slice_)) {
      client().push_rows(places_[slice_], shard_,
                         gradient_rows(step_, shard_, slice_, gradients_[at]));
    } else {
      client().push(places_[slice_], shard_,
                    reinterpret_cast<const std::byte*>(gradients_[at].data()),
                    gradients_[at].size() * sizeof(float));
    }
    if (++slice_ == values_.size()) {
      slice_ = 0;
      ++shard_;
    }
    loop_.call_after(std::chrono::microseconds(world_.random(200)), [this] { push_next(); });
  }

  void finish_step() {
    phase_ = Phase::kStepping;
    receive_all();
    client().finish_step();
  }

  void receive_all() {
    for (size_t slice = 0; slice < values_.size(); ++slice) {
      client().receive(places_[slice], reinterpret_cast<std::byte*>(values_[slice].data()),
                       values_[slice].size() * sizeof(float));
    }
  }

  void stop() {
    phase_ = Phase::kStopping;
    node_.stop_async([this](const Status& status) {
      if (!status.ok()) return fail(status.to_string());
      done_ = true;
    });
  }

  const SimJob& job_;
  transport::SimWorld& world_;
  const std::vector<Values>& expected_;
  uint32_t index_;
  transport::SimLoop& loop_;
  Values values_;
  Values gradients_;
  Values looked_up_;
  std::vector<std::vector<int64_t>> asked_;
  WorkerNode<SyncClient> node_;
  std::vector<RemoteVariable> places_;
  ShardRange owned_;
  Phase phase_ = Phase::kConnecting;
  uint64_t step_ = 0;
  TimePoint began_{};
  TimePoint ended_{};
  int shard_ = 0;
  size_t slice_ = 0;
  bool done_ = false;
  std::string failure_;
};

class SimRun {
 public:
  explicit SimRun(const SimJob& job)
      : job_(job), expected_(reference_values(job)), world_(mix64(job.seed), job.faults) {
    for (uint32_t i = 0; i < job.servers; ++i) {
      servers_.push_back(
          std::make_unique<SimServer>(job_, world_, i, counting_lost_lanes(lost_lanes_)));
    }
    for (uint32_t i = 0; i < job.workers; ++i) {
      workers_.push_back(std::make_unique<SimWorker>(job_, world_, i, expected_));
    }
  }

  SimOutcome run() {
    start();
    const bool ended =
        world_.run_until(all_over(world_, workers_, servers_), world_.now() + kPatience);
    for (const auto& worker : workers_) {
      if (!worker->failure().empty()) return outcome(worker->failure());
    }
    for (auto& server : servers_) {
      if (!server->node().status().ok()) return outcome(server->node().status().to_string());
    }
    if (!ended) return outcome(str_cat("deadlock: ", states()));
    return outcome("");
  }

  SimFaultOutcome run_with_fault(const SimFault& fault) {
    start();
    SimFaultOutcome result;
    if (world_.run_until(all_over(world_, workers_, servers_), world_.now() + fault.moment)) {
      result.came_too_late = true;
      return result;
    }
    transport::SimLoop& victim =
        fault.server ? servers_[fault.index]->loop() : workers_[fault.index]->loop();
    if (fault.kind == SimFault::Kind::kKill) {
      world_.kill(victim);
    } else {
      world_.pause(victim);
    }
    const TimePoint begin = world_.now();
    EveryNode all_noticed(world_, servers_.size() + workers_.size(), [&](size_t node) {
      return node == victim.index() || !said_by(node).empty();
    });
    world_.run_until(std::ref(all_noticed), begin + kPatience);
    result.detection = world_.now() - begin;
    for (size_t node = 0; node < servers_.size() + workers_.size(); ++node) {
      if (node != victim.index()) result.survivors.emplace_back(name_of(node), said_by(node));
    }
    return result;
  }

 private:
  void start() {
    for (auto& server : servers_) server->node().start().throw_if_error();
    for (auto& worker : workers_) worker->start();
  }

  // Nodes by their loops: servers, then workers.
  std::string name_of(size_t node) const {
    return node < servers_.size() ? servers_[node]->loop().name()
                                  : workers_[node - servers_.size()]->loop().name();
  }
  // Of the job's failure; empty when it says nothing.
  std::string said_by(size_t node) const {
    if (node >= servers_.size()) return workers_[node - servers_.size()]->failure();
    const Status& status = servers_[node]->node().status();
    return status.ok() ? std::string() : status.to_string();
  }

  std::string states() const {
    std::vector<std::string> texts;
    for (const auto& worker : workers_) texts.push_back(worker->state());
    for (const auto& server : servers_) {
      texts.push_back(str_cat("server at step ", server->node().server().step(),
                              server->node().finished() ? " finished" : ""));
    }
    return join(texts, "; ");
  }

  SimOutcome outcome(std::string failure) {
    SimOutcome result;
    result.failure = std::move(failure);
    result.trace_hash = world_.trace_hash();
    result.events = world_.events_run();
    result.lost_lanes = lost_lanes_;
    for (const auto& worker : workers_) {
      result.step_time = std::max(result.step_time, worker->step_time());
    }
    if (!result.ok()) return result;
    for (size_t slice = 0; slice < job_.slices.size(); ++slice) {
      const auto values =
          servers_[server_of(job_, slice)]->scope().tensor(slice_name(slice)).values<float>();
      result.values.emplace_back(values.begin(), values.end());
    }
    if (result.values != expected_.back()) result.failure = "a server's last values differ";
    return result;
  }

  const SimJob job_;
  const std::vector<Values> expected_;
  uint64_t lost_lanes_ = 0;
  transport::SimWorld world_;
  std::vector<std::unique_ptr<SimServer>> servers_;
  std::vector<std::unique_ptr<SimWorker>> workers_;
};

}  // namespace

SimFaultOutcome run_job_with_fault(const SimJob& job, const SimFault& fault) {
  SimRun run(job);
  return run.run_with_fault(fault);
}

SimOutcome run_job(const SimJob& job) {
  SimRun run(job);
  return run.run();
}

}  // namespace fleet::testing
