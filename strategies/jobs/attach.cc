#include "strategies/jobs/attach.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/server_program.h"
#include "fluid/ops/distributed/trainer_program.h"
#include "fluid/program/default_programs.h"
#include "strategies/dump/program_dump.h"
#include "strategies/jobs/collective_job.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/listening_servers.h"
#include "strategies/jobs/server_job.h"
#include "strategies/jobs/step_watch.h"

namespace fleet::strategies {
namespace {

using fluid::DistributionInfo;

role_maker::ClusterSpec cluster_of(const DistributionInfo& info, bool is_server) {
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

// Under FLEET_DUMP_PROGRAM. The thread's default programs, when there are any, are what was
// transpiled.
void dump(const RuntimeConfig& config, const fluid::Program& program,
          const role_maker::ClusterSpec& cluster) {
  if (config.dump_program.empty()) return;
  const std::string who = dump_name(cluster);
  dump_program(config.dump_program, who + ".main", program);
  dump_job(config.dump_program, who,
           describe_job(cluster, cluster.worker_num, "attached", nullptr));
  const fluid::Program& origin = fluid::default_main_program();
  if (origin.global_block().op_count() == 0 || origin.distribution().is_distributed) return;
  dump_program(config.dump_program, who + ".origin_main", origin);
  dump_program(config.dump_program, who + ".origin_startup", fluid::default_startup_program());
}

DelayCompensationOptions recorded_compensation(const DistributionInfo& job) {
  const fluid::DelayCompensationInfo& info = job.delay_compensation;
  if (info.form.empty()) return {};
  return {.form = parse_delay_compensation(info.form).value_or(DelayCompensation::kNone),
          .lambda = info.lambda,
          .mean_square_decay = info.m,
          .epsilon = info.epsilon};
}

std::string compensation_text(const DelayCompensationOptions& options) {
  if (options.form == DelayCompensation::kNone) return "no delay compensation";
  return str_cat("form '", to_string(options.form), "' with lambda ", options.lambda, ", m ",
                 options.mean_square_decay, ", epsilon ", options.epsilon);
}

AsyncOptions recorded_options(const DistributionInfo& job) {
  AsyncOptions options;
  options.mode = *job.server_mode;
  const int32_t pushes = job.geo_sgd_need_push_nums;
  if (pushes > 0) options.geo_update_frequency = static_cast<uint32_t>(pushes);
  options.delay_compensation = recorded_compensation(job);
  return options;
}

void check_push_interval(const DistributionInfo& job, const AsyncOptions& options) {
  const int32_t recorded = job.geo_sgd_need_push_nums;
  const auto wanted = static_cast<int64_t>(options.geo_update_frequency);
  if (options.mode != ServerMode::kGeo || recorded == 0 || recorded == wanted) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another interval than the options have",
               .where = "strategies::attach, AsyncOptions.geo_update_frequency",
               .expected = str_cat("geo_sgd_need_push_nums of the program, ", recorded),
               .got = str_cat("geo_update_frequency ", wanted),
               .fix = "give both the same number, or attach without options"});
}

void check_compensation(const DistributionInfo& job, const AsyncOptions& options) {
  const DelayCompensationOptions recorded = recorded_compensation(job);
  if (options.delay_compensation == recorded) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another delay compensation than the options "
                       "have",
               .where = "strategies::attach, AsyncOptions.delay_compensation",
               .expected = str_cat("that of the program, ", compensation_text(recorded)),
               .got = compensation_text(options.delay_compensation),
               .fix = "leave delay_compensation out, or transpile with enable_dc_asgd and this "
                      "dc_asgd_form"});
}

void check_mode(const DistributionInfo& job, const AsyncOptions& options) {
  const ServerMode asked = recorded_mode(options.mode);
  if (recorded_mode(*job.server_mode) == asked) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another mode than the options have",
               .where = "strategies::attach",
               .expected = str_cat("a program for ", to_string(asked)),
               .got = str_cat("one for ", to_string(*job.server_mode)),
               .fix = "transpile for that mode, or correct AsyncOptions::mode"});
}

