#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/layers/learning_rate_scheduler.h"
#include "fluid/ops/append.h"
#include "fluid/ops/optimize/dgc.h"
#include "fluid/ops/optimize/optimize.h"
#include "fluid/optimizer/optimizer.h"

namespace fleet::fluid::optimizer {
namespace {

constexpr const char* kUpdate = "dgc_momentum";
constexpr const char* kVelocity = "velocity";
constexpr const char* kWhere = "DGCMomentum";

[[noreturn]] void refuse(std::string what, const char* field, std::string expected, std::string got,
                         std::string fix) {
  throw_error(ErrorCode::kInvalidArgument, {.what = std::move(what),
                                            .where = str_cat(kWhere, ".", field),
                                            .expected = std::move(expected),
                                            .got = std::move(got),
                                            .fix = std::move(fix)});
}

void check(const DGCMomentumOptions& options) {
  if (options.rampup_begin_step < 0) {
    refuse("compression cannot begin before the first step", "rampup_begin_step", "0 or more",
           str_cat(options.rampup_begin_step), "give the steps of plain momentum, or 0");
  }
  if (options.rampup_step < 1) {
    refuse("a ramp needs a step", "rampup_step", "1 or more", str_cat(options.rampup_step),
           "leave it at its default of 1");
  }
  const auto wrong = std::find_if_not(options.sparsity.begin(), options.sparsity.end(),
                                      [](double share) { return share >= 0.0 && share < 1.0; });
  if (options.sparsity.empty() || wrong != options.sparsity.end()) {
    refuse("not a share of elements that can be kept back", "sparsity", "numbers from 0 to below 1",
           options.sparsity.empty() ? "none" : str_cat(*wrong), "leave it at its default of 0.999");
  }
  if (!options.grad_clip) return;
  if (options.grad_clip->kind != clip::GradientClipByNorm(1).kind) {
    refuse("gradients that are compressed cannot be clipped this way", "grad_clip",
           "GradientClipByNorm", options.grad_clip->kind, "clip each gradient by its norm");
  }
  if (options.num_trainers < 1) {
    refuse("the norm of a shard's gradient depends on how many there are", "num_trainers",
           "the number of workers, or of logical shards", str_cat(options.num_trainers),
           "set num_trainers beside grad_clip");
  }
}

DgcAttrs attrs_of(const DGCMomentumOptions& options, const Variable& param) {
  DgcAttrs attrs{.m = static_cast<float>(options.momentum),
                 .use_nesterov = options.use_nesterov,
                 .sparsity = options.sparsity,
                 .rampup_begin_step = options.rampup_begin_step,
                 .rampup_step = options.rampup_step,
                 .paddle_form = options.paddle_form};
  const OptionalPtr<Penalty>& own = param.desc().regularizer;
  const Penalty* penalty =
      own ? &*own : (options.regularization ? &*options.regularization : nullptr);
  if (penalty != nullptr) {
    check_regularizer(*penalty, param);
    attrs.regular_type = penalty->kind == "L1Decay" ? 1 : 2;
    attrs.regular_coeff = static_cast<float>(penalty->values.at("regularization_coeff"));
  }
  if (options.grad_clip) {
    // Of the gradient before it is divided by the number of shards.
    attrs.clip_norm = static_cast<float>(options.grad_clip->values.at("clip_norm") *
                                         std::sqrt(options.num_trainers));
  }
  return attrs;
}

// What a shard keeps: tensors like the parameter, by shard.
Variable kept_array(Block& block, const Variable& param, const char* suffix) {
  VarDesc desc;
  desc.name = param.name() + suffix;
  desc.kind = VarKind::kLodTensorArray;
  desc.dtype = param.dtype();
  desc.shape = param.shape();
  desc.persistable = true;
  desc.stop_gradient = true;
  return Variable(block, block.add_var(std::move(desc)));
}

// Another op finishes the gradient from here on. Returns where it can stand: behind the last that
// writes what backward made.
size_t take_from_backward(Block& block, const ParamGrad& pair) {
  size_t behind = block.op_count();
  for (size_t i = 0; i < block.op_count(); ++i) {
    const Operator& op = *block.ops()[i];
    if (!has_role(op.role, OpRole::kBackward)) continue;
    const std::vector<std::string> written = op.output_names();
    if (std::find(written.begin(), written.end(), pair.grad.name()) != written.end())
      behind = i + 1;
    std::vector<std::string> kept;
    for (size_t k = 0; k + 1 < op.role_var.size(); k += 2) {
      if (op.role_var[k] == pair.param.name()) continue;
      kept.insert(kept.end(), {op.role_var[k], op.role_var[k + 1]});
    }
    if (kept.size() != op.role_var.size()) block.edit_op(i).role_var = std::move(kept);
  }
  return behind;
}

}  // namespace

DGCMomentum::DGCMomentum(const DGCMomentumOptions& options)
    : Optimizer({.type = "momentum",
                 .states = {{"Velocity", "VelocityOut", kVelocity}},
                 .attrs = to_attributes(MomentumAttrs{.mu = static_cast<float>(options.momentum),
                                                      .use_nesterov = options.use_nesterov})},
                {.learning_rate = options.learning_rate,
                 .regularization = options.regularization,
                 .grad_clip = options.grad_clip,
                 .name = options.name}),
      options_(options) {
  check(options_);
}

bool DGCMomentum::compresses(const ParamGrad& pair) const {
  return pair.param.desc().trainable && pair.grad.desc().kind == VarKind::kLodTensor &&
         pair.param.dtype() == DType::kFloat32 && pair.param.shape().numel() >= options_.min_numel;
}

bool DGCMomentum::is_finished(const ParamGrad& pair) const {
  return sent_.contains({pair.grad.program().id(), pair.grad.name()});
}

void DGCMomentum::change_gradients(const Context& context, std::vector<ParamGrad>& pairs) {
  if (std::none_of(pairs.begin(), pairs.end(), [&](const auto& pair) { return compresses(pair); }))
    return;
  Variable step;
  {
    const RoleGuard role(context.main, OpRole::kLrSched);
    step = layers::autoincreased_step_counter(kDgcCounter, 0);
  }
  for (ParamGrad& pair : pairs) {
    if (compresses(pair)) pair.grad = compress(context, pair, step);
  }
}

Variable DGCMomentum::compress(const Context& context, const ParamGrad& pair,
                               const Variable& step) {
  if (pair.param.desc().gradient_clip) {
    refuse(str_cat("the clip of parameter '", pair.param.name(), "' would come too late"),
           "grad_clip", "GradientClipByNorm as the optimizer's grad_clip",
           "a clip noted on the parameter", "leave out set_gradient_clip for it");
  }
  Block& block = context.main.global_block();
  const size_t position = take_from_backward(block, pair);
  create_accumulators(context, pair.param);
  const std::string velocity = accumulator(context, kVelocity, pair.param).name();
  const std::string u = kept_array(block, pair.param, "@DGC_U").name();
  const std::string v = kept_array(block, pair.param, "@DGC_V").name();
  VarDesc desc;
  desc.name = pair.grad.name() + "@DGC";
  desc.dtype = pair.param.dtype();
  const Variable sent(block, block.add_var(std::move(desc)));
  const RoleGuard role(context.main, OpRole::kBackward, {pair.param.name(), sent.name()});
  Operator op;
  op.type = kCompress;
  op.inputs = {{"Grad", {pair.grad.name()}},
               {"Param", {pair.param.name()}},
               {"Velocity", {velocity}},
               {"U", {u}},
               {"V", {v}},
               {"current_step", {step.name()}}};
  op.outputs = {{"Grad_out", {sent.name()}}, {"U_out", {u}}, {"V_out", {v}}};
  op.attrs = to_attributes(attrs_of(options_, pair.param));
  insert_op(block, position, std::move(op));
  sent_.insert({context.main.id(), sent.name()});
  return sent;
}

void DGCMomentum::append_update(const Context& context, const ParamGrad& pair) {
  if (!is_finished(pair)) return Optimizer::append_update(context, pair);
  const std::string param = pair.param.name();
  const std::string velocity = accumulator(context, kVelocity, pair.param).name();
  Operator op;
  op.type = kUpdate;
  op.inputs = {{"Param", {param}},
               {"Grad", {pair.grad.name()}},
               {"Velocity", {velocity}},
               {"LearningRate", {rate_of(context, pair.param).name()}},
               {"current_step", {kDgcCounter}}};
  op.outputs = {{"ParamOut", {param}}, {"VelocityOut", {velocity}}};
  op.attrs = to_attributes(DgcMomentumAttrs{.mu = static_cast<float>(options_.momentum),
                                            .use_nesterov = options_.use_nesterov,
                                            .rampup_begin_step = options_.rampup_begin_step});
  append_op(context.main.global_block(), std::move(op));
}

}  // namespace fleet::fluid::optimizer
