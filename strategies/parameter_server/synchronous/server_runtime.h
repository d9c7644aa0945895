// The runtime behind a server program: listen_and_serv serves until every worker is done.
#pragma once

#include <functional>
#include <memory>

#include "base/log.h"
#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/config.h"
#include "transport/link/link.h"

namespace fleet::strategies {

// Used by one thread, the one that runs the program.
class ServerRuntime final : public fluid::CommRuntime {
 public:
  // `config.index` is the server's. Its endpoint may have port 0; `on_listening` tells the real
  // address once the port is taken, and may be empty.
  ServerRuntime(ParameterServerConfig config, transport::TransportChoice transport,
                Logger logger = {},
                std::function<void(const transport::Endpoint&)> on_listening = nullptr);

  fluid::ShardRange shards() const override { return {}; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  // listen_and_serv blocks until all workers have completed. Throws ResourceError when the port is
  // taken, PeerError naming the culprit when the job fails.
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;

 private:
  ParameterServerConfig config_;
  transport::TransportChoice transport_;
  Logger logger_;
  std::function<void(const transport::Endpoint&)> on_listening_;
};

}  // namespace fleet::strategies