role_maker::ClusterSpec cluster_of(const fluid::RankPlace& place) {
  role_maker::ClusterSpec cluster;
  cluster.mode = role_maker::Mode::kCollective;
  cluster.contract = role_maker::Contract::kArguments;
  if (place.in_process) {
    cluster.local_worker_num = 1;
    return cluster;
  }
  cluster.index = place.rank;
  cluster.worker_num = static_cast<int>(place.endpoints.size());
  cluster.worker_endpoints = place.endpoints;
  return cluster;
}

// What the program's loss gradient is divided by; an executor that reduces has CPU_NUM shards.
int shards_of(const fluid::RankPlace& place, const role_maker::ClusterSpec& cluster,
              const RuntimeConfig& config) {
  const auto threads = static_cast<int>(config.cpu_num);
  if (place.executor_reduces) return cluster.worker_num * threads;
  if (place.shards > 0) return place.shards;
  return place.in_process ? threads : cluster.worker_num;
}

std::shared_ptr<StrategyRuntime> attach_rank(fluid::Executor& executor,
                                             const fluid::Program& program,
                                             const fluid::RankPlace& place,
                                             const RuntimeConfig& config, Logger logger) {
  if (place.endpoints.empty() && !place.in_process) {
    throw_error(ErrorCode::kInvalidArgument,
                {.what = "the program does not say where its ranks are",
                 .where = "strategies::attach, endpoint and other_endpoints of c_gen_nccl_id",
                 .expected = "the endpoints of all ranks",
                 .got = "none",
                 .fix = "transpile with trainers=\"host:port,host:port\""});
  }
  const auto cluster = cluster_of(place);
  dump(config, program, cluster);
  logger.set_identity(cluster.process_name());
  CollectiveRuntimeOptions options{.logical_shards = shards_of(place, cluster, config),
                                   .device_communicators = place.communicators,
                                   .hierarchical = place.hierarchical,
                                   .group_ranks = place.group_ranks};
  auto runtime = make_transpiled_runtime(
      {.program = program, .cluster = cluster, .config = config, .logger = logger},
      std::move(options));
  watch_steps(*runtime, config, cluster.index, nullptr, std::move(logger));
  executor.set_comm_runtime(runtime);
  return runtime;
}

const DistributionInfo& require_record(const fluid::Program& program) {
  if (program.distribution().server_mode) return program.distribution();
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this program was not transpiled for a job, or does not say so",
               .where = "strategies::attach, DistributionInfo.server_mode",
               .expected = "a program of DistributeTranspiler::get_trainer_program or "
                           "get_pserver_program, or a startup program with gen_nccl_id, "
                           "c_gen_nccl_id or c_comm_init_all",
               .got = "a program that records no mode",
               .fix = "of a job without servers, attach with the startup program; else with the "
                      "program that you run, and for one that Paddle transpiled give attach a "
                      "DistributionInfo with its server_mode"});
}

[[noreturn]] void refuse_job(std::string what, const char* field, std::string expected,
                             std::string got) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = std::move(what),
               .where = str_cat("strategies::attach, DistributionInfo.", field),
               .expected = std::move(expected),
               .got = std::move(got),
               .fix = str_cat("say the program's own ", field)});
}

