#include "experiments/server_update.h"

#include <algorithm>
#include <string>
#include <utility>

#include "fluid/ops/distributed/server_ops.h"
#include "fluid/ops/math/elementwise.h"
#include "fluid/ops/no_attrs.h"

namespace fleet::experiments {
namespace {

using fluid::Block;
using fluid::DType;
using fluid::Operator;
using fluid::Tensor;
using strategies::DelayCompensation;
using strategies::DelayCompensationOptions;
using Slots = std::vector<std::pair<std::string, std::string>>;

constexpr const char* kParam = "param";
constexpr const char* kGrad = "grad";
constexpr const char* kBackup = "backup";
constexpr const char* kMeanSquare = "mean_square";
constexpr const char* kRate = "rate";

void declare(Block& block, const std::string& name, int64_t size, bool persistable) {
  fluid::VarDesc var;
  var.name = name;
  var.dtype = DType::kFloat32;
  var.shape = {size};
  var.persistable = persistable;
  block.add_var(std::move(var));
}

template <class Attrs>
void append(Block& block, std::string type, const Slots& inputs, const Slots& outputs,
            const Attrs& attrs) {
  Operator op;
  op.type = std::move(type);
  for (const auto& [slot, name] : inputs) op.inputs[slot] = {name};
  for (const auto& [slot, name] : outputs) op.outputs[slot] = {name};
  op.attrs = fluid::to_attributes(attrs);
  block.append_op(std::move(op));
}

// Returns the corrected gradient's name.
std::string append_compensation(Block& block, const DelayCompensationOptions& options) {
  std::string out = "corrected";
  if (options.form == DelayCompensation::kNone) return kGrad;
  const int64_t size = block.var(kParam).shape[0];
  declare(block, out, size, false);
  if (options.form == DelayCompensation::kPaddle) {
    const fluid::ElementwiseAttrs attrs;
    for (const char* name : {"delay", "once", "twice"}) declare(block, name, size, false);
    append(block, "elementwise_sub", {{"X", kParam}, {"Y", kBackup}}, {{"Out", "delay"}}, attrs);
    append(block, "elementwise_mul", {{"X", "delay"}, {"Y", kGrad}}, {{"Out", "once"}}, attrs);
    append(block, "elementwise_mul", {{"X", "once"}, {"Y", kGrad}}, {{"Out", "twice"}}, attrs);
    append(block, "elementwise_add", {{"X", kGrad}, {"Y", "twice"}}, {{"Out", out}}, attrs);
    return out;
  }
  Slots inputs = {{"Param", kParam}, {"Grad", kGrad}, {"Backup", kBackup}};
  Slots outputs = {{"Out", out}};
  if (options.form != DelayCompensation::kConstant) {
    inputs.emplace_back("MeanSquare", kMeanSquare);
    outputs.emplace_back("MeanSquareOut", kMeanSquare);
  }
  append(block, "dc_compensate", inputs, outputs,
         fluid::DcCompensateAttrs{.form = std::string(to_string(options.form)),
                                  .lambda = static_cast<float>(options.lambda),
                                  .m = static_cast<float>(options.mean_square_decay),
                                  .epsilon = static_cast<float>(options.epsilon)});
  return out;
}

}  // namespace

ServerUpdate::ServerUpdate(const DelayCompensationOptions& compensation, uint32_t workers,
                           const Weights& initial)
    : executor_(fluid::CPUPlace()),
      weights_(Tensor::from(initial, {static_cast<int64_t>(initial.size())})) {
  build(compensation);
  for (uint32_t i = 0; i < workers; ++i) backups_.push_back(weights_.clone());
}

void ServerUpdate::build(const DelayCompensationOptions& compensation) {
  Block& block = program_.global_block();
  for (const char* name : {kParam, kGrad, kBackup, kMeanSquare}) {
    declare(block, name, weights_.numel(), true);
    executor_.scope().var(name) = Tensor::zeros(DType::kFloat32, weights_.shape());
  }
  declare(block, kRate, 1, true);
  executor_.scope().var(kRate) = Tensor::zeros(DType::kFloat32, {1});
  executor_.scope().var(kParam) = weights_;
  const std::string gradient = append_compensation(block, compensation);
  append(block, "sgd", {{"Param", kParam}, {"Grad", gradient}, {"LearningRate", kRate}},
         {{"ParamOut", kParam}}, fluid::NoAttrs{});
}

void ServerUpdate::sent(uint32_t worker) {
  backups_[worker].copy_from(weights_);
}

void ServerUpdate::apply(uint32_t worker, double rate, const Buffer& gradient) {
  fluid::Scope& scope = executor_.scope();
  scope.tensor(kGrad) = Tensor(DType::kFloat32, weights_.shape(), gradient, 0);
  scope.tensor(kBackup) = backups_[worker];
  scope.tensor(kRate).data<float>()[0] = static_cast<float>(rate);
  executor_.run(program_);
}

}  // namespace fleet::experiments
