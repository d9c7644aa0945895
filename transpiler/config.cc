#include "transpiler/config.h"

#include <algorithm>
#include <array>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/strings.h"

namespace fleet::transpiler {
namespace {

constexpr int kSmallestBlock = 8192;
constexpr std::string_view kWhere = "DistributeTranspilerConfig";

[[noreturn]] void contradiction(std::string_view a, std::string_view a_value, std::string_view b,
                                std::string_view b_value, std::string fix) {
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat(a, " and ", b, " contradict each other"),
               .where = str_cat(kWhere, ".", a, ", ", kWhere, ".", b),
               .expected = "at most one of them",
               .got = str_cat(a, " = ", a_value, ", ", b, " = ", b_value),
               .fix = std::move(fix)});
}

void one_of(std::string_view field, const std::string& value,
            std::span<const std::string_view> known) {
  std::vector<std::string> names;
  for (const std::string_view name : known) {
    if (name == value) return;
    names.emplace_back(name);
  }
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat("unknown ", field, did_you_mean(value, names)),
               .where = str_cat(kWhere, ".", field),
               .expected = "one of '" + join(names, "', '") + "'",
               .got = "'" + value + "'",
               .fix = "use one of the names above"});
}

void at_least(std::string_view field, int64_t value, int64_t least) {
  if (value >= least) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat(field, " is too small"),
               .where = str_cat(kWhere, ".", field),
               .expected = str_cat("at least ", least),
               .got = str_cat(value),
               .fix = str_cat("set ", field, " to ", least, " or more")});
}

void in_range(std::string_view field, double value, double least, double most) {
  if (value >= least && value <= most) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat(field, " is out of range"),
               .where = str_cat(kWhere, ".", field),
               .expected = str_cat(least, " to ", most),
               .got = str_cat(value),
               .fix = str_cat("leave ", field, " out for its usual value")});
}

void check_split_method(const SplitMethod& method) {
  if (!method.is_own()) return one_of("split_method", method.name(), split_method_names());
  const auto known = split_method_names();
  const bool taken = std::find(known.begin(), known.end(), method.name()) != known.end();
  if (!taken && !method.name().empty()) return;
  throw_error(
      ErrorCode::kInvalidArgument,
      {.what = "a split method of one's own needs a name of its own",
       .where = str_cat(kWhere, ".split_method, PSDispatcher::name"),
       .expected = "a name that is none of '" +
                   join(std::vector<std::string_view>(known.begin(), known.end()), "', '") + "'",
       .got = "'" + method.name() + "'",
       .fix = "return another name"});
}

void check_values(const DistributeTranspilerConfig& config) {
  constexpr std::array<std::string_view, 3> kModes = {"pserver", "nccl2", "collective"};
  constexpr std::array<std::string_view, 4> kCollective = {"", "grad_allreduce", "local_sgd",
                                                           "single_process_multi_thread"};
  constexpr std::array<std::string_view, 4> kForms = {"paddle", "constant", "adaptive", "clipped"};
  check_split_method(config.split_method);
  one_of("mode", config.mode, kModes);
  one_of("collective_mode", config.collective_mode, kCollective);
  one_of("dc_asgd_form", config.dc_asgd_form, kForms);
  at_least("min_block_size", config.min_block_size, kSmallestBlock);
  at_least("slices_per_server", config.slices_per_server, 1);
  at_least("geo_sgd_need_push_nums", config.geo_sgd_need_push_nums, 1);
  at_least("nccl_comm_num", config.nccl_comm_num, 1);
  at_least("hierarchical_allreduce_inter_nranks", config.hierarchical_allreduce_inter_nranks, 0);
  at_least("fuse_all_reduce_bytes", config.fuse_all_reduce_bytes, 0);
  in_range("dc_asgd_lambda", config.dc_asgd_lambda, 0, 1e6);
  in_range("dc_asgd_m", config.dc_asgd_m, 0, 1);
  in_range("dc_asgd_epsilon", config.dc_asgd_epsilon, 0, 1);
}