// What a caller says of a program that records nothing.
void check_said(const fluid::Program& program, const DistributionInfo& job, bool is_server) {
  if (program.distribution().server_mode) {
    refuse_job("the program records its job itself", "server_mode", "no other record",
               "a second one");
  }
  if (!job.server_mode) {
    refuse_job("the mode in which the program trains is not known", "server_mode",
               "kSync, kAsync, kHalfAsync, kGeo or kEasgd", "none");
  }
  if (job.endpoints.empty()) {
    refuse_job("the endpoints of the servers are not known", "endpoints", "one or more", "none");
  }
  const bool known =
      std::find(job.endpoints.begin(), job.endpoints.end(), job.ps_endpoint) != job.endpoints.end();
  if (is_server && !known) {
    refuse_job("this server is none of the job's", "ps_endpoint",
               "one of " + join(job.endpoints, ", "), "'" + job.ps_endpoint + "'");
  }
  if (job.trainers < 1) {
    refuse_job("a job has trainers", "trainers", "1 or more", str_cat(job.trainers));
  }
  if (!is_server && (job.trainer_id < 0 || job.trainer_id >= job.trainers)) {
    refuse_job("this trainer is none of the job's", "trainer_id",
               str_cat("0 to ", job.trainers - 1), str_cat(job.trainer_id));
  }
}

ServerJob common_job(const fluid::Program& program, const DistributionInfo& info,
                     const RuntimeConfig& config, Logger logger) {
  const auto cluster = cluster_of(info, fluid::is_server_program(program));
  dump(config, program, cluster);
  logger.set_identity(cluster.process_name());
  ServerJob job =
      make_common_job(cluster, config, {{"placement", placement_fact(info)}}, std::move(logger));
  if (!fluid::is_server_program(program) && !info.wait_port) {
    require_listening(job.config.servers, job.transport, job.config.rpc_deadline);
  }
  return job;
}

std::shared_ptr<StrategyRuntime> attach_job(fluid::Executor& executor,
                                            const fluid::Program& program, ServerJob job,
                                            const RuntimeConfig& config) {
  Logger logger = job.logger;
  const int index = static_cast<int>(job.config.index);
  auto runtime = make_runtime(std::move(job), fluid::is_server_program(program), program);
  if (!fluid::is_server_program(program))
    watch_steps(*runtime, config, index, nullptr, std::move(logger));
  executor.set_comm_runtime(runtime);
  return runtime;
}

std::shared_ptr<StrategyRuntime> attach_async(fluid::Executor& executor,
                                              const fluid::Program& program,
                                              const DistributionInfo& info,
                                              const AsyncOptions& options,
                                              const RuntimeConfig& config, Logger logger) {
  ServerJob job = common_job(program, info, config, std::move(logger));
  const TrainerRuntimeConfig trainer = TrainerRuntimeConfig().over(config.trainer, config.cpu_num);
  job.options = configured(options, trainer, config.cpu_num, options.merge_by_sum);
  return attach_job(executor, program, std::move(job), config);
}

std::shared_ptr<StrategyRuntime> attach_as(fluid::Executor& executor, const fluid::Program& program,
                                           const DistributionInfo& info,
                                           const RuntimeConfig& config, Logger logger) {
  if (!is_synchronous(*info.server_mode)) {
    return attach_async(executor, program, info, recorded_options(info), config, std::move(logger));
  }
  ServerJob job = common_job(program, info, config, std::move(logger));
  job.config.facts.emplace("mode", to_string(*info.server_mode));
  return attach_job(executor, program, std::move(job), config);
}

}  // namespace

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const RuntimeConfig& config, Logger logger) {
  if (const auto place = fluid::read_rank_place(program)) {
    return attach_rank(executor, program, *place, config, std::move(logger));
  }
  return attach_as(executor, program, require_record(program), config, std::move(logger));
}

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const DistributionInfo& job, const RuntimeConfig& config,
                                        Logger logger) {
  check_said(program, job, fluid::is_server_program(program));
  return attach_as(executor, program, job, config, std::move(logger));
}

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const AsyncOptions& options, const RuntimeConfig& config,
                                        Logger logger) {
  validate(options);
  const DistributionInfo& job = require_record(program);
  check_mode(job, options);
  check_push_interval(job, options);
  AsyncOptions asked = options;
  if (asked.delay_compensation.form == DelayCompensation::kNone) {
    asked.delay_compensation = recorded_compensation(job);
  }
  check_compensation(job, asked);
  return attach_async(executor, program, job, asked, config, std::move(logger));
}

}  // namespace fleet::strategies
