#include "strategies/jobs/attach.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/program/default_programs.h"
#include "strategies/dump/program_dump.h"
#include "strategies/jobs/async_runtime.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/listening_servers.h"
#include "strategies/jobs/sync_runtime.h"

namespace fleet::strategies {
namespace {

using fluid::ServerMode;

// The cluster as the program records it.
role_maker::ClusterSpec cluster_of(const fluid::Program& program, bool is_server) {
  const fluid::DistributionInfo& info = program.distribution();
  role_maker::ClusterSpec cluster;
  cluster.mode = role_maker::Mode::kParameterServer;
  cluster.role = is_server ? role_maker::Role::kServer : role_maker::Role::kWorker;
  cluster.worker_num = info.trainers;
  cluster.server_num = static_cast<int>(info.endpoints.size());
  cluster.server_endpoints = info.endpoints;
  const auto own = std::find(info.endpoints.begin(), info.endpoints.end(), info.ps_endpoint);
  cluster.index = is_server ? static_cast<int>(own - info.endpoints.begin()) : info.trainer_id;
  cluster.contract = role_maker::Contract::kArguments;
  return cluster;
}

// Equal in all programs of one transpilation.
std::string placement_text(const fluid::DistributionInfo& info) {
  std::string text = str_cat(info.trainers, " trainers\n");
  for (const fluid::DistributedVar& var : info.vars) {
    text += str_cat(var.vtype, " ", var.slice, " ", var.offset, " ", join(var.slice_shape, "x"),
                    " ", var.endpoint, "\n");
  }
  return text;
}

const fluid::Operator* find_op(const fluid::Program& program, std::string_view type) {
  const auto& ops = program.global_block().ops();
  const auto found =
      std::find_if(ops.begin(), ops.end(), [type](const auto& op) { return op->type == type; });
  return found == ops.end() ? nullptr : found->get();
}

bool serves(const fluid::Program& program) {
  return find_op(program, "listen_and_serv") != nullptr;
}

// Under FLEET_DUMP_PROGRAM. The thread's default programs, when there are any, are what was
// transpiled.
void dump(const RuntimeConfig& config, const fluid::Program& program,
          const role_maker::ClusterSpec& cluster) {
  if (config.dump_program.empty()) return;
  const std::string who = dump_name(cluster);
  dump_program(config.dump_program, who + ".main", program);
  dump_job(config.dump_program, who,
           describe_job(cluster, program.distribution().trainers, "attached", nullptr));
  const fluid::Program& origin = fluid::default_main_program();
  if (origin.global_block().op_count() == 0 || origin.distribution().is_distributed) return;
  dump_program(config.dump_program, who + ".origin_main", origin);
  dump_program(config.dump_program, who + ".origin_startup", fluid::default_startup_program());
}

// Servers of the synchronous modes keep a gradient of each shard.
bool sends_shards(const fluid::Operator& send) {
  const auto attrs = fluid::parse_attributes<fluid::SendAttrs>(send.type, send.attrs);
  return std::any_of(attrs.send_varnames.begin(), attrs.send_varnames.end(),
                     [](const auto& name) { return name.find(".trainer_") != std::string::npos; });
}

// How the servers of the job treat gradients; for a trainer, by what the program does.
ServerMode mode_of(const fluid::Program& program) {
  if (const auto* listen = find_op(program, "listen_and_serv")) {
    const auto attrs =
        fluid::parse_attributes<fluid::ListenAndServAttrs>(listen->type, listen->attrs);
    return static_cast<ServerMode>(attrs.distributed_mode);
  }
  if (find_op(program, "fetch_barrier") != nullptr) return ServerMode::kSync;
  if (find_op(program, "recv") == nullptr) return ServerMode::kGeo;
  if (find_op(program, "send_barrier") == nullptr) return ServerMode::kAsync;
  const fluid::Operator* send = find_op(program, "send");
  // One shard has no number: with one trainer, half-async has to be asked for.
  const bool synchronous =
      program.distribution().trainers == 1 || (send != nullptr && sends_shards(*send));
  return synchronous ? ServerMode::kSync : ServerMode::kHalfAsync;
}

// The mode that options stand for, in the words of programs.
ServerMode mode_of(const AsyncOptions& options) {
  if (options.mode == AsyncMode::kAsync) return ServerMode::kAsync;
  return options.mode == AsyncMode::kHalfAsync ? ServerMode::kHalfAsync : ServerMode::kGeo;
}

AsyncMode async_mode(ServerMode mode) {
  if (mode == ServerMode::kGeo) return AsyncMode::kGeo;
  return mode == ServerMode::kHalfAsync ? AsyncMode::kHalfAsync : AsyncMode::kAsync;
}

const char* mode_name(ServerMode mode) {
  switch (mode) {
    case ServerMode::kSync:
      return "synchronous";
    case ServerMode::kAsync:
      return "async";
    case ServerMode::kHalfAsync:
      return "half-async";
    case ServerMode::kGeo:
      return "GEO or EASGD";
  }
  return "unknown";
}

// Servers of both apply what comes, and their programs may be the same.
bool applies_on_arrival(ServerMode mode) {
  return mode == ServerMode::kAsync || mode == ServerMode::kHalfAsync;
}

AsyncOptions recorded_options(const fluid::Program& program, ServerMode mode) {
  AsyncOptions options{.mode = async_mode(mode)};
  const int32_t pushes = program.distribution().geo_sgd_need_push_nums;
  if (pushes > 0) options.geo_update_frequency = static_cast<uint32_t>(pushes);
  return options;
}

void check_push_interval(const fluid::Program& program, const AsyncOptions& options) {
  const int32_t recorded = program.distribution().geo_sgd_need_push_nums;
  const auto wanted = static_cast<int64_t>(options.geo_update_frequency);
  if (options.mode != AsyncMode::kGeo || recorded == 0 || recorded == wanted) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another interval than the options have",
               .where = "strategies::attach, AsyncOptions.geo_update_frequency",
               .expected = str_cat("geo_sgd_need_push_nums of the program, ", recorded),
               .got = str_cat("geo_update_frequency ", wanted),
               .fix = "give both the same number, or attach without options"});
}