void exclude(bool a, std::string_view a_name, bool b, std::string_view b_name, std::string fix) {
  if (a && b) contradiction(a_name, "true", b_name, "true", std::move(fix));
}

void check_sync_mode(const DistributeTranspilerConfig& config) {
  const auto without = [&config](bool set, std::string_view field, std::string_view also) {
    exclude(set, field, config.sync_mode, "sync_mode",
            str_cat("set sync_mode to false, here or in transpile", also));
  };
  without(config.runtime_split_send_recv, "runtime_split_send_recv",
          "; a synchronous runtime-split form is completely_not_async");
  without(config.enable_dc_asgd, "enable_dc_asgd",
          ": delay is compensated in asynchronous training only");
  without(config.half_async, "half_async", ", or leave half_async out");
  without(config.completely_not_async, "completely_not_async",
          ", for the runtime-split form: sync_mode is the classic one");
  without(config.geo_sgd_mode, "geo_sgd_mode", " for GEO");
  exclude(config.paddle_schedules, "paddle_schedules", config.sync_mode, "sync_mode",
          "leave paddle_schedules out: there Paddle counts steps too");
  if (!config.server_statistics && !is_synchronous(server_mode(config))) {
    contradiction("server_statistics", "false", "sync_mode", "false",
                  "leave server_statistics out");
  }
}

void check_server_modes(const DistributeTranspilerConfig& config) {
  exclude(config.geo_sgd_mode, "geo_sgd_mode", config.half_async, "half_async",
          "leave half_async out for GEO");
  exclude(config.geo_sgd_mode, "geo_sgd_mode", config.enable_dc_asgd, "enable_dc_asgd",
          "choose one of GEO and DC-ASGD");
  exclude(config.completely_not_async, "completely_not_async", config.geo_sgd_mode, "geo_sgd_mode",
          "leave completely_not_async out for GEO");
  exclude(config.completely_not_async, "completely_not_async", config.enable_dc_asgd,
          "enable_dc_asgd", "delay is compensated in asynchronous training only");
  exclude(config.paddle_schedules, "paddle_schedules", config.geo_sgd_mode, "geo_sgd_mode",
          "leave paddle_schedules out: there Paddle counts steps too");
  if (config.completely_not_async && !config.runtime_split_send_recv) {
    contradiction("completely_not_async", "true", "runtime_split_send_recv", "false",
                  "set runtime_split_send_recv to true, or use sync_mode");
  }
}

// Numbers of delay compensation that nothing reads.
void check_delay_compensation(const DistributeTranspilerConfig& config) {
  if (config.dc_asgd_form == "paddle" && config.dc_asgd_lambda != 0 && config.dc_asgd_lambda != 1) {
    contradiction("dc_asgd_form", "'paddle'", "dc_asgd_lambda", str_cat(config.dc_asgd_lambda),
                  "use dc_asgd_form = 'constant', which has a lambda");
  }
  const DistributeTranspilerConfig usual;
  const auto needs_compensation = [&config](bool set, std::string_view field,
                                            const std::string& value) {
    if (!set || config.enable_dc_asgd) return;
    contradiction(field, value, "enable_dc_asgd", "false", "set enable_dc_asgd to true");
  };
  needs_compensation(config.dc_asgd_form != usual.dc_asgd_form, "dc_asgd_form",
                     "'" + config.dc_asgd_form + "'");
  needs_compensation(config.dc_asgd_lambda != 0, "dc_asgd_lambda", str_cat(config.dc_asgd_lambda));
  needs_compensation(config.dc_asgd_m != usual.dc_asgd_m, "dc_asgd_m", str_cat(config.dc_asgd_m));
  needs_compensation(config.dc_asgd_epsilon != usual.dc_asgd_epsilon, "dc_asgd_epsilon",
                     str_cat(config.dc_asgd_epsilon));
  if (config.dc_asgd_form != "paddle" && config.dc_asgd_form != "constant") return;
  const auto averages = [&config](bool set, std::string_view field, double value) {
    if (!set) return;
    contradiction(field, str_cat(value), "dc_asgd_form", "'" + config.dc_asgd_form + "'",
                  "use dc_asgd_form = 'adaptive' or 'clipped', which average squares");
  };
  averages(config.dc_asgd_m != usual.dc_asgd_m, "dc_asgd_m", config.dc_asgd_m);
  averages(config.dc_asgd_epsilon != usual.dc_asgd_epsilon, "dc_asgd_epsilon",
           config.dc_asgd_epsilon);
}

