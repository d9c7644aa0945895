// The runtime behind an asynchronous server program: listen_and_serv serves until every worker is
// done.
#pragma once

#include <functional>
#include <memory>

#include "base/log.h"
#include "fluid/kernels/comm_runtime.h"
#include "strategies/parameter_server/asynchronous/async_options.h"
#include "strategies/parameter_server/asynchronous/async_server.h"
#include "strategies/parameter_server/config.h"
#include "transport/link/link.h"

namespace fleet::strategies {

// Used by one thread, the one that runs the program.
class AsyncServerRuntime final : public fluid::CommRuntime {
 public:
  // As in server_runtime.h. `on_event`: what the server does, in its order, on the serving thread;
  // may be empty.
  AsyncServerRuntime(ParameterServerConfig config, AsyncOptions options,
                     transport::TransportChoice transport, Logger logger = {},
                     std::function<void(const transport::Endpoint&)> on_listening = nullptr,
                     std::function<void(const AsyncEvent&)> on_event = nullptr);

  fluid::ShardRange shards() const override { return {}; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  // listen_and_serv blocks until all workers have completed. Throws ResourceError when the port is
  // taken, PeerError naming the culprit when the job fails, ProgramError when the program does not
  // compensate delays as the options say.
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;

  // How old gradients were; of the program that was run last.
  const StalenessStatistics& staleness() const { return staleness_; }

 private:
  ParameterServerConfig config_;
  AsyncOptions options_;
  transport::TransportChoice transport_;
  Logger logger_;
  std::function<void(const transport::Endpoint&)> on_listening_;
  std::function<void(const AsyncEvent&)> on_event_;
  StalenessStatistics staleness_;
};

}  // namespace fleet::strategies
