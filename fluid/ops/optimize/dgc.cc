#include "fluid/ops/optimize/dgc.h"

#include <algorithm>
#include <cmath>

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// From this share on, elements travel as rows: one takes about 6 bytes, and each rank gets those of
// every other, while a dense element takes 8 bytes in all, whatever the number of ranks.
constexpr double kRowsFrom = 0.9;

double sparsity_at(const DgcAttrs& attrs, int64_t compressed_step) {
  const auto parts = static_cast<double>(attrs.sparsity.size());
  const double part = static_cast<double>(compressed_step) * parts /
                      static_cast<double>(std::max<int64_t>(attrs.rampup_step, 1));
  return attrs.sparsity[std::min(static_cast<size_t>(part), attrs.sparsity.size() - 1)];
}

void check_like_param(InferContext& context, const char* slot) {
  const VarDesc& param = context.input("Param");
  const VarDesc& var = context.input(slot);
  context.require_dtype(slot, param.dtype);
  context.require(var.shape.compatible(param.shape), slot,
                  str_cat(param.shape, ", the shape of '", param.name, "'"), var.shape.to_string());
}

void infer_dgc(InferContext& context) {
  const VarDesc& param = context.input("Param");
  context.require_dtype("Param", DType::kFloat32);
  check_like_param(context, "Grad");
  check_like_param(context, "Velocity");
  require_number(context, "current_step", DType::kInt64);
  for (const char* slot : {"U", "V"}) {
    const VarKind kind = context.input(slot).kind;
    context.require(kind == VarKind::kLodTensorArray, slot, "a tensor array",
                    std::string(var_kind_name(kind)), "make the op with DGCMomentum");
  }
  const auto attrs = context.attrs<DgcAttrs>();
  const bool shares = !attrs.sparsity.empty() &&
                      std::all_of(attrs.sparsity.begin(), attrs.sparsity.end(),
                                  [](double share) { return share >= 0.0 && share < 1.0; });
  context.require(shares, "Grad", "numbers from 0 to below 1 as attribute sparsity", "others",
                  "give shares such as 0.999");
  context.set_output("Grad_out", Shape{param.shape.numel(), 1}, param.dtype);
  context.set_kind("Grad_out", VarKind::kSelectedRows);
  for (const char* slot : {"U_out", "V_out"}) {
    context.set_output(slot, param.shape, param.dtype);
    context.set_kind(slot, VarKind::kLodTensorArray);
  }
}

void infer_momentum(InferContext& context) {
  const VarDesc& param = context.input("Param");
  const VarDesc& grad = context.input("Grad");
  context.require_dtype("Grad", param.dtype);
  context.require(grad.shape.numel() == param.shape.numel(), "Grad",
                  str_cat("as many elements as '", param.name, "' has"), grad.shape.to_string());
  check_like_param(context, "Velocity");
  context.require_dtype("LearningRate", param.dtype);
  require_number(context, "current_step", DType::kInt64);
  context.share("Param", "ParamOut");
  context.share("Velocity", "VelocityOut");
}

}  // namespace

DgcSent dgc_sent(const DgcAttrs& attrs, int64_t step, int64_t n) {
  if (step < attrs.rampup_begin_step) return {.elements = n};
  const double sparsity = sparsity_at(attrs, step - attrs.rampup_begin_step);
  const auto wanted = std::llround(static_cast<double>(n) * (1.0 - sparsity));
  return {.elements = std::clamp<int64_t>(wanted, std::min<int64_t>(n, 1), n),
          .as_rows = sparsity >= kRowsFrom};
}

void add_dgc_ops(OpTable& table) {
  table.add(make_schema<DgcAttrs>(
      kCompress,
      {one("Param"), one("Grad"), one("Velocity"), one("U"), one("V"), one("current_step")},
      {one("Grad_out"), one("U_out"), one("V_out")}, infer_dgc));
  table.add(make_schema<DgcMomentumAttrs>(
      "dgc_momentum",
      {one("Param"), one("Grad"), one("Velocity"), one("LearningRate"), one("current_step")},
      {one("ParamOut"), one("VelocityOut")}, infer_momentum));
}

}  // namespace fleet::fluid