// Options that mean something beside another one only.
void check_details(const DistributeTranspilerConfig& config) {
  const DistributeTranspilerConfig usual;
  const std::string collective = "'" + config.collective_mode + "'";
  if (!config.slice_var_up && config.slices_per_server > 1) {
    contradiction("slices_per_server", str_cat(config.slices_per_server), "slice_var_up", "false",
                  "set slice_var_up to true");
  }
  if (!config.geo_sgd_mode && config.geo_sgd_need_push_nums != usual.geo_sgd_need_push_nums) {
    contradiction("geo_sgd_need_push_nums", str_cat(config.geo_sgd_need_push_nums), "geo_sgd_mode",
                  "false", "set geo_sgd_mode to true");
  }
  if (config.nccl_comm_num > 1 && config.mode == "pserver") {
    contradiction("nccl_comm_num", str_cat(config.nccl_comm_num), "mode", "'pserver'",
                  "set mode to 'collective' or 'nccl2'");
  }
  if (config.nccl_comm_num > 1 && config.collective_mode == "single_process_multi_thread") {
    contradiction("nccl_comm_num", str_cat(config.nccl_comm_num), "collective_mode", collective,
                  "leave nccl_comm_num out: there is one ring");
  }
  if (config.hierarchical_allreduce_inter_nranks > 0 && !config.use_hierarchical_allreduce) {
    contradiction("hierarchical_allreduce_inter_nranks",
                  str_cat(config.hierarchical_allreduce_inter_nranks), "use_hierarchical_allreduce",
                  "false", "set use_hierarchical_allreduce to true");
  }
  if (config.local_sgd_scheduled && config.collective_mode != "local_sgd") {
    contradiction("local_sgd_scheduled", "true", "collective_mode", collective,
                  "set collective_mode to 'local_sgd'");
  }
  if (config.fuse_all_reduce_bytes > 0 && config.collective_mode != "grad_allreduce" &&
      config.collective_mode != "single_process_multi_thread") {
    contradiction("fuse_all_reduce_bytes", str_cat(config.fuse_all_reduce_bytes), "collective_mode",
                  collective, "set collective_mode to 'grad_allreduce'");
  }
}

// Forms of updates, statistics and tables, in modes that have none of them.
void check_forms(const DistributeTranspilerConfig& config) {
  const bool servers = config.mode == "pserver";
  const auto needs = [](bool set, std::string_view field, bool read, std::string_view other,
                        std::string_view other_value) {
    if (!set || read) return;
    contradiction(field, "false", other, other_value, str_cat("leave ", field, " out"));
  };
  const std::string mode = "'" + config.mode + "'";
  needs(!config.whole_norms, "whole_norms", servers, "mode", mode);
  needs(!config.whole_norms, "whole_norms", !config.geo_sgd_mode, "geo_sgd_mode", "true");
  needs(!config.prefetch_trees, "prefetch_trees", servers, "mode", mode);
  needs(!config.prefetch_trees, "prefetch_trees", !config.geo_sgd_mode, "geo_sgd_mode", "true");
  needs(!config.initialise_frozen_tables, "initialise_frozen_tables", servers, "mode", mode);
  needs(!config.initialise_frozen_tables, "initialise_frozen_tables", !config.geo_sgd_mode,
        "geo_sgd_mode", "true");
  needs(!config.server_statistics, "server_statistics", servers, "mode", mode);
}

