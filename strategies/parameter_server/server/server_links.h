// The connections of one server to the others, for exchanges inside a step. Authenticated, and
// healed when they break, like those of workers.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "base/log.h"
#include "strategies/parameter_server/config.h"
#include "transport/rpc/channel.h"

namespace fleet::strategies {

// Belongs to the data loop.
class ServerLinks {
 public:
  // A request failed for good: no sign of life for the rpc deadline, or a refusal.
  using FailureHandler = std::function<void(uint32_t server, const Status& why)>;

  ServerLinks(const NodeEnvironment& environment, const ParameterServerConfig& config,
              FailureHandler on_failure, Logger logger = {});

  // Begins to connect; the others may come later.
  void start();
  void send(uint32_t server, std::vector<transport::Message> frames);
  // Disconnects in good order once everything is answered.
  void finish();

 private:
  uint32_t self_;
  FailureHandler on_failure_;
  std::vector<std::unique_ptr<transport::Channel>> channels_;  // by server; none to itself
};

}  // namespace fleet::strategies
