#include "transpiler/parameter_server/server_plan.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/ops/distributed/comm.h"
#include "fluid/program/interleaved.h"
#include "transpiler/parameter_server/distributed_table.h"
#include "transpiler/parameter_server/placement.h"
#include "transpiler/parameter_server/tables.h"

namespace fleet::transpiler {
namespace {

using fluid::DistributedVar;
using fluid::Program;
using fluid::VarDesc;

void check_endpoints(const std::vector<std::string>& endpoints) {
  const std::set<std::string> unique(endpoints.begin(), endpoints.end());
  const bool named = !unique.contains("");
  if (!endpoints.empty() && named && unique.size() == endpoints.size()) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "the list of parameter servers is unusable",
               .where = "transpile, pservers",
               .expected = "different endpoints \"host:port\", joined by commas",
               .got = "'" + join(endpoints, ",") + "'",
               .fix = "name every server once"});
}

std::vector<size_t> checked_order(std::vector<size_t> order, size_t count) {
  std::vector<size_t> own(count);
  std::iota(own.begin(), own.end(), size_t{0});
  if (order.empty()) return own;
  if (std::is_permutation(order.begin(), order.end(), own.begin(), own.end())) return order;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = "dispatch_order is not an order of the parameters",
               .where = "transpile, dispatch_order",
               .expected = str_cat("each of 0 to ", count - 1, " once"),
               .got = "[" + join(order, ", ") + "]",
               .fix = "leave dispatch_order empty for the parameters' own order"});
}

ServerForm form_of(const DistributeTranspilerConfig& config) {
  ServerForm form;
  form.mode = server_mode(config);
  form.runtime_split = config.runtime_split_send_recv;
  // SyncStrategy's runtime-split form has one as well, as Paddle's does.
  form.send_barrier = form.classic_sync() || config.half_async;
  form.whole_norms = config.whole_norms;
  if (form.geo()) form.geo_push_nums = config.geo_sgd_need_push_nums;
  form.dc_asgd = dc_asgd_form(config);
  return form;
}

// Its slices, which have no servers yet.
PlacedParam cut(const Program& program, const UpdatedParam& updated, size_t position,
                const DistributeTranspilerConfig& config, int servers) {
  const VarDesc& param = program.global_block().var(updated.param);
  PlacedParam placed{.param = updated.param,
                     .grad = updated.grad,
                     .shape = param.shape,
                     .dtype = param.dtype,
                     .updated = position,
                     .sliced = false,
                     .sparse = false,
                     .remote = false,
                     .received = true,
                     .interleaved = false,
                     .growing = false,
                     .slices = {}};
  const VarDesc* grad = program.global_block().find_var(updated.grad);
  placed.sparse = grad != nullptr && grad->kind == fluid::VarKind::kSelectedRows;
  const bool geo = server_mode(config) == fluid::ServerMode::kGeo;
  const bool whole = !geo && stays_whole(program, updated, config);
  const bool sliced = (config.slice_var_up || geo) && !whole;
  const int parts = sliced ? servers * (placed.sparse ? 1 : config.slices_per_server) : 1;
  const auto rows = slice_rows(param.shape, parts, config.min_block_size);
  placed.sliced = rows.size() > 1;
  for (size_t i = 0; i < rows.size(); ++i) {
    const std::string suffix = placed.sliced ? fluid::slice_suffix(static_cast<int>(i)) : "";
    placed.slices.push_back({.param = placed.param + suffix,
                             .grad = placed.grad + suffix,
                             .shape = rows[i].shape,
                             .offset = rows[i].offset,
                             .block_id = static_cast<int>(i)});
  }
  return placed;
}

DistributedVar overview_row(const ServerPlan& plan, const PlacedParam& param,
                            const PlacedSlice& slice) {
  return {.origin = param.param,
          .origin_shape = param.shape.to_vector(),
          .slice = slice.param,
          .slice_shape = slice.shape.to_vector(),
          .is_slice = param.sliced,
          .block_id = slice.block_id,
          .offset = slice.offset,
          .vtype = param.remote && !plan.form.geo() ? "RemotePrefetch" : "Param",
          .endpoint = plan.endpoints[static_cast<size_t>(slice.server)]};
}

// What the ops of an update read, each name once, in their order.
std::vector<std::string> inputs_of(const Program& program, const UpdatedParam& updated) {
  std::vector<std::string> found;
  for (const size_t position : updated.ops) {
    for (std::string& name : program.global_block().op(position).input_names()) {
      if (std::find(found.begin(), found.end(), name) == found.end()) {
        found.push_back(std::move(name));
      }
    }
  }
  return found;
}

