#include "strategies/parameter_server/config.h"

#include "base/strings.h"

namespace fleet::strategies {

uint64_t descriptors_of(const ParameterServerConfig& config, transport::PeerRole role) {
  constexpr uint64_t kOther = 64;  // files, listeners, the loops' own
  const uint64_t servers = config.server_num();
  const uint64_t lanes = config.data_lanes + uint64_t{1};  // and one for values asked separately
  if (role == transport::PeerRole::kWorker) return kOther + servers * lanes + 1;
  const uint64_t control = config.index == 0 ? config.worker_num + servers + 1 : 1;
  return kOther + config.worker_num * lanes + control + 2 * servers;
}

transport::Hello make_hello(const ParameterServerConfig& config, transport::PeerRole role,
                            uint64_t incarnation) {
  transport::Hello hello;
  hello.job_id = config.job_id;
  hello.member = {role, config.index};
  hello.worker_num = config.worker_num;
  hello.server_num = config.server_num();
  hello.incarnation = incarnation;
  hello.instruction_set = transport::instruction_set();
  hello.require_same_bits = config.require_same_bits;
  hello.facts = config.facts;
  hello.facts.emplace("logical_shards", str_cat(config.shards()));
  hello.facts.emplace("data_lanes", str_cat(config.data_lanes));
  return hello;
}

transport::CoordinatorClientOptions make_member_options(const ParameterServerConfig& config,
                                                        const NodeEnvironment& environment,
                                                        transport::PeerRole role,
                                                        const Endpoint& coordinator) {
  transport::CoordinatorClientOptions options;
  options.endpoint = coordinator;
  options.coordinator = {transport::PeerRole::kServer, 0};
  options.hello = make_hello(config, role, environment.incarnation);
  options.secret = config.secret;
  options.heartbeat_interval = config.heartbeat_interval;
  options.heartbeat_timeout = config.heartbeat_timeout;
  options.reconnect_grace = config.reconnect_grace;
  options.rpc_deadline = config.rpc_deadline;
  options.random = environment.random;
  options.wait = environment.wait;
  return options;
}

}  // namespace fleet::strategies
