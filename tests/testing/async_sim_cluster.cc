#include "tests/testing/async_sim_cluster.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "base/hash.h"
#include "base/strings.h"
#include "strategies/parameter_server/client/async_client.h"
#include "strategies/parameter_server/client/worker_node.h"
#include "strategies/parameter_server/protocol/local_exchange.h"
#include "strategies/parameter_server/server/async_parameter_server.h"
#include "strategies/parameter_server/server/server_node.h"
#include "tests/testing/async_play_back.h"
#include "tests/testing/sim_nodes.h"

namespace fleet::testing {
namespace {

using fluid::ServerMode;
using strategies::AsyncClient;
using strategies::AsyncEvent;
using strategies::RemoteTensor;
using strategies::SharedValues;

// Of virtual time, besides what steps take.
constexpr Duration kPatience = std::chrono::minutes(10);
uint64_t steps_of(const AsyncSimJob& job, uint32_t worker) {
  return worker < job.uneven_steps.size() ? job.uneven_steps[worker] : job.steps;
}

strategies::ParameterServerConfig config_for(const AsyncSimJob& job, uint32_t index) {
  strategies::ParameterServerConfig config = sim_config(index, job.workers, job.servers);
  config.data_lanes = job.lanes;
  config.reconnect_grace = {job.reconnect_grace, job.reconnect_grace};
  config.heartbeat_timeout = job.heartbeat_timeout;
  config.facts = strategies::async_facts(job.options);
  return config;
}

class SimAsyncServer {
 public:
  SimAsyncServer(const AsyncSimJob& job, transport::SimWorld& world, uint32_t index, Logger logger)
      : job_(job),
        backups_(job.workers),
        loop_(world.add_loop(str_cat("server ", index))),
        node_(
            sim_environment(world, loop_, 1000 + index), config_for(job, index),
            [&](strategies::ServingEvents events) {
              return std::make_unique<strategies::AsyncParameterServer>(
                  config_for(job, index), make_model(index), std::move(events), logger,
                  [this](const AsyncEvent& event) { log_.push_back(event); }, job.rules);
            },
            logger) {}
  strategies::ServerNode& node() { return node_; }
  const strategies::AsyncServer& core() {
    return dynamic_cast<const strategies::AsyncParameterServer&>(node_.server()).core();
  }
  fluid::Scope& scope() { return scope_; }
  const std::vector<AsyncEvent>& log() const { return log_; }

 private:
  strategies::ServerModel make_model(uint32_t index) {
    strategies::ServerModel model;
    for (const AsyncSlice& slice : slices_of(job_)) {
      if (slice.server == index) add_slice(slice, model);
    }
    for (auto& row : backups_) row.resize(model.shards.size());
    model.on_value = [this](uint32_t worker, uint32_t slice, const fluid::Tensor& value) {
      backups_[worker][slice] = value;
    };
    model.on_sender = [this](uint32_t worker) { sender_ = worker; };
    return model;
  }
  void add_slice(const AsyncSlice& slice, strategies::ServerModel& model) {
    const auto count = static_cast<int64_t>(slice.size);
    auto& value = scope_.var(slice.name())
                      .emplace<fluid::Tensor>(fluid::DType::kFloat32, fluid::Shape{count});
    for (size_t i = 0; i < slice.size; ++i) {
      value.data<float>()[i] = async_initial_value(slice.variable, slice.begin + i);
    }
    auto& gradient = scope_.var(slice.name() + "@GRAD")
                         .emplace<fluid::Tensor>(fluid::DType::kFloat32, fluid::Shape{count});
    const auto rule = [this, id = slice.id, &value, &gradient](const strategies::StepUpdate&) {
      const fluid::Tensor& backup = backups_[sender_][id];
      const Vector g(gradient.values<float>().begin(), gradient.values<float>().end());
      const Vector old = backup.initialized()
                             ? Vector(backup.values<float>().begin(), backup.values<float>().end())
                             : Vector(value.values<float>().begin(), value.values<float>().end());
      update_slice(job_, value.data<float>(), g.data(), old.data(), g.size());
    };
    strategies::ParameterEntry entry;
    entry.name = slice.name();
    entry.gradient = slice.name() + "@GRAD";
    entry.shape = {count};
    entry.origin = str_cat("v", slice.variable);
    entry.origin_shape = {static_cast<int64_t>(job_.variables[slice.variable])};
    entry.offset = static_cast<int64_t>(slice.begin);
    model.parameter_index.entries.push_back(entry);
    ++model.parameter_index.trained;
    model.shards.push_back(std::make_unique<strategies::StateShard>(
        strategies::StateShardSpec{entry.name, entry.gradient, {}}, scope_, rule));
    model.tensors.push_back(&value);
  }
  const AsyncSimJob& job_;
  fluid::Scope scope_;
  std::vector<std::vector<fluid::Tensor>> backups_;  // by worker and slice
  uint32_t sender_ = 0;
  std::vector<AsyncEvent> log_;
  transport::SimLoop& loop_;
  strategies::ServerNode node_;
};

// Trains as a chain of events: compute for a while, queue what came of it, go on as the mode says.
class SimAsyncWorker {
 public:
  SimAsyncWorker(const AsyncSimJob& job, transport::SimWorld& world, uint32_t index)
      : job_(job),
        world_(world),
        index_(index),
        slices_(slices_of(job)),
        loop_(world.add_loop(str_cat("worker ", index))),
        node_(sim_environment(world, loop_, index), config_for(job, index), Logger(LogLevel::kOff)),
        client_(node_.client()),
        waiting_(job.variables.size()) {
    client_.work_by(job.options, events());
    for (size_t v = 0; v < job.variables.size(); ++v) {
      RemoteTensor tensor;
      tensor.name = str_cat("v", v);
      tensor.shape = fluid::Shape{static_cast<int64_t>(job.variables[v])};
      for (const AsyncSlice& slice : slices_) {
        if (slice.variable != v) continue;
        tensor.parts.push_back({{slice.server, slice.id}, slice.begin * 4, slice.size * 4});
      }
      client_.add_value(tensor);
      client_.add_gradient(tensor);
    }
    record_.made.resize(job.variables.size());
  }

