#include "strategies/jobs/attach.h"

#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "base/strings.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/sync_runtime.h"

namespace fleet::strategies {
namespace {

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

bool serves(const fluid::Program& program) {
  const auto& ops = program.global_block().ops();
  return std::any_of(ops.begin(), ops.end(),
                     [](const auto& op) { return op->type == "listen_and_serv"; });
}

}  // namespace

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const RuntimeConfig& config, Logger logger) {
  const fluid::DistributionInfo& info = program.distribution();
  if (!info.is_distributed || info.endpoints.empty()) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "this program was not transpiled for parameter servers",
                 .where = "strategies::attach",
                 .expected = "a program of DistributeTranspiler::get_trainer_program or "
                             "get_pserver_program",
                 .fix = "transpile first, and attach with the program that you run"});
  }
  const bool is_server = serves(program);
  const auto cluster = cluster_of(program, is_server);
  logger.set_identity(cluster.process_name());
  SyncJob job{.config = server_config(config, info.endpoints),
              .transport = transport::parse_transport_choice(config.transport).value(),
              .server_names = info.endpoints,
              .logger = logger};
  job.config.index = static_cast<uint32_t>(cluster.index);
  job.config.worker_num = static_cast<uint32_t>(cluster.worker_num);
  job.config.job_id = choose_job_id(config, cluster);
  job.config.secret = choose_job_secret(config, cluster);
  job.config.facts = {{"placement", str_cat(std::hex, fnv1a(placement_text(info)))}};
  auto runtime =
      is_server ? make_sync_server(std::move(job)) : make_sync_worker(std::move(job), program);
  executor.set_comm_runtime(runtime);
  return runtime;
}

}  // namespace fleet::strategies
