// The net that the ranks (threads of a test) of a collective job train, and its data.
#pragma once

#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "base/philox.h"
#include "fluid/executor/executor.h"
#include "fluid/layers/layers.h"
#include "fluid/optimizer/optimizer.h"
#include "fluid/program/default_programs.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::strategies::small_net {

struct Net {
  bool with_rows = false;  // two tables, whose gradients are of rows
  bool mixed_precision = false;
  fluid::Program main;
  fluid::Program startup;
  std::string cost;
};

template <class Optimizer>
void build(Net& net, Optimizer optimizer) {
  const fluid::ProgramGuard programs(net.main, net.startup);
  const fluid::unique_name::Guard names;
  net.startup.set_random_seed(11);
  auto x = fluid::layers::data("x", {6}, fluid::DType::kFloat32);
  auto y = fluid::layers::data("y", {1}, fluid::DType::kInt64);
  auto hidden = fluid::layers::fc(x, 13, {.act = "tanh"});
  if (net.with_rows) {
    const auto one = fluid::layers::embedding(y, {40, 13}, {.is_sparse = true});
    const auto other = fluid::layers::embedding(y, {7, 13}, {.is_sparse = true});
    hidden = fluid::layers::elementwise_add(hidden, fluid::layers::elementwise_add(one, other));
  }
  auto prediction = fluid::layers::fc(hidden, 3, {.act = "softmax"});
  auto cost = fluid::layers::mean(fluid::layers::cross_entropy(prediction, y));
  optimizer.minimize(cost);
  net.cost = cost.name();
}

// Rows of an endless table, by number.
inline fluid::Feed rows(const std::vector<uint64_t>& numbers) {
  std::vector<float> x;
  std::vector<int64_t> y;
  for (const uint64_t at : numbers) {
    for (uint64_t i = 0; i < 6; ++i) x.push_back(uniform_float(RandomKey{1, 2}, at * 6 + i));
    y.push_back(static_cast<int64_t>(3 * uniform_float(RandomKey{3, 4}, at)));
  }
  const auto count = static_cast<int64_t>(numbers.size());
  return {{"x", fluid::Tensor::from(x, {count, 6})}, {"y", fluid::Tensor::from(y, {count, 1})}};
}

// Rows [begin, end) of a step of kBatch rows.
constexpr int64_t kBatch = 24;
inline fluid::Feed batch(int step, int64_t begin, int64_t end) {
  std::vector<uint64_t> numbers;
  for (int64_t row = begin; row < end; ++row) {
    numbers.push_back(static_cast<uint64_t>(step * kBatch + row));
  }
  return rows(numbers);
}

using Parameters = std::map<std::string, std::vector<float>>;

inline Parameters parameters_of(const fluid::Scope& scope, const Net& net) {
  Parameters found;
  for (const auto* parameter : net.main.global_block().parameters()) {
    const auto values = scope.tensor(parameter->name).values<float>();
    found[parameter->name] = {values.begin(), values.end()};
  }
  return found;
}

// Infinite when they do not have the same names.
inline float largest_difference(const Parameters& a, const Parameters& b) {
  float largest = a.size() == b.size() && !a.empty() ? 0 : INFINITY;
  for (const auto& [name, values] : a) {
    const auto& others = b.at(name);
    for (size_t i = 0; i < values.size(); ++i) {
      largest = std::max(largest, std::abs(values[i] - others[i]));
    }
  }
  return largest;
}

inline role_maker::ClusterSpec cluster_of(int rank, int workers) {
  role_maker::ClusterSpec cluster;
  cluster.mode = role_maker::Mode::kCollective;
  cluster.index = rank;
  cluster.worker_num = workers;
  cluster.job_id = "test";
  return cluster;
}

// The programs of a rank; it reduces its gradients with the others' unless `config` says otherwise.
inline auto transpiled(const Net& net, const role_maker::ClusterSpec& cluster, int shards,
                       transpiler::DistributeTranspilerConfig config = {
                           .collective_mode = "grad_allreduce"}) {
  config.mode = "collective";
  return transpiler::transpile_for(net.main, net.startup, cluster, config, shards);
}

}  // namespace fleet::strategies::small_net
