#include "tests/testing/virtual_time/checkpoint_programs.h"

#include <array>
#include <cstring>
#include <limits>
#include <utility>

#include "base/hash.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"

namespace fleet::testing {
namespace {

namespace layers = fluid::layers;
namespace optimizer = fluid::optimizer;

constexpr int kFeatures = 3;
constexpr int kRows = 4;         // of a step
constexpr int kCutWidth = 5500;  // of a layer whose weight each server has a slice of
constexpr int64_t kMostSteps = 64;
constexpr std::array kCounts = {"counts_a", "counts_b"};
// So small that what late gradients lack is far less than a step.
constexpr double kDelayLambda = 1e-3;

bool is_geo(SimMode mode) {
  return mode == SimMode::kGeo || mode == SimMode::kGeoOften;
}

fluid::Tensor numbers(uint64_t key, int begin, int end, int width) {
  std::vector<float> values;
  for (int i = begin * width; i < end * width; ++i) {
    values.push_back(static_cast<float>(mix64(key * 1000 + static_cast<uint64_t>(i)) % 64) / 64.0F);
  }
  return fluid::Tensor::from(values, {end - begin, width});
}

fluid::Feed rows_of_net(int64_t step, int begin, int end) {
  const auto key = static_cast<uint64_t>(2 * step);
  return {{"x", numbers(key, begin, end, kFeatures)}, {"y", numbers(key + 1, begin, end, 1)}};
}

}  // namespace

std::string_view to_string(SimMode mode) {
  constexpr std::array kNames = {"local",   "sync", "ranks",     "async", "half_async",
                                 "dc_asgd", "geo",  "geo_often", "easgd", "local_sgd"};
  return kNames[static_cast<size_t>(mode)];
}

SimState state_of(const fluid::Program& origin, const fluid::Scope& scope) {
  SimState state;
  for (const fluid::VarDesc* var : origin.global_block().vars()) {
    const fluid::Value* value = scope.find(var->name);
    const auto* tensor = value == nullptr ? nullptr : std::get_if<fluid::Tensor>(value);
    if (!var->persistable || tensor == nullptr || !tensor->initialized()) continue;
    state[var->name] = {tensor->raw(), tensor->raw() + tensor->bytes()};
  }
  return state;
}

CheckpointPrograms::CheckpointPrograms(SimMode mode) : mode_(mode) {
  for (int i = 0; i < servers(); ++i) server_names_.push_back(str_cat("sim:", 7000 + i));
  if (in_step(mode)) {
    build_net();
  } else {
    build_counts();
  }
  transpile();
}

void CheckpointPrograms::build_net() {
  {
    const fluid::ProgramGuard programs(main_, startup_);
    const fluid::unique_name::Guard names;
    const auto x = layers::data("x", {kFeatures});
    const auto y = layers::data("y", {1});
    const int width = mode_ == SimMode::kSync ? kCutWidth : 2;
    const auto hidden = layers::fc(x, width, {.act = "tanh"});
    const auto loss = layers::mean(layers::square_error_cost(layers::fc(hidden, 1), y));
    optimizer::Momentum(
        {.learning_rate = layers::exponential_decay(0.1, 2, 0.9, true), .momentum = 0.9})
        .minimize(loss);
  }
  main_.set_random_seed(3);
  startup_.set_random_seed(3);
  fluid::Executor executor(fluid::CPUPlace(), {.logical_shards = kShards});
  executor.run(startup_);
  for (int64_t step = 0; step <= kMostSteps; ++step) {
    states_.push_back(state_of(main_, executor.scope()));
    executor.run(main_, rows_of_net(step, 0, kRows));
  }
}

void CheckpointPrograms::build_counts() {
  const fluid::ProgramGuard programs(main_, startup_);
  const fluid::unique_name::Guard names;
  const auto x = layers::data("x", {workers()});
  std::vector<fluid::Variable> sums;
  for (const char* name : kCounts) {
    const auto counts = layers::create_parameter(
        {workers()}, fluid::DType::kFloat32,
        {.attr = {.name = name, .initializer = fluid::initializer::Constant{0.0}}});
    sums.push_back(layers::reduce_sum(layers::elementwise_mul(x, counts)));
  }
  optimizer::SGD({.learning_rate = 1.0}).minimize(layers::elementwise_add(sums[0], sums[1]));
}

void CheckpointPrograms::transpile() {
  transpiler::DistributeTranspilerConfig config;
  config.sync_mode = mode_ == SimMode::kSync;
  config.half_async = mode_ == SimMode::kHalfAsync;
  config.geo_sgd_mode = is_geo(mode_) || mode_ == SimMode::kEasgd;
  config.runtime_split_send_recv = mode_ == SimMode::kHalfAsync;
  if (mode_ == SimMode::kDcAsgd) {
    config.enable_dc_asgd = true;
    config.dc_asgd_form = "adaptive";
    config.dc_asgd_lambda = kDelayLambda;
  }
  if (is_collective()) {
    config.mode = "collective";
    config.collective_mode = mode_ == SimMode::kRanks ? "grad_allreduce" : "local_sgd";
    config.local_sgd_scheduled = mode_ == SimMode::kLocalSgd;
  }
  for (int index = 0; index < workers(); ++index) {
    if (mode_ == SimMode::kLocal) {
      workers_.push_back({main_, startup_});
      continue;
    }
    transpiler::TranspileOptions options;
    options.trainer_id = index;
    options.program = &main_;
    options.startup_program = &startup_;
    options.logger = Logger(LogLevel::kOff);
    if (has_servers()) {
      options.pservers = join(server_names_, ",");
      options.trainers = workers();
      options.sync_mode = config.sync_mode;
    } else {
      const std::vector<std::string> ranks = {"sim:7000", "sim:7001"};
      options.trainers = join(ranks, ",");
      options.current_endpoint = ranks[static_cast<size_t>(index)];
      options.logical_shards = kShards;
    }
    transpiler::DistributeTranspiler transpiler(config);
    transpiler.transpile(options);
    workers_.push_back(
        {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()});
    if (index > 0) continue;
    for (const std::string& server : server_names_) {
      servers_.push_back(transpiler.get_pserver_programs(server));
    }
  }
}

role_maker::ClusterSpec CheckpointPrograms::cluster(int worker, const std::string& job_id) const {
  role_maker::ClusterSpec cluster;
  cluster.mode = mode_ == SimMode::kLocal ? role_maker::Mode::kLocal
                 : is_collective()        ? role_maker::Mode::kCollective
                                          : role_maker::Mode::kParameterServer;
  cluster.index = worker;
  cluster.worker_num = workers();
  cluster.server_num = servers();
  cluster.job_id = job_id;
  return cluster;
}

strategies::AsyncOptions CheckpointPrograms::options() const {
  strategies::AsyncOptions options;
  switch (mode_) {
    case SimMode::kHalfAsync:
      options.mode = strategies::ServerMode::kHalfAsync;
      break;
    case SimMode::kGeo:
    case SimMode::kGeoOften:
      options.mode = strategies::ServerMode::kGeo;
      options.geo_update_frequency = mode_ == SimMode::kGeo ? kMostSteps : 3;
      break;
    case SimMode::kEasgd:
      options.mode = strategies::ServerMode::kEasgd;
      options.easgd_tau = 2;
      options.easgd_alpha = 0.25;
      break;
    case SimMode::kDcAsgd:
      options.mode = strategies::ServerMode::kAsync;
      options.delay_compensation = {.form = strategies::DelayCompensation::kAdaptive,
                                    .lambda = kDelayLambda};
      break;
    case SimMode::kAsync:
      options.mode = strategies::ServerMode::kAsync;
      options.max_merge_var_num = 3;
      options.send_queue_size = 3;
      break;
    default:
      options.mode = strategies::ServerMode::kSync;
  }
  return options;
}

fluid::Feed CheckpointPrograms::feed(int worker, int64_t step) const {
  if (in_step(mode_)) {
    const ShardRange own = owned_shards(worker, workers(), kShards);
    const int rows = kRows / kShards;
    return rows_of_net(step, own.begin * rows, own.end * rows);
  }
  std::vector<float> x(static_cast<size_t>(workers()));
  x[static_cast<size_t>(worker)] = 1;
  return {{"x", fluid::Tensor::from(x, {1, workers()})}};
}

fluid::Feed CheckpointPrograms::broken_feed() const {
  const std::vector<float> broken(kRows, std::numeric_limits<float>::quiet_NaN());
  return {{"x", numbers(0, 0, kRows, kFeatures)}, {"y", fluid::Tensor::from(broken, {kRows, 1})}};
}

const SimState& CheckpointPrograms::state(int64_t steps) const {
  return states_.at(static_cast<size_t>(steps));
}

std::vector<std::string> CheckpointPrograms::count_names() {
  return {kCounts.begin(), kCounts.end()};
}

std::vector<double> CheckpointPrograms::counts_of(const fluid::Scope& scope) const {
  const SimState state = state_of(main_, scope);
  std::vector<double> counts;
  for (const char* name : kCounts) {
    std::vector<float> values(static_cast<size_t>(workers()));
    if (const auto found = state.find(name); found != state.end()) {
      std::memcpy(values.data(), found->second.data(), found->second.size());
    }
    counts.insert(counts.end(), values.begin(), values.end());
  }
  return counts;
}

std::string CheckpointPrograms::wrong_counts(const std::vector<double>& counts,
                                             const std::vector<int64_t>& steps) const {
  // Of a step; DC-ASGD makes gradients that are late a little smaller.
  const double least = is_geo(mode_) ? -0.5 : mode_ == SimMode::kDcAsgd ? -0.95 : -1;
  const double most = mode_ == SimMode::kGeo ? -0.5 : -1;
  // Sums of what was cut in parts.
  const double slack = workers_differ() ? 1e-3 : 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const size_t worker = i % steps.size();
    const auto taken = static_cast<double>(steps[worker]);
    if (counts[i] <= least * taken + slack && counts[i] >= most * taken - slack) continue;
    return str_cat(kCounts.at(i / steps.size()), " is ", counts[i], " for worker ", worker,
                   ", and not ", least * taken, " to ", most * taken, " after ", steps[worker],
                   " steps");
  }
  return {};
}

}  // namespace fleet::testing
