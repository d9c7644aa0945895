#include "strategies/config/fleet_runtime_config.h"

#include <vector>

#include "strategies/config/config_fields.h"

namespace fleet::strategies {
namespace {

using TrainerField = ConfigField<TrainerRuntimeConfig>;
using ServerField = ConfigField<ServerRuntimeConfig>;

const std::vector<TrainerField>& trainer_fields() {
  using C = TrainerRuntimeConfig;
  static const std::vector<TrainerField> kFields = {
      {.name = "communicator_max_merge_var_num",
       .variable = "FLAGS_communicator_max_merge_var_num",
       .member = &C::communicator_max_merge_var_num,
       .least = 0},
      {.name = "communicator_send_queue_size",
       .variable = "FLAGS_communicator_send_queue_size",
       .member = &C::communicator_send_queue_size,
       .least = 0},
      {.name = "communicator_independent_recv_thread",
       .variable = "FLAGS_communicator_independent_recv_thread",
       .member = &C::communicator_independent_recv_thread},
      {.name = "communicator_min_send_grad_num_before_recv",
       .variable = "FLAGS_communicator_min_send_grad_num_before_recv",
       .member = &C::communicator_min_send_grad_num_before_recv,
       .least = 0},
      {.name = "communicator_thread_pool_size",
       .variable = "FLAGS_communicator_thread_pool_size",
       .member = &C::communicator_thread_pool_size},
      {.name = "communicator_send_wait_times",
       .variable = "FLAGS_communicator_send_wait_times",
       .member = &C::communicator_send_wait_times,
       .note = "no effect: the sender is woken, it does not look"},
      {.name = "communicator_is_sgd_optimizer",
       .variable = "FLAGS_communicator_is_sgd_optimizer",
       .member = &C::communicator_is_sgd_optimizer},
      {.name = "rpc_deadline", .variable = "FLAGS_rpc_deadline", .member = &C::rpc_deadline},
      {.name = "rpc_retry_times",
       .variable = "FLAGS_rpc_retry_times",
       .member = &C::rpc_retry_times,
       .note = "no effect: requests are retried until rpc_deadline"},
  };
  return kFields;
}

const std::vector<ServerField>& server_fields() {
  using C = ServerRuntimeConfig;
  constexpr std::string_view kNote =
      "no effect: a request holds no thread; FLEET_DATA_LANES sets the connections";
  static const std::vector<ServerField> kFields = {
      {.name = "rpc_send_thread_num",
       .variable = "FLAGS_rpc_send_thread_num",
       .member = &C::rpc_send_thread_num,
       .note = kNote},
      {.name = "rpc_get_thread_num",
       .variable = "FLAGS_rpc_get_thread_num",
       .member = &C::rpc_get_thread_num,
       .note = kNote},
      {.name = "rpc_prefetch_thread_num",
       .variable = "FLAGS_rpc_prefetch_thread_num",
       .member = &C::rpc_prefetch_thread_num,
       .note = kNote},
  };
  return kFields;
}

}  // namespace

TrainerRuntimeConfig TrainerRuntimeConfig::from(const std::map<std::string, std::string>& values) {
  TrainerRuntimeConfig config;
  for (const auto& [key, value] : values) config.set(key, value);
  return config;
}

TrainerRuntimeConfig TrainerRuntimeConfig::from_environment(const Environment& environment) {
  TrainerRuntimeConfig config;
  read_environment(config, trainer_fields(), environment, config.origins);
  return config;
}

TrainerRuntimeConfig& TrainerRuntimeConfig::set(const std::string& key, const std::string& value) {
  assign_key(*this, trainer_fields(), "TrainerRuntimeConfig", key, value, origins);
  return *this;
}

TrainerRuntimeConfig TrainerRuntimeConfig::over(const TrainerRuntimeConfig& environment,
                                                int64_t cpu_num) const {
  TrainerRuntimeConfig merged = merge_configs(*this, environment, trainer_fields());
  const auto fill = [&](int64_t TrainerRuntimeConfig::*member, const char* name) {
    if (merged.*member != 0) return;
    merged.*member = cpu_num;
    merged.origins[name] = "CPU_NUM";
  };
  fill(&TrainerRuntimeConfig::communicator_max_merge_var_num, "communicator_max_merge_var_num");
  fill(&TrainerRuntimeConfig::communicator_send_queue_size, "communicator_send_queue_size");
  fill(&TrainerRuntimeConfig::communicator_min_send_grad_num_before_recv,
       "communicator_min_send_grad_num_before_recv");
  return merged;
}

std::string TrainerRuntimeConfig::to_string() const {
  return config_text(*this, trainer_fields(), origins);
}

ServerRuntimeConfig ServerRuntimeConfig::from(const std::map<std::string, std::string>& values) {
  ServerRuntimeConfig config;
  for (const auto& [key, value] : values) config.set(key, value);
  return config;
}

ServerRuntimeConfig ServerRuntimeConfig::from_environment(const Environment& environment) {
  ServerRuntimeConfig config;
  read_environment(config, server_fields(), environment, config.origins);
  return config;
}

ServerRuntimeConfig& ServerRuntimeConfig::set(const std::string& key, const std::string& value) {
  assign_key(*this, server_fields(), "ServerRuntimeConfig", key, value, origins);
  return *this;
}

ServerRuntimeConfig ServerRuntimeConfig::over(const ServerRuntimeConfig& environment) const {
  return merge_configs(*this, environment, server_fields());
}

std::string ServerRuntimeConfig::to_string() const {
  return config_text(*this, server_fields(), origins);
}

}  // namespace fleet::strategies
