#include "fluid/optimizer/averages.h"

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/math_ops.h"
#include "fluid/layers/ops.h"
#include "fluid/layers/parameters/layer_helper.h"
#include "fluid/layers/tensor.h"
#include "fluid/ops/append.h"
#include "fluid/ops/optimize/average.h"

namespace fleet::fluid::optimizer {
namespace {

// The same variable, known to another program too; it lives in the scope.
Variable declare(Block& block, const VarDesc& desc) {
  VarDesc copy;
  copy.name = desc.name;
  copy.dtype = desc.dtype;
  copy.shape = desc.shape;
  copy.persistable = true;
  copy.stop_gradient = true;
  return Variable(block, block.add_var(std::move(copy)));
}

void assign(Block& block, const std::string& from, const std::string& to) {
  Operator op;
  op.type = "assign";
  op.inputs["X"] = {from};
  op.outputs["Out"] = {to};
  append_op(block, std::move(op));
}

Variable state_like(const Variable& param, const std::string& name) {
  return layers::create_global_var(param.shape(), 0.0, param.dtype(),
                                   {.persistable = true, .name = name});
}

Variable counter(const std::string& name, double start) {
  return layers::create_global_var(Shape{1}, start, DType::kInt64,
                                   {.persistable = true, .force_cpu = true, .name = name});
}

std::vector<Variable> averaged(Program& program) {
  std::vector<Variable> found;
  Block& block = program.global_block();
  for (const VarDesc* param : block.parameters()) {
    if (param->do_model_average) found.emplace_back(block, *param);
  }
  if (!found.empty()) return found;
  throw_error(ErrorCode::kPrecondition,
              {.what = "there is no parameter to average",
               .where = "default main program",
               .expected = "parameters with do_model_average",
               .got = "none",
               .fix = "build the net first, or leave do_model_average on for a parameter"});
}

[[noreturn]] void fail(const char* where, std::string expected, std::string got) {
  throw_error(ErrorCode::kInvalidArgument, {.what = "an option is out of range",
                                            .where = where,
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = "choose another value"});
}

}  // namespace

void ParameterAverage::add_swap(const VarDesc& param,
                                const std::function<Variable(Block&)>& average) {
  const std::string kept = param.name + "@AVERAGE_KEPT";
  Block& apply = apply_.global_block();
  Program unused;
  const ProgramGuard programs(apply_, unused);
  const Variable target = declare(apply, param);
  VarDesc copy = target.desc();
  copy.name = kept;
  const Variable backup = declare(apply, copy);
  assign(apply, target.name(), backup.name());
  assign(apply, average(apply).name(), target.name());
  Block& restore = restore_.global_block();
  declare(restore, copy);
  declare(restore, param);
  assign(restore, kept, param.name);
}

ExponentialMovingAverage::ExponentialMovingAverage(const ExponentialMovingAverageOptions& options)
    : options_(options) {
  if (options.decay < 0.0 || options.decay >= 1.0) {
    fail("ExponentialMovingAverage, decay", "0 <= decay < 1", shortest(options.decay));
  }
}

void ExponentialMovingAverage::update() {
  Program& main = default_main_program();
  const std::string prefix = options_.name.empty() ? "" : options_.name + "_";
  const auto params = averaged(main);
  const RoleGuard role(main, OpRole::kOptimize);
  const NameScopeGuard scope(main, "moving_average");
  Variable decay = layers::fill_constant(Shape{1}, DType::kFloat32, options_.decay);
  if (options_.thres_steps) {
    const Variable t = layers::cast(options_.thres_steps, DType::kFloat32);
    decay = layers::elementwise_min((t + 1.0) / (t + 10.0), decay);
  }
  const Variable product = layers::create_global_var(
      Shape{1}, 1.0, DType::kFloat32,
      {.persistable = true, .name = unique_name::generate(prefix + "ema_decay_product")});
  assign(main.global_block(), (product * decay).name(), product.name());
  for (const Variable& param : params) {
    const Variable ema = state_like(param, unique_name::generate(prefix + param.name() + "_ema"));
    const bool same = param.dtype() == DType::kFloat32;
    const Variable factor = same ? decay : layers::cast(decay, param.dtype());
    const Variable next = ema * factor + param * (1.0 - factor);
    assign(main.global_block(), next.name(), ema.name());
    const VarDesc& ema_desc = ema.desc();
    const VarDesc& product_desc = product.desc();
    add_swap(param.desc(), [&](Block& block) {
      const Variable weight = 1.0 - declare(block, product_desc);
      return declare(block, ema_desc) / (same ? weight : layers::cast(weight, ema_desc.dtype));
    });
  }
}

ModelAverage::ModelAverage(const ModelAverageOptions& options) {
  Program& main = default_main_program();
  for (const Variable& param : averaged(main)) {
    const auto named = [&](const char* what) {
      return unique_name::generate(str_cat(param.name(), "_", what));
    };
    const RoleGuard role(main, OpRole::kOptimize);
    const NameScopeGuard scope(main, "move_average");
    SlotMap inputs = {{"param", {param.name()}}};
    SlotMap outputs;
    std::vector<VarDesc> sums;
    std::vector<VarDesc> counts;
    const auto bind = [&](const char* name, const Variable& var) {
      inputs[str_cat("in_", name)] = {var.name()};
      outputs[str_cat("out_", name)] = {var.name()};
    };
    for (const char* name : {"sum_1", "sum_2", "sum_3"}) {
      const Variable sum = state_like(param, named(name));
      sums.push_back(sum.desc());
      bind(name, sum);
    }
    for (const char* name : {"num_accumulates", "old_num_accumulates", "num_updates"}) {
      const Variable count = counter(named(name), 0.0);
      counts.push_back(count.desc());
      bind(name, count);
    }
    Operator op;
    op.type = "average_accumulates";
    op.inputs = std::move(inputs);
    op.outputs = std::move(outputs);
    op.attrs = to_attributes(
        AverageAccumulatesAttrs{.average_window = static_cast<float>(options.average_window_rate),
                                .min_average_window = options.min_average_window,
                                .max_average_window = options.max_average_window});
    append_op(main.global_block(), std::move(op));
    add_swap(param.desc(), [&](Block& block) {
      std::vector<Variable> parts;
      parts.reserve(sums.size());
      for (const VarDesc& sum : sums) parts.push_back(declare(block, sum));
      const Variable steps = declare(block, counts[0]) + declare(block, counts[1]);
      return layers::sums(parts) / layers::cast(steps, param.dtype());
    });
  }
}

Lookahead::Lookahead(Optimizer& inner, const LookaheadOptions& options)
    : inner_(inner), options_(options) {
  if (options.alpha < 0.0 || options.alpha > 1.0) {
    fail("Lookahead, alpha", "0 <= alpha <= 1", shortest(options.alpha));
  }
  if (options.k < 1) fail("Lookahead, k", "k >= 1", str_cat(options.k));
}

MinimizeResult Lookahead::minimize(const Variable& loss, const MinimizeOptions& options) {
  for (const VarDesc* param : loss.program().global_block().parameters()) {
    if (param->kind != VarKind::kGrowingTable || !param->trainable) continue;
    throw_error(ErrorCode::kNotSupported,
                {.what = "a growing table has no second, slow copy",
                 .where = "Lookahead, parameter '" + param->name + "'",
                 .expected = "parameters of known shape",
                 .got = "a growing table",
                 .fix = "minimize with the inner optimizer, or use a table with a height"});
  }
  MinimizeResult result = inner_.minimize(loss, options);
  Program& main = loss.program();
  Program& startup =
      options.startup_program != nullptr ? *options.startup_program : default_startup_program();
  const ProgramGuard programs(main, startup);
  const NameScopeGuard scope(main, "lookahead");
  for (const ParamGrad& pair : result.params_grads) {
    const Variable& param = pair.param;
    if (!param.desc().trainable) continue;
    const RoleGuard role(main, OpRole::kOptimize, {param.name(), pair.grad.name()});
    const std::string slow = state_like(param, param.name() + "_slow").name();
    // Behind all initialisers: the slow parameter starts where the fast one does.
    assign(startup.global_block(), param.name(), slow);
    const std::string step = counter(param.name() + "_lookahead_step", 0.0).name();
    Operator op;
    op.type = "lookahead";
    op.inputs = {{"Param", {param.name()}}, {"SlowParam", {slow}}, {"Step", {step}}};
    op.outputs = {{"ParamOut", {param.name()}}, {"SlowParamOut", {slow}}, {"StepOut", {step}}};
    op.attrs = to_attributes(LookaheadAttrs{.alpha = options_.alpha, .k = options_.k});
    append_op(main.global_block(), std::move(op));
  }
  return result;
}

}  // namespace fleet::fluid::optimizer
