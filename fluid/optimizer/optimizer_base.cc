#include "fluid/optimizer/optimizer_base.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/append.h"
#include "fluid/ops/nn/growing_table.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::optimizer {
namespace {

void check_loss(const Variable& loss, const std::string& type) {
  if (loss) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "the loss is an empty variable",
                                            .where = str_cat("optimizer '", type, "'"),
                                            .expected = "what a layer such as mean returned",
                                            .got = "Variable()",
                                            .fix = "pass the loss"});
}

Program& startup_of(Program* given) {
  return given != nullptr ? *given : default_startup_program();
}

constexpr const char* kMake = "make_growing_table";

bool is_growing(const Variable& param) {
  return param.desc().kind == VarKind::kGrowingTable;
}

[[noreturn]] void throw_no_row_update(const Variable& table, const std::string& type) {
  throw_error(
      ErrorCode::kNotSupported,
      {.what = "this optimizer cannot update the rows of a growing table",
       .where = str_cat("optimizer '", type, "', table '", table.name(), "'"),
       .expected = "one of this library that updates each element by itself: SGD, Momentum, "
                   "Adagrad, DecayedAdagrad, Adadelta, Adam, Adamax, RMSProp or Ftrl",
       .got = type,
       .fix = "choose another optimizer, or a table with a height"});
}

// The op of the startup program that makes the table.
size_t find_maker(const Block& startup, const std::string& table) {
  for (size_t i = 0; i < startup.op_count(); ++i) {
    const Operator& op = *startup.ops()[i];
    if (op.type == kMake && op.output("Out").front() == table) return i;
  }
  throw_error(
      ErrorCode::kInvalidProgram,
      {.what = "the startup program does not make this growing table",
       .where = str_cat("startup program, table '", table, "'"),
       .expected = str_cat("op '", kMake, "' with this output"),
       .got = "none",
       .fix = "minimize with the startup program under which the table's layer was called"});
}

// Tables with is_distributed; as in Paddle, only those of lookup_table.
std::set<std::string> distributed_tables(const Block& block) {
  std::set<std::string> tables;
  for (const auto& op : block.ops()) {
    if (op->type != "lookup_table") continue;
    const Attribute* attr = op->attr("is_distributed");
    const bool* distributed = attr == nullptr ? nullptr : std::get_if<bool>(attr);
    const auto& table = op->input("W");
    if (distributed != nullptr && *distributed && !table.empty()) tables.insert(table.front());
  }
  return tables;
}

}  // namespace

MinimizeResult Optimizer::minimize(const Variable& loss, const MinimizeOptions& options) {
  check_loss(loss, type());
  MinimizeResult result;
  result.params_grads = backward(loss, options);
  if (result.params_grads.empty()) {
    throw_error(ErrorCode::kInvalidProgram,
                {.what = "no parameter has a gradient, so there is nothing to train",
                 .where = str_cat("optimizer '", type(), "', loss '", loss.name(), "'"),
                 .expected = "a trainable parameter that the loss depends on",
                 .got = str_cat(loss.block().parameters().size(), " parameters, none reached"),
                 .fix = "check trainable, stop_gradient, no_grad_set and parameter_list, and "
                        "whether an op on the way has no gradient"});
  }
  result.optimize_ops = apply_gradients(result.params_grads, options.startup_program);
  return result;
}

std::vector<ParamGrad> Optimizer::backward(const Variable& loss, const MinimizeOptions& options) {
  check_loss(loss, type());
  BackwardOptions backward{.parameter_list = options.parameter_list,
                           .no_grad_set = options.no_grad_set,
                           .checkpoints = options.checkpoints};
  for (const VarDesc* param : loss.program().global_block().parameters()) {
    if (!param->trainable) backward.no_grad_set.insert(param->name);
  }
  std::vector<ParamGrad> pairs = append_backward(loss, backward);
  if (pairs.empty()) return pairs;
  Program& startup = startup_of(options.startup_program);
  const ProgramGuard programs(loss.program(), startup);
  change_gradients({loss.program(), startup, pairs.front().param.dtype()}, pairs);
  return pairs;
}

