#include "tests/testing/sim_cluster.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <map>
#include <memory>
#include <optional>
#include <utility>

#include "base/hash.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/synchronous/worker_node.h"

namespace fleet::testing {
namespace {

using strategies::Catalogue;
using strategies::Communicator;
using strategies::NodeEnvironment;
using strategies::ParameterServerConfig;
using strategies::RemoteVariable;
using strategies::ServerModel;
using strategies::ServerNode;
using strategies::WorkerNode;
using Values = std::vector<std::vector<float>>;  // by slice

constexpr uint16_t kFirstPort = 7000;
constexpr Duration kPatience = std::chrono::minutes(10);  // of virtual time

float initial_value(size_t slice, size_t element) {
  return static_cast<float>(mix64(slice * 1000 + element) % 1000) / 512.0F;
}

// Magnitudes differ widely, so that the order of additions shows in the bits.
float gradient_of(uint64_t step, int shard, size_t slice, size_t element, float value) {
  const uint64_t draw =
      mix64(step * 7919 + static_cast<uint64_t>(shard) * 104729 + slice * 31 + element * 1299709);
  const auto scale = static_cast<float>(uint64_t{1} << (draw % 12));
  return (static_cast<float>((draw >> 16) % 2001) - 1000.0F) * scale * 1e-4F + 0.01F * value;
}

constexpr float kRate = 0.1F;

// The toy optimizer. Slices that exchange scale their gradients by what all of them have in common,
// and with two exchanges shift them as well.
bool takes_part(const SimJob& job, size_t slice) {
  return job.exchanges > 0 && slice % 3 != 2;
}
bool takes_rows(const SimJob& job, size_t slice) {
  return job.rows && slice % 3 == 2;
}
// Whether a shard's gradient of a slice of rows has the row.
bool has_row(uint64_t step, int shard, size_t slice, size_t row) {
  return mix64(step * 31 + static_cast<uint64_t>(shard) * 7907 + slice * 104723 + row) % 3 == 0;
}
// What a slice says in an exchange of its gradients.
float share_of(uint32_t exchange, const std::vector<float>& gradient) {
  float sum = 0.0F;
  for (const float g : gradient) sum += exchange == 0 ? g * g : g;
  return sum;
}
float total_of(const float* shares, size_t count) {
  float sum = 0.0F;
  for (size_t i = 0; i < count; ++i) sum += shares[i];
  return sum;
}
void average(std::vector<float>& gradient, int shards) {
  const float scale = 1.0F / static_cast<float>(shards);
  for (float& g : gradient) g *= scale;
}
void use_total(uint32_t exchange, float total, std::vector<float>& gradient) {
  for (float& g : gradient) g = exchange == 0 ? g / (1.0F + total) : g + 0.125F * total;
}
void descend(std::vector<float>& values, const std::vector<float>& gradient) {
  for (size_t i = 0; i < values.size(); ++i) values[i] -= kRate * gradient[i];
}

uint64_t steps_of(const SimJob& job, uint32_t worker) {
  return worker < job.uneven_steps.size() ? job.uneven_steps[worker] : job.steps;
}

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

std::vector<float> gradient_vector(const SimJob& job, uint64_t step, int shard, size_t slice,
                                   const std::vector<float>& values) {
  std::vector<float> gradient(values.size(), 0.0F);
  for (size_t i = 0; i < values.size(); ++i) {
    if (takes_rows(job, slice) && !has_row(step, shard, slice, i)) continue;
    gradient[i] = gradient_of(step, shard, slice, i, values[i]);
  }
  return gradient;
}

fluid::SelectedRows gradient_rows(uint64_t step, int shard, size_t slice,
                                  const std::vector<float>& gradient) {
  fluid::SelectedRows rows;
  rows.height = static_cast<int64_t>(gradient.size());
  std::vector<float> values;
  for (size_t i = 0; i < gradient.size(); ++i) {
    if (!has_row(step, shard, slice, i)) continue;
    rows.rows.push_back(static_cast<int64_t>(i));
    values.push_back(gradient[i]);
  }
  rows.value = fluid::Tensor(fluid::DType::kFloat32, {static_cast<int64_t>(values.size())});
  std::copy(values.begin(), values.end(), rows.value.data<float>());
  return rows;
}

// The tree's sum over the shards that contribute, by the definition.
std::optional<std::vector<float>> sum_over(const SimJob& job, ShardRange node,
                                           const std::vector<bool>& contributes, uint64_t step,
                                           size_t slice, const std::vector<float>& values) {
  if (node.size() == 1) {
    if (!contributes[static_cast<size_t>(node.begin)]) return std::nullopt;
    return gradient_vector(job, step, node.begin, slice, values);
  }
  const int middle = node.begin + tree_split(node.size());
  auto left = sum_over(job, {node.begin, middle}, contributes, step, slice, values);
  const auto right = sum_over(job, {middle, node.end}, contributes, step, slice, values);
  if (!left || !right) return left ? left : right;
  for (size_t i = 0; i < left->size(); ++i) (*left)[i] += (*right)[i];
  return left;
}

NodeEnvironment environment_for(transport::SimWorld& world, transport::SimLoop& loop,
                                uint64_t node) {
  NodeEnvironment environment;
  environment.network = &world;
  environment.data_loop = &loop;
  environment.control_loop = &loop;
  environment.on_control = [](const std::function<void()>& work) { work(); };
  environment.random =
      [state = mix64(world.seed() * 64 + node)](transport::MutableBytes bytes) mutable {
        for (std::byte& byte : bytes) {
          state = mix64(state);
          byte = static_cast<std::byte>(state & 0xff);
        }
      };
  environment.incarnation = mix64(world.seed() * 128 + node) | 1U;
  return environment;
}

ParameterServerConfig config_for(const SimJob& job, uint32_t index) {
  ParameterServerConfig config;
  config.index = index;
  config.worker_num = job.workers;
  config.logical_shards = job.shard_count();
  for (uint32_t i = 0; i < job.servers; ++i) {
    config.servers.push_back({"sim", static_cast<uint16_t>(kFirstPort + i)});
  }
  config.job_id = "simulated";
  config.secret = transport::Secret::of_text("a secret of the simulation", "test");
  config.data_lanes = job.lanes;
  config.flush_bytes = job.flush_bytes;
  config.reconnect_grace = job.reconnect_grace;
  config.heartbeat_timeout = job.heartbeat_timeout;
  config.mutations = job.mutations;
  return config;
}

Logger quiet() {
  return Logger(LogLevel::kOff);
}

Logger counting_lost_lanes(uint64_t& count) {
  return Logger(LogLevel::kDebug, [&count](LogLevel, std::string_view line) {
    if (line.find("a data lane closed") != std::string_view::npos) ++count;
  });
}

class SimServer {
 public:
  SimServer(const SimJob& job, transport::SimWorld& world, uint32_t index, const Logger& logger)
      : loop_(world.add_loop(str_cat("server ", index))),
        node_(environment_for(world, loop_, 1000 + index), config_for(job, index),
              make_model(job, index), logger) {}

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
    strategies::CatalogueEntry entry;
    entry.name = slice_name(slice);
    entry.gradient = gradient_name(slice);
    entry.shape = {count};
    entry.origin = entry.name;
    entry.origin_shape = entry.shape;
    entry.rows = rows;
    model.catalogue.entries.push_back(entry);
    ++model.catalogue.trained;
    model.shards.push_back(std::make_unique<strategies::DenseShard>(
        strategies::DenseShardSpec{entry.name, entry.gradient, {}}, scope_, rule,
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
      strategies::Exchange& exchange = model.exchanges.emplace_back();
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
        node_(environment_for(world, loop_, index), config_for(job, index), quiet()) {
    for (const size_t count : job.slices) values_.emplace_back(count);
    owned_ = owned_shards(static_cast<int>(index), static_cast<int>(job.workers),
                          static_cast<int>(job.shard_count()));
    gradients_.resize(job.slices.size() * static_cast<size_t>(owned_.size()));
  }

  void start() {
    node_.communicator().set_on_idle([this] { loop_.post([this] { advance(); }); });
    node_.start();
  }
  bool over() const { return done_ || !failure_.empty(); }
  transport::SimLoop& loop() { return loop_; }
  const std::string& failure() const { return failure_; }
  Duration step_time() const {
    return (ended_ - began_) / static_cast<int64_t>(std::max<uint64_t>(1, step_));
  }
  std::string state() const {
    return str_cat("worker ", index_, " at step ", communicator().step(), " of ",
                   steps_of(job_, index_), done_ ? ", done" : "");
  }

 private:
  enum class Phase { kConnecting, kFetching, kLooking, kComputing, kStepping, kStopping };
  Communicator& communicator() { return node_.communicator(); }
  const Communicator& communicator() const {
    return const_cast<SimWorker*>(this)->node_.communicator();
  }

  void fail(const std::string& why) {
    if (failure_.empty()) failure_ = str_cat(state(), ": ", why);
  }

  void advance() {
    if (over()) return;
    if (!node_.status().ok()) return fail(node_.status().to_string());
    if (!communicator().idle()) return;
    switch (phase_) {
      case Phase::kConnecting:
        if (!communicator().ready()) return;
        for (size_t slice = 0; slice < values_.size(); ++slice) {
          places_.push_back(communicator().find(server_of(job_, slice), slice_name(slice)));
        }
        phase_ = Phase::kFetching;
        receive_all();
        communicator().fetch();
        return;
      case Phase::kFetching:
        return arrived();
      case Phase::kStepping:
        if (communicator().step() < step_) return;
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
      communicator().get_rows(places_[slice], asked_[slice],
                              reinterpret_cast<std::byte*>(looked_up_[slice].data()));
    }
    if (communicator().idle()) begin_step();
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
    loop_.call_after(job_.compute, [this] { push_next(); });
  }

  void push_next() {
    if (over()) return;
    if (!node_.status().ok()) return fail(node_.status().to_string());
    if (shard_ == owned_.end) return finish_step();
    const size_t at =
        slice_ * static_cast<size_t>(owned_.size()) + static_cast<size_t>(shard_ - owned_.begin);
    gradients_[at] = gradient_vector(job_, step_, shard_, slice_, values_[slice_]);
    if (takes_rows(job_, slice_)) {
      communicator().push_rows(places_[slice_], shard_,
                               gradient_rows(step_, shard_, slice_, gradients_[at]));
    } else {
      communicator().push(places_[slice_], shard_,
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
    communicator().finish_step();
  }

  void receive_all() {
    for (size_t slice = 0; slice < values_.size(); ++slice) {
      communicator().receive(places_[slice], reinterpret_cast<std::byte*>(values_[slice].data()),
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
  WorkerNode node_;
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
    const bool ended = world_.run_until([this] { return over(); }, world_.now() + kPatience);
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
    if (world_.run_until([this] { return over(); }, world_.now() + fault.moment)) {
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
    world_.run_until([&] { return all_noticed(fault); }, begin + kPatience);
    result.detection = world_.now() - begin;
    each_survivor(fault, [&](const std::string& name, const std::string& text) {
      result.survivors.emplace_back(name, text);
    });
    return result;
  }

 private:
  void start() {
    for (auto& server : servers_) server->node().start().throw_if_error();
    for (auto& worker : workers_) worker->start();
  }

  template <class Visit>
  void each_survivor(const SimFault& fault, const Visit& visit) const {
    for (uint32_t i = 0; i < servers_.size(); ++i) {
      if (fault.server && fault.index == i) continue;
      const Status& status = servers_[i]->node().status();
      visit(str_cat("server ", i), status.ok() ? std::string() : status.to_string());
    }
    for (uint32_t i = 0; i < workers_.size(); ++i) {
      if (!fault.server && fault.index == i) continue;
      visit(str_cat("worker ", i), workers_[i]->failure());
    }
  }

  bool all_noticed(const SimFault& fault) const {
    bool all = true;
    each_survivor(fault,
                  [&](const std::string&, const std::string& text) { all = all && !text.empty(); });
    return all;
  }

  bool over() const {
    bool all = true;
    for (const auto& worker : workers_) {
      if (!worker->failure().empty()) return true;
      all = all && worker->over();
    }
    for (const auto& server : servers_) {
      if (!server->node().status().ok()) return true;
      all = all && server->node().finished();
    }
    return all;
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

std::string SimJob::to_string() const {
  return str_cat("seed ", seed, ": ", workers, " workers, ", servers, " servers, ", shard_count(),
                 " shards, ", lanes, " lanes, ", exchanges, " exchanges, ", rows ? "rows, " : "",
                 steps, " steps, cut ", faults.cut, ", duplicate ", faults.duplicate, ", refuse ",
                 faults.refuse, ", chunk ", faults.max_chunk);
}

SimJob draw_job(uint64_t seed) {
  struct Shape {
    uint32_t workers, servers, shards;
  };
  static constexpr Shape kShapes[] = {{2, 2, 2}, {4, 1, 4}, {1, 3, 1}, {1, 1, 4},
                                      {2, 1, 4}, {2, 2, 4}, {4, 2, 4}, {3, 2, 5}};
  uint64_t state = mix64(seed + 0x5eed);
  const auto draw = [&state](uint64_t below) {
    state = mix64(state);
    return state % below;
  };
  SimJob job;
  job.seed = seed;
  const Shape shape = kShapes[draw(std::size(kShapes))];
  job.workers = shape.workers;
  job.servers = shape.servers;
  job.shards = shape.shards;
  job.lanes = 1 + static_cast<uint32_t>(draw(3));
  job.steps = 2 + draw(4);
  job.last_server_empty = job.servers > 1 && draw(4) == 0;
  job.flush_bytes = draw(2) == 0 ? 64 * 1024 : 8;
  if (draw(4) == 0) {
    for (uint32_t i = 0; i < job.workers; ++i) job.uneven_steps.push_back(1 + draw(job.steps));
    job.uneven_steps[draw(job.workers)] = job.steps;
  }
  job.faults.delay_max = std::chrono::microseconds(20 + draw(500));
  job.faults.max_chunk = draw(2) == 0 ? 0 : 16 + draw(200);
  job.faults.cut = draw(3) == 0 ? 0.0 : static_cast<double>(draw(40)) / 1000.0;
  job.faults.duplicate = draw(3) == 0 ? 0.0 : static_cast<double>(draw(150)) / 1000.0;
  job.faults.refuse = draw(3) == 0 ? static_cast<double>(draw(300)) / 1000.0 : 0.0;
  if (draw(3) == 0) job.exchanges = 1 + static_cast<uint32_t>(draw(2));
  if (draw(2) == 0) {
    job.rows = true;
    job.slices = {3, 7, 11, 5, 2, 40};
  }
  return job;
}

namespace {

// One step of all slices; `sum` gives the sum of a slice's gradients.
template <class Sum>
void step_all(const SimJob& job, Values& values, int shards, const Sum& sum) {
  if (shards == 0) return;
  Values gradients;
  for (size_t slice = 0; slice < values.size(); ++slice) {
    average(gradients.emplace_back(*sum(slice)), shards);
  }
  for (uint32_t exchange = 0; exchange < job.exchanges; ++exchange) {
    std::vector<float> shares;
    for (size_t slice = 0; slice < values.size(); ++slice) {
      if (takes_part(job, slice)) shares.push_back(share_of(exchange, gradients[slice]));
    }
    const float total = total_of(shares.data(), shares.size());
    for (size_t slice = 0; slice < values.size(); ++slice) {
      if (takes_part(job, slice)) use_total(exchange, total, gradients[slice]);
    }
  }
  for (size_t slice = 0; slice < values.size(); ++slice) {
    descend(values[slice], gradients[slice]);
  }
}

}  // namespace

std::vector<Values> reference_values(const SimJob& job) {
  Values values;
  for (size_t slice = 0; slice < job.slices.size(); ++slice) {
    std::vector<float>& now = values.emplace_back();
    for (size_t i = 0; i < job.slices[slice]; ++i) now.push_back(initial_value(slice, i));
  }
  std::vector<Values> history{values};
  const int shards = static_cast<int>(job.shard_count());
  for (uint64_t step = 1; step <= job.steps; ++step) {
    std::vector<bool> contributes(static_cast<size_t>(shards), false);
    for (uint32_t worker = 0; worker < job.workers; ++worker) {
      const ShardRange owned =
          owned_shards(static_cast<int>(worker), static_cast<int>(job.workers), shards);
      for (int s = owned.begin; s < owned.end; ++s) {
        contributes[static_cast<size_t>(s)] = step <= steps_of(job, worker);
      }
    }
    const auto count = std::count(contributes.begin(), contributes.end(), true);
    step_all(job, values, static_cast<int>(count), [&](size_t slice) {
      return sum_over(job, {0, shards}, contributes, step, slice, values[slice]);
    });
    history.push_back(values);
  }
  return history;
}

SimFaultOutcome run_job_with_fault(const SimJob& job, const SimFault& fault) {
  SimRun run(job);
  return run.run_with_fault(fault);
}

SimOutcome run_job(const SimJob& job) {
  SimRun run(job);
  return run.run();
}

}  // namespace fleet::testing
