#include "fluid/mixed_precision/mixed_precision.h"

#include <utility>

#include "base/error.h"
#include "base/strings.h"
#include "fluid/mixed_precision/half_program.h"
#include "fluid/program/default_programs.h"

namespace fleet::fluid::mixed_precision {
namespace {

constexpr const char* kWhere = "mixed_precision::decorate";

void check_inner(const optimizer::Optimizer& inner) {
  const bool decorated = dynamic_cast<const OptimizerWithMixedPrecision*>(&inner) != nullptr;
  if (!decorated && dynamic_cast<const optimizer::DGCMomentum*>(&inner) == nullptr) return;
  throw_error(ErrorCode::kInvalidArgument,
              {.what = decorated ? "this optimizer is decorated already"
                                 : "what DGC keeps back does not follow the scale of the loss",
               .where = kWhere,
               .expected = "an optimizer such as Momentum or Adam",
               .got = decorated ? "OptimizerWithMixedPrecision" : "DGCMomentum",
               .fix = decorated ? "decorate it once; a strategy with use_amp does it, too"
                                : "use Momentum, or train in float32"});
}

void check_dtype(DType dtype) {
  if (dtype == DType::kFloat16 || dtype == DType::kBFloat16) return;
  throw_error(ErrorCode::kInvalidArgument, {.what = "mixed precision needs a type of 16 bits",
                                            .where = str_cat(kWhere, ", Options::dtype"),
                                            .expected = "float16 or bfloat16",
                                            .got = std::string(dtype_name(dtype)),
                                            .fix = "leave it at its default of float16"});
}

void check_loss(const Variable& loss) {
  if (loss.dtype() == DType::kFloat32) return;
  throw_error(ErrorCode::kDTypeMismatch, {.what = "mixed precision is for nets of float32",
                                          .where = "loss '" + loss.name() + "'",
                                          .expected = "float32",
                                          .got = std::string(dtype_name(loss.dtype())),
                                          .fix = "build the net of float32 variables"});
}

// The loss is made in float32, whatever the lists say.
PrecisionLists with_float_loss(PrecisionLists lists, const Variable& loss) {
  if (loss.block().index() == 0) lists.custom_black_varnames.insert(loss.name());
  return lists;
}

// So that fetches of it are means over the shards of a step, whatever gradients are taken of.
void mark_as_loss(const Variable& loss) {
  Block& block = loss.block();
  for (size_t i = block.op_count(); i-- > 0;) {
    const Operator& op = std::as_const(block).op(i);
    if (op.role != OpRole::kForward) continue;
    for (const std::string& name : op.output_names()) {
      if (name != loss.name()) continue;
      block.edit_op(i).role = OpRole::kForward | OpRole::kLoss;
      return;
    }
  }
}

}  // namespace

OptimizerWithMixedPrecision::OptimizerWithMixedPrecision(optimizer::Optimizer& inner,
                                                         Options options)
    : Optimizer({.type = inner.type()}, {}), inner_(inner), options_(std::move(options)) {
  check_inner(inner);
  check_dtype(options_.dtype);
  if (options_.dtype == DType::kFloat16) validate(options_.scaling);
}

std::vector<ParamGrad> OptimizerWithMixedPrecision::backward(
    const Variable& loss, const optimizer::MinimizeOptions& options) {
  if (!loss) return inner_.backward(loss, options);  // which says what is wrong
  check_loss(loss);
  Program& program = loss.program();
  Program* startup = options.startup_program;
  const ProgramGuard programs(program, startup != nullptr ? *startup : default_startup_program());
  compute_in_halves(program, PrecisionTable(with_float_loss(options_.lists, loss), program),
                    options_.dtype);
  Variable minimized = loss;
  if (options_.dtype == DType::kFloat16) {
    scaling_.emplace(options_.scaling);
    minimized = scaled_loss_ = scaling_->scaled(loss);
  }
  auto pairs = inner_.backward(minimized, options);
  mark_as_loss(loss);
  return scaling_ ? scaling_->unscaled(pairs) : pairs;
}

std::vector<const Operator*> OptimizerWithMixedPrecision::apply_gradients(
    std::vector<ParamGrad> pairs, Program* startup_program) {
  if (scaling_ && !pairs.empty()) {
    Program& startup = startup_program != nullptr ? *startup_program : default_startup_program();
    const ProgramGuard programs(pairs.front().param.program(), startup);
    scaling_->follow(pairs);
  }
  return inner_.apply_gradients(std::move(pairs), startup_program);
}

OptimizerWithMixedPrecision decorate(optimizer::Optimizer& inner, const Options& options) {
  return OptimizerWithMixedPrecision(inner, options);
}

}  // namespace fleet::fluid::mixed_precision
