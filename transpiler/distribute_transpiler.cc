#include "transpiler/distribute_transpiler.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/shard_tree.h"
#include "base/strings.h"
#include "fluid/program/default_programs.h"
#include "transpiler/collective/local_sgd.h"
#include "transpiler/parameter_server/async_counter.h"
#include "transpiler/parameter_server/dc_asgd.h"
#include "transpiler/parameter_server/distributed_table.h"
#include "transpiler/parameter_server/geo_program.h"
#include "transpiler/parameter_server/server_program.h"
#include "transpiler/parameter_server/server_startup.h"
#include "transpiler/training_ops.h"

namespace fleet::transpiler {
namespace {

using fluid::Block;
using fluid::Program;
using Names = std::vector<std::string>;

[[noreturn]] void bad_argument(std::string what, std::string where, std::string expected,
                               std::string got, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = std::move(where),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

Names split_endpoints(const std::string& text) {
  Names endpoints;
  for (const std::string& part : split(text, ',')) endpoints.emplace_back(trim(part));
  return endpoints;
}

// Shards of a step, checked against the trainer's own number.
int shard_count(const TranspileOptions& options) {
  const int* count = std::get_if<int>(&options.trainers);
  if (count == nullptr) {
    bad_argument("trainers is a list of endpoints, but mode is 'pserver'",
                 "transpile, trainers; DistributeTranspilerConfig.mode",
                 "a number of trainers with mode 'pserver'",
                 "'" + std::get<std::string>(options.trainers) + "'",
                 "give the number of trainers, or set mode to 'collective' or 'nccl2'");
  }
  if (*count < 1) {
    bad_argument("there must be a trainer", "transpile, trainers", "at least 1", str_cat(*count),
                 "set trainers to the number of trainers");
  }
  if (options.trainer_id < 0 || options.trainer_id >= *count) {
    bad_argument("trainer_id is out of range", "transpile, trainer_id, trainers",
                 str_cat("0 to ", *count - 1, ", as trainers is ", *count),
                 str_cat(options.trainer_id), "number the trainers from 0");
  }
  return *count;
}

// The ranks of nccl2 and collective mode.
Names rank_endpoints(const TranspileOptions& options, const std::string& mode) {
  const auto* text = std::get_if<std::string>(&options.trainers);
  const std::string where = "transpile, trainers; DistributeTranspilerConfig.mode";
  if (text == nullptr) {
    bad_argument("mode '" + mode + "' needs the ranks' endpoints", where,
                 "endpoints \"host:port\", joined by commas",
                 str_cat(std::get<int>(options.trainers)), "give trainers as a text of endpoints");
  }
  Names endpoints = split_endpoints(*text);
  const auto ranks = static_cast<int>(endpoints.size());
  if (options.trainer_id < 0 || options.trainer_id >= std::max(ranks, 1)) {
    bad_argument("trainer_id is out of range", "transpile, trainer_id, trainers",
                 str_cat("0 to ", ranks - 1), str_cat(options.trainer_id),
                 "number the ranks from 0, in the order of trainers");
  }
  return endpoints;
}

CollectiveOptions collective_options(const TranspileOptions& options,
                                     const DistributeTranspilerConfig& config) {
  CollectiveOptions collective;
  collective.endpoints = rank_endpoints(options, config.mode);
  collective.rank = options.trainer_id;
  collective.nranks = static_cast<int>(collective.endpoints.size());
  collective.in_process = config.collective_mode == "single_process_multi_thread";
  if (collective.nranks < 2 && !collective.in_process) {
    bad_argument("collective mode needs several ranks",
                 "transpile, trainers; DistributeTranspilerConfig.mode",
                 "at least 2 endpoints with mode 'collective'",
                 "'" + join(collective.endpoints, ",") + "'",
                 "give trainers one endpoint for each rank, or train the program as it is");
  }
  if (std::find(collective.endpoints.begin(), collective.endpoints.end(),
                options.current_endpoint) == collective.endpoints.end()) {
    bad_argument("current_endpoint is not among the ranks", "transpile, current_endpoint, trainers",
                 "one of " + join(collective.endpoints, ", "), "'" + options.current_endpoint + "'",
                 "give the endpoint of this rank");
  }
  collective.current_endpoint = options.current_endpoint;
  // The devices of one process share one ring.
  collective.rings = collective.in_process ? 1 : config.nccl_comm_num;
  collective.fuse_bytes = config.fuse_all_reduce_bytes;
  collective.scheduled = config.local_sgd_scheduled;
  collective.shards = options.logical_shards > 0 ? options.logical_shards : collective.nranks;
  if (collective.shards < collective.nranks) {
    bad_argument("there are fewer logical shards than ranks", "transpile, logical_shards, trainers",
                 str_cat("at least ", collective.nranks), str_cat(collective.shards),
                 "raise logical_shards, or start fewer ranks");
  }
  collective.wait_port = config.wait_port;
  return collective;
}

// What set_gradient_clip asked for acts on what each trainer computes, so it is a part of backward.
void keep_noted_clips(Program& main) {
  Block& block = main.global_block();
  for (size_t i = 0; i < block.op_count(); ++i) {
    const fluid::Operator& op = *block.ops()[i];
    if (is_update_role(op) && op.name_scope.find("@CLIP") != std::string::npos) {
      block.edit_op(i).role = fluid::OpRole::kBackward;
    }
  }
}

// Options that only one mode reads.
void check_read(const TranspileOptions& options, const DistributeTranspilerConfig& config) {
  const auto unread = [&config](std::string_view option, const std::string& got,
                                std::string_view mode) {
    bad_argument(str_cat(option, " and mode contradict each other"),
                 str_cat("transpile, ", option, "; DistributeTranspilerConfig.mode"),
                 str_cat("mode '", mode, "' with ", option),
                 str_cat(option, " = ", got, ", mode = '", config.mode, "'"),
                 str_cat("leave ", option, " out, or set mode to '", mode, "'"));
  };
  if (options.logical_shards != 0 && config.mode != "collective") {
    unread("logical_shards", str_cat(options.logical_shards), "collective");
  }
  if (!options.dispatch_order.empty() && config.mode != "pserver") {
    unread("dispatch_order", "[" + join(options.dispatch_order, ", ") + "]", "pserver");
  }
}

// Tells the log of passes that have run, and `also` of everything.
std::function<void(const PassEvent&)> printing(const Logger& logger,
                                               std::function<void(const PassEvent&)> also) {
  return [logger, also = std::move(also)](const PassEvent& event) {
    if (also) also(event);
    if (event.finished) {
      logger.info("transpiler", "pass", {{"name", event.pass}, {"purpose", event.purpose}});
    }
  };
}

void print_placement(const ServerPlan& plan, const Logger& logger) {
  for (const fluid::DistributedVar& row : plan.overview) {
    logger.info("transpiler", "placed",
                {{"slice", row.slice},
                 {"of", row.origin},
                 {"shape", fluid::Shape(row.slice_shape).to_string()},
                 {"offset", row.offset},
                 {"kind", row.vtype},
                 {"endpoint", row.endpoint}});
  }
}

void check_skipped(const std::set<std::string, std::less<>>& passes) {
  const auto known = pass_names();
  for (const std::string& name : passes) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    const Names names(known.begin(), known.end());
    bad_argument("unknown pass" + did_you_mean(name, names), "transpile, skip_passes",
                 "names that pass_names() gives", "'" + name + "'", "use one of those names");
  }
}

Nccl2Options nccl2_options(const TranspileOptions& options,
                           const DistributeTranspilerConfig& config) {
  Nccl2Options nccl2;
  nccl2.endpoints = rank_endpoints(options, config.mode);
  nccl2.trainer_id = options.trainer_id;
  nccl2.nccl_comm_num = config.nccl_comm_num;
  nccl2.use_hierarchical_allreduce = config.use_hierarchical_allreduce;
  nccl2.hierarchical_allreduce_inter_nranks = config.hierarchical_allreduce_inter_nranks;
  nccl2.wait_port = config.wait_port;
  const auto ranks = static_cast<int>(nccl2.endpoints.size());
  const int group = nccl2.hierarchical_allreduce_inter_nranks;
  if (nccl2.use_hierarchical_allreduce && (ranks <= group || ranks % group != 0)) {
    bad_argument("the ranks do not divide into groups",
                 "transpile, trainers; "
                 "DistributeTranspilerConfig.hierarchical_allreduce_inter_nranks",
                 str_cat("a multiple of ", group, " ranks, more than ", group), str_cat(ranks),
                 "change hierarchical_allreduce_inter_nranks or the number of ranks");
  }
  return nccl2;
}

}  // namespace

struct DistributeTranspiler::State {
  explicit State(const TranspileOptions& options)
      : main(options.program ? *options.program : fluid::default_main_program()),
        startup(options.startup_program ? *options.startup_program
                                        : fluid::default_startup_program()),
        runner{.verify_each = options.verify_each_pass,
               .skip = options.skip_passes,
               .observer = options.pass_observer} {}

