// The runtime behind a server program: listen_and_serv serves until every worker is done.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "base/log.h"
#include "strategies/parameter_server/async_options.h"
#include "strategies/parameter_server/config.h"
#include "strategies/parameter_server/protocol/async_server.h"
#include "strategies/runtime/strategy_runtime.h"
#include "transport/link/link.h"

namespace fleet::strategies {

class ServerNode;

// Used by one thread, the one that runs the program.
class ServerRuntime final : public StrategyRuntime {
 public:
  // Any of them may be empty.
  struct Events {
    // The real address, once the port is taken.
    std::function<void(const Endpoint&)> on_listening;
    // What an asynchronous server does, in its order, on the serving thread.
    std::function<void(const AsyncEvent&)> on_event;
  };
  // `config.index` is the server's. Its endpoint may have port 0. `options` tell the mode.
  ServerRuntime(ParameterServerConfig config, const AsyncOptions& options,
                transport::TransportChoice transport, Logger logger = {}, Events events = {});

  // UsageError: these are calls of workers.
  void init_worker() override { refuse("init_worker"); }
  void stop_worker() override { refuse("stop_worker"); }
  void barrier_worker() override { refuse("barrier_worker"); }
  std::vector<double> all_reduce_worker(std::span<const double>) override {
    refuse("all_reduce_worker");
  }

  fluid::StepShards shards() const override { return {}; }
  void begin_step(const fluid::Program&, uint64_t) override {}
  void end_step(const fluid::Program&, uint64_t) override {}
  // listen_and_serv blocks until all workers have completed. Throws ResourceError when the port is
  // taken, PeerError naming the culprit when the job fails, ProgramError when the program does not
  // compensate delays as the options say.
  std::unique_ptr<fluid::CommToken> run(const fluid::CommCall& call) override;

  // How old gradients were, of an asynchronous program; of the one that was run last.
  const StalenessStatistics& staleness() const { return staleness_; }

 private:
  [[noreturn]] static void refuse(const char* call);
  void serve(ServerNode& node);

  ParameterServerConfig config_;
  AsyncOptions options_;
  transport::TransportChoice transport_;
  Logger logger_;
  Events events_;
  StalenessStatistics staleness_;
};

}  // namespace fleet::strategies