// Appends clips and decay of gradients that have not had them; the order stays.
std::vector<ParamGrad> Optimizer::clipped_and_decayed(const std::vector<ParamGrad>& pairs) const {
  std::vector<ParamGrad> open;
  for (const ParamGrad& pair : pairs) {
    if (!is_finished(pair)) open.push_back(pair);
  }
  open = common_.grad_clip ? append_gradient_clip(open, *common_.grad_clip, common_.need_clip)
                           : append_noted_clips(open);
  open = append_regularization(open, common_.regularization);
  std::vector<ParamGrad> all;
  all.reserve(pairs.size());
  auto next = open.begin();
  for (const ParamGrad& pair : pairs) all.push_back(is_finished(pair) ? pair : *next++);
  return all;
}

std::vector<const Operator*> Optimizer::apply_gradients(std::vector<ParamGrad> pairs,
                                                        Program* startup_program) {
  if (pairs.empty()) return {};
  Program& main = pairs.front().param.program();
  Program& startup = startup_of(startup_program);
  const ProgramGuard programs(main, startup);
  const Context context{main, startup, pairs.front().param.dtype()};
  std::sort(pairs.begin(), pairs.end(),
            [](const ParamGrad& a, const ParamGrad& b) { return a.param.name() < b.param.name(); });
  pairs = clipped_and_decayed(pairs);

  Block& block = main.global_block();
  const size_t first = block.op_count();
  // Distributed tables are updated first, as in the programs that ours are compared with.
  const auto tables = distributed_tables(block);
  std::stable_partition(pairs.begin(), pairs.end(),
                        [&](const ParamGrad& pair) { return tables.contains(pair.param.name()); });
  for (const ParamGrad& pair : pairs) {
    if (pair.param.desc().trainable) create_accumulators(context, pair.param);
  }
  global_rate(context);
  for (const ParamGrad& pair : pairs) {
    if (!pair.param.desc().trainable) continue;
    const RoleGuard role(main, OpRole::kOptimize, {pair.param.name(), pair.grad.name()});
    const NameScopeGuard scope(main, "optimizer");
    append_update(context, pair);
  }
  finish_update(context, pairs);
  std::vector<const Operator*> ops;
  for (size_t i = first; i < block.op_count(); ++i) ops.push_back(block.ops()[i].get());
  return ops;
}

Variable Optimizer::add_accumulator(const Context& context, const std::string& name,
                                    const Variable& param, const AccumulatorOptions& options) {
  const AccumulatorKey key{context.main.id(), name, param.name()};
  if (accumulators_.contains(key)) return accumulator(context, name, param);
  VarDesc desc;
  desc.name = unique_name::generate(param.name() + "_" + name);
  desc.dtype = param.dtype();
  desc.shape = options.shape.value_or(param.shape());
  desc.persistable = true;
  accumulators_[key] = desc.name;
  const LayerHelper helper(type());
  const Variable var = helper.global(std::move(desc));
  const initializer::Constant fill{.value = options.fill_value,
                                   .op_device = options.on_host ? "cpu" : ""};
  helper.initialize(var, fill);
  return var;
}

Variable Optimizer::accumulator(const Context& context, const std::string& name,
                                const Variable& param) const {
  const std::string& found = accumulators_.at({context.main.id(), name, param.name()});
  return Variable(context.main.global_block(), context.main.global_block().var(found));
}

Variable Optimizer::global_rate(const Context& context) {
  Block& block = context.main.global_block();
  const auto found = rates_.find(context.main.id());
  if (found != rates_.end()) return Variable(block, block.var(found->second));
  const Variable rate = make_rate(context);
  rates_[context.main.id()] = rate.name();
  return rate;
}

Variable Optimizer::make_rate(const Context& context) const {
  if (common_.learning_rate.known()) {
    return layers::create_global_var(
        Shape{1}, common_.learning_rate.value(), context.dtype,
        {.persistable = true, .name = unique_name::generate("learning_rate")});
  }
  const Variable& rate = common_.learning_rate.variable();
  check_program(context, rate, "the learning rate");
  if (rate.dtype() == context.dtype) return rate;
  const RoleGuard role(context.main, OpRole::kLrSched);
  return layers::cast(rate, context.dtype);
}

void Optimizer::check_program(const Context& context, const Variable& given,
                              const char* what) const {
  if (given && &given.program() == &context.main) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = str_cat(what, given ? " belongs to another program" : " is empty"),
               .where = str_cat("optimizer '", type(), "'"),
               .expected = "a variable of the loss's program",
               .got = given ? "'" + given.name() + "'" : "an empty variable",
               .fix = "make it under the same ProgramGuard as the loss"});
}