  void start() {
    node_.client().set_on_idle([this] {
      if (!node_.client().ready() || begun_) return;
      begun_ = true;
      loop_.post([this] {
        client_.fetch([this](const Status& status) {
          if (!status.ok()) return fail(status.to_string());
          old_ = local_;
          next_step();
        });
      });
    });
    node_.start();
  }
  bool over() const { return done_ || !failure_.empty(); }
  const std::string& failure() const { return failure_; }
  uint64_t step() const { return step_; }
  bool done_training() const { return stopping_; }
  const AsyncWorkerRecord& record() const { return record_; }
  const std::vector<Vector>& local() const { return local_; }
  void set_peers(std::vector<const SimAsyncWorker*> peers) { peers_ = std::move(peers); }
  std::string state() const {
    return str_cat("worker ", index_, " at step ", step_, " of ", steps_of(job_, index_),
                   done_       ? ", done"
                   : stopping_ ? ", stopping"
                               : "");
  }

 private:
  AsyncClient::Events events() {
    AsyncClient::Events events;
    events.on_room = [this](uint32_t gradient) {
      --waiting_[gradient];
      if (std::exchange(waits_for_room_, false)) loop_.post([this] { queue_next(); });
    };
    events.on_values = [this](const SharedValues& values) { take(*values); };
    events.on_failure = [this] { fail(node_.status().to_string()); };
    return events;
  }

  void fail(const std::string& why) {
    if (failure_.empty()) failure_ = str_cat(state(), ": ", why);
  }

  void take(const std::vector<fluid::Tensor>& received) {
    local_ = std::vector<Vector>();
    for (size_t v = 0; v < received.size(); ++v) {
      const auto values = received[v].values<float>();
      local_.emplace_back(values.begin(), values.end());
      for (size_t s = 0; s < slices_.size(); ++s) {
        const AsyncSlice& slice = slices_[s];
        if (slice.variable != v) continue;
        const float* begin = local_[v].data() + slice.begin;
        record_.seen.push_back({s, {begin, begin + slice.size}});
      }
    }
  }

  void next_step() {
    if (over()) return;
    if (step_ == steps_of(job_, index_)) return stop();
    check_bound();
    node_.set_phase(transport::Phase::kComputing, ++step_);
    const bool stalls = job_.stalls > 0 && world_.random(1000) < job_.stalls;
    const auto full = static_cast<uint64_t>(job_.compute.count()) *
                      static_cast<uint64_t>(index_ == 0 ? job_.straggle : 1) * (stalls ? 10 : 1);
    loop_.call_after(Duration(full / 2 + world_.random(full)), [this] { compute(); });
  }