// Rows of the state that the update of one slice reads.
void add_state_rows(const Program& program, const TrainingOps& ops, const PlacedParam& param,
                    const PlacedSlice& slice, ServerPlan& plan) {
  for (const std::string& name : inputs_of(program, ops.params[param.updated])) {
    const VarDesc& var = program.global_block().var(name);
    if (!var.persistable) continue;
    const StateKind kind = state_kind(ops, param, var);
    if (kind != StateKind::kSliced && kind != StateKind::kWhole) continue;
    DistributedVar row = overview_row(plan, param, slice);
    row.origin = name;
    row.origin_shape = var.shape.to_vector();
    row.slice = state_name(param, slice, name);
    row.vtype = "Optimizer";
    if (kind == StateKind::kWhole || !param.sliced) {
      row.slice_shape = row.origin_shape;
      row.is_slice = false;
      row.block_id = 0;
      row.offset = 0;
    }
    plan.overview.push_back(std::move(row));
  }
}

// Floating-point variables that outlive a step and that the forward part writes.
void find_statistics(const Program& program, const DistributeTranspilerConfig& config,
                     ServerPlan& plan) {
  if (!plan.form.exchanges() || !config.server_statistics) return;
  const fluid::Block& block = program.global_block();
  std::set<std::string> seen;
  for (const auto& op : block.ops()) {
    if (op->role != fluid::OpRole::kForward) continue;
    for (const std::string& name : op->output_names()) {
      const VarDesc* var = block.find_var(name);
      if (var == nullptr || !var->persistable) continue;
      if (var->is_parameter && var->trainable) continue;
      if (!fluid::is_floating(var->dtype) || !seen.insert(name).second) continue;
      plan.statistics.push_back({.name = name, .shape = var->shape, .dtype = var->dtype});
    }
  }
}

DistributedVar statistic_row(const ServerPlan& plan, const PlacedStatistic& statistic) {
  return {.origin = statistic.name,
          .origin_shape = statistic.shape.to_vector(),
          .slice = statistic.name,
          .slice_shape = statistic.shape.to_vector(),
          .is_slice = false,
          .block_id = 0,
          .offset = 0,
          .vtype = "Statistic",
          .endpoint = plan.endpoints[static_cast<size_t>(statistic.server)]};
}

DistributedVar table_row(const ServerPlan& plan, const PlacedParam& table,
                         const PlacedSlice& slice) {
  return {.origin = table.param,
          .origin_shape = table.shape.to_vector(),
          .slice = slice.param,
          .slice_shape = slice.shape.to_vector(),
          .is_slice = true,
          .block_id = slice.block_id,
          .offset = 0,
          .vtype = fluid::kDistributedTable,
          .endpoint = plan.endpoints[static_cast<size_t>(slice.server)]};
}

// What a step moves and reads of a variable, as a multiple of its bytes: a gradient and a value for
// each trainer, and what its update reads: value and state. 0 for a table.
int64_t step_arrays(const Program& program, const TrainingOps& ops, const PlacedParam& param,
                    const ServerPlan& plan) {
  if (param.sparse) return 0;
  int64_t arrays = 2 * plan.shards + 1;
  if (plan.form.geo()) return arrays;
  for (const std::string& name : inputs_of(program, ops.params[param.updated])) {
    const VarDesc& var = program.global_block().var(name);
    const bool state = var.persistable && state_kind(ops, param, var) == StateKind::kSliced;
    arrays += state ? 1 : 0;
  }
  return arrays;
}

ServerPart part_of(const std::string& name, const std::string& variable, const fluid::Shape& shape,
                   fluid::DType dtype, int64_t arrays) {
  const int64_t bytes = shape.numel() * static_cast<int64_t>(fluid::dtype_size(dtype));
  return {.name = name,
          .variable = variable,
          .shape = shape,
          .bytes = bytes,
          .step_bytes = arrays * bytes};
}

