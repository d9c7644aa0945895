#include "fluid/ops/optimize/optimize.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

using Slots = std::vector<UpdateSlots::Slot>;

const std::map<std::string, UpdateSlots, std::less<>>& all_update_slots() {
  const UpdateSlots::Slot velocity = {"Velocity", "VelocityOut"};
  const UpdateSlots::Slot moment = {"Moment", "MomentOut"};
  const Slots moments = {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}};
  const Slots powers = {{"Beta1Pow", "Beta1PowOut"}, {"Beta2Pow", "Beta2PowOut"}};
  static const std::map<std::string, UpdateSlots, std::less<>> kSlots = {
      {"sgd", {}},
      {"momentum", {.states = {velocity}}},
      {"lars_momentum", {.states = {velocity}, .whole_parameter = true}},
      {"adagrad", {.states = {moment}}},
      {"decayed_adagrad", {.states = {moment}}},
      {"adadelta",
       {.states = {{"AvgSquaredGrad", "AvgSquaredGradOut"},
                   {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}},
        .has_rate = false}},
      {"adam", {.states = moments, .scalars = powers}},
      {"adamax", {.states = {moment, {"InfNorm", "InfNormOut"}}, .scalars = {{"Beta1Pow", ""}}}},
      {"rmsprop",
       {.states = {{"MeanSquare", "MeanSquareOut"}, {"MeanGrad", "MeanGradOut"}, moment}}},
      {"ftrl",
       {.states = {{"SquaredAccumulator", "SquaredAccumOut"},
                   {"LinearAccumulator", "LinearAccumOut"}}}},
      {"lamb", {.states = moments, .scalars = powers, .whole_parameter = true}},
      {"dpsgd", {.whole_parameter = true}},
  };
  return kSlots;
}

void check_scalar(InferContext& context, const std::string& slot) {
  const VarDesc& var = context.input(slot);
  context.require(var.shape.compatible(Shape{1}) || var.shape.numel() == 1, slot, "one element",
                  var.shape.to_string());
}

// Gradient and states have the parameter's shape; outputs are like their inputs.
void infer_update(InferContext& context) {
  const UpdateSlots& slots = *find_update_slots(context.op().type);
  const VarDesc& param = context.input("Param");
  const auto check_like_param = [&](const std::string& slot) {
    const VarDesc& var = context.input(slot);
    context.require_dtype(slot, param.dtype);
    context.require(var.shape.compatible(param.shape), slot,
                    str_cat(param.shape, ", the shape of '", param.name, "'"),
                    var.shape.to_string());
  };
  check_like_param("Grad");
  for (const auto& state : slots.states) check_like_param(state.in);
  if (slots.has_rate) {
    context.require_dtype("LearningRate", param.dtype);
    check_scalar(context, "LearningRate");
  }
  for (const auto& scalar : slots.scalars) check_scalar(context, scalar.in);
  context.share("Param", "ParamOut");
  for (const auto& state : slots.states) context.share(state.in, state.out);
  for (const auto& scalar : slots.scalars) {
    if (!scalar.out.empty()) context.share(scalar.in, scalar.out);
  }
}

void infer_lamb(InferContext& context) {
  infer_update(context);
  const bool advances = context.has_output("Beta1PowOut") && context.has_output("Beta2PowOut");
  context.require(advances || context.attrs<LambAttrs>().original_form, "Beta1Pow",
                  "Beta1PowOut and Beta2PowOut, which the bias correction advances", "none",
                  "give the outputs, or set original_form");
}

void infer_adam(InferContext& context) {
  require_number(context, "Beta1Tensor", DType::kFloat32);
  require_number(context, "Beta2Tensor", DType::kFloat32);
  infer_update(context);
}

template <class Attrs>
void add_update(OpTable& table, const std::string& type, InferFunction infer = infer_update,
                std::vector<SlotSpec> more_inputs = {}) {
  const UpdateSlots& slots = *find_update_slots(type);
  std::vector<SlotSpec> inputs = {one("Param"), one("Grad")};
  std::vector<SlotSpec> outputs = {one("ParamOut")};
  if (slots.has_rate) inputs.push_back(one("LearningRate"));
  for (const auto& state : slots.states) {
    inputs.push_back(one(state.in));
    outputs.push_back(one(state.out));
  }
  for (const auto& scalar : slots.scalars) {
    inputs.push_back(one(scalar.in));
    if (scalar.out.empty()) continue;
    outputs.push_back(type == "lamb" ? maybe(scalar.out) : one(scalar.out));
  }
  inputs.insert(inputs.end(), more_inputs.begin(), more_inputs.end());
  OpSchema schema =
      make_schema<Attrs>(type, std::move(inputs), std::move(outputs), std::move(infer));
  schema.updates_parts = !slots.whole_parameter;
  table.add(std::move(schema));
}

}  // namespace

const UpdateSlots* find_update_slots(std::string_view op_type) {
  const auto found = all_update_slots().find(op_type);
  return found == all_update_slots().end() ? nullptr : &found->second;
}

void add_optimize_ops(OpTable& table) {
  add_update<NoAttrs>(table, "sgd");
  add_update<MomentumAttrs>(table, "momentum");
  add_update<LarsMomentumAttrs>(table, "lars_momentum", infer_update,
                                {maybe("ParamSquaredRowSums"), maybe("GradSquaredRowSums")});
  add_update<AdagradAttrs>(table, "adagrad");
  add_update<DecayedAdagradAttrs>(table, "decayed_adagrad");
  add_update<AdadeltaAttrs>(table, "adadelta");
  add_update<AdamAttrs>(table, "adam", infer_adam, {maybe("Beta1Tensor"), maybe("Beta2Tensor")});
  add_update<AdamaxAttrs>(table, "adamax");
  add_update<RmspropAttrs>(table, "rmsprop");
  add_update<FtrlAttrs>(table, "ftrl");
  add_update<LambAttrs>(table, "lamb", infer_lamb);
  add_update<DpsgdAttrs>(table, "dpsgd");
}

}  // namespace fleet::fluid
