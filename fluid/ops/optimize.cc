#include "fluid/ops/optimize.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

// Gradient and the states named have the parameter's shape; outputs are like their inputs.
InferFunction infer_update(std::vector<std::string> states, std::vector<std::string> scalars) {
  return [states = std::move(states), scalars = std::move(scalars)](InferContext& context) {
    const VarDesc& param = context.input("Param");
    std::vector<std::string> whole = states;
    whole.push_back("Grad");
    for (const std::string& slot : whole) {
      const VarDesc& var = context.input(slot);
      context.require_dtype(slot, param.dtype);
      context.require(var.shape.compatible(param.shape), slot,
                      str_cat(param.shape, ", the shape of '", param.name, "'"),
                      var.shape.to_string());
    }
    context.require_dtype("LearningRate", param.dtype);
    const VarDesc& rate = context.input("LearningRate");
    context.require(rate.shape.numel() == 1, "LearningRate", "one element", rate.shape.to_string());
    context.share("Param", "ParamOut");
    for (const std::string& slot : states) context.share(slot, slot + "Out");
    for (const std::string& slot : scalars) context.share(slot, slot + "Out");
  };
}

}  // namespace

void add_optimize_ops(OpTable& table) {
  table.add(make_schema<NoAttrs>("sgd", {one("Param"), one("Grad"), one("LearningRate")},
                                 {one("ParamOut")}, infer_update({}, {})));
  table.add(make_schema<MomentumAttrs>(
      "momentum", {one("Param"), one("Grad"), one("Velocity"), one("LearningRate")},
      {one("ParamOut"), one("VelocityOut")}, infer_update({"Velocity"}, {})));
  table.add(make_schema<AdamAttrs>(
      "adam",
      {one("Param"), one("Grad"), one("LearningRate"), one("Moment1"), one("Moment2"),
       one("Beta1Pow"), one("Beta2Pow"), maybe("Beta1Tensor"), maybe("Beta2Tensor")},
      {one("ParamOut"), one("Moment1Out"), one("Moment2Out"), one("Beta1PowOut"),
       one("Beta2PowOut")},
      infer_update({"Moment1", "Moment2"}, {"Beta1Pow", "Beta2Pow"})));
}

}  // namespace fleet::fluid