// Moves the cuts of the largest dense parameter that is cut, so that servers come out even. The
// smallest slice becomes the last one, as slice_rows has it.
void level(const DistributeTranspilerConfig& config, const std::vector<int64_t>& arrays,
           std::vector<int64_t> loads, ServerPlan& plan) {
  PlacedParam* largest = nullptr;
  for (PlacedParam& param : plan.params) {
    std::set<int> servers;
    for (const PlacedSlice& slice : param.slices) servers.insert(slice.server);
    if (param.sparse || !param.sliced || servers.size() < param.slices.size()) continue;
    if (largest == nullptr || param.shape.numel() > largest->shape.numel()) largest = &param;
  }
  if (largest == nullptr) return;
  const int64_t elements = largest->shape.numel() / largest->shape[0];
  const int64_t row =
      elements * static_cast<int64_t>(fluid::dtype_size(largest->dtype)) * arrays[largest->updated];
  std::vector<std::pair<int64_t, int>> others;  // what a server has besides, the server
  for (const PlacedSlice& slice : largest->slices) {
    others.emplace_back(loads[static_cast<size_t>(slice.server)] - row * slice.shape[0],
                        slice.server);
  }
  std::sort(others.begin(), others.end());
  std::vector<int64_t> besides;
  besides.reserve(others.size());
  for (const auto& other : others) besides.push_back(other.first);
  const auto rows = level_rows(besides, row, largest->shape[0],
                               (config.min_block_size + elements - 1) / elements);
  int64_t first = 0;
  for (size_t i = 0; i < rows.size(); ++i) {
    PlacedSlice& slice = largest->slices[i];
    slice.shape.set(0, rows[i]);
    slice.offset = first * elements;
    slice.server = others[i].second;
    first += rows[i];
  }
}

// Gives every slice and statistic its server.
void dispatch_slices(const Program& program, const TrainingOps& ops,
                     const DistributeTranspilerConfig& config, ServerPlan& plan) {
  std::vector<int64_t> arrays(plan.params.size());
  std::vector<ServerPart> parts;
  for (const size_t i : plan.dispatch_order) {
    const PlacedParam& param = plan.params[i];
    arrays[i] = step_arrays(program, ops, param, plan);
    for (const PlacedSlice& slice : param.slices) {
      parts.push_back(part_of(slice.param, param.param, slice.shape, param.dtype, arrays[i]));
    }
  }
  for (const PlacedStatistic& statistic : plan.statistics) {
    parts.push_back(part_of(statistic.name, statistic.name, statistic.shape, statistic.dtype,
                            2 * plan.shards + 1));
  }
  const std::vector<int> servers = dispatch(config.split_method, parts, plan.endpoints);
  std::vector<int64_t> loads(plan.endpoints.size());
  for (size_t i = 0; i < parts.size(); ++i) {
    loads[static_cast<size_t>(servers[i])] += parts[i].step_bytes;
  }
  size_t next = 0;
  for (const size_t i : plan.dispatch_order) {
    for (PlacedSlice& slice : plan.params[i].slices) slice.server = servers[next++];
  }
  for (PlacedStatistic& statistic : plan.statistics) statistic.server = servers[next++];
  if (config.split_method == SplitMethod("Balanced")) {
    level(config, arrays, std::move(loads), plan);
  }
}

// The same slices in the order of their update ops.
std::vector<SliceRef> in_update_order(std::vector<SliceRef> slices, const TrainingOps& ops) {
  std::stable_sort(slices.begin(), slices.end(), [&ops](const SliceRef& a, const SliceRef& b) {
    return ops.params[a.param->updated].update < ops.params[b.param->updated].update;
  });
  return slices;
}

// slices_on, of every server.
std::vector<std::vector<SliceRef>> slices_by_server(const ServerPlan& plan) {
  std::vector<std::vector<SliceRef>> servers(plan.endpoints.size());
  for (const size_t position : plan.dispatch_order) {
    const PlacedParam& param = plan.params[position];
    for (const PlacedSlice& slice : param.slices) {
      servers[static_cast<size_t>(slice.server)].push_back({&param, &slice});
    }
  }
  return servers;
}

}  // namespace

std::string statistic_name(const std::string& name) {
  return name + "@STATISTIC";
}

size_t updated_count(const ServerPlan& plan) {
  return plan.params.size() + plan.tables.size();
}

const PlacedParam& updated_at(const ServerPlan& plan, size_t position) {
  const size_t params = plan.params.size();
  return position < params ? plan.params[position] : plan.tables[position - params];
}

const UpdatedParam& update_of(const TrainingOps& ops, const PlacedParam& param) {
  return (param.interleaved ? ops.tables : ops.params)[param.updated];
}

bool takes_whole_norms(const fluid::OpSchema& row) {
  return !row.norms.empty() || !row.split_update.apply.empty();
}

bool stays_whole(const Program& program, const UpdatedParam& param,
                 const DistributeTranspilerConfig& config) {
  const fluid::OpTable& table = fluid::op_table(program);
  const fluid::OpSchema& update = table.at(program.global_block().op(param.update).type);
  if (update.updates_parts) return false;
  if (!config.whole_norms) return !update.cut_without_norms;
  return !(is_synchronous(server_mode(config)) && takes_whole_norms(update));
}

