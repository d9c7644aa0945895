// What the jobs of checkpoint_sim.h train: programs, and what must come of them.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "fluid/executor/executor.h"
#include "role_maker/cluster_spec.h"
#include "strategies/parameter_server/async_options.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::testing {

enum class SimMode {
  kLocal,
  kSync,
  kRanks,
  kAsync,
  kHalfAsync,
  kDcAsgd,
  kGeo,
  kGeoOften,
  kEasgd,
  kLocalSgd
};
std::string_view to_string(SimMode mode);

// Steps of all workers have the same bits in every run.
inline bool in_step(SimMode mode) {
  return mode == SimMode::kLocal || mode == SimMode::kSync || mode == SimMode::kRanks;
}

// Bytes by name, of persistable variables.
using SimState = std::map<std::string, std::vector<std::byte>>;
SimState state_of(const fluid::Program& origin, const fluid::Scope& scope);

// Made once for all jobs of a mode. Jobs in step train a small net with momentum and a schedule.
// The others count: the value that stands for a worker falls by one with each of its steps, however
// gradients are merged or late. With GEO each of two workers sends half of what it changed, and of
// the rest again at the next exchange: where there is none but at saves it falls by a half, else by
// a half to one. Workers of EASGD and LocalSGD have values of their own: it is the sum of all.
class CheckpointPrograms {
 public:
  static constexpr int kServers = 2;
  static constexpr int kShards = 2;  // of a step

  explicit CheckpointPrograms(SimMode mode);

  SimMode mode() const { return mode_; }
  int workers() const { return mode_ == SimMode::kLocal ? 1 : 2; }
  int servers() const { return has_servers() ? kServers : 0; }
  bool has_servers() const { return mode_ != SimMode::kLocal && !is_collective(); }
  bool is_collective() const { return mode_ == SimMode::kRanks || mode_ == SimMode::kLocalSgd; }
  bool workers_differ() const { return mode_ == SimMode::kEasgd || mode_ == SimMode::kLocalSgd; }
  role_maker::ClusterSpec cluster(int worker, const std::string& job_id) const;
  strategies::AsyncOptions options() const;
  const std::vector<std::string>& server_names() const { return server_names_; }

  const fluid::Program& origin() const { return main_; }
  const transpiler::ProgramPair& worker(int index) const {
    return workers_[static_cast<size_t>(index)];
  }
  const transpiler::ProgramPair& server(int index) const {
    return servers_[static_cast<size_t>(index)];
  }
  // What this worker computes in that step.
  fluid::Feed feed(int worker, int64_t step) const;
  // In step: one whose loss is not finite.
  fluid::Feed broken_feed() const;
  // In step: all values after so many steps.
  const SimState& state(int64_t steps) const;
  // Else: the variables that count.
  static std::vector<std::string> count_names();
  // The counts that the scope has, one after the other; 0 where it has none.
  std::vector<double> counts_of(const fluid::Scope& scope) const;
  // What is wrong with those of workers that have taken these steps; empty: nothing.
  std::string wrong_counts(const std::vector<double>& counts,
                           const std::vector<int64_t>& steps) const;

 private:
  void build_net();
  void build_counts();
  void transpile();

  SimMode mode_;
  fluid::Program main_;
  fluid::Program startup_;
  std::vector<std::string> server_names_;
  std::vector<transpiler::ProgramPair> workers_;
  std::vector<transpiler::ProgramPair> servers_;
  std::vector<SimState> states_;  // by steps
};

}  // namespace fleet::testing
