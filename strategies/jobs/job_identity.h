// What the processes of a job prove and compare when they meet.
#pragma once

#include <map>
#include <string>

#include "fluid/program/program.h"
#include "strategies/runtime/strategy.h"
#include "transport/session/secret.h"

namespace fleet::strategies {

// The job's secret by the order of its sources; throws PeerError with the command that makes one
// when there is none.
transport::Secret choose_job_secret(const RuntimeConfig& config,
                                    const role_maker::ClusterSpec& cluster);

// FLEET_JOB_ID, else what the role maker agreed on, else a hash of the cluster.
std::string choose_job_id(const RuntimeConfig& config, const role_maker::ClusterSpec& cluster);

// What bits depend on, by name: libraries, their instruction sets, settings of theirs.
std::map<std::string, std::string> bits_facts();

// Hashes of the origin programs and of the strategy's options, and bits_facts(), by name.
std::map<std::string, std::string> job_facts(const StrategyInput& input, const Strategy& strategy);

// Which slice is on which server, hashed: equal in all programs of one transpilation, and different
// where processes placed slices differently.
std::string placement_fact(const fluid::DistributionInfo& info);

}  // namespace fleet::strategies
