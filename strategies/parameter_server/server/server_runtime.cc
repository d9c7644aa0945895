#include "strategies/parameter_server/server/server_runtime.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "strategies/parameter_server/errors.h"
#include "strategies/parameter_server/process_environment.h"
#include "strategies/parameter_server/server/async_parameter_server.h"
#include "strategies/parameter_server/server/server_node.h"
#include "strategies/parameter_server/server/server_steps.h"
#include "strategies/parameter_server/server/sync_parameter_server.h"

namespace fleet::strategies {
namespace {

void check_compensation(const fluid::ServerProgram& program, const AsyncOptions& options) {
  const bool wanted = options.delay_compensation.form != DelayCompensation::kNone;
  const bool there = std::any_of(program.slices.begin(), program.slices.end(),
                                 [](const auto& slice) { return !slice.backups.empty(); });
  if (program.slices.empty() || wanted == there) return;
  throw_error(ErrorCode::kInvalidProgram,
              {.what = "the server program and the options disagree about delay compensation",
               .where = "listen_and_serv",
               .expected = str_cat("form ", to_string(options.delay_compensation.form)),
               .got = there ? "blocks that compensate" : "blocks that do not compensate",
               .fix = "transpile with enable_dc_asgd as the strategy says"});
}

}  // namespace

ServerRuntime::ServerRuntime(ParameterServerConfig config, const AsyncOptions& options,
                             transport::TransportChoice transport, Logger logger, Events events)
    : config_(std::move(config)),
      options_(options),
      transport_(transport),
      logger_(std::move(logger)),
      events_(std::move(events)) {}

void ServerRuntime::refuse(const char* call) {
  throw_error(ErrorCode::kPrecondition, {.what = "this process is a server",
                                         .where = call,
                                         .expected = "a worker",
                                         .got = "a server",
                                         .fix = "call run_server() in servers"});
}

std::unique_ptr<fluid::CommToken> ServerRuntime::run(const fluid::CommCall& call) {
  require_listen_and_serv(call.op);
  const bool in_step = is_synchronous(options_.mode);
  const uint32_t contributors = in_step ? config_.shards() : config_.worker_num;
  auto parsed =
      read_server_program(call.program, call.op, options_.mode, static_cast<int>(contributors));
  if (!in_step) check_compensation(parsed, options_);
  ServerSteps steps(call.program, std::move(parsed), call.scope, config_.data_lanes);
  ProcessEnvironment environment(transport_, 0, config_.data_lanes);
  const AsyncServer* core = nullptr;
  const auto make_lanes = [&](ServingEvents events) -> std::unique_ptr<ServerLanes> {
    if (in_step) {
      return std::make_unique<SyncParameterServer>(config_, steps.make_model(), std::move(events),
                                                   logger_);
    }
    auto lanes = std::make_unique<AsyncParameterServer>(
        config_, steps.make_model(), std::move(events), logger_, events_.on_event);
    core = &lanes->core();
    return lanes;
  };
  ServerNode node(environment.node(), config_, make_lanes, logger_);
  serve(node);
  if (core == nullptr) return nullptr;
  staleness_ = core->staleness();
  logger_.info("server", "is done",
               {{"gradients", core->gradients()},
                {"mean_staleness", staleness_.mean()},
                {"max_staleness", staleness_.max}});
  return nullptr;
}

void ServerRuntime::serve(ServerNode& node) {
  node.start().throw_if_error();
  logger_.info("server", "serves", {{"endpoint", node.bound().to_string()}});
  if (events_.on_listening) events_.on_listening(node.bound());
  node.serve();
}

}  // namespace fleet::strategies