// Modes and options of jobs with servers. How parameters would be cut and placed may stay as it is:
// programs that come from Paddle change the mode and keep the rest.
void check_without_servers(const DistributeTranspilerConfig& config) {
  if (config.mode == "pserver") return;
  const auto only_servers = [&config](bool set, std::string_view field, std::string_view value) {
    if (!set) return;
    contradiction(field, value, "mode", "'" + config.mode + "'",
                  str_cat("leave ", field, " out, or set mode to 'pserver'"));
  };
  only_servers(config.runtime_split_send_recv, "runtime_split_send_recv", "true");
  only_servers(config.enable_dc_asgd, "enable_dc_asgd", "true");
  only_servers(config.paddle_schedules, "paddle_schedules", "true");
  only_servers(config.half_async, "half_async", "true");
  only_servers(config.completely_not_async, "completely_not_async", "true");
  only_servers(config.geo_sgd_mode, "geo_sgd_mode", "true");
  only_servers(config.slices_per_server > 1, "slices_per_server",
               str_cat(config.slices_per_server));
}

void check_collective(const DistributeTranspilerConfig& config) {
  const bool collective = config.mode == "collective";
  if (collective && config.collective_mode.empty()) {
    contradiction("mode", "'collective'", "collective_mode", "''",
                  "set collective_mode to 'grad_allreduce'");
  }
  if (!collective && !config.collective_mode.empty()) {
    contradiction("collective_mode", "'" + config.collective_mode + "'", "mode",
                  "'" + config.mode + "'", "set mode to 'collective'");
  }
  if (config.use_hierarchical_allreduce && config.hierarchical_allreduce_inter_nranks < 2) {
    contradiction("use_hierarchical_allreduce", "true", "hierarchical_allreduce_inter_nranks",
                  str_cat(config.hierarchical_allreduce_inter_nranks),
                  "set hierarchical_allreduce_inter_nranks to the ranks of one group, 2 or more");
  }
  if (config.use_hierarchical_allreduce && config.mode != "nccl2") {
    contradiction("use_hierarchical_allreduce", "true", "mode", "'" + config.mode + "'",
                  "set mode to 'nccl2'");
  }
}

}  // namespace

fluid::ServerMode server_mode(const DistributeTranspilerConfig& config) {
  if (config.sync_mode || config.completely_not_async) return fluid::ServerMode::kSync;
  if (config.geo_sgd_mode) return fluid::ServerMode::kGeo;
  return config.half_async ? fluid::ServerMode::kHalfAsync : fluid::ServerMode::kAsync;
}

void validate(const DistributeTranspilerConfig& config) {
  validate_but_sync_mode(config);
  check_sync_mode(config);
}

void validate_but_sync_mode(const DistributeTranspilerConfig& config) {
  check_values(config);
  check_server_modes(config);
  check_collective(config);
  check_without_servers(config);
  check_forms(config);
  check_delay_compensation(config);
  check_details(config);
}

DcAsgdForm dc_asgd_form(const DistributeTranspilerConfig& config) {
  if (!config.enable_dc_asgd) return {};
  DcAsgdForm form{.name = config.dc_asgd_form,
                  .lambda = config.dc_asgd_lambda,
                  .m = config.dc_asgd_m,
                  .epsilon = config.dc_asgd_epsilon};
  if (form.lambda != 0) return form;
  if (form.name == "paddle") form.lambda = 1;
  if (form.name == "constant") form.lambda = 0.04;
  if (form.name == "adaptive") form.lambda = 2;
  if (form.name == "clipped") form.lambda = 4;
  return form;
}

}  // namespace fleet::transpiler