void check_mode(const fluid::Program& program, const AsyncOptions& options) {
  const ServerMode found = mode_of(program);
  const ServerMode wanted = mode_of(options);
  if (found == wanted) return;
  if (serves(program) && applies_on_arrival(found) && applies_on_arrival(wanted)) return;
  const bool unnumbered = !serves(program) && found == ServerMode::kSync &&
                          wanted == ServerMode::kHalfAsync &&
                          find_op(program, "fetch_barrier") == nullptr;
  if (unnumbered && program.distribution().trainers == 1) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another mode than the options have",
               .where = "strategies::attach",
               .expected = str_cat("a program for ", mode_name(wanted)),
               .got = str_cat("one for ", mode_name(found)),
               .fix = "transpile for that mode, or correct AsyncOptions::mode"});
}

SyncJob common_job(const fluid::Program& program, const RuntimeConfig& config, Logger logger) {
  const fluid::DistributionInfo& info = program.distribution();
  if (!info.is_distributed || info.endpoints.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "this program was not transpiled for parameter servers",
                 .where = "strategies::attach",
                 .expected = "a program of DistributeTranspiler::get_trainer_program or "
                             "get_pserver_program",
                 .fix = "transpile first, and attach with the program that you run"});
  }
  const auto cluster = cluster_of(program, serves(program));
  dump(config, program, cluster);
  logger.set_identity(cluster.process_name());
  SyncJob job{.config = server_config(config, info.endpoints),
              .transport = transport::parse_transport_choice(config.transport).value(),
              .server_names = info.endpoints,
              .logger = std::move(logger)};
  job.config.index = static_cast<uint32_t>(cluster.index);
  job.config.worker_num = static_cast<uint32_t>(cluster.worker_num);
  job.config.job_id = choose_job_id(config, cluster);
  job.config.secret = choose_job_secret(config, cluster);
  if (!serves(program) && !info.wait_port) {
    require_listening(job.config.servers, job.transport, job.config.rpc_deadline);
  }
  job.config.facts = {{"placement", str_cat(std::hex, fnv1a(placement_text(info)))}};
  return job;
}

std::shared_ptr<StrategyRuntime> attach_async(fluid::Executor& executor,
                                              const fluid::Program& program,
                                              const AsyncOptions& options,
                                              const RuntimeConfig& config, Logger logger) {
  SyncJob common = common_job(program, config, std::move(logger));
  if (applies_on_arrival(mode_of(options))) {
    common.config.facts.emplace("mode", "async or half_async");
  }
  const TrainerRuntimeConfig trainer = TrainerRuntimeConfig().over(config.trainer, config.cpu_num);
  AsyncJob job{.config = std::move(common.config),
               .options = configured(options, trainer, config.cpu_num, options.merge_by_sum),
               .transport = common.transport,
               .server_names = std::move(common.server_names),
               .logger = common.logger};
  auto runtime = serves(program) ? make_async_server(std::move(job))
                                 : make_async_worker(std::move(job), program);
  executor.set_comm_runtime(runtime);
  return runtime;
}

}  // namespace

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const RuntimeConfig& config, Logger logger) {
  const ServerMode mode = mode_of(program);
  if (mode != ServerMode::kSync) {
    return attach_async(executor, program, recorded_options(program, mode), config,
                        std::move(logger));
  }
  SyncJob job = common_job(program, config, std::move(logger));
  auto runtime = serves(program) ? make_sync_server(std::move(job))
                                 : make_sync_worker(std::move(job), program);
  executor.set_comm_runtime(runtime);
  return runtime;
}

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const AsyncOptions& options, const RuntimeConfig& config,
                                        Logger logger) {
  check_mode(program, options);
  check_push_interval(program, options);
  return attach_async(executor, program, options, config, std::move(logger));
}

}  // namespace fleet::strategies
