#include "strategies/jobs/job_identity.h"

#include "base/hash.h"
#include "base/strings.h"
#include "fluid/kernels/numeric_versions.h"
#include "transport/session/same_bits.h"

namespace fleet::strategies {
transport::Secret choose_job_secret(const RuntimeConfig& config,
                                    const role_maker::ClusterSpec& cluster) {
  transport::SecretSources sources;
  sources.insecure = config.insecure;
  if (!config.job_secret_file.empty()) sources.file = config.job_secret_file;
  if (!config.job_secret.empty()) sources.value = config.job_secret;
  if (!cluster.job_secret.empty()) sources.broadcast = cluster.job_secret;
  sources.same_user = config.transport == "unix";
  sources.protection = config.frame_encryption  ? transport::FrameProtection::kEncryption
                       : config.frame_integrity ? transport::FrameProtection::kIntegrity
                                                : transport::FrameProtection::kNone;
  return transport::choose_secret(sources).value();
}

std::string choose_job_id(const RuntimeConfig& config, const role_maker::ClusterSpec& cluster) {
  if (!config.job_id.empty()) return config.job_id;
  return cluster.job_id.empty() ? role_maker::derived_job_id(cluster) : cluster.job_id;
}

std::map<std::string, std::string> bits_facts() {
  std::map<std::string, std::string> facts;
  for (const auto& [name, version] : fluid::numeric_versions()) {
    facts.emplace(str_cat(transport::kBitsFact, name), version);
  }
  return facts;
}

std::map<std::string, std::string> job_facts(const StrategyInput& input, const Strategy& strategy) {
  std::map<std::string, std::string> facts = bits_facts();
  facts.emplace("program", hex_digits(input.main.hash()));
  facts.emplace("startup_program", hex_digits(input.startup.hash()));
  facts.emplace("strategy", str_cat(strategy.name(), " ", hex_digits(fnv1a(strategy.to_string()))));
  return facts;
}

std::string placement_fact(const fluid::DistributionInfo& info) {
  std::string text = str_cat(info.trainers, " trainers\n");
  for (const fluid::DistributedVar& var : info.vars) {
    text += str_cat(var.vtype, " ", var.slice, " ", var.offset, " ", join(var.slice_shape, "x"),
                    " ", var.endpoint, "\n");
  }
  return hex_digits(fnv1a(text));
}

}  // namespace fleet::strategies
