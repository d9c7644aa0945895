// How Fleet runs a golden case: the strategy that a job is given, and what each process gets of it.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "role_maker/cluster_spec.h"
#include "strategies/strategy.h"
#include "transpiler/distribute_transpiler.h"

namespace fleet::golden {

// The job of "config", as its first worker.
role_maker::ClusterSpec fleet_cluster(const nlohmann::json& config);

// The strategy of "config": from StrategyFactory, from a transpiler's configuration, or the one
// that Fleet picks. Throws NotYetKnown for another.
std::shared_ptr<const strategies::Strategy> fleet_strategy(const nlohmann::json& config);

// What Fleet::minimize leaves in that process, of the file's net; Fleet picks a strategy itself
// where none is given.
transpiler::ProgramPair minimized_by_fleet(const nlohmann::json& golden,
                                           std::shared_ptr<const strategies::Strategy> strategy,
                                           const role_maker::ClusterSpec& cluster);

// The programs that the strategy makes for one process; where no strategy has the form that is
// wanted, or dispatches in that order, those of the transpiler.
transpiler::ProgramPair fleet_programs(const strategies::Strategy& strategy,
                                       const transpiler::DistributeTranspilerConfig& wanted,
                                       const fluid::Program& main, const fluid::Program& startup,
                                       const role_maker::ClusterSpec& cluster,
                                       const std::vector<size_t>& dispatch_order = {});

// A job with servers as worker `worker` sees it, in the form of a case of the transpiler (kind
// "ps"): the rules of departures know no other.
nlohmann::json server_job_of(const nlohmann::json& golden, const strategies::Strategy& strategy,
                             int worker);

// The fields of a strategy's configuration that Fleet decides, in the form of "effective_config".
nlohmann::json dump_effective_config(const strategies::Strategy& strategy);
// "SyncStrategy", …: "effective_strategy".
std::string effective_strategy(const strategies::Strategy& strategy);

}  // namespace fleet::golden
