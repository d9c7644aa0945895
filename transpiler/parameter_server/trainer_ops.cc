#include "transpiler/parameter_server/trainer_ops.h"

#include <utility>

#include "base/strings.h"
#include "fluid/ops/distributed/trainer_program.h"

namespace fleet::transpiler {

using fluid::Block;
using fluid::Operator;
using fluid::OpRole;
using fluid::SliceInfo;
using fluid::VarDesc;

std::string add_control_var(Block& block, int number) {
  VarDesc var;
  var.name = str_cat("@DEP@", number);
  var.typed = false;
  return block.add_var(std::move(var)).name;
}

void add_slice_var(Block& block, const PlacedParam& param, const PlacedSlice& slice,
                   const std::string& origin, std::string name) {
  VarDesc var;
  var.name = std::move(name);
  var.dtype = param.dtype;
  var.shape = slice.shape;
  var.slice = SliceInfo{.origin = origin,
                        .origin_shape = param.shape.to_vector(),
                        .offset = slice.offset,
                        .block_id = slice.block_id};
  block.add_var(std::move(var));
}

void add_param_slices(Block& block, const PlacedParam& param) {
  if (!param.sliced) return;
  for (const PlacedSlice& slice : param.slices) {
    add_slice_var(block, param, slice, param.param, slice.param);
  }
}

Names endpoints_of(const ServerPlan& plan, const PlacedParam& param) {
  Names endpoints;
  for (const PlacedSlice& slice : param.slices) {
    endpoints.push_back(plan.endpoints[static_cast<size_t>(slice.server)]);
  }
  return endpoints;
}

Names slice_names(const PlacedParam& param) {
  Names names;
  for (const PlacedSlice& slice : param.slices) names.push_back(slice.param);
  return names;
}

std::vector<int64_t> sections_of(const PlacedParam& param) {
  std::vector<int64_t> sections;
  for (const PlacedSlice& slice : param.slices) sections.push_back(slice.shape[0]);
  return sections;
}

Operator make_recv(const ServerPlan& plan, const PlacedParam& param, int trainer_id,
                   PlaceAttributes& attributes) {
  return fluid::make_receive(slice_names(param), attributes.of(param, [&] {
    fluid::RecvAttrs attrs;
    attrs.epmap = endpoints_of(plan, param);
    attrs.trainer_id = trainer_id;
    return fluid::to_attributes(std::move(attrs));
  }));
}

Operator make_whole_recv(const ServerPlan& plan, const PlacedParam& param, int trainer_id) {
  fluid::RecvAttrs attrs;
  attrs.epmap = endpoints_of(plan, param);
  attrs.trainer_id = trainer_id;
  attrs.recv_varnames = slice_names(param);
  return fluid::make_receive({param.param}, fluid::to_attributes(std::move(attrs)));
}

Operator make_statistic_recv(const ServerPlan& plan, const PlacedStatistic& statistic,
                             int trainer_id) {
  fluid::RecvAttrs attrs;
  attrs.epmap = {plan.endpoints[static_cast<size_t>(statistic.server)]};
  attrs.trainer_id = trainer_id;
  if (plan.form.runtime_split) attrs.recv_varnames = {statistic.name};
  return fluid::make_receive({statistic.name}, fluid::to_attributes(std::move(attrs)));
}

Operator make_fetch_barrier(const ServerPlan& plan, int trainer_id, Names inputs, Names outputs) {
  fluid::FetchBarrierAttrs attrs;
  attrs.endpoints = plan.endpoints;
  attrs.trainer_id = trainer_id;
  return fluid::make_fetch_barrier(std::move(attrs), std::move(inputs), std::move(outputs));
}

Operator make_concat(const PlacedParam& param, OpRole role) {
  Operator op = fluid::make_join(slice_names(param), param.param);
  op.role = role;
  return op;
}

int append_initial_receives(fluid::Program& startup, const ServerPlan& plan, int trainer_id) {
  Block& block = startup.global_block();
  PlaceAttributes attributes;
  for (const PlacedParam& param : plan.params) {
    if (!param.received) continue;
    add_param_slices(block, param);
    block.append_op(make_recv(plan, param, trainer_id, attributes));
  }
  for (const PlacedStatistic& statistic : plan.statistics) {
    block.append_op(make_statistic_recv(plan, statistic, trainer_id));
  }
  const std::string control = add_control_var(block, 0);
  block.append_op(make_fetch_barrier(plan, trainer_id, {}, {control}));
  for (const PlacedParam& param : plan.params) {
    if (param.sliced && param.received) {
      block.append_op(make_concat(param, OpRole::kForward));
    }
  }
  return 1;
}

}  // namespace fleet::transpiler
