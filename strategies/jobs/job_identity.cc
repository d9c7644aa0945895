#include "strategies/jobs/job_identity.h"

#include <iomanip>

#include "base/hash.h"
#include "base/strings.h"

namespace fleet::strategies {
namespace {

std::string hex(uint64_t value) {
  return str_cat(std::hex, std::setw(16), std::setfill('0'), value);
}

}  // namespace

transport::Secret choose_job_secret(const RuntimeConfig& config,
                                    const role_maker::ClusterSpec& cluster) {
  transport::SecretSources sources;
  sources.insecure = config.insecure;
  if (!config.job_secret_file.empty()) sources.file = config.job_secret_file;
  if (!config.job_secret.empty()) sources.value = config.job_secret;
  if (!cluster.job_secret.empty()) sources.broadcast = cluster.job_secret;
  sources.same_user = config.transport == "unix";
  return transport::choose_secret(sources).value();
}

std::string choose_job_id(const RuntimeConfig& config, const role_maker::ClusterSpec& cluster) {
  if (!config.job_id.empty()) return config.job_id;
  return cluster.job_id.empty() ? role_maker::derived_job_id(cluster) : cluster.job_id;
}

std::map<std::string, std::string> job_facts(const StrategyInput& input, const Strategy& strategy) {
  return {{"program", hex(input.main.hash())},
          {"startup_program", hex(input.startup.hash())},
          {"strategy", str_cat(strategy.name(), " ", hex(fnv1a(strategy.to_string())))}};
}

}  // namespace fleet::strategies