  Program main;
  Program startup;
  PassRunner runner;
  TrainerOptions trainer = {};
  TrainingOps ops = {};
  std::optional<ServerPlan> plan = std::nullopt;
  UpdatePhases phases = {};
  ProgramPair trainer_programs = {};
};

DistributeTranspiler::DistributeTranspiler(DistributeTranspilerConfig config)
    : config_(std::move(config)) {
  validate_but_sync_mode(config_);
}

DistributeTranspiler::~DistributeTranspiler() = default;
DistributeTranspiler::DistributeTranspiler(DistributeTranspiler&&) noexcept = default;
DistributeTranspiler& DistributeTranspiler::operator=(DistributeTranspiler&&) noexcept = default;

void DistributeTranspiler::transpile(const TranspileOptions& options) {
  DistributeTranspilerConfig config = config_;
  config.sync_mode = options.sync_mode.value_or(config.sync_mode);
  validate(config);
  check_skipped(options.skip_passes);
  check_read(options, config);
  auto fresh = std::make_unique<State>(options);
  if (config.print_log) {
    fresh->runner.observer = printing(options.logger, options.pass_observer);
  }
  if (config.mode != "pserver") refuse_growing_tables(fresh->main, "ranks");
  if (config.mode == "pserver") {
    refuse_compressed_gradients(fresh->main, "parameter servers");
    const int shards = shard_count(options);
    fresh->trainer = {.trainer_id = options.trainer_id,
                      .current_endpoint = options.current_endpoint,
                      .wait_port = config.wait_port};
    const fluid::ServerMode mode = server_mode(config);
    const bool geo = mode == fluid::ServerMode::kGeo;
    std::optional<int64_t> first_count;
    const bool counts = !geo && counts_steps(fresh->main);
    if (counts && config.paddle_schedules && mode != fluid::ServerMode::kAsync) {
      stop_counting(fresh->main, shards, fresh->runner);
    } else if (counts && !config.sync_mode) {
      first_count = count_per_trainer(fresh->main, fresh->startup, shards, config.paddle_schedules,
                                      fresh->runner);
    }
    keep_noted_clips(fresh->main);
    if (!is_synchronous(mode) && !geo) keep_clips_on_trainer(fresh->main);
    fresh->ops = find_training_ops(fresh->main);
    if (!geo) check_post_update_ops(fresh->main, fresh->ops);
    if (geo) {
      take_growing_tables(fresh->main, fresh->startup, fresh->ops);
    } else {
      take_distributed_tables(fresh->main, fresh->ops, config);
    }
    if (config.enable_dc_asgd) {
      require_compensation(fresh->main, fresh->ops, dc_asgd_form(config));
    }
    fresh->plan = plan_servers(fresh->main, fresh->ops, config, split_endpoints(options.pservers),
                               shards, options.dispatch_order);
    fresh->plan->form.first_count = first_count;
    if (config.print_log) print_placement(*fresh->plan, options.logger);
    if (!geo) {
      fresh->phases = plan_phases(fresh->main, fresh->ops, *fresh->plan);
    }
    const auto make = geo ? make_geo_trainer_programs : make_trainer_programs;
    fresh->trainer_programs =
        make(fresh->main, fresh->startup, *fresh->plan, fresh->trainer, fresh->runner);
  } else if (config.mode == "nccl2") {
    fresh->trainer_programs = make_nccl2_programs(fresh->main, fresh->startup,
                                                  nccl2_options(options, config), fresh->runner);
  } else {
    const auto make =
        config.collective_mode == "local_sgd" ? make_local_sgd_programs : make_all_reduce_programs;
    fresh->trainer_programs =
        make(fresh->main, fresh->startup, collective_options(options, config), fresh->runner);
  }
  state_ = std::move(fresh);
}

const DistributeTranspiler::State& DistributeTranspiler::state() const {
  if (state_) return *state_;
  throw_error(ErrorCode::kPrecondition, {.what = "nothing has been transpiled yet",
                                         .where = "DistributeTranspiler",
                                         .expected = "transpile, then the programs",
                                         .got = "a program asked for before transpile",
                                         .fix = "call transpile first"});
}

const ServerPlan& DistributeTranspiler::plan() const {
  const State& now = state();
  if (now.plan) return *now.plan;
  throw_error(ErrorCode::kPrecondition,
              {.what = "this job has no parameter servers",
               .where = "DistributeTranspilerConfig.mode",
               .expected = "mode 'pserver'",
               .got = "mode '" + config_.mode + "'",
               .fix = "ask for the trainer's programs, or set mode to 'pserver'"});
}

Program DistributeTranspiler::get_trainer_program(bool wait_port) const {
  Program program = state().trainer_programs.main;
  program.distribution().wait_port = wait_port && config_.wait_port;
  return program;
}

Program DistributeTranspiler::get_trainer_startup_program() const {
  return state().trainer_programs.startup;
}

Program DistributeTranspiler::get_pserver_program(const std::string& endpoint) const {
  const ServerPlan& servers = plan();
  const auto found = std::find(servers.endpoints.begin(), servers.endpoints.end(), endpoint);
  if (found == servers.endpoints.end()) {
    throw_error(ErrorCode::kUnknownName,
                {.what = "no such parameter server" + did_you_mean(endpoint, servers.endpoints),
                 .where = "get_pserver_program, endpoint",
                 .expected = "one of " + join(servers.endpoints, ", "),
                 .got = "'" + endpoint + "'",
                 .fix = "use an endpoint that transpile was given in pservers"});
  }
  const auto index = static_cast<int>(found - servers.endpoints.begin());
  if (servers.form.geo())
    return make_geo_server_program(state_->main, servers, index, state_->runner);
  return make_server_program(state_->main, state_->ops, servers, state_->phases, index,
                             state_->runner);
}

ProgramPair DistributeTranspiler::get_pserver_programs(const std::string& endpoint) const {
  ProgramPair pair{.main = get_pserver_program(endpoint), .startup = {}};
  pair.startup = get_startup_program(endpoint, &pair.main);
  return pair;
}

Program DistributeTranspiler::get_startup_program(const std::string& endpoint,
                                                  const Program* pserver_program) const {
  if (pserver_program == nullptr) return get_pserver_programs(endpoint).startup;
  return make_server_startup(state().startup, *pserver_program, state().runner);
}

ProgramPair transpile_for(const Program& main, const Program& startup,
                          const role_maker::ClusterSpec& cluster,
                          const DistributeTranspilerConfig& config, int shards,
                          const Logger& logger) {
  if (!cluster.is_distributed()) return {.main = main, .startup = startup};
  const int contributors = shards > 0 ? shards : cluster.worker_num;
  const int first =
      cluster.is_worker() ? owned_shards(cluster.index, cluster.worker_num, contributors).begin : 0;
  if (cluster.mode == role_maker::Mode::kParameterServer) {
    // A worker has no endpoint of its own among the servers: it names the first.
    const Names& servers = cluster.server_endpoints;
    const std::string near_server = cluster.is_server() ? cluster.current_endpoint()
                                    : servers.empty()   ? std::string()
                                                        : servers.front();
    DistributeTranspiler transpiler(config);
    transpiler.transpile({.trainer_id = first,
                          .program = &main,
                          .pservers = join(cluster.server_endpoints, ","),
                          .trainers = contributors,
                          .startup_program = &startup,
                          .current_endpoint = near_server,
                          .logger = logger});
    if (cluster.is_server()) return transpiler.get_pserver_programs(cluster.current_endpoint());
    return {.main = transpiler.get_trainer_program(),
            .startup = transpiler.get_trainer_startup_program()};
  }
  validate(config);
  refuse_growing_tables(main, "ranks");
  std::function<void(const PassEvent&)> observer;
  if (config.print_log) observer = printing(logger, {});
  const auto make =
      config.collective_mode == "local_sgd" ? make_local_sgd_programs : make_all_reduce_programs;
  return make(main, startup,
              {.rank = cluster.index,
               .nranks = cluster.worker_num,
               .endpoints = cluster.worker_endpoints,
               .current_endpoint = cluster.current_endpoint(),
               .rings = config.nccl_comm_num,
               .shards = contributors,
               .wait_port = config.wait_port,
               .scheduled = config.local_sgd_scheduled,
               .fuse_bytes = config.fuse_all_reduce_bytes},
              PassRunner{.observer = std::move(observer)});
}

}  // namespace fleet::transpiler
