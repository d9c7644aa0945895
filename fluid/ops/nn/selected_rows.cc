#include "fluid/ops/nn/selected_rows.h"

#include "base/strings.h"
#include "fluid/ops/no_attrs.h"
#include "fluid/ops/schema_util.h"

namespace fleet::fluid {
namespace {

void check_sparse(const InferContext& context) {
  const VarDesc& x = context.input("X");
  context.require(x.kind == VarKind::kSelectedRows, "X", "selected rows",
                  std::string(var_kind_name(x.kind)),
                  "make it with is_sparse, or leave this op out");
}

void infer_merge(InferContext& context) {
  check_sparse(context);
  context.share("X", "Out");
  context.set_kind("Out", VarKind::kSelectedRows);
}

void infer_values(InferContext& context) {
  check_sparse(context);
  const VarDesc& x = context.input("X");
  // The rows that there may be; a step's tensor has those that came.
  context.set_output("Out", x.shape, x.dtype);
}

}  // namespace

void add_selected_rows_ops(OpTable& table) {
  table.add(make_schema<NoAttrs>("merge_selected_rows", {one("X")}, {one("Out")}, infer_merge));
  table.add(make_schema<NoAttrs>("get_tensor_from_selected_rows", {one("X")}, {one("Out")},
                                 infer_values));
}

}  // namespace fleet::fluid
