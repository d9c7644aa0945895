#include "strategies/parameter_server/config.h"

#include "base/strings.h"

namespace fleet::strategies {

transport::Hello make_hello(const ParameterServerConfig& config, transport::Role role,
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
  hello.facts.emplace("epoch", str_cat(config.epoch));
  return hello;
}

}  // namespace fleet::strategies
