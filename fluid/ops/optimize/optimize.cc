#include "fluid/ops/optimize/optimize.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

struct StateSlot {
  std::string in;
  std::string out;
  bool must_be_written = true;
};
using StateSlots = std::vector<StateSlot>;

// What an update op takes beside Param and Grad.
struct UpdateSlots {
  StateSlots states = {};   // like Param
  StateSlots scalars = {};  // one element; `out` is empty where the op does not write it
  bool has_rate = true;
};

void check_scalar(InferContext& context, const std::string& slot) {
  const VarDesc& var = context.input(slot);
  context.require(var.shape.compatible(Shape{1}) || var.shape.numel() == 1, slot, "one element",
                  var.shape.to_string());
}

// Gradient and states have the parameter's shape; outputs are like their inputs.
void infer_update(InferContext& context, const UpdateSlots& slots) {
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

// An update that goes element by element.
template <class Attrs>
OpSchema update_schema(const std::string& type, UpdateSlots slots) {
  std::vector<SlotSpec> inputs = {one("Param"), one("Grad")};
  std::vector<SlotSpec> outputs = {one("ParamOut")};
  if (slots.has_rate) inputs.push_back(one("LearningRate"));
  for (const StateSlots* list : {&slots.states, &slots.scalars}) {
    for (const StateSlot& slot : *list) {
      inputs.push_back(one(slot.in));
      if (slot.out.empty()) continue;
      outputs.push_back(slot.must_be_written ? one(slot.out) : maybe(slot.out));
    }
  }
  OpSchema schema =
      make_schema<Attrs>(type, std::move(inputs), std::move(outputs),
                         [slots = std::move(slots)](InferContext& c) { infer_update(c, slots); });
  schema.updates_parts = true;
  return schema;
}

// An update by norms of the whole parameter or gradient.
OpSchema with_norms(OpSchema schema) {
  schema.updates_parts = false;
  schema.cut_without_norms = true;
  return schema;
}

OpSchema linear(OpSchema schema) {
  schema.linear_in_gradient = true;
  return schema;
}

OpSchema leaves_other_rows(OpSchema schema) {
  schema.changes_named_rows_only = [](const AttributeMap&) { return true; };
  return schema;
}

OpSchema adam_schema(const UpdateSlots& slots) {
  OpSchema adam = update_schema<AdamAttrs>("adam", slots);
  adam.inputs.insert(adam.inputs.end(),
                     {maybe_attribute("Beta1Tensor"), maybe_attribute("Beta2Tensor")});
  adam.infer = [update = std::move(adam.infer)](InferContext& context) {
    require_number(context, "Beta1Tensor", DType::kFloat32);
    require_number(context, "Beta2Tensor", DType::kFloat32);
    update(context);
  };
  adam.changes_named_rows_only = [](const AttributeMap& attributes) {
    return parse_attributes<AdamAttrs>("adam", attributes).lazy_mode;
  };
  return adam;
}

OpSchema lamb_schema(UpdateSlots slots) {
  for (StateSlot& power : slots.scalars) power.must_be_written = false;
  OpSchema lamb = with_norms(update_schema<LambAttrs>("lamb", std::move(slots)));
  lamb.split_update = {.direction = "lamb_direction", .apply = "lamb_apply"};
  lamb.infer = [update = std::move(lamb.infer)](InferContext& context) {
    update(context);
    const bool advances = context.has_output("Beta1PowOut") && context.has_output("Beta2PowOut");
    context.require(advances || context.attrs<LambAttrs>().paddle_form, "Beta1Pow",
                    "Beta1PowOut and Beta2PowOut, which the bias correction advances", "none",
                    "give the outputs, or set paddle_form");
  };
  return lamb;
}

OpSchema lars_schema(const StateSlot& velocity) {
  OpSchema lars =
      with_norms(update_schema<LarsMomentumAttrs>("lars_momentum", {.states = {velocity}}));
  lars.norms = {{"Param", "ParamSquaredRowSums"}, {"Grad", "GradSquaredRowSums"}};
  for (const NormInput& norm : lars.norms) lars.inputs.push_back(maybe(norm.row_sums));
  return lars;
}

}  // namespace

void add_optimize_ops(OpTable& table) {
  const StateSlot velocity = {"Velocity", "VelocityOut"};
  const StateSlot moment = {"Moment", "MomentOut"};
  const UpdateSlots moments = {
      .states = {{"Moment1", "Moment1Out"}, {"Moment2", "Moment2Out"}},
      .scalars = {{"Beta1Pow", "Beta1PowOut"}, {"Beta2Pow", "Beta2PowOut"}}};
  table.add(leaves_other_rows(linear(update_schema<NoAttrs>("sgd", {}))));
  table.add(linear(update_schema<MomentumAttrs>("momentum", {.states = {velocity}})));
  table.add(lars_schema(velocity));
  table.add(leaves_other_rows(update_schema<AdagradAttrs>("adagrad", {.states = {moment}})));
  table.add(update_schema<DecayedAdagradAttrs>("decayed_adagrad", {.states = {moment}}));
  table.add(update_schema<AdadeltaAttrs>("adadelta",
                                         {.states = {{"AvgSquaredGrad", "AvgSquaredGradOut"},
                                                     {"AvgSquaredUpdate", "AvgSquaredUpdateOut"}},
                                          .has_rate = false}));
  table.add(adam_schema(moments));
  table.add(update_schema<AdamaxAttrs>(
      "adamax", {.states = {moment, {"InfNorm", "InfNormOut"}}, .scalars = {{"Beta1Pow", ""}}}));
  table.add(update_schema<RmspropAttrs>(
      "rmsprop",
      {.states = {{"MeanSquare", "MeanSquareOut"}, {"MeanGrad", "MeanGradOut"}, moment}}));
  table.add(
      update_schema<FtrlAttrs>("ftrl", {.states = {{"SquaredAccumulator", "SquaredAccumOut"},
                                                   {"LinearAccumulator", "LinearAccumOut"}}}));
  table.add(lamb_schema(moments));
  table.add(draws_numbers(with_norms(update_schema<DpsgdAttrs>("dpsgd", {}))));
}

}  // namespace fleet::fluid
