#include "fluid/ops/control/control_flow.h"

#include "base/strings.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_conditional_block(InferContext& context) {
  if (context.attrs<ConditionalBlockAttrs>().is_scalar_condition) {
    context.require_dtype("Cond", DType::kBool);
  }
}

}  // namespace

void add_control_flow_ops(OpTable& table) {
  table.add(make_schema<ConditionalBlockAttrs>(
      "conditional_block", {many("Cond"), maybe_many("Input")}, {maybe_many("Out"), one("Scope")},
      infer_conditional_block));
}

}  // namespace fleet::fluid
