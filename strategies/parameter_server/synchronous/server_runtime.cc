#include "strategies/parameter_server/synchronous/server_runtime.h"

#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/mistakes.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/synchronous/server_program.h"

namespace fleet::strategies {

ServerRuntime::ServerRuntime(ParameterServerConfig config, transport::TransportChoice transport,
                             Logger logger,
                             std::function<void(const transport::Endpoint&)> on_listening)
    : config_(std::move(config)),
      transport_(transport),
      logger_(std::move(logger)),
      on_listening_(std::move(on_listening)) {}

std::unique_ptr<fluid::CommToken> ServerRuntime::run(const fluid::CommCall& call) {
  require_listen_and_serv(call.op);
  const int shards = static_cast<int>(config_.shards());
  ServerSteps steps(call.program, read_server_program(call.program, call.op, shards), shards,
                    call.scope);
  ProcessEnvironment environment(transport_);
  ServerNode node(environment.node(), config_, steps.make_model(), logger_);
  node.start().throw_if_error();
  logger_.info("server", "serves", {{"endpoint", node.bound().to_string()}});
  if (on_listening_) on_listening_(node.bound());
  node.serve();
  return nullptr;
}

}  // namespace fleet::strategies