  // Nobody who still trains is further behind than the bound.
  void check_bound() {
    if (!job_.options.staleness_bound) return;
    for (const SimAsyncWorker* peer : peers_) {
      if (peer->done_training() || peer->step_ + *job_.options.staleness_bound >= step_) continue;
      fail(str_cat("goes on with ", peer->state()));
    }
  }

  void compute() {
    if (over()) return;
    if (!node_.status().ok()) return fail(node_.status().to_string());
    switch (job_.options.mode) {
      case ServerMode::kAsync:
        queued_ = 0;
        return queue_next();
      case ServerMode::kHalfAsync:
        // Threads of one worker, met at their barrier, in their order.
        for (uint32_t thread = 0; thread < job_.options.trainer_threads; ++thread) {
          for (size_t v = 0; v < job_.variables.size(); ++v) {
            enqueue(v, async_gradient(index_ + thread * 100, step_, v, local_[v]));
          }
        }
        return synchronize();
      case ServerMode::kGeo:
      case ServerMode::kEasgd:
        for (size_t v = 0; v < local_.size(); ++v) {
          const Vector gradient = async_gradient(index_, step_, v, local_[v]);
          for (size_t i = 0; i < gradient.size(); ++i) local_[v][i] -= kAsyncRate * gradient[i];
        }
        return job_.options.mode == ServerMode::kGeo ? exchange_differences() : pull_together();
      case ServerMode::kSync:
        return fail("a job of an asynchronous mode");
    }
  }

  void enqueue(size_t variable, const Vector& gradient) {
    record_.made[variable].push_back(gradient);
    Buffer memory(gradient.size() * sizeof(float));
    std::memcpy(memory.data(), gradient.data(), memory.size());
    ++waiting_[variable];
    client_.enqueue(static_cast<uint32_t>(variable), {std::move(memory)});
  }

  void queue_next() {
    if (over()) return;
    for (; queued_ < job_.variables.size(); ++queued_) {
      if (waiting_[queued_] >= job_.options.send_queue_size) {
        waits_for_room_ = true;
        client_.pump();
        return;
      }
      enqueue(queued_, async_gradient(index_, step_, queued_, local_[queued_]));
    }
    if (!job_.options.independent_recv) return synchronize();
    client_.pump();
    next_step();
  }

  void synchronize() {
    client_.synchronize([this](const Status& status) {
      if (status.ok()) loop_.post([this] { next_step(); });
    });
  }

  void exchange_differences() {
    if (step_ % job_.options.geo_update_frequency != 0) return next_step();
    std::vector<Vector> before = local_;
    for (size_t v = 0; v < local_.size(); ++v) {
      Vector difference(local_[v].size());
      strategies::geo_difference<float>(local_[v], old_[v], job_.workers, difference);
      enqueue(v, difference);
    }
    client_.synchronize([this, before = std::move(before)](const Status& status) {
      if (!status.ok()) return;
      std::vector<Vector> pulled = std::exchange(local_, before);
      for (size_t v = 0; v < local_.size(); ++v) {
        strategies::geo_receive<float>(pulled[v], local_[v], old_[v]);
      }
      loop_.post([this] { next_step(); });
    });
  }

  void pull_together() {
    if (step_ % job_.options.easgd_tau != 0) return next_step();
    std::vector<Vector> before = local_;
    client_.fetch([this, before = std::move(before)](const Status& status) {
      if (!status.ok()) return;
      const std::vector<Vector> centre = std::exchange(local_, before);
      const double alpha = strategies::easgd_alpha(job_.options.easgd_alpha, job_.workers);
      for (size_t v = 0; v < local_.size(); ++v) {
        Vector difference(local_[v].size());
        strategies::easgd_difference<float>(local_[v], centre[v], alpha, difference);
        enqueue(v, difference);
      }
      client_.pump();
      loop_.post([this] { next_step(); });
    });
  }

  void stop() {
    stopping_ = true;
    client_.when_drained([this] {
      loop_.post([this] {
        node_.stop_async([this](const Status& status) {
          if (!status.ok()) return fail(status.to_string());
          done_ = true;
        });
      });
    });
  }

