#include "strategies/parameter_server/asynchronous/async_server_runtime.h"

#include <algorithm>
#include <utility>

#include "base/strings.h"
#include "strategies/parameter_server/asynchronous/async_parameter_server.h"
#include "strategies/parameter_server/asynchronous/async_server_program.h"
#include "strategies/parameter_server/mistakes.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/server/server_node.h"

namespace fleet::strategies {
namespace {

void check_compensation(const AsyncServerProgram& program, const AsyncOptions& options) {
  const bool wanted = options.delay_compensation.form != DelayCompensation::kNone;
  const bool there = std::any_of(program.blocks.begin(), program.blocks.end(),
                                 [](const auto& block) { return !block.backups.empty(); });
  if (program.blocks.empty() || wanted == there) return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the server program and the options disagree about delay compensation",
               .where = "listen_and_serv",
               .expected = str_cat("form ", to_string(options.delay_compensation.form)),
               .got = there ? "blocks that compensate" : "blocks that do not compensate",
               .fix = "transpile with enable_dc_asgd as the strategy says"});
}

}  // namespace

AsyncServerRuntime::AsyncServerRuntime(ParameterServerConfig config, AsyncOptions options,
                                       transport::TransportChoice transport, Logger logger,
                                       std::function<void(const transport::Endpoint&)> on_listening,
                                       std::function<void(const AsyncEvent&)> on_event)
    : config_(std::move(config)),
      options_(std::move(options)),
      transport_(transport),
      logger_(std::move(logger)),
      on_listening_(std::move(on_listening)),
      on_event_(std::move(on_event)) {}

std::unique_ptr<fluid::CommToken> AsyncServerRuntime::run(const fluid::CommCall& call) {
  require_listen_and_serv(call.op);
  auto parsed =
      read_async_server_program(call.program, call.op, static_cast<int>(config_.worker_num));
  check_compensation(parsed, options_);
  AsyncServerSteps steps(call.program, std::move(parsed), call.scope);
  ProcessEnvironment environment(transport_);
  const AsyncParameterServer* lanes = nullptr;
  ServerNode node(
      environment.node(), config_,
      [&](ServingEvents events) {
        auto made = std::make_unique<AsyncParameterServer>(config_, steps.make_model(),
                                                           std::move(events), logger_, on_event_);
        lanes = made.get();
        return made;
      },
      logger_);
  node.start().throw_if_error();
  logger_.info("server", "serves", {{"endpoint", node.bound().to_string()}});
  if (on_listening_) on_listening_(node.bound());
  node.serve();
  staleness_ = lanes->core().staleness();
  logger_.info("server", "is done",
               {{"gradients", lanes->core().gradients()},
                {"mean_staleness", staleness_.mean()},
                {"max_staleness", staleness_.max}});
  return nullptr;
}

}  // namespace fleet::strategies
