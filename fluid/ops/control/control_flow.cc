#include "fluid/ops/control/control_flow.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_conditional_block(InferContext& context) {
  if (context.attrs<ConditionalBlockAttrs>().is_scalar_condition) {
    context.require_dtype("Cond", DType::kBool);
  }
}

void infer_while(InferContext& context) {
  context.require_dtype("Condition", DType::kBool);
}

void infer_recurrent(InferContext& context) {
  const auto attrs = context.attrs<RecurrentAttrs>();
  context.require(attrs.states.size() == attrs.ex_states.size() &&
                      attrs.states.size() == context.input_count("initial_states"),
                  "inputs", "as many states, ex_states and initial_states",
                  str_cat(attrs.states.size(), ", ", attrs.ex_states.size(), " and ",
                          context.input_count("initial_states")),
                  "update every memory of the net once");
}

void infer_select_input(InferContext& context) {
  context.require_dtype("Mask", DType::kInt32);
  context.share("X", "Out");
}

std::vector<Operator> select_gradient(const GradContext& context) {
  Operator op;
  op.type = "select_output";
  op.inputs["X"] = context.grad_of_output("Out");
  op.inputs["Mask"] = context.input("Mask");
  set_slot(op.outputs, "Out", context.grad_of_input("X"));
  return {op};
}

void infer_select_output(InferContext& context) {
  const VarDesc& x = context.input("X");
  for (size_t i = 0; i < context.output_count("Out"); ++i) {
    context.set_output("Out", x.shape, x.dtype, i, x.lod_level);
  }
}

void add_gradients(OpTable& table) {
  const std::vector<SlotSpec> conditional = {maybe_many("Input"), maybe_many("Out@GRAD"),
                                             one("Scope")};
  table.add(run_by_executor(make_schema<BlockGradAttrs>(
      "conditional_block_grad", conditional, {maybe_many("Input@GRAD"), maybe_many("Before")},
      infer_like({{"Input", "Input@GRAD"}}))));
  const std::vector<SlotSpec> loop = {maybe_many("X"), maybe_many("Out@GRAD"), one("StepScopes")};
  table.add(run_by_executor(
      make_schema<BlockGradAttrs>("while_grad", loop, {maybe_many("X@GRAD"), maybe_many("Before")},
                                  infer_like({{"X", "X@GRAD"}}))));
  const std::vector<SlotSpec> recurrent = {many("inputs"), maybe_many("initial_states"),
                                           maybe_many("parameters"), maybe_many("outputs@GRAD"),
                                           one("step_scopes")};
  const std::vector<SlotSpec> grads = {maybe_many("inputs@GRAD"), maybe_many("initial_states@GRAD"),
                                       maybe_many("parameters@GRAD")};
  table.add(run_by_executor(
      make_schema<RecurrentGradAttrs>("recurrent_grad", recurrent, grads,
                                      infer_like({{"inputs", "inputs@GRAD"},
                                                  {"initial_states", "initial_states@GRAD"},
                                                  {"parameters", "parameters@GRAD"}}))));
}

}  // namespace

void add_control_flow_ops(OpTable& table) {
  using Kind = BlockGradient::Kind;
  const auto add = [&table](OpSchema schema, BlockGradient gradient) {
    schema.block_gradient = std::move(gradient);
    table.add(run_by_executor(std::move(schema)));
  };
  add(make_schema<ConditionalBlockAttrs>("conditional_block", {many("Cond"), maybe_many("Input")},
                                         {maybe_many("Out"), one("Scope")},
                                         infer_conditional_block),
      {.kind = Kind::kRuns, .inputs = "Input", .scopes = "Scope"});
  add(make_schema<WhileAttrs>("while", {maybe_many("X"), one("Condition")},
                              {maybe_many("Out"), one("StepScopes")}, infer_while),
      {.kind = Kind::kRuns, .inputs = "X", .scopes = "StepScopes"});
  const std::vector<SlotSpec> recurrent = {many("inputs"), maybe_many("initial_states"),
                                           maybe_many("parameters")};
  add(make_schema<RecurrentAttrs>("recurrent", recurrent, {many("outputs"), one("step_scopes")},
                                  infer_recurrent),
      {.kind = Kind::kSteps});
  add_gradients(table);
  table.add(make_schema<NoAttrs>("select_input", {many("X"), one("Mask")}, {one("Out")},
                                 infer_select_input, select_gradient));
  table.add(make_schema<NoAttrs>("select_output", {one("X"), one("Mask")}, {many("Out")},
                                 infer_select_output));
}

}  // namespace fleet::fluid