  const AsyncSimJob& job_;
  transport::SimWorld& world_;
  uint32_t index_;
  const std::vector<AsyncSlice> slices_;
  transport::SimLoop& loop_;
  strategies::WorkerNode<strategies::AsyncClient> node_;
  AsyncClient& client_;
  std::vector<const SimAsyncWorker*> peers_;
  std::vector<Vector> local_;
  std::vector<Vector> old_;
  AsyncWorkerRecord record_;
  uint64_t step_ = 0;
  size_t queued_ = 0;
  std::vector<uint32_t> waiting_;  // gradients in the client's queues, by variable
  bool begun_ = false;
  bool waits_for_room_ = false;
  bool stopping_ = false;
  bool done_ = false;
  std::string failure_;
};

class AsyncSimRun {
 public:
  explicit AsyncSimRun(const AsyncSimJob& job) : job_(job), world_(mix64(job.seed), job.faults) {
    for (uint32_t i = 0; i < job.servers; ++i) {
      servers_.push_back(
          std::make_unique<SimAsyncServer>(job_, world_, i, counting_lost_lanes(lost_lanes_)));
    }
    for (uint32_t i = 0; i < job.workers; ++i) {
      workers_.push_back(std::make_unique<SimAsyncWorker>(job_, world_, i));
    }
    std::vector<const SimAsyncWorker*> peers;
    for (const auto& worker : workers_) peers.push_back(worker.get());
    for (auto& worker : workers_) worker->set_peers(peers);
  }

  AsyncSimOutcome run() {
    for (auto& server : servers_) server->node().start().throw_if_error();
    for (auto& worker : workers_) worker->start();
    const TimePoint begin = world_.now();
    const Duration steps = 2 * job_.compute * job_.straggle * static_cast<int64_t>(job_.steps);
    const bool ended =
        world_.run_until(all_over(world_, workers_, servers_), begin + kPatience + steps);
    AsyncSimOutcome outcome;
    outcome.time = world_.now() - begin;
    outcome.trace_hash = world_.trace_hash();
    outcome.lost_lanes = lost_lanes_;
    outcome.staleness = servers_.front()->core().staleness();
    outcome.failure = failure(ended);
    for (auto& server : servers_) outcome.logs.push_back(server->log());
    for (const auto& worker : workers_) outcome.local.push_back(worker->local());
    outcome.pushes = pushes(outcome.logs);
    if (outcome.ok()) play_back(outcome);
    return outcome;
  }

 private:
  // Of whole gradients: every one has a slice that begins at 0.
  uint64_t pushes(const std::vector<std::vector<AsyncEvent>>& logs) const {
    uint64_t count = 0;
    for (const AsyncSlice& slice : slices_of(job_)) {
      if (slice.begin > 0) continue;
      const auto& log = logs[slice.server];
      count += std::count_if(log.begin(), log.end(), [&slice](const AsyncEvent& event) {
        return event.kind == AsyncEvent::Kind::kUpdate && event.variable == slice.id;
      });
    }
    return count;
  }

  std::string failure(bool ended) const {
    for (const auto& worker : workers_) {
      if (!worker->failure().empty()) return worker->failure();
    }
    for (const auto& server : servers_) {
      if (!server->node().status().ok()) return server->node().status().to_string();
    }
    if (ended) return "";
    std::vector<std::string> states;
    for (const auto& worker : workers_) states.push_back(worker->state());
    return str_cat("deadlock: ", join(states, "; "));
  }

  void play_back(AsyncSimOutcome& outcome) {
    std::vector<AsyncWorkerRecord> records;
    for (const auto& worker : workers_) records.push_back(worker->record());
    AsyncPlayBack play(job_, std::move(records));
    outcome.failure = play.run(outcome.logs);
    if (!outcome.ok()) return;
    const auto slices = slices_of(job_);
    for (const size_t n : job_.variables) outcome.values.emplace_back(n);
    for (size_t s = 0; s < slices.size(); ++s) {
      const AsyncSlice& slice = slices[s];
      const auto value = servers_[slice.server]->scope().tensor(slice.name()).values<float>();
      std::copy(value.begin(), value.end(),
                outcome.values[slice.variable].begin() + static_cast<std::ptrdiff_t>(slice.begin));
      if (!std::equal(value.begin(), value.end(), play.last(s).begin())) {
        outcome.failure = str_cat("the last value of slice ", s, " differs");
      }
    }
  }

  const AsyncSimJob job_;
  uint64_t lost_lanes_ = 0;
  transport::SimWorld world_;
  std::vector<std::unique_ptr<SimAsyncServer>> servers_;
  std::vector<std::unique_ptr<SimAsyncWorker>> workers_;
};

}  // namespace

AsyncSimOutcome run_async_job(const AsyncSimJob& job) {
  AsyncSimRun run(job);
  return run.run();
}

}  // namespace fleet::testing