Variable Optimizer::rate_of(const Context& context, const Variable& param) {
  const Variable rate = global_rate(context);
  const double factor = param.desc().learning_rate;
  if (factor == 1.0) return rate;
  const RoleGuard role(context.main, OpRole::kOptimize | OpRole::kLrSched);
  const NameScopeGuard scope(context.main, "scale_with_param_lr");
  return rate * factor;
}

void Optimizer::create_accumulators(const Context& context, const Variable& param) {
  const bool grows = is_growing(param);
  if (grows) create_row_states(context, param);
  for (const State& state : rule_.states) {
    if (grows && !state.one_element) continue;
    AccumulatorOptions options{.fill_value = state.fill_value, .on_host = state.on_host};
    if (state.one_element) options.shape = Shape{1};
    add_accumulator(context, state.name, param, options);
  }
}

// Rows that are there already keep what they are: the startup program makes them anew.
void Optimizer::create_row_states(const Context& context, const Variable& table) {
  if (!updates_rows(type())) throw_no_row_update(table, type());
  Block& startup = context.startup.global_block();
  const size_t maker = find_maker(startup, table.name());
  auto attrs = parse_attributes<MakeGrowingTableAttrs>(kMake, startup.op(maker).attrs);
  for (const State& state : rule_.states) {
    const AccumulatorKey key{context.main.id(), state.name, table.name()};
    if (state.one_element || accumulators_.contains(key)) continue;
    const std::string name = unique_name::generate(table.name() + "_" + state.name);
    accumulators_[key] = name;
    attrs.state_names.push_back(name);
    attrs.state_widths.push_back(table.shape()[1]);
    attrs.state_values.push_back(static_cast<float>(state.fill_value));
  }
  startup.edit_op(maker).attrs = to_attributes(attrs);
}

void Optimizer::append_row_update(const Context& context, const ParamGrad& pair) {
  const std::string table = pair.param.name();
  SlotMap inputs = {{"Param", {table}}, {"Grad", {pair.grad.name()}}};
  SlotMap outputs = {{"ParamOut", {table}}};
  add_common_inputs(context, pair.param, inputs);
  UpdateGrowingTableAttrs attrs{.update = type()};
  for (const State& state : rule_.states) {
    const std::string& name = accumulators_.at({context.main.id(), state.name, table});
    if (state.one_element) {
      inputs[state.in] = {name};
      if (!state.out.empty()) outputs[state.out] = {name};
      continue;
    }
    attrs.states.push_back(name);
    attrs.state_inputs.push_back(state.in);
    attrs.state_outputs.push_back(state.out);
  }
  Operator op;
  op.type = "update_growing_table";
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = attributes_of(pair.param);
  for (const auto& [name, value] : to_attributes(attrs)) op.attrs[name] = value;
  append_op(context.main.global_block(), std::move(op));
}

void Optimizer::add_common_inputs(const Context& context, const Variable& param, SlotMap& inputs) {
  if (rule_.takes_rate) inputs["LearningRate"] = {rate_of(context, param).name()};
  for (const auto& [slot, given] : rule_.inputs) {
    check_program(context, given, slot.c_str());
    inputs[slot] = {given.name()};
  }
}

void Optimizer::append_update(const Context& context, const ParamGrad& pair) {
  if (is_growing(pair.param)) return append_row_update(context, pair);
  const std::string param = pair.param.name();
  SlotMap inputs = {{"Param", {param}}, {"Grad", {pair.grad.name()}}};
  SlotMap outputs = {{"ParamOut", {param}}};
  add_common_inputs(context, pair.param, inputs);
  for (const State& state : rule_.states) {
    const std::string name = accumulator(context, state.name, pair.param).name();
    inputs[state.in] = {name};
    if (!state.out.empty()) outputs[state.out] = {name};
  }
  append(context, std::move(inputs), std::move(outputs), attributes_of(pair.param));
}

void Optimizer::append(const Context& context, SlotMap inputs, SlotMap outputs,
                       AttributeMap attrs) {
  Operator op;
  op.type = type();
  op.inputs = std::move(inputs);
  op.outputs = std::move(outputs);
  op.attrs = std::move(attrs);
  append_op(context.main.global_block(), std::move(op));
}

}  // namespace fleet::fluid::optimizer
