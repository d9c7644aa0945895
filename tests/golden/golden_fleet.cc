#include "tests/golden/golden_fleet.h"

#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/strings.h"
#include "fleet/fleet.h"
#include "fluid/program/default_programs.h"
#include "role_maker/role_maker.h"
#include "strategies/strategies.h"
#include "tests/golden/golden_arguments.h"
#include "tests/golden/golden_config.h"
#include "tests/golden/golden_net.h"

namespace fleet::golden {
namespace {

using nlohmann::json;
using strategies::Strategy;
using strategies::StrategyFactory;
using transpiler::DistributeTranspilerConfig;
using Names = std::vector<std::string>;

constexpr const char* kSecret = "a secret of the goldens";

std::unique_ptr<role_maker::RoleMakerBase> role_of(const role_maker::ClusterSpec& cluster) {
  if (cluster.mode == role_maker::Mode::kCollective) {
    return std::make_unique<role_maker::UserDefinedCollectiveRoleMaker>(
        role_maker::UserDefinedCollectiveOptions{.current_id = cluster.index,
                                                 .worker_endpoints = cluster.worker_endpoints,
                                                 .job_id = cluster.job_id});
  }
  return std::make_unique<role_maker::UserDefinedRoleMaker>(
      role_maker::UserDefinedOptions{.current_id = cluster.index,
                                     .role = cluster.role,
                                     .worker_num = cluster.worker_num,
                                     .server_endpoints = cluster.server_endpoints,
                                     .job_id = cluster.job_id});
}

transpiler::ProgramPair dispatched_programs(const DistributeTranspilerConfig& config,
                                            const fluid::Program& main,
                                            const fluid::Program& startup,
                                            const role_maker::ClusterSpec& cluster,
                                            const std::vector<size_t>& dispatch_order) {
  transpiler::DistributeTranspiler transpiler(config);
  transpiler.transpile({.trainer_id = cluster.is_server() ? 0 : cluster.index,
                        .program = &main,
                        .pservers = join(cluster.server_endpoints, ","),
                        .trainers = cluster.worker_num,
                        .startup_program = &startup,
                        .dispatch_order = dispatch_order});
  if (cluster.is_server()) return transpiler.get_pserver_programs(cluster.current_endpoint());
  return {transpiler.get_trainer_program(), transpiler.get_trainer_startup_program()};
}

std::shared_ptr<const Strategy> collective_strategy(const json& fields) {
  strategies::collective::DistributedStrategy strategy;
  Arguments args("config.fleet.collective", fields);
  strategy.mode = args.get("mode", strategy.mode);
  strategy.collective_mode = args.get("collective_mode", strategy.collective_mode);
  strategy.use_local_sgd = args.get("use_local_sgd", strategy.use_local_sgd);
  strategy.nccl_comm_num = args.get("nccl_comm_num", strategy.nccl_comm_num);
  args.finish();
  return strategy.make();
}

std::shared_ptr<const Strategy> server_strategy(const json& config) {
  const json& fleet = config.at("fleet");
  const json& named = fleet.at("strategy");
  if (named.is_null()) return strategies::default_strategy(fleet_cluster(config), 0).get();
  const auto name = named.get<std::string>();
  const json args = fleet.value("strategy_args", json::array());
  if (name == "geo" && args.size() == 1) {
    return StrategyFactory::create_geo_strategy(args.at(0).get<int>()).make();
  }
  if (args.empty()) {
    if (name == "sync") return StrategyFactory::create_sync_strategy().make();
    if (name == "async") return StrategyFactory::create_async_strategy().make();
    if (name == "half_async") return StrategyFactory::create_half_async_strategy().make();
    if (name == "geo") return StrategyFactory::create_geo_strategy().make();
    if (name == "DistributeTranspilerConfig") {
      const json fields = config.value("transpiler_config", json::object());
      return strategies::DistributedStrategy(load_config(fields)).get();
    }
  }
  throw NotYetKnown("strategy " + fleet.dump());
}

}  // namespace

role_maker::ClusterSpec fleet_cluster(const json& config) {
  role_maker::ClusterSpec cluster;
  cluster.job_id = "golden";
  if (config.contains("pservers")) {
    cluster.mode = role_maker::Mode::kParameterServer;
    cluster.server_endpoints = config.at("pservers").get<Names>();
    cluster.server_num = static_cast<int>(cluster.server_endpoints.size());
    cluster.worker_num = config.at("trainers").get<int>();
  } else {
    cluster.mode = role_maker::Mode::kCollective;
    cluster.worker_endpoints = config.at("trainer_endpoints").get<Names>();
    cluster.worker_num = static_cast<int>(cluster.worker_endpoints.size());
  }
  return cluster;
}

std::shared_ptr<const Strategy> fleet_strategy(const json& config) {
  const json& fleet = config.at("fleet");
  return fleet.contains("collective") ? collective_strategy(fleet.at("collective"))
                                      : server_strategy(config);
}

transpiler::ProgramPair minimized_by_fleet(const json& golden,
                                           std::shared_ptr<const Strategy> strategy,
                                           const role_maker::ClusterSpec& cluster) {
  fluid::Program main;
  fluid::Program startup;
  const fluid::ProgramGuard programs(main, startup);
  const fluid::unique_name::Guard names;
  const auto seed = golden.at("config").value("random_seed", 0U);
  main.set_random_seed(seed);
  startup.set_random_seed(seed);
  const fluid::Variable loss = build_layers(golden);
  const auto optimizer = make_optimizer(golden);
  Environment environment;
  environment.set("FLEET_JOB_SECRET", kSecret);
  Fleet fleet(std::move(environment));
  fleet.init(*role_of(cluster));
  fleet.distributed_optimizer(*optimizer, strategies::DistributedStrategy(std::move(strategy)))
      .minimize(loss);
  return {.main = fleet.main_program(), .startup = fleet.startup_program()};
}

transpiler::ProgramPair fleet_programs(const Strategy& strategy,
                                       const DistributeTranspilerConfig& wanted,
                                       const fluid::Program& main, const fluid::Program& startup,
                                       const role_maker::ClusterSpec& cluster,
                                       const std::vector<size_t>& dispatch_order) {
  if (!dispatch_order.empty())
    return dispatched_programs(wanted, main, startup, cluster, dispatch_order);
  if (*strategy.transpiler_config() != wanted) {
    return transpiler::transpile_for(main, startup, cluster, wanted);
  }
  strategies::RuntimeConfig runtime;
  runtime.job_secret = kSecret;
  auto made = strategy.rewrite({.main = main,
                                .startup = startup,
                                .cluster = cluster,
                                .config = runtime,
                                .logger = Logger(LogLevel::kWarning)});
  return {.main = std::move(made.main), .startup = std::move(made.startup)};
}

json server_job_of(const json& golden, const Strategy& strategy, int worker) {
  json job = golden;
  job["kind"] = "ps";
  job["config"]["trainer_id"] = worker;
  job["config"]["transpiler_config"].update(dump_effective_config(strategy));
  const std::string own = str_cat("workers/", worker, "/");
  const json view = golden.value("workers", json::object()).value(str_cat(worker), json::object());
  const std::map<std::string, std::string> names = {{"main", "trainer"},
                                                    {"startup", "trainer_startup"},
                                                    {"dist", "trainer_dist"},
                                                    {"geo_vars_info", "geo_vars_info"}};
  for (const auto& [from, to] : names) {
    if (view.contains(from)) job[to] = view[from];
  }
  if (golden.contains("servers")) job["pservers"] = golden["servers"];
  json fields = json::object();
  const json given = golden.value("order_dependent_fields", json::object());
  for (const auto& [path, kind] : given.items()) {
    if (path.starts_with("servers/")) fields["p" + path] = kind;
    if (!path.starts_with(own)) continue;
    const std::string rest = path.substr(own.size());
    const auto slash = rest.find('/');
    fields[names.at(rest.substr(0, slash)) + rest.substr(slash)] = kind;
  }
  job["order_dependent_fields"] = std::move(fields);
  for (const char* key : {"workers", "servers"}) job.erase(key);
  return job;
}

json dump_effective_config(const Strategy& strategy) {
  const auto config = strategy.transpiler_config();
  return {{"completely_not_async", config->completely_not_async},
          {"geo_sgd_mode", config->geo_sgd_mode},
          {"geo_sgd_need_push_nums", config->geo_sgd_need_push_nums},
          {"half_async", config->half_async},
          {"min_block_size", config->min_block_size},
          {"runtime_split_send_recv", config->runtime_split_send_recv},
          {"slice_var_up", config->slice_var_up},
          {"sync_mode", config->sync_mode}};
}

std::string effective_strategy(const Strategy& strategy) {
  static const std::map<std::string_view, std::string> kNames = {
      {"sync", "SyncStrategy"},
      {"async", "AsyncStrategy"},
      {"half_async", "HalfAsyncStrategy"},
      {"geo", "GeoStrategy"}};
  const auto found = kNames.find(strategy.name());
  return found == kNames.end() ? std::string(strategy.name()) : found->second;
}

}  // namespace fleet::golden