std::vector<SliceRef> slices_on(const ServerPlan& plan, int server) {
  std::vector<SliceRef> slices;
  for (const size_t position : plan.dispatch_order) {
    const PlacedParam& param = plan.params[position];
    for (const PlacedSlice& slice : param.slices) {
      if (slice.server == server) slices.push_back({&param, &slice});
    }
  }
  return slices;
}

std::vector<SliceRef> updates_on(const ServerPlan& plan, const TrainingOps& ops, int server) {
  return in_update_order(slices_on(plan, server), ops);
}

ServerPlan plan_servers(const Program& program, const TrainingOps& ops,
                        const DistributeTranspilerConfig& config,
                        std::vector<std::string> endpoints, int shards,
                        std::vector<size_t> dispatch_order) {
  check_endpoints(endpoints);
  ServerPlan plan;
  plan.form = form_of(config);
  plan.endpoints = std::move(endpoints);
  plan.shards = shards;
  plan.dispatch_order = checked_order(std::move(dispatch_order), ops.params.size());
  const int servers = static_cast<int>(plan.endpoints.size());
  for (size_t i = 0; i < ops.params.size(); ++i) {
    plan.params.push_back(cut(program, ops.params[i], i, config, servers));
  }
  find_statistics(program, config, plan);
  dispatch_slices(program, ops, config, plan);
  place_tables(program, ops, plan);
  const auto tables = remote_tables(program, config);
  const auto unreceived = unreceived_tables(program);
  if (!config.initialise_frozen_tables) plan.empty_tables = unreceived;
  for (PlacedParam& param : plan.params) {
    param.remote = param.sparse && tables.contains(param.param);
    const bool left_out =
        (plan.form.geo() || !config.initialise_frozen_tables) && unreceived.contains(param.param);
    param.received = !left_out && (plan.form.geo() || !param.remote);
    if (param.received || param.remote) plan.empty_tables.erase(param.param);
    for (const PlacedSlice& slice : param.slices) {
      plan.overview.push_back(overview_row(plan, param, slice));
    }
  }
  if (!plan.form.geo()) {
    for (auto& slices : slices_by_server(plan)) {
      for (const auto& [param, slice] : in_update_order(std::move(slices), ops)) {
        add_state_rows(program, ops, *param, *slice, plan);
      }
    }
  }
  for (const PlacedStatistic& statistic : plan.statistics) {
    plan.overview.push_back(statistic_row(plan, statistic));
  }
  for (const PlacedParam& table : plan.tables) {
    plan.empty_tables.erase(table.param);
    if (table.growing) continue;
    for (const PlacedSlice& slice : table.slices) {
      plan.overview.push_back(table_row(plan, table, slice));
    }
  }
  return plan;
}

void record_job(Program& program, const ServerPlan& plan) {
  fluid::DistributionInfo& info = program.distribution();
  info.is_distributed = true;
  info.trainers = plan.shards;
  info.endpoints = plan.endpoints;
  info.server_mode = plan.form.mode;
  if (const DcAsgdForm& form = plan.form.dc_asgd; !form.name.empty()) {
    info.delay_compensation = {form.name, form.lambda, form.m, form.epsilon};
  }
  info.geo_sgd_need_push_nums = plan.form.geo_push_nums;
  info.vars = plan.overview;
}

void record_server(Program& program, const ServerPlan& plan, int server) {
  record_job(program, plan);
  fluid::DistributionInfo& info = program.distribution();
  info.ps_endpoint = plan.endpoints[static_cast<size_t>(server)];
  info.lr_first_count = plan.form.first_count.value_or(0);
}

StateKind state_kind(const TrainingOps& ops, const PlacedParam& param, const VarDesc& var) {
  if (var.name == param.param) return StateKind::kParam;
  if (var.name == param.grad) return StateKind::kGrad;
  if (ops.learning_rates.contains(var.name)) return StateKind::kLearningRate;
  if (var.shape == param.shape) return StateKind::kSliced;
  if (var.shape.numel() == 1 || !param.sliced) return StateKind::kWhole;
  throw_error(ErrorCode::kNotSupported,
              {.what = "a variable of an update can be cut neither with its parameter nor copied",
               .where = "variable '" + var.name + "', parameter '" + param.param + "'",
               .expected = "shape " + param.shape.to_string() + " or one element",
               .got = "shape " + var.shape.to_string(),
               .fix = "set slice_var_up to false"});
}

std::string state_name(const PlacedParam& param, const PlacedSlice& slice,
                       const std::string& origin) {
  const auto here =
      std::count_if(param.slices.begin(), param.slices.end(),
                    [&slice](const PlacedSlice& other) { return other.server == slice.server; });
  return here > 1 ? origin + fluid::slice_suffix(slice.block_id) : origin;
}

}  // namespace fleet::transpiler
