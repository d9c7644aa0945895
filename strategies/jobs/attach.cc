#include "strategies/jobs/attach.h"

#include <algorithm>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/program/default_programs.h"
#include "strategies/dump/program_dump.h"
#include "strategies/jobs/job_identity.h"
#include "strategies/jobs/listening_servers.h"
#include "strategies/jobs/server_job.h"
#include "strategies/jobs/step_watch.h"

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

bool serves(const fluid::Program& program) {
  const auto& ops = program.global_block().ops();
  return std::any_of(ops.begin(), ops.end(),
                     [](const auto& op) { return op->type == "listen_and_serv"; });
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

// What the transpiler recorded; attach has seen that it is a job with servers.
const std::string& mode_of(const fluid::Program& program) {
  return program.distribution().server_mode;
}

// The mode that options stand for, in the words of programs.
std::string mode_of(const AsyncOptions& options) {
  return std::string(to_string(options.mode == AsyncMode::kEasgd ? AsyncMode::kGeo : options.mode));
}

DelayCompensationOptions recorded_compensation(const fluid::Program& program) {
  const fluid::DelayCompensationInfo& info = program.distribution().delay_compensation;
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

AsyncOptions recorded_options(const fluid::Program& program) {
  AsyncOptions options;
  if (mode_of(program) == "half_async") options.mode = AsyncMode::kHalfAsync;
  if (mode_of(program) == "geo") options.mode = AsyncMode::kGeo;
  const int32_t pushes = program.distribution().geo_sgd_need_push_nums;
  if (pushes > 0) options.geo_update_frequency = static_cast<uint32_t>(pushes);
  options.delay_compensation = recorded_compensation(program);
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

void check_compensation(const fluid::Program& program, const AsyncOptions& options) {
  const DelayCompensationOptions recorded = recorded_compensation(program);
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

void check_mode(const fluid::Program& program, const AsyncOptions& options) {
  if (mode_of(program) == mode_of(options)) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the program was transpiled for another mode than the options have",
               .where = "strategies::attach",
               .expected = str_cat("a program for ", mode_of(options)),
               .got = str_cat("one for ", mode_of(program)),
               .fix = "transpile for that mode, or correct AsyncOptions::mode"});
}

void require_servers(const fluid::Program& program) {
  if (!mode_of(program).empty()) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "this program was not transpiled for parameter servers",
               .where = "strategies::attach",
               .expected = "a program of DistributeTranspiler::get_trainer_program or "
                           "get_pserver_program",
               .fix = "transpile first, and attach with the program that you run"});
}

ServerJob common_job(const fluid::Program& program, const RuntimeConfig& config, Logger logger) {
  const fluid::DistributionInfo& info = program.distribution();
  const auto cluster = cluster_of(program, serves(program));
  dump(config, program, cluster);
  logger.set_identity(cluster.process_name());
  ServerJob job =
      make_common_job(cluster, config, {{"placement", placement_fact(program)}}, std::move(logger));
  if (!serves(program) && !info.wait_port) {
    require_listening(job.config.servers, job.transport, job.config.rpc_deadline);
  }
  return job;
}

void take_runtime(fluid::Executor& executor, const fluid::Program& program,
                  const RuntimeConfig& config, const std::shared_ptr<StrategyRuntime>& runtime,
                  Logger logger) {
  if (!serves(program)) {
    watch_steps(*runtime, config, cluster_of(program, false).index, nullptr, std::move(logger));
  }
  executor.set_comm_runtime(runtime);
}

std::shared_ptr<StrategyRuntime> attach_job(fluid::Executor& executor,
                                            const fluid::Program& program, ServerJob job,
                                            const RuntimeConfig& config) {
  Logger logger = job.logger;
  auto runtime = make_runtime(std::move(job), serves(program), program);
  take_runtime(executor, program, config, runtime, std::move(logger));
  return runtime;
}

std::shared_ptr<StrategyRuntime> attach_async(fluid::Executor& executor,
                                              const fluid::Program& program,
                                              const AsyncOptions& options,
                                              const RuntimeConfig& config, Logger logger) {
  ServerJob job = common_job(program, config, std::move(logger));
  const TrainerRuntimeConfig trainer = TrainerRuntimeConfig().over(config.trainer, config.cpu_num);
  job.async = configured(options, trainer, config.cpu_num, options.merge_by_sum);
  return attach_job(executor, program, std::move(job), config);
}

}  // namespace

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const RuntimeConfig& config, Logger logger) {
  require_servers(program);
  if (mode_of(program) != "sync") {
    return attach_async(executor, program, recorded_options(program), config, std::move(logger));
  }
  ServerJob job = common_job(program, config, std::move(logger));
  job.config.facts.emplace("mode", "sync");
  return attach_job(executor, program, std::move(job), config);
}

std::shared_ptr<StrategyRuntime> attach(fluid::Executor& executor, const fluid::Program& program,
                                        const AsyncOptions& options, const RuntimeConfig& config,
                                        Logger logger) {
  require_servers(program);
  check_mode(program, options);
  check_push_interval(program, options);
  AsyncOptions asked = options;
  if (asked.delay_compensation.form == DelayCompensation::kNone) {
    asked.delay_compensation = recorded_compensation(program);
  }
  check_compensation(program, asked);
  return attach_async(executor, program, asked, config, std::move(logger));
}

}  // namespace fleet::strategies
