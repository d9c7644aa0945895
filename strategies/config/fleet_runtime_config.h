// What Paddle Fluid's Fleet lets a user set for parameter-server jobs besides the programs:
// TrainerRuntimeConfig and ServerRuntimeConfig, with its keys, defaults and FLAGS_* variables.
//
// What the code sets wins over FLAGS_<key> of the environment, which wins over the default. Each
// config is a struct of plain fields; the same can be set by name, as Paddle's dict does:
//   strategies::TrainerRuntimeConfig::from({{"communicator_send_queue_size", "20"}})
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/environment.h"

namespace fleet::strategies {

struct TrainerRuntimeConfig {
  // 0 means CPU_NUM, the trainer threads of a worker.
  // Up to so many queued gradients of a parameter are merged into one push.
  int64_t communicator_max_merge_var_num = 0;
  // Gradients of a parameter that may wait; with more, the trainer waits.
  int64_t communicator_send_queue_size = 0;
  // Parameters come in the background, not at the end of a step.
  bool communicator_independent_recv_thread = true;
  // Parameters are asked for again once so many gradients have left; 0 means CPU_NUM.
  int64_t communicator_min_send_grad_num_before_recv = 0;
  // Upper bound of threads that send.
  int64_t communicator_thread_pool_size = 5;
  // Paddle looks so many times for more gradients before it sends; here the sender is woken.
  int64_t communicator_send_wait_times = 5;
  // Merged gradients are added up (true) or averaged. Unless it is set, the program's optimizers
  // decide: added up when all of them are sgd or momentum.
  bool communicator_is_sgd_optimizer = true;
  // Milliseconds that one request may take without any progress.
  int64_t rpc_deadline = 180000;
  // Paddle's count of retries; here a request is retried until its deadline.
  int64_t rpc_retry_times = 3;

  // Where values came from, by key: "code", or the name of a variable.
  std::map<std::string, std::string> origins = {};

  // By key. Throws UsageError for an unknown key, naming the nearest, and for a wrong value.
  static TrainerRuntimeConfig from(const std::map<std::string, std::string>& values);
  static TrainerRuntimeConfig from_environment(const Environment& environment);
  TrainerRuntimeConfig& set(const std::string& key, const std::string& value);
  // This over `environment`; fields that mean CPU_NUM get its value.
  TrainerRuntimeConfig over(const TrainerRuntimeConfig& environment, int64_t cpu_num) const;
  // A line for each key: value and origin.
  std::string to_string() const;
};

// Accepted, checked and printed, without effect. In Paddle a request waits in a thread until
// its turn comes, and each kind of request has a pool of that many threads. Here a waiting request
// holds no thread: one loop of a server takes requests of all kinds as they come, updates of large
// slices run on threads of their own where there are cores to spare, and FLEET_DATA_LANES says how
// many connections a worker has to each server.
struct ServerRuntimeConfig {
  int64_t rpc_send_thread_num = 12;
  int64_t rpc_get_thread_num = 12;
  int64_t rpc_prefetch_thread_num = 12;

  std::map<std::string, std::string> origins = {};

  static ServerRuntimeConfig from(const std::map<std::string, std::string>& values);
  static ServerRuntimeConfig from_environment(const Environment& environment);
  ServerRuntimeConfig& set(const std::string& key, const std::string& value);
  ServerRuntimeConfig over(const ServerRuntimeConfig& environment) const;
  std::string to_string() const;
};

}  // namespace fleet::strategies
