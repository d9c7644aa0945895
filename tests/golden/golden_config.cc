#include "tests/golden/golden_config.h"

#include <algorithm>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::golden {
namespace {

using nlohmann::json;
using transpiler::DistributeTranspilerConfig;
using transpiler::TranspileOptions;

// Sets the member when the key is its name; false when the key is another.
template <class T>
bool take(const std::string& key, std::string_view name, const json& value, T& member) {
  if (key != name) return false;
  if (!value.is_null()) member = value.get<T>();
  return true;
}

bool take_method(const std::string& key, const json& value, DistributeTranspilerConfig& config) {
  std::string method = config.split_method.name();
  if (!take(key, "split_method", value, method)) return false;
  config.split_method = method;
  return true;
}

bool take_field(const std::string& key, const json& value, DistributeTranspilerConfig& config) {
  return take(key, "slice_var_up", value, config.slice_var_up) || take_method(key, value, config) ||
         take(key, "min_block_size", value, config.min_block_size) ||
         take(key, "enable_dc_asgd", value, config.enable_dc_asgd) ||
         take(key, "mode", value, config.mode) || take(key, "print_log", value, config.print_log) ||
         take(key, "wait_port", value, config.wait_port) ||
         take(key, "sync_mode", value, config.sync_mode) ||
         take(key, "runtime_split_send_recv", value, config.runtime_split_send_recv) ||
         take(key, "half_async", value, config.half_async) ||
         take(key, "completely_not_async", value, config.completely_not_async) ||
         take(key, "geo_sgd_mode", value, config.geo_sgd_mode) ||
         take(key, "geo_sgd_need_push_nums", value, config.geo_sgd_need_push_nums) ||
         take(key, "nccl_comm_num", value, config.nccl_comm_num) ||
         take(key, "use_hierarchical_allreduce", value, config.use_hierarchical_allreduce) ||
         take(key, "hierarchical_allreduce_inter_nranks", value,
              config.hierarchical_allreduce_inter_nranks) ||
         take(key, "collective_mode", value, config.collective_mode);
}

json dump_row(const fluid::DistributedVar& row) {
  return {{"origin", row.origin},     {"origin_shape", row.origin_shape},
          {"slice", row.slice},       {"slice_shape", row.slice_shape},
          {"is_slice", row.is_slice}, {"block_id", row.block_id},
          {"offset", row.offset},     {"vtype", row.vtype},
          {"endpoint", row.endpoint}};
}

}  // namespace

DistributeTranspilerConfig load_config(const json& fields) {
  DistributeTranspilerConfig config;
  for (const auto& [key, value] : fields.items()) {
    if (take_field(key, value, config)) continue;
    throw_error(ErrorCode::kUnknownName, {.what = "unknown field of transpiler_config",
                                          .where = "config.transpiler_config",
                                          .expected = "a field of DistributeTranspilerConfig",
                                          .got = key,
                                          .fix = "teach the runner this field"});
  }
  return config;
}

TranspileOptions load_options(const json& config, const fluid::Program& main,
                              const fluid::Program& startup) {
  TranspileOptions options;
  options.trainer_id = config.value("trainer_id", 0);
  options.program = &main;
  options.startup_program = &startup;
  options.verify_each_pass = true;
  if (config.contains("pservers")) {
    options.pservers = join(config.at("pservers").get<std::vector<std::string>>(), ",");
    options.trainers = config.at("trainers").get<int>();
  } else {
    const auto endpoints = config.at("trainer_endpoints").get<std::vector<std::string>>();
    options.trainers = join(endpoints, ",");
    options.current_endpoint = endpoints.at(static_cast<size_t>(options.trainer_id));
  }
  return options;
}

json dump_distribution(const fluid::DistributionInfo& info) {
  json dumped = {{"is_distributed", info.is_distributed},
                 {"is_chief", info.is_chief},
                 {"endpoints", info.endpoints},
                 {"ps_endpoint", info.ps_endpoint},
                 {"trainers_endpoints", info.trainers_endpoints},
                 {"nccl_comm_num", info.nccl_comm_num},
                 {"use_hierarchical_allreduce", info.use_hierarchical_allreduce},
                 {"hierarchical_allreduce_inter_nranks", info.hierarchical_allreduce_inter_nranks},
                 {"distributed_lookup_table", nullptr}};
  if (!info.vars.empty()) {
    dumped["vars_overview"] = json::array();
    for (const fluid::DistributedVar& row : info.vars) {
      dumped["vars_overview"].push_back(dump_row(row));
    }
  }
  return dumped;
}

json dump_geo(const fluid::Program& trainer) {
  std::vector<std::string> tables;
  for (const auto& op : trainer.global_block().ops()) {
    if (op->type != "send") continue;
    tables = std::get<std::vector<std::string>>(*op->attr("send_varnames"));
  }
  json dumped = json::object();
  for (const fluid::DistributedVar& row : trainer.distribution().vars) {
    const bool sparse = std::find(tables.begin(), tables.end(), row.origin) != tables.end();
    json& param = dumped[row.origin];
    param["var_names"].push_back(row.slice);
    param["sections"].push_back(str_cat(row.slice_shape.front()));
    param["epmap"].push_back(row.endpoint);
    param["is_sparse"] = {sparse ? "True" : "False"};
  }
  return dumped;
}

}  // namespace fleet::golden
