#include "fluid/ops/control/print.h"

#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void infer_print(InferContext& context) {
  const std::string phase = context.attrs<PrintAttrs>().print_phase;
  context.require(phase == "FORWARD" || phase == "BACKWARD" || phase == "BOTH", "In",
                  "print_phase FORWARD, BACKWARD or BOTH", "'" + phase + "'", "use one of them");
  context.share("In", "Out");
}

std::vector<Operator> print_gradient(const GradContext& context) {
  auto attrs = parse_attributes<PrintAttrs>("print", context.forward().attrs);
  attrs.is_forward = false;
  Operator op;
  op.type = "print";
  op.inputs["In"] = context.grad_of_output("Out");
  op.outputs["Out"] = context.grad_of_input("In");
  op.attrs = to_attributes(attrs);
  return {op};
}

}  // namespace

void add_print_op(OpTable& table) {
  table.add(make_schema<PrintAttrs>("print", {one("In")}, {typed(one("Out"))}, infer_print,
                                    print_gradient));
}

}  // namespace fleet::fluid
